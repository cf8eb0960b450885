"""Greedy lists of head and tail, for the reranker `xquad`."""

import numpy as np
from numba import njit, prange

from divmf.engine.arrays import Array


@njit(cache=True, parallel=True)
def xquad_columns(items: Array, r: Array, in_head: Array, taste: Array, weight: float, k: int) -> Array:
    """Lists of columns (n_lists, k): each rank takes the best of score and class, ties to the smaller column."""
    n_lists, width = items.shape
    columns = np.full((n_lists, k), -1)
    for user in prange(n_lists):
        taken = np.zeros(width, dtype=np.bool_)
        n_class = np.zeros(2)  # tail and head in the list so far
        for rank in range(k):
            chosen, most = -1, -np.inf
            for column in range(width):
                item = items[user, column]
                if item < 0:
                    break
                if taken[column]:
                    continue
                kind = in_head[item]
                wanted = taste[user] if kind == 1 else 1 - taste[user]
                value = (1 - weight) * r[user, column] + weight * wanted * (1 - n_class[kind] / max(rank, 1))
                if value > most:
                    chosen, most = column, value
            if chosen < 0:
                break
            taken[chosen] = True
            n_class[in_head[items[user, chosen]]] += 1
            columns[user, rank] = chosen
    return columns
