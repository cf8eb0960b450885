"""Chains of swaps, compiled: one list takes what a total lacks, another makes up for what that list gave.

Whatever is off by one showing is a place: total T that lacks one (number T), or has one too many (number totals + T). A
swap in one list mends a place, and may leave one other place off; swaps end where none is left off.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from divmf.engine.arrays import Array
from divmf.kernels.market import Columns
from divmf.kernels.totals import BARE, Ruled, is_in

NOWHERE = -1
WRONG = -2


class Swaps(NamedTuple):
    """The cheapest swap found to each place; all (places,).

    cost     what its list loses by it; +inf where there is none
    user, taken, given   who takes which item for which
    mended   the place that it mends
    """

    cost: Array
    user: Array
    taken: Array
    given: Array
    mended: Array


@njit(**BARE)
def _left_off(taken: int, given: int, own: Array, rules: Ruled, counts: Array, mended: int) -> int:
    """The one place that a swap leaves off, `NOWHERE` if there is none, `WRONG` if there are several, or it may not be.

    mended   the place that the swap is for, which is not counted again
    """
    found, n_totals = NOWHERE, len(counts)
    for position in range(rules.offsets[taken], rules.offsets[taken + 1]):
        total = rules.totals[position]
        if given >= 0 and is_in(given, total, rules):
            continue
        if rules.limit[total] < len(own):
            held = 0
            for r in range(len(own)):
                held += own[r] >= 0 and is_in(own[r], total, rules)
            if held >= rules.limit[total]:
                return WRONG
        if counts[total] >= rules.high[total] and total != mended:
            if found != NOWHERE:
                return WRONG
            found = n_totals + total
    for position in range(rules.offsets[given], rules.offsets[given + 1] if given >= 0 else rules.offsets[given]):
        total = rules.totals[position]
        if counts[total] <= rules.low[total] and not is_in(taken, total, rules) and n_totals + total != mended:
            if found != NOWHERE:
                return WRONG
            found = total
    return found


@njit(cache=True, nogil=True)
def find_swaps(
    columns: Columns, kind: int, first: int, lists: Array, slots: Array, rules: Ruled, counts: Array, from_place: Array,
    known: Array, swaps: Swaps, ends: Swaps,
) -> None:  # fmt: skip
    """The cheapest swaps that mend a place: to each other place that is not known, into `swaps`; to none, `ends`.

    first        the number of the first of these users among all
    from_place   (places,) bool: those to be mended
    known        (places,) bool: those that swaps were found to before
    ends         by the place that is mended
    """
    k, n_totals, n_items = lists.shape[1], len(counts), len(rules.offsets) - 1
    lacks, gives = np.zeros(n_items, dtype=np.bool_), np.zeros(n_items, dtype=np.bool_)
    for item in range(n_items):
        for position in range(rules.offsets[item], rules.offsets[item + 1]):
            lacks[item] |= from_place[rules.totals[position]]
            gives[item] |= from_place[n_totals + rules.totals[position]]
    values = np.empty(k)
    for user in range(len(lists)):
        own, r, giver, some = lists[user], 0, False, False
        for slot in range(k):
            giver |= own[slot] >= 0 and gives[own[slot]]
        for candidate in range(columns.starts[user], columns.ends[user]):
            some |= lacks[columns.items[candidate]]
        if not (some or giver):
            continue
        values[:] = 0.0
        for candidate in range(columns.starts[user], columns.ends[user]):
            if r < k and columns.items[candidate] == own[r]:
                values[r] = columns.values[candidate]
                r += 1
        for candidate in range(columns.starts[user], columns.ends[user]):
            taken = columns.items[candidate]
            if not (giver or lacks[taken]) or not columns.opens[candidate] & kind:
                continue
            held = False
            for slot in range(k):
                held |= own[slot] == taken
            if held:
                continue
            for slot in range(k):
                given = own[slot]
                if given < 0 or not (lacks[taken] or gives[given]):
                    continue
                cost = slots[slot] * (values[slot] - columns.values[candidate])
                _note(
                    taken, lacks[taken], given, own, cost, first + user, rules, counts, from_place, known, swaps, ends
                )


@njit(**BARE)
def _note(
    taken: int, lacking: bool, given: int, own: Array, cost: float, user: int, rules: Ruled, counts: Array,
    from_place: Array, known: Array, swaps: Swaps, ends: Swaps,
) -> None:  # fmt: skip
    """Write a swap down for each place that it mends, where it is the cheapest so far."""
    n_totals = len(counts)
    for way in range(2):
        item, other = (taken, given) if way == 0 else (given, taken)
        if way == 0 and not lacking:
            continue
        for position in range(rules.offsets[item], rules.offsets[item + 1]):
            total = rules.totals[position]
            place = total if way == 0 else n_totals + total
            if not from_place[place] or is_in(other, total, rules):
                continue
            left = _left_off(taken, given, own, rules, counts, place)
            if left == WRONG or (left >= 0 and known[left]):
                continue
            to = swaps if left >= 0 else ends
            number = left if left >= 0 else place
            if cost < to.cost[number]:
                to.cost[number], to.user[number], to.mended[number] = cost, user, place
                to.taken[number], to.given[number] = taken, given


@njit(cache=True, nogil=True)
def swap(columns: Columns, user: int, taken: int, given: int, own: Array) -> bool:
    """Take one item for another, in order of value; whether that was possible: the one was not there, the other was."""
    size, there = 0, False
    for slot in range(len(own)):
        if own[slot] == taken:
            return False
        there |= own[slot] == given
    if not there:
        return False
    kept = own.copy()
    own[:] = -1
    for candidate in range(columns.starts[user], columns.ends[user]):
        item, stays = columns.items[candidate], columns.items[candidate] == taken
        for slot in range(len(kept)):
            stays |= item == kept[slot] and item != given
        if stays and size < len(own):
            own[size] = item
            size += 1
    return True
