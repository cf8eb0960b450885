"""The ledger of what was shown: discounts that follow the exposure, request by request.

    max  Σ_t a_t Σ_r w_r v_t,r + ρ Σ_i B_i(f_i)   over the requests t of a horizon, as they come

is solved by online Frank–Wolfe (Usunier, Do, Dohmatob 2022): a list is the best response at the present discounts
(`divmf.market.response`), and the discount of an item is what its next showing would be worth at the end of the horizon
if showings went on at their pace, ρ·b(x),

    x = (f + m·(1 − τ)·x₀) / (τ + m·(1 − τ)),

τ being the part of the horizon that has passed, f the showings in it, and x₀ those that were expected when it began, as
the discounts of the run say. What was expected counts like m horizons of observation at first, and not at all in the
end: then d = ρ·b(f), what the next showing is worth indeed, so that no item is left over that anybody would be shown.
There is no length of a step, and the same counts give the same discounts in whatever order they came.

A request touches the items it shows and a few others; the rest are worked out when they are looked at, or in turn.
"""

from dataclasses import dataclass

import numpy as np

from divmf.engine.arrays import Array
from divmf.kernels.ledger import Book, Pace, price, price_range, shown_at, worth_at
from divmf.kernels.market import ONE
from divmf.market.values import exposure_weights

TRUST = 0.5  # m; chosen among 0.1 … 2 on other requests than those of docs/serve.md: `python -m benchmarks drift`
STALE = 64  # requests, and parts of a horizon, that the discount of an item nobody looks at may be behind
NO_LIMIT = np.iinfo(np.int64).max
KEPT = ("expected", "since", "exposed", "shares", "shown", "present", "past")  # arrays of a snapshot


@dataclass(frozen=True)
class Terms:
    """What a ledger is kept by.

    rho, delta, level, steepness   of the bonus, as in training; level in even shares
    k, exposure                    slots of a usual page, and what a showing counts in each ("count" or "attention")
    horizon                        the requests over which exposure is to be shared out
    """

    rho: float
    k: int
    horizon: int
    delta: float = 1e-4
    level: float = 0.9
    steepness: float = 16.0
    exposure: str = "count"

    def __post_init__(self) -> None:
        if self.horizon < 1:
            raise ValueError(f"horizon={self.horizon} is no number of requests; choose at least 1")

    @property
    def pace(self) -> Pace:
        """As the kernels take it."""
        return Pace(self.rho, self.delta, self.steepness, TRUST, float(self.horizon))

    def even_level(self, n_items: int) -> float:
        """The showings within a horizon at which the bonus of an item with an even share ends."""
        return self.level * self.horizon * float(exposures(self.k, self.exposure).sum()) / n_items


def exposures(k: int, kind: str) -> Array:
    """e_r: what a showing counts in each slot of a page.  (k,) float64"""
    return np.asarray(exposure_weights(k, kind) / ONE)


