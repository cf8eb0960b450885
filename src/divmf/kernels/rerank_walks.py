"""Random walks over similar items, for the reranker `karakaya`."""

import numpy as np
from numba import njit

from divmf.engine.arrays import Array


@njit(cache=True)
def _step(item: int, similar: Array, mass: Array, draw: float) -> int:
    """The neighbour of an item that a uniform draw falls on, −1 if it has none."""
    for number in range(similar.shape[1]):
        if similar[item, number] < 0:
            return -1
        if draw < mass[item, number]:
            return int(similar[item, number])
    return -1


@njit(cache=True)
def replace_by_walks(
    users: Array,
    items: Array,
    r: Array,
    places: Array,
    counts: Array,
    similar: Array,
    mass: Array,
    even_share: float,
    threshold: float,
    walks: int,
    steps: int,
    rng: np.random.Generator,
) -> None:
    """Replace over-recommended items of the lists `places` (columns of `items`), in place, user after user."""
    k = places.shape[1]
    place_of = np.full(len(counts), -1)  # where an item stands among the user's candidates
    listed = np.zeros(items.shape[1], dtype=np.bool_)
    for user in users:
        for place in range(items.shape[1]):
            if items[user, place] >= 0:
                place_of[items[user, place]] = place
        listed[:] = False
        frequency = np.zeros(k)
        for rank in range(k):
            if places[user, rank] >= 0:
                listed[places[user, rank]] = True
                frequency[rank] = counts[items[user, places[user, rank]]]
        for rank in np.argsort(-frequency, kind="mergesort"):
            if places[user, rank] < 0 or frequency[rank] <= even_share:
                continue
            start = items[user, places[user, rank]]
            found = -1
            for _ in range(walks):
                item = start
                for _ in range(steps):
                    item = _step(item, similar, mass, rng.random())
                    if item < 0:
                        break
                    place = place_of[item]
                    if place >= 0 and not listed[place] and counts[item] < even_share and r[user, place] >= threshold:
                        found = place
                        break
                if found >= 0:
                    break
            if found >= 0:
                listed[places[user, rank]] = False
                listed[found] = True
                counts[start] -= 1
                counts[items[user, found]] += 1
                places[user, rank] = found
        for place in range(items.shape[1]):
            if items[user, place] >= 0:
                place_of[items[user, place]] = -1
