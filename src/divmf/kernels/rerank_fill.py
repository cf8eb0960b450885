"""Greedy giving of items, for the rerankers with capacities or guarantees."""

import numpy as np
from numba import njit

from divmf.engine.arrays import Array


@njit(cache=True)
def give_in_order(pairs: Array, items: Array, capacity: Array, places: Array, size: Array) -> None:
    """Go through the pairs (user · width + place); give while the user has room and the item has capacity, in place.

    places   (n_lists, k): the lists, filled up to `size` (n_lists,)
    """
    width, k = items.shape[1], places.shape[1]
    for pair in pairs:
        user, place = pair // width, pair % width
        item = items[user, place]
        if size[user] < k and capacity[item] > 0 and not (places[user, : size[user]] == place).any():
            places[user, size[user]] = place
            size[user] += 1
            capacity[item] -= 1


@njit(cache=True)
def give_in_turns(items: Array, capacity: Array, places: Array) -> None:
    """In each of k rounds every user in turn takes the best candidate of which a copy is left, in place."""
    n_lists, width = items.shape
    taken = np.zeros((n_lists, width), dtype=np.bool_)
    for rank in range(places.shape[1]):
        for user in range(n_lists):
            for place in range(width):
                item = items[user, place]
                if item < 0:
                    break
                if capacity[item] > 0 and not taken[user, place]:
                    places[user, rank] = place
                    taken[user, place] = True
                    capacity[item] -= 1
                    break


@njit(cache=True)
def fill_up(places: Array, lengths: Array) -> None:
    """Fill the empty ends (−1) of the lists with the best places not yet in them, in place."""
    for user in range(places.shape[0]):
        place = 0
        for rank in range(places.shape[1]):
            if places[user, rank] >= 0:
                continue
            while place < lengths[user] and (places[user] == place).any():
                place += 1
            if place < lengths[user]:
                places[user, rank] = place
