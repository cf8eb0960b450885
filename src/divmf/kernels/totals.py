"""Totals of showings, compiled: what one more showing of each is worth, and how lists move them.

A total is the number of showings of some items (`divmf.market.bound`). What one more showing of a total is worth stands
in `pull`, and is kept as totals change. Soft bounds cost the more, the further a total is outside of them (an augmented
Lagrangian); with hard ones an item of a full total is out of reach, and a total below its floor pays for a showing.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from divmf.engine.arrays import Array
from divmf.kernels.market import NEVER, Terms


class Ruled(NamedTuple):
    """Rules as arrays, and where their prices stand.

    offsets, totals   the totals of each item, as a CSR matrix
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


@njit(cache=True, nogil=True)
def bonus_at(level: float, shown: float, steepness: float, delta: float) -> Any:
    """b(x) = log(1 + (c/(x + δ))^q)/q."""
    if level <= 0.0:
        return 0.0
    height = steepness * np.log(level / (shown + delta))
    if height > 30.0:
        return height / steepness
    return np.log1p(np.exp(height)) / steepness


@njit(cache=True, nogil=True)
def _bounded(count: int, low: int, high: int, price: float, step: float, hard: bool) -> Any:
    """What one more showing of a total is worth by its bounds: −inf where it is full and bounds are hard."""
    if hard:
        if count >= high:
            return NEVER
        return price + step if count < low else price
    return max(0.0, price + step * (low - count - 0.5)) + min(0.0, price + step * (high - count - 0.5))


@njit(cache=True, nogil=True)
def pull_all(counts: Array, rules: Ruled, pull: Array) -> None:
    """What one more showing of each total is worth, into `pull`."""
    low, high, price, step = rules.low, rules.high, rules.price, rules.step
    for total in range(len(counts)):
        pull[total] = _bounded(counts[total], low[total], high[total], price[total], step[total], rules.hard)
        if rules.level[total] > 0.0:
            earned = bonus_at(rules.level[total], counts[total], rules.steepness, rules.delta)
            pull[total] += rules.weight[total] * earned


@njit(cache=True, nogil=True)
def move(items: Array, sign: int, terms: Terms, rules: Ruled, exposed: Array, counts: Array, pull: Array) -> None:
    """Add a list to what is shown, or take it away."""
    offsets, totals, low, high = rules.offsets, rules.totals, rules.low, rules.high
    price, step, level, hard = rules.price, rules.step, rules.level, rules.hard
    for r in range(len(items)):
        item = items[r]
        if item < 0:
            continue
        exposed[item] += sign * terms.exposure[r]
        for at in range(offsets[item], offsets[item + 1]):
            total = totals[at]
            count = counts[total] + sign
            counts[total] = count
            pull[total] = _bounded(count, low[total], high[total], price[total], step[total], hard)
            if level[total] > 0.0:
                earned = bonus_at(level[total], count, rules.steepness, rules.delta)
                pull[total] += rules.weight[total] * earned


@njit(cache=True, nogil=True)
def is_in(item: int, total: int, rules: Ruled) -> bool:
    """Whether an item counts in a total."""
    found = False
    for position in range(rules.offsets[item], rules.offsets[item + 1]):
        found = found or rules.totals[position] == total
    return found


@njit(cache=True, nogil=True)
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
    for at in range(len(levels)):
        out[at] = 0.0
        if levels[at] > 0.0:
            for shown in range(counts[at]):
                out[at] += bonus_at(levels[at], shown, steepness, delta)


@njit(cache=True, nogil=True)
def best_total(
    level: float, weight: float, asked: float, low: int, high: int, steepness: float, delta: float
) -> tuple[float, int]:
    """max over low ≤ x ≤ high of weight·B(x) − asked·x, and the x: b falls, so it is where b meets what is asked."""
    if level <= 0.0 or weight <= 0.0:
        return (-asked * low, low) if asked >= 0.0 else (-asked * high, high)
    first, last = low, high
    while first < last:
        middle = (first + last) // 2
        if weight * bonus_at(level, middle, steepness, delta) > asked:
            first = middle + 1
        else:
            last = middle
    worth = 0.0
    for shown in range(first):
        worth += weight * bonus_at(level, shown, steepness, delta)
    return worth - asked * first, first
