"""Greedy lists of head and tail, for the reranker `xquad`."""

import numpy as np
from numba import njit, prange

from divmf.engine.arrays import Array


@njit(cache=True, parallel=True)
def xquad_places(items: Array, r: Array, in_head: Array, taste: Array, weight: float, k: int) -> Array:
    """Lists of places (n_lists, k): each rank takes the best of score and class, ties to the smaller place."""
    n_lists, width = items.shape
    places = np.full((n_lists, k), -1)
    for user in prange(n_lists):
        taken = np.zeros(width, dtype=np.bool_)
        n_class = np.zeros(2)  # tail and head in the list so far
        for rank in range(k):
            chosen, most = -1, -np.inf
            for place in range(width):
                item = items[user, place]
                if item < 0:
                    break
                if taken[place]:
                    continue
                kind = in_head[item]
                wanted = taste[user] if kind == 1 else 1 - taste[user]
                value = (1 - weight) * r[user, place] + weight * wanted * (1 - n_class[kind] / max(rank, 1))
                if value > most:
                    chosen, most = place, value
            if chosen < 0:
                break
            taken[chosen] = True
            n_class[in_head[items[user, chosen]]] += 1
            places[user, rank] = chosen
    return places
