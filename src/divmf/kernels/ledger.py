"""What an item is worth to be shown while a horizon passes: the bonus at the pace of its showings so far.

The (x + 1)-th showing of an item within a horizon is worth ρ·b(x), b(x) = log(1 + (c/(x + δ))^q)/q (`market.bonus`),
with its own level c. `market.ledger` has the rule.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from divmf.engine.arrays import Array

MANY = 30.0  # beyond it, e^x − 1 is e^x to the last bit
LEAST = 1e-6  # of ρ: a worth below counts as this one, for which there is still a number of showings


class Pace(NamedTuple):
    """What decides discounts.

    rho, delta, steepness   of the bonus
    trust                   how much of a horizon it takes until what was shown counts as much as what was expected
    horizon                 the requests over which exposure is to be shared out
    """

    rho: float
    delta: float
    steepness: float
    trust: float
    horizon: float


@njit(cache=True, nogil=True)
def worth_at(shown: float, level: float, pace: Pace) -> Any:
    """ρ·b(x): what the next showing is worth after x of them."""
    if level <= 0:
        return 0.0
    power = pace.steepness * np.log(level / (shown + pace.delta))
    return pace.rho * (max(power, 0.0) + np.log1p(np.exp(-abs(power)))) / pace.steepness


@njit(cache=True, nogil=True)
def shown_at(worth: float, level: float, pace: Pace) -> Any:
    """x, not whole, after which the next showing within a horizon is worth so much; at most one in each request."""
    if level <= 0 or pace.rho <= 0:
        return 0.0
    power = pace.steepness * max(worth / pace.rho, LEAST)
    inverse = np.exp(-power) if power > MANY else 1 / np.expm1(power)
    return min(max(level * inverse ** (1 / pace.steepness) - pace.delta, 0.0), pace.horizon)


@njit(cache=True, nogil=True)
def discount_at(exposed: float, expected: float, since: float, now: float, level: float, pace: Pace) -> Any:
    """What the next showing is worth at the pace so far.

    exposed    exposure since the time `since` of this horizon; expected: in a horizon, as was known then
    """
    gone, rest = (now - since) / pace.horizon, pace.trust * (pace.horizon - now) / pace.horizon
    return worth_at((exposed + rest * expected) / max(gone + rest, 1e-12), level, pace)


class Book(NamedTuple):
    """The ledger of all items as arrays (n_items,): see `discount_at`; discount: as it was last worked out."""

    exposed: Array
    expected: Array
    since: Array
    level: Array
    discount: Array


@njit(cache=True, nogil=True)
def price(items: Array, now: float, book: Book, pace: Pace) -> None:
    """Work out the discounts of some items."""
    for item in items:
        book.discount[item] = discount_at(
            book.exposed[item], book.expected[item], book.since[item], now, book.level[item], pace
        )


@njit(cache=True, nogil=True)
def price_range(first: int, last: int, now: float, book: Book, pace: Pace) -> None:
    """As `price`, for the items first … last−1."""
    for item in range(first, last):
        book.discount[item] = discount_at(
            book.exposed[item], book.expected[item], book.since[item], now, book.level[item], pace
        )
