"""How discounts move while lists are shown: up by the pace at which an item should be shown, down by each showing.

The (x + 1)-th showing of an item within a horizon is worth ρ·b(x), b(x) = log(1 + (c/(x + δ))^q)/q (`market.bonus`),
with its own level c. What would be the same at every request is made up for when an item is next looked at.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from divmf.engine.arrays import Array

MANY = 30.0  # beyond it, e^x − 1 is e^x to the last bit


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
    if discount <= 0:
        return pace.horizon if level > 0 else 0.0
    power = pace.steepness * discount / pace.rho
    inverse = np.exp(-power) if power > MANY else 1 / np.expm1(power)
    return min(max(np.ceil(level * inverse ** (1 / pace.steepness) - pace.delta), 0.0), pace.horizon)


@njit(cache=True, nogil=True)
def risen(discount: float, requests: float, level: float, pace: Pace) -> Any:
    """A discount after some requests that did not show the item: at each, it rises by η · supply / horizon.

    Between two showings the rise is the same at every request, so all of these are taken at once.
    """
    highest = worth_at(0.0, level, pace)
    while requests > 0 and discount < highest:
        supply = max(supply_at(discount, level, pace), 1.0)
        rise = pace.step * supply / pace.horizon
        alike = max(np.ceil((worth_at(supply - 1, level, pace) - discount) / rise), 1.0)
        alike = min(alike, requests)
        discount += alike * rise
        requests -= alike
    return min(discount, highest)


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


@njit(cache=True, nogil=True)
def count_showing(
    items: Array, exposure: Array, now: float, took: float, levels: Array, pace: Pace, discount: Array, settled: Array
) -> None:
    """A request that showed these items: each pays for its slot, d ← clip(d + rise − η·e_r), at the time now + took."""
    for r in range(len(items)):
        item = items[r]
        before = risen(discount[item], now - settled[item], levels[item], pace)
        supply = supply_at(before, levels[item], pace)
        moved = before + pace.step * (took * supply / pace.horizon - exposure[r])
        discount[item] = min(max(moved, 0.0), worth_at(0.0, levels[item], pace))
        settled[item] = now + took
