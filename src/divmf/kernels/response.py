"""Lists at fixed discounts, compiled: what each user takes where nobody else's list matters."""

import numpy as np
from numba import njit

from divmf.engine.arrays import Array
from divmf.kernels.market import NEVER, ONE, Columns, Desk, Terms, best_list, desk_for, widest


@njit(cache=True, nogil=True)
def respond_part(
    columns: Columns, kind: int, first: int, last: int, terms: Terms, discount: Array, lists: Array
) -> None:
    """Fill the lists of users first … last−1 with those that are best at these discounts, −1 where there are too few.

    discount (n_items,): what a full showing of an item earns; lists (n_users, k)
    """
    k = len(terms.slots)
    desk, shares = desk_for(widest(columns, first, last), k), terms.exposure / ONE
    for user in range(first, last):
        size = 0
        for candidate in range(columns.starts[user], columns.ends[user]):
            if columns.opens[candidate] & kind:
                desk.items[size], desk.values[size] = columns.items[candidate], columns.values[candidate]
                size += 1
        _take_best(size, terms.slots, shares, discount, desk, lists[user])


@njit(cache=True, nogil=True)
def _take_best(size: int, slots: Array, shares: Array, discount: Array, desk: Desk, own: Array) -> None:
    """Fill a list with the best of the candidates on the desk, which are in order of value."""
    chosen = np.empty(len(slots), dtype=np.int64)
    for candidate in range(size):
        for r in range(len(slots)):
            desk.gains[candidate, r] = shares[r] * discount[desk.items[candidate]]
    best_list(size, slots, desk, chosen)
    for r in range(len(slots)):
        own[r] = desk.items[chosen[r]] if chosen[r] >= 0 else -1


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
    desk = desk_for(2 * by_value.shape[1], len(slots))
    for row in range(len(by_value)):
        size = candidates(scores[row], by_value[row], by_both[row], desk.items, desk.values)
        desk.values[:size] *= weights[row]
        _take_best(size, slots, exposure, discount, desk, lists[row])


@njit(cache=True, nogil=True)
def candidates(scores: Array, by_value: Array, by_both: Array, items: Array, values: Array) -> int:
    """Both kinds of candidates in order of score, each once, without those that may not be listed; how many."""
    size = 0
    for item in by_value:
        if item >= 0 and scores[item] > NEVER:
            items[size], values[size] = item, scores[item]
            size += 1
    first = size
    for item in by_both:
        if item < 0 or scores[item] == NEVER:
            continue
        known = False
        for position in range(first):
            known |= items[position] == item
        if known:
            continue
        # what is not among the best by score lies below them all, so it is sorted in from there on
        position = size
        while position > first and (
            values[position - 1] < scores[item] or (values[position - 1] == scores[item] and items[position - 1] > item)
        ):
            items[position], values[position] = items[position - 1], values[position - 1]
            position -= 1
        items[position], values[position] = item, scores[item]
        size += 1
    return size
