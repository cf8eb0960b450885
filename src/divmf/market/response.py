"""One request: the best list for the scores of one person at given discounts.

The candidates are found as in batch (`divmf.kernels.market`): the best by value, and the best by value plus discount;
the list is the exact best response among them, by the same dynamic programme.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from divmf.engine.arrays import Array
from divmf.kernels.market import ONE, ONE_BITS, Columns, Terms, Wanted, close_rows, find_rows, take_turns
from divmf.kernels.rules import take_ruled_turns
from divmf.kernels.totals import Ruled
from divmf.market.bound import MANY
from divmf.market.columns import WIDTH
from divmf.market.values import slot_weights

NOBODY = np.zeros(2, dtype=np.int64)
NO_ITEMS = np.zeros(0, dtype=np.int32)
NO_OPENS = np.zeros(0, dtype=np.int64)
NO_SCORES = np.zeros(0, dtype=np.float32)
KIND = 1


class Page(NamedTuple):
    """A list as it is answered: items in order, their values, the discounts that helped them, what an item must reach.

    bar   the least value in the last slot plus discount among the items; what entered the list had to reach it
    """

    items: Array
    values: Array
    discounts: Array
    bar: float


class Within(NamedTuple):
    """What one list must keep.

    totals_of   the totals of some items, as (row of the item, total) for each that one is in
    room        (totals,) int64: how many items of a total the list may hold
    """

    totals_of: Callable[[Array], tuple[Array, Array]]
    room: Array


def best_response(
    scores: Array, weight: float, out: Array, discount: Array, settled: Callable[[Array], Array], k: int,
    exposure: Array, within: Within | None = None,
) -> Page:  # fmt: skip
    """The best list of one person.

    scores     (1, n_items) float32, written to; weight: how much they count
    out        numbers of the items that must not be in the list, each once
    discount   (n_items,) float32: what candidates are found by
    settled    the discounts of some items as they are now: what the list is chosen by
    exposure   (k,) what a showing counts in each slot; within: what rules ask of the list
    """
    width = min(max(WIDTH, 2 * k), scores.shape[1])
    while True:
        columns = candidates(scores, weight, out, discount, width)
        items, values = columns.items[: columns.ends[0]], columns.values[: columns.ends[0]]
        discounts = settled(items)
        chosen = chosen_of(values, discounts, k, exposure, None if within is None else binding(items, k, within))
        if len(chosen) == k or width == scores.shape[1]:
            break
        width = min(4 * width, scores.shape[1])  # limits left too few of the candidates
    last = values[chosen] + exposure[: len(chosen)] * discounts[chosen]
    return Page(items[chosen], values[chosen], discounts[chosen], float(last.min(initial=np.inf)))


def candidates(scores: Array, weight: float, out: Array, discount: Array, width: int) -> Columns:
    """The candidates of one person, in order of value."""
    offsets = np.array([0, len(out)])
    wanted = Wanted(
        np.array([weight], dtype=np.float32), discount, offsets, out.astype(np.int32), NOBODY, NO_ITEMS, NO_OPENS
    )
    by_value = np.full((1, width), -2, dtype=np.int32)
    size = 2 * width
    columns = Columns(
        np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), np.empty(size, dtype=np.int32),
        np.empty(size, dtype=np.float32), np.empty(size, dtype=np.uint8),
    )  # fmt: skip
    nothing = np.empty((1, 0), dtype=np.int32)
    close_rows(scores, 0, wanted, NO_SCORES)
    find_rows(scores, 0, wanted, NO_SCORES, by_value, nothing, columns)
    return columns


class Binding(NamedTuple):
    """The limits that candidates can break: the totals of each as a CSR matrix, and the room of each total."""

    offsets: Array
    totals: Array
    room: Array


def binding(items: Array, k: int, within: Within) -> Binding | None:
    """The limits that a list of k of these candidates can break; none if there is no such one."""
    rows, totals = within.totals_of(items)
    many = np.bincount(totals, minlength=len(within.room)) > within.room
    tight = many[totals] & (within.room[totals] < k)
    if not tight.any():
        return None
    names, numbers = np.unique(totals[tight], return_inverse=True)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows[tight], minlength=len(items)))])
    return Binding(offsets.astype(np.int64), numbers.astype(np.int32), within.room[names])


def chosen_of(values: Array, discounts: Array, k: int, exposure: Array, limits: Binding | None = None) -> Array:
    """Which candidates, given in order of value, are the best list.

    The market's own turn of a user: a candidate's "exposure" is its position, so that the table of bonuses says what
    each of them earns.
    """
    n = len(values)
    columns = Columns(
        np.zeros(1, dtype=np.int64), np.array([n]), np.arange(n, dtype=np.int32),
        np.ascontiguousarray(values, dtype=np.float32), np.full(n, KIND, dtype=np.uint8),
    )  # fmt: skip
    positions = np.arange(n, dtype=np.int64) << ONE_BITS
    lists = np.full((1, k), -1, dtype=np.int32)
    slots = np.rint(exposure * ONE).astype(np.int64)
    terms = Terms(slot_weights(k), slots, np.append(discounts, 0.0))
    if limits is None:
        take_turns(columns, KIND, 0, 1, terms, positions, lists)
    else:
        none, zero = np.zeros(len(limits.room)), np.zeros(len(limits.room), dtype=np.int64)
        user = np.zeros(1, dtype=np.int64)
        rules = Ruled(
            limits.offsets, limits.totals, limits.offsets[:-1], np.append(zero, 0), user[:0], zero, zero + MANY,
            limits.room, none, none, none, none, none[:0], 0.0, 1.0, 1.0, False, True,
        )  # fmt: skip
        take_ruled_turns(columns, KIND, user, terms, rules, positions, zero.copy(), lists)
    return np.asarray(lists[0][lists[0] >= 0])