class Ledger:
    """Discounts and counts of every item, in memory.

    discount   (n_items,): as it was last worked out; `at` and `now` bring it up to the present
    expected   (n_items,): exposure expected within a horizon; exposed: what there was of it since the time `since`
    shares     (n_items,): how many times its even share an item may expect
    shown      (n_items,): showings since the ledger began; capacity: how many there may be at the most
    present, past   (n_items,): showings within this horizon and within the one before
    requests   pages shown; turn, turn_before: those within this horizon, and within the one before
    clock      pages within this horizon, one of twice the usual length counting twice
    """

    def __init__(self, terms: Terms, discount: Array, shares: Array | None = None) -> None:
        n_items = len(discount)
        self.terms, self.pace = terms, terms.pace
        self.shares = np.ones(n_items) if shares is None else shares.copy()
        self.expected, self.since, self.exposed = (np.zeros(n_items) for _ in range(3))
        self.shown, self.present, self.past = (np.zeros(n_items, dtype=np.int64) for _ in range(3))
        self.capacity = np.full(n_items, NO_LIMIT, dtype=np.int64)
        self._limited = np.zeros(0, dtype=np.int64)
        self._refused = np.zeros(0, dtype=np.int64)
        self.requests = self.turn = self.turn_before = 0
        self.clock, self._cursor = 0.0, 0
        self._exposures: dict[int, Array] = {}
        self._usual = float(self.exposures(terms.k).sum())
        self.discount = np.zeros(n_items)
        self._relevel()
        self.expect(np.arange(n_items), np.asarray(discount, dtype=np.float64))
        self.start = self.now().copy()

    @property
    def n_items(self) -> int:
        """How many items there are."""
        return len(self.shares)

    def _relevel(self) -> None:
        """The level of each item; it changes with how many there are."""
        self.levels = self.shares * self.terms.even_level(self.n_items)
        self._book = Book(self.exposed, self.expected, self.since, self.levels, self.discount)

    def expect(self, items: Array, discounts: Array) -> None:
        """Expect of some items the showings at which they have these discounts."""
        levels = self.levels[items].tolist()
        self.expected[items] = [shown_at(*each, self.pace) for each in zip(discounts.tolist(), levels, strict=True)]

    def highest(self, item: int) -> float:
        """What the first showing of an item is worth: its discount cannot be more."""
        return float(worth_at(0.0, self.levels[item], self.pace))

    def exposures(self, k: int) -> Array:
        """e_r: what a showing counts in each slot of a page of k.  (k,)"""
        if k not in self._exposures:
            self._exposures[k] = exposures(k, self.terms.exposure)
        return self._exposures[k]

    def at(self, items: Array) -> Array:
        """The discounts of some items now.  (items,)"""
        price(items, self.clock, self._book, self.pace)
        return self.discount[items]

    def now(self) -> Array:
        """The discounts of all items now.  (n_items,)"""
        price_range(0, self.n_items, self.clock, self._book, self.pace)
        return self.discount

    def count(self, items: Array) -> None:
        """A page with these items, in order, was shown."""
        self._add(items, 1)
        if self.clock >= self.terms.horizon:
            self._turn()
        self.at(items)
        self._price_some()

    def uncount(self, items: Array) -> None:
        """A page that was counted was not shown after all."""
        self._add(items, -1)
        for counts in (self.exposed, self.present):
            counts[items] = np.maximum(counts[items], 0)  # a horizon may have begun since
        self.clock, self.turn = max(self.clock, 0.0), max(self.turn, 0)
        self.at(items)

    def _add(self, items: Array, sign: int) -> None:
        exposure = self.exposures(len(items))
        self.clock += sign * float(exposure.sum()) / self._usual
        self.exposed[items] += sign * exposure
        self.shown[items] += sign
        self.present[items] += sign
        self.requests += sign
        self.turn += sign

    def _turn(self) -> None:
        """A horizon ends, and another one begins, of which is expected what there was and was expected of this one."""
        passed = np.maximum(1 - self.since / self.terms.horizon, 0.0)
        self.expected[:] = (self.exposed + self.pace.trust * self.expected) / (passed + self.pace.trust)
        self.exposed[:], self.since[:] = 0.0, 0.0
        self.past[:], self.present[:] = self.present, 0
        self.turn_before, self.turn = self.turn, 0
        self.clock -= self.terms.horizon

    def _price_some(self) -> None:
        """Bring the next few items up to the present, so that none is behind by more than `STALE` says."""
        behind = min(STALE, -(-self.terms.horizon // STALE))
        last = min(self._cursor + -(-self.n_items // behind), self.n_items)
        price_range(self._cursor, last, self.clock, self._book, self.pace)
        self._cursor = last % self.n_items

    @property
    def full(self) -> Array:
        """The items that may not be shown any more."""
        limited = self._limited
        full = limited[self.shown[limited] >= self.capacity[limited]]
        return np.union1d(full, self._refused) if len(self._refused) else full

    def set_capacity(self, item: int, capacity: int | None) -> None:
        """Let an item be in so many lists at the most, counted since the ledger began; None: in any number."""
        self.capacity[item] = NO_LIMIT if capacity is None else capacity
        self._limited = np.flatnonzero(self.capacity < NO_LIMIT)

    def set_full(self, item: int) -> None:
        """An item was found to be at its capacity, as others have shown it or given it a lower one; it counts as full
        until that was heard of (`heard`).
        """
        self._refused = np.union1d(self._refused, [item])

    def heard(self) -> None:
        """What others did has been counted: counts and capacities say which items are full."""
        self._refused = self._refused[:0]

    @property
    def drift(self) -> float:
        """How far discounts have moved from those of the run, as a root mean square in units of ρ."""
        if not self.pace.rho:
            return 0.0
        return float(np.sqrt(np.mean((self.now() - self.start) ** 2)) / self.pace.rho)

    def enter(self, shares: Array) -> None:
        """New items, numbered after those there are, of which nothing is expected yet; all even shares shrink."""
        fills = {
            "shown": 0, "present": 0, "past": 0, "capacity": NO_LIMIT, "since": self.clock, "expected": 0.0,
            "exposed": 0.0, "discount": 0.0, "start": 0.0,
        }  # fmt: skip
        for name, fill in fills.items():
            old: Array = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.full(len(shares), fill, dtype=old.dtype)]))
        self.shares = np.concatenate([self.shares, shares])
        self._relevel()

    def set_shares(self, shares: Array) -> None:
        """Let all items expect so many times their even shares from now on."""
        self.shares[:] = shares
        self._relevel()

    def set_share(self, item: int, share: float) -> None:
        """Let an item expect so many times its even share from now on."""
        self.shares[item] = share
        self.levels[item] = share * self.terms.even_level(self.n_items)

    def arrays(self) -> dict[str, Array]:
        """All that changes, as a snapshot keeps it."""
        counters = np.array([self.requests, self.turn, self.turn_before, self.clock])
        return {name: getattr(self, name).copy() for name in KEPT} | {"counters": counters}

    def restore(self, kept: dict[str, Array], numbers: Array) -> None:
        """Take up a snapshot; numbers: the present number of each of its items, −1 for those that are gone."""
        there = numbers >= 0
        for name in KEPT:
            getattr(self, name)[numbers[there]] = kept[name][there]
        self.requests, self.turn, self.turn_before = (int(count) for count in kept["counters"][:3])
        self.clock = float(kept["counters"][3])
        self.since[np.setdiff1d(np.arange(self.n_items), numbers[there])] = self.clock
        self._relevel()

    def blended(self, terms: Terms, discount: Array, numbers: Array, weight: float) -> "Ledger":
        """The ledger of a newer run, whose first horizon begins: its discounts, and these by `weight` less, both in
        units of their own ρ.

        numbers: the number that each of this ledger's items has there, −1 for those that are gone
        """
        there, shares, mixed = numbers >= 0, np.ones(len(discount)), np.array(discount, dtype=np.float64)
        shares[numbers[there]] = self.shares[there]
        if terms.rho and self.pace.rho:
            own = self.now()[there] * terms.rho / self.pace.rho
            mixed[numbers[there]] = weight * mixed[numbers[there]] + (1 - weight) * own
        made = Ledger(terms, mixed, shares)
        made.start = Ledger(terms, discount, shares).now()
        for name in ("shown", "capacity"):
            getattr(made, name)[numbers[there]] = getattr(self, name)[there]
        past, made.turn_before = (self.present, self.turn) if self.turn else (self.past, self.turn_before)
        made.past[numbers[there]] = past[there]
        made._limited = np.flatnonzero(made.capacity < NO_LIMIT)
        made.requests = self.requests
        return made
