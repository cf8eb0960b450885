"""The top k of scores less item prices, for the rerankers that find prices by many passes."""

import numpy as np
from numba import njit, prange

from divmf.engine.arrays import Array


@njit(cache=True, parallel=True)
def _columns(scores: Array, items: Array, prices: Array, columns: Array) -> None:
    """The k columns of largest score − price in each row, ties to the smaller column, −1 for none."""
    k = columns.shape[1]
    for user in prange(columns.shape[0]):
        kept = np.full(k, -np.inf)
        size = 0
        for column in range(items.shape[1]):
            item = items[user, column]
            if item < 0:
                break
            value = scores[user, column] - prices[item]
            if size == k and value <= kept[k - 1]:
                continue
            rank = size if size < k else k - 1
            while rank > 0 and kept[rank - 1] < value:
                kept[rank] = kept[rank - 1]
                columns[user, rank] = columns[user, rank - 1]
                rank -= 1
            kept[rank] = value
            columns[user, rank] = column
            size = min(size + 1, k)
        columns[user, size:] = -1


@njit(cache=True)
def top_priced(scores: Array, items: Array, prices: Array, columns: Array, counts: Array) -> None:
    """Fill `columns` (n_lists, k) with the top k of score − price, and add to `counts` how often each item is there."""
    _columns(scores, items, prices, columns)
    for user in range(columns.shape[0]):
        for rank in range(columns.shape[1]):
            if columns[user, rank] >= 0:
                counts[items[user, columns[user, rank]]] += 1
