"""How discounts move while lists are shown: up by the pace at which an item should be shown, down by each showing.

The (x + 1)-th showing of an item within a horizon is worth ρ·b(x), b(x) = log(1 + (c/(x + δ))^q)/q (`market.bonus`),
with its own level c. What would be the same at every request is made up for when an item is next looked at.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from divmf.engine.arrays import Array

MANY = 30.0  # beyond it, e^x − 1 is e^x to the last bit
LEAST = 1e-6  # of ρ: a discount below counts as this one, for which there is still a number of showings
FINE = 64  # showings up to twice of which are told apart one by one


class Pace(NamedTuple):
    """What decides how discounts move.

    rho, delta, steepness   of the bonus
    step                    η: what one full showing takes off a discount
    horizon                 the requests over which exposure is to be shared out
    """

    rho: float
    delta: float
    steepness: float
    step: float
    horizon: float


@njit(cache=True, nogil=True)
def worth_at(shown: float, level: float, pace: Pace) -> Any:
    """ρ·b(x): what the next showing is worth after x of them."""
    if level <= 0:
        return 0.0
    power = pace.steepness * np.log(level / (shown + pace.delta))
    return pace.rho * (max(power, 0.0) + np.log1p(np.exp(-abs(power)))) / pace.steepness


@njit(cache=True, nogil=True)
def supply_at(discount: float, level: float, pace: Pace) -> Any:
    """How many showings within a horizon are worth more than the discount; no item is shown twice in a list."""
    if level <= 0 or pace.rho <= 0:
        return 0
    power = pace.steepness * max(discount / pace.rho, LEAST)
    inverse = np.exp(-power) if power > MANY else 1 / np.expm1(power)
    found = np.ceil(level * inverse ** (1 / pace.steepness) - pace.delta)
    return int(min(max(found, 0.0), pace.horizon))


@njit(cache=True, nogil=True)
def risen(discount: float, requests: float, level: float, pace: Pace) -> Any:
    """A discount after some requests that did not show the item: with each, it rises by η · supply / horizon.

    The rise is even until the discount reaches what one showing fewer is worth, so it is taken in pieces. Beyond FINE
    showings, a piece is a 64th of them or less. How the requests are cut into calls does not matter.
    """
    supply = supply_at(discount, level, pace)
    while requests > 0 and supply > 0:
        bits = 0
        while supply >> bits >= 2 * FINE:
            bits += 1
        below = ((supply - 1) >> bits) << bits
        rise = pace.step * (below + (1 << bits)) / pace.horizon
        left = worth_at(below, level, pace) - discount
        if left >= requests * rise:
            return discount + requests * rise
        if left > 0:
            requests -= left / rise
            discount += left
        supply = below
    return min(discount, worth_at(0.0, level, pace))


@njit(cache=True, nogil=True)
def settle(items: Array, now: float, levels: Array, pace: Pace, discount: Array, settled: Array) -> None:
    """Bring the discounts of some items up to the present; discount and settled (n_items,) are changed in place."""
    for item in items:
        if settled[item] < now:
            discount[item] = risen(discount[item], now - settled[item], levels[item], pace)
            settled[item] = now


@njit(cache=True, nogil=True)
def settle_range(first: int, last: int, now: float, levels: Array, pace: Pace, discount: Array, settled: Array) -> None:
    """As `settle`, for the items first … last−1."""
    for item in range(first, last):
        if settled[item] < now:
            discount[item] = risen(discount[item], now - settled[item], levels[item], pace)
            settled[item] = now
