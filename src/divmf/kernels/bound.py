"""The bound of the market, compiled: what lists are worth at fixed discounts, of all items, candidates or not."""

from typing import Any

import numpy as np
from numba import njit

from divmf.engine.arrays import Array
from divmf.kernels.best import VECTOR
from divmf.kernels.market import NEVER, ONE, Columns, Terms, Wanted, keep_highest

ROUNDING = 1e-6  # scores are float32: what misses a threshold by no more than this fraction may reach it


@njit(cache=True, nogil=True)
def _thresholds(columns: Columns, user: int, kind: int, terms: Terms, discount: Array, highest: Array) -> Array:
    """For each slot, the k-th most that one of the user's candidates is worth in it; −inf where they are fewer."""
    k = len(terms.slots)
    found = np.empty(k)
    for r in range(k):
        size, share = 0, terms.exposure[r] / ONE
        for at in range(columns.starts[user], columns.ends[user]):
            if columns.opens[at] & kind:
                worth = terms.slots[r] * columns.values[at] + share * discount[columns.items[at]]
                if size < k or worth > highest[0]:
                    size = keep_highest(highest, size, worth)
        found[r] = highest[0] if size == k else NEVER
    return found


@njit(cache=True, nogil=True, fastmath=VECTOR, error_model="numpy")
def _mark(row: Array, weight: Any, discount: Array, share: Any, threshold: Any, marks: Array) -> None:
    """Mark the items for which weight·score + share·discount exceeds a threshold."""
    for j in range(len(row)):
        marks[j] |= weight * row[j] + share * discount[j] > threshold


@njit(cache=True, nogil=True)
def _worth(items: Array, values: Array, terms: Terms, discount: Array, outside: Array, best: Array) -> Any:
    """The most that a list of these items, in order of value, is worth, where slot r may be filled for outside[r]."""
    k = len(outside)
    best[0] = 0.0
    for r in range(k):
        best[r + 1] = best[r] + outside[r]
    for at in range(len(items)):
        for r in range(k - 1, -1, -1):
            gain = terms.exposure[r] / ONE * discount[items[at]]
            best[r + 1] = max(best[r + 1], best[r] + terms.slots[r] * values[at] + gain)
        for r in range(k):
            best[r + 1] = max(best[r + 1], best[r] + outside[r])
    return best[k] if outside[k - 1] > NEVER else best[min(k, len(items))]


@njit(cache=True, nogil=True, error_model="numpy")
def bound_rows(
    block: Array, first: int, kind: int, wanted: Wanted, columns: Columns, terms: Terms, discount: Array
) -> float:
    """No lists of users first, first + 1, … are together worth more than this at these discounts, of whatever items.

    Where k candidates are worth more in a slot than an item is, a list with the item there is worth no more than one
    whose slot holds what the k-th of them is worth. A pass over the row for each slot finds the few other items.
    """
    n_items, k, total = block.shape[1], len(terms.slots), 0.0
    marks, narrow = np.empty(n_items, dtype=np.bool_), discount.astype(np.float32)
    items, values = np.empty(n_items, dtype=np.int32), np.empty(n_items, dtype=np.float32)
    held, highest, best = np.empty(n_items, dtype=np.float32), np.empty(k), np.empty(k + 1)
    for n in range(len(block)):
        row, user = block[n], first + n
        begin, end = wanted.held_offsets[user], wanted.held_offsets[user + 1]
        for position in range(begin, end):
            held[position - begin] = row[wanted.held[position]]
        for position in range(wanted.offsets[user], wanted.offsets[user + 1]):
            row[wanted.seen[position]] = NEVER
        for position in range(begin, end):
            if wanted.held_opens[position] & kind:
                row[wanted.held[position]] = held[position - begin]
        outside = _thresholds(columns, user, kind, terms, discount, highest)
        marks[:] = False
        for r in range(k):
            low = np.float32(outside[r] - ROUNDING * abs(outside[r]))
            weight, share = np.float32(terms.slots[r] * wanted.weights[user]), np.float32(terms.exposure[r] / ONE)
            _mark(row, weight, narrow, share, low, marks)
        size = 0
        for j in range(n_items):
            if marks[j] and row[j] > NEVER:
                items[size], values[size] = j, wanted.weights[user] * row[j]
                size += 1
        order = np.argsort(-values[:size])
        total += _worth(items[:size][order], values[:size][order], terms, discount, outside, best)
    return total


@njit(cache=True, nogil=True)
def _comes_first(columns: Columns, at: int, others: Columns, other: int) -> bool:
    """Whether a candidate comes before another: by the higher value, of equals the lower number."""
    if columns.values[at] != others.values[other]:
        return bool(columns.values[at] > others.values[other])
    return bool(columns.items[at] < others.items[other])


@njit(cache=True, nogil=True)
def join(columns: Columns, others: Columns, joined: Columns) -> None:
    """The candidates of both, into `joined` from its starts on."""
    for user in range(len(columns.starts)):
        at, other, end = columns.starts[user], others.starts[user], joined.starts[user]
        while at < columns.ends[user] or other < others.ends[user]:
            rest = other < others.ends[user]
            if at < columns.ends[user] and (not rest or not _comes_first(others, other, columns, at)):
                same = rest and others.items[other] == columns.items[at]
                joined.items[end], joined.values[end] = columns.items[at], columns.values[at]
                joined.opens[end] = columns.opens[at] | (others.opens[other] if same else 0)
                at, other = at + 1, other + (1 if same else 0)
            else:
                joined.items[end], joined.values[end] = others.items[other], others.values[other]
                joined.opens[end] = others.opens[other]
                other += 1
            end += 1
        joined.ends[user] = end
