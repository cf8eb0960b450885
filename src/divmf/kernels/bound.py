"""The bound of the market, compiled: what the best lists are worth at given discounts, and who takes what at others.

A user takes an item where its discount exceeds a threshold: what the best list without it is worth beyond the best list
with it. How many users have their threshold below a discount is the demand for the item there, others' as they are.
"""

from typing import Any

import numpy as np
from numba import njit

from divmf.engine.arrays import Array
from divmf.kernels.best import VECTOR
from divmf.kernels.market import NEVER, ONE, Columns, Terms, Wanted, keep_highest, widest

ROUNDING = 1e-6  # scores are float32: what misses a threshold by no more than this fraction may reach it
HALVINGS = 24  # of a bin
EIGHT = 8  # marks in a number
BINS = 12  # of thresholds, from a discount less its radius to the discount and its radius


@njit(cache=True, nogil=True)
def _candidates(columns: Columns, user: int, kind: int, items: Array, values: Array) -> int:
    """Write down the user's candidates for one kind of lists; how many they are."""
    size = 0
    for candidate in range(columns.starts[user], columns.ends[user]):
        items[size], values[size] = columns.items[candidate], columns.values[candidate]
        size += (columns.opens[candidate] & kind) != 0
    return size


@njit(cache=True, nogil=True)
def _find_least(
    size: int, items: Array, values: Array, terms: Terms, discount: Array, largest: float, highest: Array, least: Array
) -> None:
    """least[r] = the (k + 1)-th most that one of these items is worth in slot r, a little less for rounding.

    −inf if they are fewer: without any one of them, k are left that are worth as much.
    """
    for r in range(len(terms.slots)):
        found, share = 0, terms.exposure[r] / ONE
        for candidate in range(size):
            worth = terms.slots[r] * values[candidate] + share * discount[items[candidate]]
            if found < len(highest) or worth > highest[0]:
                found = keep_highest(highest, found, worth)
        enough = found == len(highest)
        least[r] = highest[0] - ROUNDING * (abs(highest[0]) + largest) if enough else NEVER


@njit(cache=True, nogil=True)
def _keep(size: int, items: Array, values: Array, terms: Terms, discount: Array, least: Array) -> int:
    """Put first, of these items, those that reach the least of a slot; how many they are."""
    kept = 0
    for candidate in range(size):
        item, value, enough = items[candidate], values[candidate], False
        for r in range(len(least) - 1, -1, -1):  # an item of low value reaches the last slots, if any
            if terms.slots[r] * value + terms.exposure[r] / ONE * discount[item] >= least[r]:
                enough = True
                break
        if enough:
            items[candidate], values[candidate] = items[kept], values[kept]
            items[kept], values[kept] = item, value
            kept += 1
    return kept


@njit(cache=True, nogil=True, fastmath=VECTOR, error_model="numpy")
def _mark(row: Array, weight: Any, discount: Array, share: Any, threshold: Any, marks: Array) -> None:
    """Mark the items for which weight·score + share·discount reaches a threshold."""
    for j in range(len(row)):
        marks[j] |= weight * row[j] + share * discount[j] >= threshold


@njit(cache=True, nogil=True)
def _forward(
    size: int, items: Array, values: Array, terms: Terms, discount: Array, outside: Array, best: Array
) -> None:
    """best[n, r] is the most that r slots can hold of the first n items, which are in order of value.

    outside   (k,): what slot r may be filled for, by an item that is not among them
    """
    k = len(terms.slots)
    best[0, 0] = 0.0
    for r in range(k):
        best[0, r + 1] = best[0, r] + outside[r]
    for candidate in range(size):
        best[candidate + 1] = best[candidate]
        for r in range(k):
            gain = terms.exposure[r] / ONE * discount[items[candidate]]
            filled = max(
                best[candidate, r] + terms.slots[r] * values[candidate] + gain, best[candidate + 1, r] + outside[r]
            )
            best[candidate + 1, r + 1] = max(best[candidate + 1, r + 1], filled)


@njit(cache=True, nogil=True)
def _count(threshold: float, item: int, exposure: int, discount: Array, radius: Array, counts: Array) -> None:
    """Count a user's threshold for an item in its bin, if it is not beyond."""
    position = (threshold - discount[item] + radius[item]) / (2 * radius[item])
    if position < 1:
        counts[item, 0 if position < 0 else 1 + int(position * BINS)] += exposure


