"""One user after the other, for the reranker `sapid`."""

import numpy as np
from numba import njit

from divmf.engine.arrays import Array


@njit(cache=True)
def _pool(scores: Array, length: int, k: int, drop: float) -> int:
    """How many of the first `length` candidates stand above the last large drop of score; at least k if there are."""
    if length <= k:
        return length
    large = drop * (float(scores[0]) - float(scores[length - 1])) / (length - 1)
    for size in range(length - 1, k, -1):
        if float(scores[size - 1]) - float(scores[size]) > large:
            return size
    return k


@njit(cache=True)
def sapid_columns(items: Array, scores: Array, share: Array, k: int, c: int, drop: float) -> Array:
    """Lists of columns (n_lists, k), the smallest expected count first, ties to the smaller column."""
    n_lists, width = items.shape
    columns = np.full((n_lists, k), -1)
    expected = np.empty(k)
    counts = np.zeros(len(share))
    for user in range(n_lists):
        length = 0
        while length < min(c, width) and items[user, length] >= 0:
            length += 1
        size = 0
        for column in range(_pool(scores[user], length, k, drop)):
            item = items[user, column]
            value = counts[item] + (n_lists - user - 1) * k * share[item]
            if size == k and value >= expected[k - 1]:
                continue
            rank = size if size < k else k - 1
            while rank > 0 and expected[rank - 1] > value:
                expected[rank] = expected[rank - 1]
                columns[user, rank] = columns[user, rank - 1]
                rank -= 1
            expected[rank] = value
            columns[user, rank] = column
            size = min(size + 1, k)
        for rank in range(size):
            counts[items[user, columns[user, rank]]] += 1
    return columns
