"""Rules while requests come: what a showing of each total is paid or charged, and which totals are full.

Bounds that hold in batch for one list of every user hold here for a horizon, or at every moment:

- a capacity, and a cap that is a count, for all showings since the service began: a full total is out of reach;
- a cap that is a share, at every moment: no more than that share of all slots so far, rounded up;
- a floor within each horizon: its pay rises by what is still missing over the requests that are left, and falls with
  each showing (dual descent); what more is due now than at an even pace is paid at once;
- the target of a group by a discount of its own, as an item's (`divmf.market.ledger`);
- what is blocked, and how many of a total one list may hold, in every list.
"""

from ast import literal_eval
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np
from scipy import sparse

from divmf.engine.arrays import Array
from divmf.kernels.ledger import Book, Pace, price_range
from divmf.market.bound import MANY, Bound
from divmf.market.ledger import Ledger
from divmf.market.response import Within

MOVES = 10.0  # spreads of scores by which the pay of a total may move within a horizon at an even pace
MOST = 1e3  # spreads: the pay below a floor is not more


class Totals:
    """The totals of some rules, in memory.

    pay       (totals,): what one more showing is paid for the sake of floor, cap and target
    given     (totals,): showings that count towards the cap; slots: those of all pages since
    present   (totals,): showings within this horizon
    """

    def __init__(self, bound: Bound, ledger: Ledger, unit: float, scale: float = 1.0) -> None:
        self.unit, terms = unit, ledger.terms
        self.horizon, self.k = terms.horizon, terms.k
        self._set(replace(bound, low=np.ceil(bound.low * scale).astype(np.int64), level=bound.level * scale))
        n = bound.n_totals
        self.pay, self._floors, self._caps = np.zeros(n), np.zeros(n), np.zeros(n)
        self.given, self.slots = self._over(ledger.shown), np.zeros(n, dtype=np.int64)
        self.present, self._turn = self._over(ledger.present), ledger.turn
        expected = self._over(ledger.past).astype(np.float64) if ledger.turn_before else self.bound.level.copy()
        self._aims = np.zeros(n)
        self._book = Book(np.zeros(n), expected, np.zeros(n), self.bound.level, self._aims)
        self._pace = Pace(terms.rho, terms.delta, terms.steepness, ledger.pace.trust, float(terms.horizon))
        self.is_share = bound.share > 0
        self.capped = self.is_share | (bound.high < MANY)
        self._floor_step = MOVES * unit / np.maximum(self.bound.low, 1)
        self._cap_step = MOVES * unit / np.maximum(bound.share * self.horizon * self.k, 1)
        self._reprice(ledger.clock)

    def _set(self, bound: Bound) -> None:
        """Take over totals and who is in them."""
        self.bound = bound
        self._owners = np.repeat(np.arange(len(bound.offsets) - 1), np.diff(bound.offsets))
        self._out: tuple[Array, Array] | None = None  # which totals were full, and the items that are out for it

    @property
    def n_totals(self) -> int:
        """How many totals there are."""
        return self.bound.n_totals

    def _over(self, counts: Array) -> Array:
        """Counts of items, summed over the items of each total.  (totals,)"""
        found = np.zeros(self.bound.n_totals, dtype=np.int64)
        np.add.at(found, self.bound.totals, counts[self._owners])
        return found

    def totals_of(self, items: Array) -> tuple[Array, Array]:
        """The totals of some items: (row of the item, total) for each that one is in."""
        begins, ends = self.bound.offsets[items], self.bound.offsets[items + 1]
        sizes = ends - begins
        rows = np.repeat(np.arange(len(items)), sizes)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return rows, self.bound.totals[np.repeat(begins, sizes) + within].astype(np.int64)

    def on(self, items: Array) -> Array:
        """How many showings of each total a page has.  (totals,) int64"""
        return np.bincount(self.totals_of(items)[1], minlength=self.n_totals)

    def room(self) -> Array:
        """How many more showings each total may have in the next page.  (totals,) int64"""
        left = np.where(self.is_share, MANY, self.bound.high - self.given)
        if self.is_share.any():
            allowed = np.ceil(self.bound.share * (self.slots + self.k) - 1e-6).astype(np.int64)
            left = np.where(self.is_share, allowed - self.given, left)
        return np.minimum(np.maximum(left, 0), self.bound.per_list)

    def discounts(self, items: Array | None = None) -> Array:
        """What totals add to the discounts of some items, or of all.  (items,)"""
        if items is None:
            return np.bincount(self._owners, self.pay[self.bound.totals], minlength=len(self.bound.offsets) - 1)
        rows, totals = self.totals_of(items)
        return np.bincount(rows, self.pay[totals], minlength=len(items))

    def out(self, room: Array, user: int) -> Array:
        """The items that may not be on the next page of a user (−1: of nobody who is known): blocked, or full."""
        closed = (room <= 0) & self.capped
        if self._out is None or not np.array_equal(self._out[0], closed):
            blocked = self.bound.blocked.items.copy()
            if closed.any():
                blocked[self._owners[closed[self.bound.totals]]] = True
            self._out = closed, np.flatnonzero(blocked)
        pairs = self.bound.blocked.pairs
        if pairs is None or user < 0:
            return self._out[1]
        return np.concatenate([self._out[1], pairs.indices[pairs.indptr[user] : pairs.indptr[user + 1]]])

    def within(self, room: Array, k: int) -> Within | None:
        """The limits that one list of k has to keep; none where none can bind."""
        return Within(self.totals_of, room) if (room < k).any() else None

    def count(self, items: Array, ledger: Ledger, sign: int = 1) -> None:
        """A page was shown, and the ledger has counted it; sign −1: it was not shown after all."""
        on = self.on(items)
        self.given += sign * on
        self.slots += sign * len(items)
        if sign > 0:
            self._move(on, ledger, len(items))
        if ledger.turn < self._turn or sign < 0:
            self.present = self._over(ledger.present)
        else:
            self.present += on
        if ledger.turn < self._turn:  # a horizon has begun
            trust = self._pace.trust
            self._book.expected[:] = (self._book.exposed + trust * self._book.expected) / (1 + trust)
        self._turn = ledger.turn
        self._book.exposed[:] = self.present
        self._reprice(ledger.clock)

    def _move(self, on: Array, ledger: Ledger, slots: int) -> None:
        """Dual descent: what was shown against what is due, and what is allowed."""
        low, most = self.bound.low, MOST * self.unit
        self._floors = np.clip(self._floors + self._floor_step * (self._due(ledger.clock) - on), 0.0, most) * (low > 0)
        allowed = self.bound.share * slots
        self._caps = np.clip(self._caps + self._cap_step * (on - allowed), 0.0, most) * self.is_share

    def _due(self, clock: float) -> Array:
        """The showings that a request should have for the floors to be reached.  (totals,)"""
        return np.asarray(np.maximum(self.bound.low - self.present, 0) / max(self.horizon - clock, 1.0))

    def _reprice(self, clock: float) -> None:
        price_range(0, self.n_totals, clock, self._book, self._pace)
        even = np.maximum(self.bound.low, 1) / self.horizon
        late = np.clip(self._due(clock) / even - 1, 0.0, MOST / MOVES)
        self.pay = self._floors + MOVES * self.unit * late - self._caps + self.bound.weight * self._aims

    def begin(self, pay: Array) -> None:
        """Begin at what a showing of each total was paid for the sake of its bounds."""
        self._floors = np.maximum(pay, 0.0) * (self.bound.low > 0)
        self._caps = np.maximum(-pay, 0.0) * self.is_share
        self._reprice(0.0)

    def moved(self, ledger: Ledger) -> "Totals":
        """The same beside another ledger of the same items."""
        made = Totals(self.bound, ledger, self.unit)
        made.given, made.slots = self.given.copy(), self.slots.copy()
        made._floors, made._caps = self._floors.copy(), self._caps.copy()
        made._reprice(ledger.clock)
        return made

    def know(self, given: Array, slots: Array) -> None:
        """Take over what the store has counted of the totals that are capped."""
        self.given[self.capped], self.slots[self.capped] = given[self.capped], slots[self.capped]

    def set_full(self, name: str) -> None:
        """A total was found to be full, as others have shown it."""
        for total in np.flatnonzero(self.capped):
            if self.bound.called(int(total)) == name:
                self.given[total] += self.room()[total]

    def limited(self, items: Array) -> tuple[tuple[str, int], ...]:
        """The capped totals that a page counts in, by name, and how often."""
        on = self.on(items) * self.capped
        return tuple((self.bound.called(int(total)), int(on[total])) for total in np.flatnonzero(on))

    def enter(self, count: int) -> None:
        """New items, numbered after those there are, in no total yet."""
        bound, blocked = self.bound, self.bound.blocked
        pairs = blocked.pairs
        if pairs is not None:
            shape = pairs.shape[0], pairs.shape[1] + count
            pairs = sparse.csr_array((pairs.data, pairs.indices, pairs.indptr), shape=shape)
        self._set(replace(
            bound, offsets=np.append(bound.offsets, np.full(count, bound.offsets[-1])),
            blocked=replace(blocked, items=np.append(blocked.items, np.zeros(count, np.bool_)), pairs=pairs),
        ))  # fmt: skip

    def join(self, item: int, attributes: Mapping[str, str]) -> None:
        """Let an item be in the totals of these attributes, instead of those of other values of the same ones.

        What it was shown before stays counted where it was.
        """
        bound = self.bound
        begin, end = bound.offsets[item], bound.offsets[item + 1]
        others = [total for total in bound.totals[begin:end].tolist() if bound.rules[total] not in attributes]
        joined = [self._named[pair] for pair in attributes.items() if pair in self._named]
        own = np.array([*others, *joined], dtype=np.int32)
        offsets = bound.offsets.copy()
        offsets[item + 1 :] += len(own) - (end - begin)
        totals = np.concatenate([bound.totals[:begin], own, bound.totals[end:]])
        self._set(replace(bound, offsets=offsets, totals=totals))

    @cached_property
    def _named(self) -> dict[tuple[str, str], int]:
        """Which total an attribute and its value name; numbers are named without quotes."""
        pairs = zip(self.bound.rules, self.bound.names, strict=True)
        return {(rule, value_of(name)): total for total, (rule, name) in enumerate(pairs)}


def value_of(name: str) -> str:
    """The value that a total of a group is of, as text."""
    try:
        return str(literal_eval(name))
    except (ValueError, SyntaxError):
        return name
