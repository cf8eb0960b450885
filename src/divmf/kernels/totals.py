"""Totals of showings, compiled: what one more showing of each is worth, and how lists move them.

A total is the number of showings of some items (`divmf.market.bound`). What one more showing of a total is worth stands
in a book, and is kept as totals change; so is, for each item, the sum over its small totals, so that a turn does not
look up the totals of every candidate. Soft bounds cost the more, the further a total is outside of them (an augmented
Lagrangian); with hard ones an item of a full total is out of reach, and a total below its floor pays for a showing.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from divmf.engine.arrays import Array
from divmf.kernels.market import NEVER, ONE, Terms, gain_of

# of what allocates nothing: arrays that only pass through are not counted, which for two dozen takes longer than a turn
BARE: Any = {"cache": True, "nogil": True, "_nrt": False}


class Ruled(NamedTuple):
    """Rules as arrays, and where their prices stand.

    offsets, totals   the totals of each item, as a CSR matrix, those of few items first
    large             (n_items,) int64: from where on in `totals` an item's are of many items
    starts, members   the items of each total of few items, as a CSR matrix
    low, high, limit  (totals,) int64: at least, at most, and at most in one list
    price             (totals,) float64: what a showing is paid for the sake of a floor; below 0, charged for a cap's
    step              (totals,) float64: what a showing outside a bound costs more than the one before it; where bounds
                      are hard, what one below the floor earns
    level, weight     (totals,) float64: the showings at which the bonus of a total ends (0: it has none), times ρ
    own_level         (n_items,) float64, or empty: the exposure at which the bonus of an item ends
    rho, steepness, delta   of the bonus where it is not the table's
    hard              whether bounds hold whatever it costs
    limited           whether some total has a limit in one list
    """

    offsets: Array
    totals: Array
    large: Array
    starts: Array
    members: Array
    low: Array
    high: Array
    limit: Array
    price: Array
    step: Array
    level: Array
    weight: Array
    own_level: Array
    rho: float
    steepness: float
    delta: float
    hard: bool
    limited: bool


@njit(**BARE)
def bonus_at(level: float, shown: float, steepness: float, delta: float) -> Any:
    """b(x) = log(1 + (c/(x + δ))^q)/q."""
    if level <= 0.0:
        return 0.0
    height = steepness * np.log(level / (shown + delta))
    if height > 30.0:
        return height / steepness
    return np.log1p(np.exp(height)) / steepness


@njit(**BARE)
def _bounded(count: float, low: float, high: float, price: float, step: float, hard: bool) -> Any:
    """What one more showing of a total is worth by its bounds: −inf where it is full and bounds are hard."""
    if hard:
        if count >= high:
            return NEVER
        return price + step if count < low else price
    return max(0.0, price + step * (low - count - 0.5)) + min(0.0, price + step * (high - count - 0.5))


COUNT, LOW, HIGH, PRICE, STEP, LEVEL, WEIGHT, PULL = range(8)  # columns of `Shown.book`: what a move reads, together


class Shown(NamedTuple):
    """What is shown, and what one more showing is worth; all changed in place as lists move.

    exposed, gains   (n_items,): exposure in units of `ONE`; what an item's small totals pay for a showing and, where
                     all slots expose alike, what it earns by its own bonus
    book             (totals, 8) float64: of each total its showings, what `Ruled` says, and what one more is worth
    """

    exposed: Array
    gains: Array
    book: Array


@njit(**BARE)
def _pull_of(count: float, book: Array, total: int, rho: float, steepness: float, delta: float, hard: bool) -> Any:
    """What one more showing of a total is worth that has so many."""
    pull = _bounded(count, book[total, LOW], book[total, HIGH], book[total, PRICE], book[total, STEP], hard)
    if book[total, LEVEL] > 0.0:
        pull += book[total, WEIGHT] * bonus_at(book[total, LEVEL], count, steepness, delta)
    return pull


@njit(cache=True, nogil=True)
def book_of(counts: Array, rules: Ruled) -> Array:
    """The totals with so many showings, and what one more of each is worth (`Shown.book`)."""
    book = np.empty((len(counts), 8))
    for total in range(len(counts)):
        book[total, COUNT], book[total, LOW], book[total, HIGH] = counts[total], rules.low[total], rules.high[total]
        book[total, PRICE], book[total, STEP] = rules.price[total], rules.step[total]
        book[total, LEVEL], book[total, WEIGHT] = rules.level[total], rules.weight[total]
        book[total, PULL] = _pull_of(
            book[total, COUNT], book, total, rules.rho, rules.steepness, rules.delta, rules.hard
        )  # fmt: skip
    return book


@njit(**BARE)
def own_gain(item: int, more: int, exposed: Array, table: Array, own_level: Array, price: tuple[Any, ...]) -> Any:
    """What `more` exposure earns an item, by the bonus of all, or by its own where items have levels of their own.

    price   ρ, steepness and δ
    """
    if len(own_level) == 0:
        return gain_of(exposed[item], more, table)
    rho, steepness, delta = price
    return rho * bonus_at(own_level[item], exposed[item] / ONE, steepness, delta) * (more / ONE)


@njit(cache=True, nogil=True)
def shown_by(exposed: Array, counts: Array, terms: Terms, rules: Ruled) -> Shown:
    """What some lists show, with what one more showing is worth; exposed is the array given."""
    book, gains = book_of(counts, rules), np.zeros(len(exposed))
    offsets, large, totals, table, own_level = rules.offsets, rules.large, rules.totals, terms.bonus, rules.own_level
    first, flat = terms.exposure[0], terms.exposure[0] == terms.exposure[-1]
    price = rules.rho, rules.steepness, rules.delta
    for item in range(len(exposed)):
        gain = own_gain(item, first, exposed, table, own_level, price) if flat else 0.0
        for position in range(offsets[item], large[item]):
            gain += book[totals[position], PULL]
        gains[item] = gain
    return Shown(exposed, gains, book)


@njit(**BARE)
def move(items: Array, sign: int, terms: Terms, rules: Ruled, shown: Shown) -> None:
    """Add a list to what is shown, or take it away."""
    offsets, large, totals, starts, members = rules.offsets, rules.large, rules.totals, rules.starts, rules.members
    exposure, table, own_level, hard = terms.exposure, terms.bonus, rules.own_level, rules.hard
    exposed, gains, book = shown.exposed, shown.gains, shown.book
    first, flat, price = exposure[0], exposure[0] == exposure[-1], (rules.rho, rules.steepness, rules.delta)
    for r in range(len(items)):
        item = items[r]
        if item < 0:
            continue
        exposed[item] += sign * exposure[r]
        gain = own_gain(item, first, exposed, table, own_level, price) if flat else 0.0
        for position in range(offsets[item], offsets[item + 1]):
            total = totals[position]
            count = book[total, COUNT] + sign
            pull = _pull_of(count, book, total, price[0], price[1], price[2], hard)
            changed = pull != book[total, PULL]
            book[total, COUNT], book[total, PULL] = count, pull
            if position >= large[item]:
                continue
            gain += pull
            for position in range(starts[total], starts[total + 1] if changed else starts[total]):
                other = members[position]
                if other != item:
                    theirs = own_gain(other, first, exposed, table, own_level, price) if flat else 0.0
                    for its in range(offsets[other], large[other]):
                        theirs += book[totals[its], PULL]
                    gains[other] = theirs
        gains[item] = gain


@njit(**BARE)
def is_in(item: int, total: int, rules: Ruled) -> bool:
    """Whether an item counts in a total."""
    found = False
    for position in range(rules.offsets[item], rules.offsets[item + 1]):
        found = found or rules.totals[position] == total
    return found


@njit(**BARE)
def fills(items: Array, rules: Ruled, counts: Array) -> int:
    """How many showings a list brings to totals that lack them."""
    filled = 0
    for r in range(len(items)):
        if items[r] < 0:
            continue
        for position in range(rules.offsets[items[r]], rules.offsets[items[r] + 1]):
            total, before = rules.totals[position], 0
            if counts[total] < rules.low[total]:
                for other in range(r):
                    before += items[other] >= 0 and is_in(items[other], total, rules)
                filled += counts[total] + before < rules.low[total]
    return filled


@njit(cache=True, nogil=True)
def earned_by(levels: Array, counts: Array, steepness: float, delta: float, out: Array) -> None:
    """B(f) = Σ_{x<f} b(x) of totals or items with levels of their own, into `out`."""
    for number in range(len(levels)):
        out[number] = 0.0
        if levels[number] > 0.0:
            for shown in range(counts[number]):
                out[number] += bonus_at(levels[number], shown, steepness, delta)


@njit(cache=True, nogil=True)
def best_total(
    level: float, weight: float, price: float, low: int, high: int, steepness: float, delta: float
) -> tuple[float, int]:
    """max over low ≤ x ≤ high of weight·B(x) − price·x, and the x: b falls, so it is where b meets the price."""
    if level <= 0.0 or weight <= 0.0:
        return (-price * low, low) if price >= 0.0 else (-price * high, high)
    first, last = low, high
    while first < last:
        middle = (first + last) // 2
        if weight * bonus_at(level, middle, steepness, delta) > price:
            first = middle + 1
        else:
            last = middle
    worth = 0.0
    for shown in range(first):
        worth += weight * bonus_at(level, shown, steepness, delta)
    return worth - price * first, first
