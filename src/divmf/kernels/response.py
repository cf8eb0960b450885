"""The best list of a user at given discounts, compiled: a dynamic programme over the candidates in order of value."""

import numpy as np
from numba import njit

from divmf.engine.arrays import Array

NONE = -np.inf


@njit(cache=True, nogil=True)
def response_rows(
    scores: Array, by_value: Array, by_both: Array, weights: Array, discount: Array, slots: Array, exposure: Array,
    lists: Array,
) -> None:  # fmt: skip
    """For each user the list with the highest Σ_r (a·w_r·v + e_r·d), its items in order of value, into `lists`.

    scores            (users, n_items): −inf for what may not be listed
    by_value          (users, width): the best by score, best first
    by_both           (users, width): the best by a·score + e_k·d, in any order
    weights           (users,): a, how much a user's scores count
    discount          (n_items,); slots, exposure (k,): w_r, and e_r as a fraction of a full showing
    lists             (users, k) int32: −1 where a list is shorter
    """
    k, width = len(slots), by_value.shape[1]
    items, values = np.empty(2 * width, dtype=np.int32), np.empty(2 * width)
    best, taken = np.empty(k + 1), np.empty((2 * width, k + 1), dtype=np.bool_)
    for row in range(len(by_value)):
        size = candidates(scores[row], by_value[row], by_both[row], items, values)
        best[:], taken[:] = NONE, False
        best[0] = 0.0
        for place in range(size):
            gain = discount[items[place]]
            for slot in range(min(place, k - 1), -1, -1):
                worth = best[slot] + weights[row] * slots[slot] * values[place] + exposure[slot] * gain
                if worth > best[slot + 1]:
                    best[slot + 1] = worth
                    taken[place, slot + 1] = True
        left = min(size, k)
        lists[row] = -1
        for place in range(size - 1, -1, -1):
            if left and taken[place, left]:
                left -= 1
                lists[row, left] = items[place]


@njit(cache=True, nogil=True)
def candidates(scores: Array, by_value: Array, by_both: Array, items: Array, values: Array) -> int:
    """Both kinds of candidates in order of score, each once, without those that may not be listed; how many."""
    size = 0
    for item in by_value:
        if item >= 0 and scores[item] > NONE:
            items[size], values[size] = item, scores[item]
            size += 1
    first = size
    for item in by_both:
        if item < 0 or scores[item] == NONE:
            continue
        known = False
        for place in range(first):
            known |= items[place] == item
        if known:
            continue
        # what is not among the best by score lies below them all, so it is sorted in from there on
        place = size
        while place > first and (
            values[place - 1] < scores[item] or (values[place - 1] == scores[item] and items[place - 1] > item)
        ):
            items[place], values[place] = items[place - 1], values[place - 1]
            place -= 1
        items[place], values[place] = item, scores[item]
        size += 1
    return size