@njit(cache=True, nogil=True)
def _demand(
    size: int, items: Array, values: Array, terms: Terms, discount: Array, radius: Array, outside: Array, best: Array,
    behind: Array, counts: Array,
) -> Any:  # fmt: skip
    """What the best list of these items, in order of value, is worth; the user's thresholds are counted.

    With the items before it in the first r slots and those behind it in the slots after the next, the threshold of an
    item is the least discount at which it makes up for what it takes the place of in slot r.
    behind   behind[n, r] becomes the most that the slots from r on can hold of the items from the n-th on
    """
    k = len(terms.slots)
    length = min(k, size)
    _forward(size, items, values, terms, discount, outside, best)
    behind[size] = NEVER
    behind[size, length] = 0.0
    for candidate in range(size - 1, -1, -1):
        item, value, without = items[candidate], values[candidate], NEVER
        behind[candidate] = behind[candidate + 1]
        for r in range(length + 1):
            without = max(without, best[candidate, r] + behind[candidate + 1, r])
        least, slot = np.inf, 0
        for r in range(length):
            share = terms.exposure[r] / ONE
            filled = terms.slots[r] * value + behind[candidate + 1, r + 1]
            threshold = (without - best[candidate, r] - filled) / share
            if threshold < least:
                least, slot = threshold, r
            behind[candidate, r] = max(behind[candidate, r], filled + share * discount[item])
        _count(least, item, terms.exposure[slot], discount, radius, counts)
    return best[size, length]


@njit(cache=True, nogil=True)
def _demand_beyond(
    size: int, values: Array, others: Array, worth_of_others: Array, terms: Terms, discount: Array, radius: Array,
    best: Array, behind: Array, counts: Array,
) -> None:  # fmt: skip
    """Count the user's thresholds for other items, which have no part in what any list of `_demand` is worth.

    values   of the items of `_demand`; others, worth_of_others: these items, and their values
    """
    length = min(len(terms.slots), size)
    for number in range(len(others)):
        item, value = others[number], worth_of_others[number]
        at, end = 0, size  # to where it would stand
        while at < end:
            middle = (at + end) >> 1
            if values[middle] >= value:
                at = middle + 1
            else:
                end = middle
        least, slot = np.inf, 0
        for r in range(length):
            filled = terms.slots[r] * value + behind[at, r + 1]
            threshold = (best[size, length] - best[at, r] - filled) / (terms.exposure[r] / ONE)
            if threshold < least:
                least, slot = threshold, r
        _count(least, item, terms.exposure[slot], discount, radius, counts)


@njit(cache=True, nogil=True)
def demand_part(
    columns: Columns, kind: int, first: int, last: int, terms: Terms, discount: Array, radius: Array, counts: Array
) -> float:
    """What the best lists of users first … last−1 are worth, of their candidates alone; see `demand_of_rows`."""
    total, k = 0.0, len(terms.slots)
    width = widest(columns, first, last)
    items, values = np.empty(width, dtype=np.int32), np.empty(width)
    best, behind, outside = np.empty((width + 1, k + 1)), np.empty((width + 1, k + 1)), np.full(k, NEVER)
    for user in range(first, last):
        size = _candidates(columns, user, kind, items, values)
        total += _demand(size, items, values, terms, discount, radius, outside, best, behind, counts)
    return total


@njit(cache=True, nogil=True)
def _gather(row: Array, weight: Any, marks: Array, items: Array, values: Array) -> int:
    """The marked items that may be listed, and what each is worth to a user; how many they are.

    marks   (a multiple of EIGHT,): most are not set, and eight of them are one number
    """
    size, eights = 0, marks.view(np.uint64)
    for eight in range(len(eights)):
        if eights[eight]:
            for j in range(EIGHT * eight, min(EIGHT * (eight + 1), len(row))):
                items[size], values[size] = j, weight * row[j]
                size += marks[j] and row[j] > NEVER
    return size


