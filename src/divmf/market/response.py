"""One request: the best list for the scores of one person at given discounts.

The candidates are found as in batch (`divmf.kernels.market`): the best by value, and the best by value plus discount;
the list is the exact best response among them, by the same dynamic programme.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from divmf.engine.arrays import Array
from divmf.kernels.market import ONE, ONE_BITS, Columns, Terms, Wanted, find_rows, take_turns
from divmf.market.columns import WIDTH
from divmf.market.values import slot_weights

NOBODY = np.zeros(2, dtype=np.int64)
NO_ITEMS = np.zeros(0, dtype=np.int32)
NO_OPENS = np.zeros(0, dtype=np.int64)
KIND = 1


class Page(NamedTuple):
    """A list as it is answered: items in order, their values, the discounts that helped them, what an item must reach.

    bar   the least value in the last slot plus discount among the items; what entered the list had to reach it
    """

    items: Array
    values: Array
    discounts: Array
    bar: float


def best_response(
    scores: Array, weight: float, out: Array, discount: Array, settled: Callable[[Array], Array], k: int,
    exposure: Array,
) -> Page:  # fmt: skip
    """The best list of one person.

    scores     (1, n_items) float32, written to; weight: how much they count
    out        numbers of the items that must not be in the list, each once
    discount   (n_items,) float32: what candidates are found by
    settled    the discounts of some items as they are now: what the list is chosen by
    exposure   (k,) what a showing counts in each slot
    """
    width = min(max(WIDTH, 2 * k), scores.shape[1])
    columns = candidates(scores, weight, out, discount, width)
    items, values = columns.items[: columns.ends[0]], columns.values[: columns.ends[0]]
    discounts = settled(items)
    chosen = chosen_of(values, discounts, k, exposure)
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
    find_rows(scores, 0, wanted, by_value, nothing, columns)
    return columns


def chosen_of(values: Array, discounts: Array, k: int, exposure: Array) -> Array:
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
    take_turns(columns, KIND, 0, 1, Terms(slot_weights(k), slots, np.append(discounts, 0.0)), positions, lists)
    return np.asarray(lists[0][lists[0] >= 0])
