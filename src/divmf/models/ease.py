"""EASE: the linear model between items that no iteration is needed for.

    min_B ‖X − X·B‖² + λ‖B‖²  with diag B = 0    →    P = (XᵀX + λI)⁻¹,  B_ij = −P_ij / P_jj off the diagonal

H. Steck: Embarrassingly Shallow Autoencoders for Sparse Data. WWW 2019. The inverse is found by Cholesky in place, in
float32: XᵀX of 0/1 data is exact there, and the lists are those of float64 (the weights differ by about 1e-6). Where
float32 does not suffice, since λ is tiny beside the interactions, float64 is used.

    scorer = ease(split.train.matrix, l2=400.0)      # ItemItem: a user's scores are what the user met, times B
    between = gram(split.train.matrix)               # XᵀX, once for several λ
    for l2 in (100.0, 200.0, 400.0):
        scorer = ease(split.train.matrix, l2, between)

Memory: a table of n_items² float32 for XᵀX and one for each B; `check_memory` refuses more items than it has room for.
Nothing is random; with more than SMALL items, the weights depend on the number of threads in their last digits.
"""

import os
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.linalg import lapack

from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.threads import in_parts, libraries, threads
from divmf.kernels.products import gram_part, mirror_part, regression_part
from divmf.models.scorer import ItemItem

TABLES = 3  # of n_items² float32 at once: XᵀX, B, and the best B so far where several λ are tried

# items up to which LAPACK has one thread, a second or two: several meet at every step, and on a busy machine they wait
# for one another ten times as long as one takes
SMALL = 6000


def ease(met: sparse.csr_array, l2: float, between: Array | None = None) -> ItemItem:
    """EASE of what users have met, 0/1 or weighted.

    l2        λ > 0; some hundreds for dense data, the more, the more users there are
    between   gram(met), where it is known; it is left as it is
    """
    if not (np.isfinite(l2) and l2 > 0):
        raise ValueError(f"l2={l2} is not a λ that EASE can use; choose a number above 0, such as 100")
    return ItemItem(met, weights_of(gram(met) if between is None else between, l2))


def gram(met: sparse.csr_array) -> Array:
    """XᵀX, on and below the diagonal; zero above.  (n_items, n_items) float32

    Of several processes that share the users, the sum (see `divmf.engine.comm`).
    """
    n_items = int(met.shape[1])
    check_memory(n_items)
    by_user = met.astype(np.float32).tocsr()
    by_user.sort_indices()
    by_item = by_user.T.tocsr()
    found = np.zeros((n_items, n_items), dtype=np.float32)
    rows, columns = ((each.indptr, each.indices, each.data) for each in (by_item, by_user))
    in_parts(lambda first, last: gram_part(rows, columns, first, last, found), n_items)
    return np.asarray(comm.total(found))


def weights_of(between: Array, l2: float) -> Array:
    """B from XᵀX on and below the diagonal.  (n_items, n_items) float32, from the item met to the item scored"""
    inverse = inverse_of(between, l2)
    n_items = len(inverse)
    scale = (-1 / np.diagonal(inverse).astype(np.float64)).astype(np.float32)  # (n_items,)
    in_parts(lambda first, last: mirror_part(inverse, first, last), n_items)
    in_parts(lambda first, last: regression_part(inverse, scale, first, last), n_items)
    return inverse


def inverse_of(between: Array, l2: float) -> Array:
    """(XᵀX + λI)⁻¹ on and below the diagonal, from XᵀX there."""
    # a λ that is lost in the last digits of float32 leaves the inverse to chance
    first = int(l2 < np.finfo(np.float32).eps * len(between) * float(np.diagonal(between).max()))
    routines = {np.float32: (lapack.spotrf, lapack.spotri), np.float64: (lapack.dpotrf, lapack.dpotri)}
    for dtype, (factorise, invert) in list(routines.items())[first:]:
        table: Array = between.astype(dtype)
        table[np.diag_indices_from(table)] += dtype(l2)
        with libraries().limit(limits=1 if len(table) <= SMALL else threads(), user_api="blas"):
            # LAPACK reads columns, so the upper triangle of the transposed is the lower of ours
            found, failed = factorise(table.T, lower=0, clean=0, overwrite_a=1)
            if not failed:
                found, failed = invert(found, lower=0, overwrite_c=1)
        if not failed and np.isfinite(np.diagonal(found)).all():
            return np.ascontiguousarray(found.T, dtype=np.float32)
    raise ValueError(f"l2={l2} leaves the items' products without an inverse; choose a larger λ, such as {10 * l2:g}")


def bytes_for(n_items: int) -> int:
    """What EASE needs of memory for so many items."""
    return TABLES * 4 * n_items**2


def check_memory(n_items: int) -> None:
    """Refuse a catalog whose tables do not fit into what memory is left."""
    left = memory_left()
    if left is not None and bytes_for(n_items) > left:
        most = int((left / (4 * TABLES)) ** 0.5)
        raise MemoryError(
            f"EASE of {n_items:,} items needs {bytes_for(n_items) / 2**30:.1f} GiB of memory, and"
            f" {left / 2**30:.1f} GiB are left: room for about {most:,} items; choose another model (ials, softmax),"
            " or a larger k-core"
        )


def memory_left() -> int | None:
    """Bytes that can be used without swapping, as the system says; None where it does not say."""
    known = Path("/proc/meminfo")
    if known.exists():
        for line in known.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return None
