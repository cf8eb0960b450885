"""The ledger of what was shown: discounts that follow the exposure, request by request.

    max  Σ_t a_t Σ_r w_r v_t,r + ρ Σ_i B_i(f_i)   over the requests t of a horizon, as they come

is solved by dual mirror descent (Balseiro, Lu, Mirrokni 2020): a list is the best response at the present discounts
(`divmf.market.response`); every discount rises by η times the pace at which the item should be shown, the number of
showings whose bonus exceeds the discount over the requests of the horizon, and falls by η for each showing. It stays
between 0 and ρ·b(0). A request touches the items it shows and a few others: the rise of the rest is made up for later,
exactly (`divmf.kernels.ledger`).
"""

from dataclasses import dataclass

import numpy as np

from divmf.engine.arrays import Array
from divmf.kernels.ledger import Pace, settle, settle_range, worth_at
from divmf.kernels.market import ONE
from divmf.market.values import exposure_weights

STEP = 0.03  # η, in units of ρ, where nothing is known of the horizon
STALE = 64  # requests that the discount of an item nobody looks at may be behind
NO_LIMIT = np.iinfo(np.int64).max
KEPT = ("discount", "settled", "shares", "shown", "present", "past")  # arrays of a snapshot


@dataclass(frozen=True)
class Terms:
    """What a ledger is kept by.

    rho, delta, level, steepness   of the bonus, as in training; level in even shares
    k, exposure                    slots of a usual page, and what a showing counts in each ("count" or "attention")
    horizon                        the requests over which exposure is to be shared out
    step                           η, in units of ρ
    """

    rho: float
    k: int
    horizon: int
    delta: float = 1e-4
    level: float = 0.9
    steepness: float = 16.0
    exposure: str = "count"
    step: float = STEP

    def __post_init__(self) -> None:
        if self.horizon < 1:
            raise ValueError(f"horizon={self.horizon} is no number of requests; choose at least 1")
        if not 0 < self.step <= 1:
            raise ValueError(f"step={self.step} must be above 0 and at most 1, in units of ρ; 0.03 is usual")

    @property
    def pace(self) -> Pace:
        """As the kernels take it."""
        return Pace(self.rho, self.delta, self.steepness, self.step * self.rho, float(self.horizon))

    def even_level(self, n_items: int) -> float:
        """The showings within a horizon at which the bonus of an item with an even share ends."""
        return self.level * self.horizon * float(exposures(self.k, self.exposure).sum()) / n_items


def usual_step(level: float) -> float:
    """η, in units of ρ, for items whose bonus ends at such a number of showings within a horizon.

    The fewer showings there are, the more each must tell: with 3/level, discounts can move by about 3 ρ in a horizon.
    """
    return float(np.clip(3 / max(level, 1e-9), 0.01, 0.5))


def exposures(k: int, kind: str) -> Array:
    """e_r: what a showing counts in each slot of a page.  (k,) float64"""
    return np.asarray(exposure_weights(k, kind) / ONE)


