"""The top k of scores less item prices, for the rerankers that find prices by many passes."""

import numpy as np
from numba import njit, prange

from divmf.engine.arrays import Array


@njit(cache=True, parallel=True)
def _places(scores: Array, items: Array, prices: Array, places: Array) -> None:
    """The k places of largest score − price in each row, ties to the smaller place, −1 for none."""
    k = places.shape[1]
    for user in prange(places.shape[0]):
        kept = np.full(k, -np.inf)
        size = 0
        for place in range(items.shape[1]):
            item = items[user, place]
            if item < 0:
                break
            value = scores[user, place] - prices[item]
            if size == k and value <= kept[k - 1]:
                continue
            rank = size if size < k else k - 1
            while rank > 0 and kept[rank - 1] < value:
                kept[rank] = kept[rank - 1]
                places[user, rank] = places[user, rank - 1]
                rank -= 1
            kept[rank] = value
            places[user, rank] = place
            size = min(size + 1, k)
        places[user, size:] = -1


@njit(cache=True)
def top_priced(scores: Array, items: Array, prices: Array, places: Array, counts: Array) -> None:
    """Fill `places` (n_lists, k) with the top k of score − price, and add to `counts` how often each item is there."""
    _places(scores, items, prices, places)
    for user in range(places.shape[0]):
        for rank in range(places.shape[1]):
            if places[user, rank] >= 0:
                counts[items[user, places[user, rank]]] += 1