@njit(cache=True, nogil=True, error_model="numpy")
def demand_of_rows(
    block: Array, first: int, kind: int, wanted: Wanted, held_values: Array, columns: Columns, terms: Terms,
    discount: Array, radius: Array, counts: Array,
) -> float:  # fmt: skip
    """What the best lists of users first, first + 1, … are together worth at these discounts, of all items there are.

    Where k items are worth more in a slot than another is, one of them can take its place, and the other is not needed:
    a pass over the row for each slot finds those that the user's candidates leave, or would with the radius on top, or
    without one of the others.
    Where slots expose alike, a list so changed is worth no less in order of value; else the slot alone is.
    block, held_values   see `divmf.kernels.market.close_rows`
    radius   (n_items,): how far around its discount the thresholds of an item are told apart
    counts   (n_items, 1 + BINS) int64: the exposure of an item to users with a threshold below discount − radius, and
             in bins from there to discount + radius; added to
    """
    n_items, k, total = block.shape[1], len(terms.slots), 0.0
    marks = np.empty(-(-n_items // EIGHT) * EIGHT, dtype=np.bool_)
    reach = (discount + radius).astype(np.float32)
    items, values = np.empty(2 * n_items, dtype=np.int32), np.empty(2 * n_items, dtype=np.float32)
    highest, least = np.empty(k + 1), np.empty(k)
    best, behind = np.empty((n_items + 1, k + 1)), np.empty((n_items + 1, k + 1))
    largest = max(0.0, discount.max())
    outside, flat = np.full(k, NEVER), terms.exposure[0] == terms.exposure[k - 1]
    for n in range(len(block)):
        row, user = block[n], first + n
        weight = wanted.weights[user]
        size = _candidates(columns, user, kind, items, values)
        _find_least(size, items, values, terms, discount, largest, highest, least)
        marks[:] = False
        for r in range(k):
            counted, share = np.float32(terms.slots[r] * weight), np.float32(terms.exposure[r] / ONE)
            _mark(row, counted, reach, share, np.float32(least[r]), marks)
        size = _gather(row, weight, marks, items, values)
        for position in range(wanted.held_offsets[user], wanted.held_offsets[user + 1]):
            if wanted.held_opens[position] & kind:
                items[size], values[size] = wanted.held[position], weight * held_values[position]
                size += 1
        own = _keep(size, items, values, terms, discount, least)  # the others are not among the k + 1 of any slot
        _find_least(own, items, values, terms, discount, largest, highest, least)
        own = _keep(own, items, values, terms, discount, least)
        others, their_values = items[own:size], values[own:size]
        reached = _keep(len(others), others, their_values, terms, reach, least)
        if not flat:
            outside[:] = least
        order = np.argsort(-values[:own])
        listed, worth = items[order], values[order]
        total += _demand(own, listed, worth, terms, discount, radius, outside, best, behind, counts)
        _demand_beyond(
            own, worth, others[:reached], their_values[:reached], terms, discount, radius, best, behind, counts
        )
    return total


@njit(cache=True, nogil=True)
def offered(discount: float, bonus: Array) -> Any:
    """The exposure at which an item earns its discount by one more showing, between whole numbers too.

    The (x + 1)-th showing stands at x + ½, with straight lines from one to the next.
    """
    if discount >= bonus[0]:
        return max(0.0, 0.5 - (discount - bonus[0]) / (2 * max(bonus[0] - bonus[1], 1e-300)))
    low, high = 0, len(bonus) - 1
    while high - low > 1:
        middle = (low + high) >> 1
        if bonus[middle] >= discount:
            low = middle
        else:
            high = middle
    fall = bonus[low] - bonus[high]
    return low + 0.5 + (min(1.0, (bonus[low] - discount) / fall) if fall > 0 else 0.0)


@njit(cache=True, nogil=True)
def _crossing(low: float, high: float, demand: float, more: float, bonus: Array) -> float:
    """Where demand that grows evenly from one discount to another meets what is offered; by halving the range."""
    begin, slope = low, (more - demand) / (high - low)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if demand + slope * (middle - begin) >= offered(middle, bonus):
            high = middle
        else:
            low = middle
    return (low + high) / 2


@njit(cache=True, nogil=True)
def balances(counts: Array, discount: Array, radius: Array, bonus: Array, found: Array) -> None:
    """found[i]: where, around its discount, the demand for item i meets what it offers; an end of the range where
    they do not meet within.

    counts, radius   see `demand_of_rows`
    """
    for item in range(len(discount)):
        low = discount[item] - radius[item]
        demand, supply = counts[item, 0] / ONE, offered(low, bonus)
        found[item] = low
        for position in range(1, BINS + 1):
            if demand >= supply:
                break
            high = discount[item] + radius[item] * (2 * position / BINS - 1)
            more, supply = demand + counts[item, position] / ONE, offered(high, bonus)
            found[item] = high if more < supply else _crossing(low, high, demand, more, bonus)
            demand, low = more, high