class Ledger:
    """Discounts and counts of every item, in memory.

    discount   (n_items,): as of the time `settled`; `at` and `now` bring it up to the present
    shares     (n_items,): how many times its even share an item may expect
    shown      (n_items,): showings since the ledger began; capacity: how many there may be at the most
    present, past   (n_items,): showings within this horizon and within the one before
    requests   pages shown; clock: the same, a page of twice the usual length counting twice
    """

    def __init__(self, terms: Terms, discount: Array) -> None:
        n_items = len(discount)
        self.terms, self.pace = terms, terms.pace
        self.discount = np.array(discount, dtype=np.float64)
        self.start = self.discount.copy()
        self.settled, self.shares = np.zeros(n_items), np.ones(n_items)
        self.shown, self.present, self.past = (np.zeros(n_items, dtype=np.int64) for _ in range(3))
        self.capacity = np.full(n_items, NO_LIMIT, dtype=np.int64)
        self._limited = np.zeros(0, dtype=np.int64)
        self.requests, self.clock, self._cursor = 0, 0.0, 0
        self._exposures: dict[int, Array] = {}
        self._usual = float(self.exposures(terms.k).sum())
        self._relevel()

    @property
    def n_items(self) -> int:
        """How many items there are."""
        return len(self.discount)

    def _relevel(self) -> None:
        """The level of each item, and discounts within their bounds."""
        self.levels = self.shares * self.terms.even_level(self.n_items)
        self._clip(np.arange(self.n_items))

    def _clip(self, items: Array) -> None:
        """Keep discounts between 0 and what a first showing is worth."""
        levels, positions = np.unique(self.levels[items], return_inverse=True)
        highest = np.array([worth_at(0.0, level, self.pace) for level in levels])
        self.discount[items] = np.clip(self.discount[items], 0.0, highest[positions])

    def exposures(self, k: int) -> Array:
        """e_r: what a showing counts in each slot of a page of k.  (k,)"""
        if k not in self._exposures:
            self._exposures[k] = exposures(k, self.terms.exposure)
        return self._exposures[k]

    def at(self, items: Array) -> Array:
        """The discounts of some items now.  (items,)"""
        settle(items, self.clock, self.levels, self.pace, self.discount, self.settled)
        return self.discount[items]

    def now(self) -> Array:
        """The discounts of all items now.  (n_items,)"""
        settle_range(0, self.n_items, self.clock, self.levels, self.pace, self.discount, self.settled)
        return self.discount

    def count(self, items: Array) -> None:
        """A page with these items, in order, was shown."""
        exposure = self.exposures(len(items))
        took = float(exposure.sum()) / self._usual
        self.clock += took
        self.discount[items] = np.maximum(self.at(items) - self.pace.step * exposure, 0.0)
        self.shown[items] += 1
        self.present[items] += 1
        self.requests += 1
        if self.requests % self.terms.horizon == 0:
            self.past, self.present = self.present, np.zeros(self.n_items, dtype=np.int64)
        self._settle_some()

    def uncount(self, items: Array) -> None:
        """A page that was counted was not shown after all; the time it took stays."""
        self.discount[items] = self.at(items) + self.pace.step * self.exposures(len(items))
        self._clip(items)
        self.shown[items] -= 1
        self.present[items] = np.maximum(self.present[items] - 1, 0)
        self.requests -= 1

    def _settle_some(self) -> None:
        """Bring the next few items up to the present, so that none is behind by more than `STALE` requests."""
        last = min(self._cursor + -(-self.n_items // STALE), self.n_items)
        settle_range(self._cursor, last, self.clock, self.levels, self.pace, self.discount, self.settled)
        self._cursor = last % self.n_items

    @property
    def full(self) -> Array:
        """The items that may not be shown any more."""
        limited = self._limited
        return limited[self.shown[limited] >= self.capacity[limited]]

    def set_capacity(self, item: int, capacity: int | None) -> None:
        """Let an item be in so many lists at the most, counted since the ledger began; None: in any number."""
        self.capacity[item] = NO_LIMIT if capacity is None else capacity
        self._limited = np.flatnonzero(self.capacity < NO_LIMIT)

    def set_full(self, item: int) -> None:
        """An item was found to be at its capacity, as others have shown it, or given it a lower one."""
        if self.capacity[item] == NO_LIMIT:
            self.set_capacity(item, int(self.shown[item]))
        self.shown[item] = max(self.shown[item], self.capacity[item])

    @property
    def drift(self) -> float:
        """How far discounts have moved from those of the run, as a root mean square in units of ρ."""
        if not self.pace.rho:
            return 0.0
        return float(np.sqrt(np.mean((self.now() - self.start) ** 2)) / self.pace.rho)

    def enter(self, discounts: Array, shares: Array) -> None:
        """New items, whose numbers follow those there are, at these discounts; the even share shrinks for all."""
        self.now()
        new = len(discounts)
        fills = {"shown": 0, "present": 0, "past": 0, "capacity": NO_LIMIT, "settled": self.clock}
        for name, fill in fills.items():
            old: Array = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.full(new, fill, dtype=old.dtype)]))
        self.shares = np.concatenate([self.shares, shares])
        self.discount = np.concatenate([self.discount, discounts])
        self.start = np.concatenate([self.start, discounts])
        self._relevel()

    def set_share(self, item: int, share: float) -> None:
        """Let an item expect so many times its even share from now on."""
        self.at(np.array([item]))
        self.shares[item] = share
        self.levels[item] = share * self.terms.even_level(self.n_items)
        self._clip(np.array([item]))

    def arrays(self) -> dict[str, Array]:
        """All that changes, as a snapshot keeps it."""
        counters = np.array([self.requests, self.clock])
        return {name: getattr(self, name).copy() for name in KEPT} | {"counters": counters}

    def restore(self, kept: dict[str, Array], numbers: Array) -> None:
        """Take up a snapshot; numbers: the present number of each of its items, −1 for those that are gone."""
        there = numbers >= 0
        for name in KEPT:
            getattr(self, name)[numbers[there]] = kept[name][there]
        self.requests, self.clock = int(kept["counters"][0]), float(kept["counters"][1])
        missing = np.setdiff1d(np.arange(self.n_items), numbers[there])
        self.settled[missing] = self.clock
        self._relevel()

    def blended(self, terms: Terms, discount: Array, numbers: Array, weight: float) -> "Ledger":
        """The ledger of a newer run: its discounts, and these by `weight` less, both in units of their own ρ.

        numbers: the number that each of this ledger's items has there, −1 for those that are gone
        """
        made, there = Ledger(terms, discount), numbers >= 0
        if terms.rho and self.pace.rho:
            own = self.now()[there] * terms.rho / self.pace.rho
            made.discount[numbers[there]] = weight * discount[numbers[there]] + (1 - weight) * own
        for name in ("shares", "shown", "present", "past", "capacity"):
            getattr(made, name)[numbers[there]] = getattr(self, name)[there]
        made._limited = np.flatnonzero(made.capacity < NO_LIMIT)
        made.requests, made.clock = self.requests, self.clock
        made.settled[:] = made.clock
        made._relevel()
        return made
