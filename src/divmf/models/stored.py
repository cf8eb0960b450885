"""Scorers as named tensors, for safetensors, and back.

    write_tensors(path, tensors(scorer))
    scorer = from_tensors(read_tensors(path))

Factors are `users`, `items`, `bias`. An ItemItem is `weights` (or the CSR of it) and the CSR of what users met; where
that is known anyway, `from_tensors(…, met)` takes it from there, and `tensors(scorer, met=False)` leaves it out.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from divmf.models.scorer import Factors, ItemItem, Scorer

CSR = {"offsets": np.int64, "indices": np.int32, "values": np.float32}


def tensors(scorer: Scorer, met: bool = True) -> dict[str, Tensor]:
    """The numbers of a scorer by name; met: with what users met, where the scorer needs it."""
    if isinstance(scorer, Factors):
        return scorer.model.tensors()
    if not isinstance(scorer, ItemItem):
        raise ValueError(f"a {type(scorer).__name__} holds no numbers of its own that could be kept; keep its lists")
    weights = scorer.weights
    dense = isinstance(weights, np.ndarray)
    found = (
        {"weights": torch.from_numpy(np.ascontiguousarray(weights, np.float32))} if dense else csr("weights", weights)
    )
    return found | (csr("met", scorer.met) if met else {})


def from_tensors(found: Mapping[str, Tensor], met: sparse.csr_array | None = None) -> Scorer:
    """The scorer that `tensors` took apart; met: what users met, in the place of what was kept."""
    if "users" in found:
        return Factors.from_arrays(*(found[name].numpy() for name in ("users", "items", "bias")))
    if not {"weights", "weights.offsets"} & found.keys():
        raise ValueError(f"tensors {', '.join(sorted(found))} are no scorer; it has users and items, or weights")
    weights = found["weights"].numpy() if "weights" in found else from_csr("weights", found)
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1] or weights.dtype != np.float32:
        raise ValueError(f"weights has shape {weights.shape} of {weights.dtype}; it must be square, of float32")
    if met is None and "met.offsets" not in found:
        raise ValueError("what users met was not kept with the weights; give it as met")
    n_items = weights.shape[0]
    return ItemItem(from_csr("met", found, n_items) if met is None else met, weights)


def csr(name: str, table: Any) -> dict[str, Tensor]:
    """A sparse table as three tensors."""
    rows = table.tocsr()
    arrays = zip(CSR.items(), (rows.indptr, rows.indices, rows.data), strict=True)
    return {f"{name}.{part}": torch.from_numpy(np.array(array, dtype)) for (part, dtype), array in arrays}


def from_csr(name: str, found: Mapping[str, Tensor], n_columns: int | None = None) -> sparse.csr_array:
    """The sparse table that `csr` took apart; square, if the number of columns is not given.

    Kernels take it for granted that its places are there, so all are looked at.
    """
    offsets, indices, values = (found[f"{name}.{part}"].numpy() for part in CSR)
    shape = (len(offsets) - 1, len(offsets) - 1 if n_columns is None else n_columns)
    if offsets.ndim != 1 or (np.diff(offsets) < 0).any():  # scipy does not look where the last is 0
        raise ValueError(f"{name}: its offsets fall")
    try:
        table = sparse.csr_array((values.astype(np.float32), indices, offsets.astype(np.int64)), shape=shape)
        table.check_format(full_check=True)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return table
