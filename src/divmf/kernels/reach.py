"""Who can be shown what, compiled: counts over the items of each user, without a table of users and totals."""

import numpy as np
from numba import njit

from divmf.engine.arrays import Array


@njit(cache=True, nogil=True)
def count_open(indptr: Array, indices: Array, blocked: Array, first: int, last: int, counts: Array) -> None:
    """counts[u] = how many items of row u are not blocked, for rows first … last−1 of a CSR matrix."""
    for user in range(first, last):
        n_open = 0
        for position in range(indptr[user], indptr[user + 1]):
            n_open += not blocked[indices[position]]
        counts[user] = n_open


@njit(cache=True, nogil=True)
def count_showings(
    indptr: Array, indices: Array, is_open: bool, offsets: Array, totals: Array, sizes: Array, limit: Array,
    first: int, last: int,
) -> Array:  # fmt: skip
    """Σ_u min(limit, the items of a total that may be shown to u) of rows first … last−1, for each total.

    indptr, indices   the items that each user may be shown where `is_open`, else those that may not be
    offsets, totals   the totals of each item, as a CSR matrix; sizes, limit (totals,): how many items each has
    """
    found, held = np.zeros(len(limit), dtype=np.int64), np.zeros(len(limit), dtype=np.int64)
    touched, none = np.empty(len(limit), dtype=np.int64), np.zeros(len(limit), dtype=np.int64)
    for total in range(len(limit)):
        none[total] = 0 if is_open else min(limit[total], sizes[total])
        found[total] = (last - first) * none[total]
    for user in range(first, last):
        n_touched = 0
        for position in range(indptr[user], indptr[user + 1]):
            item = indices[position]
            for membership in range(offsets[item], offsets[item + 1]):
                total = totals[membership]
                if held[total] == 0:
                    touched[n_touched] = total
                    n_touched += 1
                held[total] += 1
        for total in touched[:n_touched]:
            open_items = held[total] if is_open else sizes[total] - held[total]
            found[total] += min(limit[total], open_items) - none[total]
            held[total] = 0
    return found
