"""Solving the market with rules: bounds on totals of showings, limits in a list.

    max  Σ_u a_u Σ_r w_r v_u,r + ρ Σ_i B_i(f_i) + ρ Σ_T g_T B_T(F_T)   with   low_T ≤ F_T ≤ high_T

F_T is the number of showings of the items of total T. Users take turns as without rules, in three stages. First bounds
are soft: a showing outside of one costs the more, the further outside it is, and after each round of turns multipliers
take over what was paid (an augmented Lagrangian), so that the users who give way are those to whom it matters least.
Then bounds are hard: what is full is out of reach, and the pay for a showing below a floor rises until somebody takes
it. At last everybody takes turns within the bounds at no price at all, which only raises the objective.

For any discounts d of items and p of totals,

    D = Σ_u (the best list at d_i + Σ_T∋i p_T) + Σ_i max_x (ρ B_i(x) − d_i x)
        + Σ_T max_{low ≤ x ≤ high} (ρ g_T B_T(x) − p_T x)

is at least the objective of any lists that keep the rules.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.threads import in_parts
from divmf.kernels.market import ONE, ONE_BITS, Columns
from divmf.kernels.rules import breaking_part, take_ruled_turns
from divmf.kernels.totals import PULL, Ruled, book_of, earned_by
from divmf.market.bound import MANY, Bound
from divmf.market.solve import SETTLED, Lists, Market

HARD_SWEEPS = 3  # of those whose lists break a bound, at the most
STIFF, LEAST_STIFF = 0.5, 1.0  # so much of its bound, and so many showings, outside of it are charged a spread
CLOSE = 0.03  # the fraction of bounds by which totals may miss them when soft turns end
MOST_PRICE = 4.0  # spreads: of a showing, at the most, while bounds are soft
FEW = 8  # items: what a total of so many pays is kept for each of them; that of a larger one is looked up
BINDING = 1e6  # spreads: what a showing below a floor is worth where floors must hold


class Table(NamedTuple):
    """Who is in which total, as `divmf.kernels.totals.Ruled` begins."""

    offsets: Array
    totals: Array
    large: Array
    starts: Array
    members: Array


@dataclass(eq=False)
class State:
    """The state of a solution for one kind of lists: what is shown, and the multipliers of the bounds.

    lists   with their exposure; counts (totals,) int64
    price   (totals,) float64: what a showing of a total is paid for the sake of its floor; below 0, charged for its cap
    """

    lists: Lists
    counts: Array
    price: Array

    def copy(self) -> "State":
        """The same in memory of its own."""
        return State(self.lists.copy(), self.counts.copy(), self.price.copy())


@dataclass(frozen=True, eq=False)
class RuledMarket:
    """A market and the rules that its lists keep."""

    market: Market
    bound: Bound
    no_levels: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def scale(self) -> float:
        """What a slot is worth to users, about: the unit of multipliers."""
        return self.market.spread or 1.0

    @property
    def own_levels(self) -> Array:
        """The exposure at which the bonus of each item ends, where items have targets of their own; else empty."""
        if self.bound.target is None:
            return self.no_levels
        return self.bound.target * len(self.bound.target) * self.market.bonus.level

    @property
    def limits(self) -> Array:
        """How many of a total one list may hold.  (totals,)"""
        return np.minimum(self.bound.per_list, len(self.market.slots))

    def ruled(self, rho: float, state: State, step: Array | None = None) -> Ruled:
        """The rules as the turns take them; step: what a showing below a floor earns, where bounds are to be hard."""
        bound, bonus, hard = self.bound, self.market.bonus, step is not None
        width = np.where(bound.high < MANY, bound.high, bound.low)
        soft = self.scale / (STIFF * width + LEAST_STIFF)
        several = np.bincount(bound.totals, minlength=bound.n_totals) > 1
        limited = bool((self.limits < len(self.market.slots)).any()) or (
            hard and bool((several & (bound.high < MANY)).any())
        )
        return Ruled(
            *self.table, bound.low, bound.high, self.limits, state.price, soft if step is None else step,
            bound.level, rho * bound.weight, self.own_levels, rho, bonus.steepness, bonus.delta, hard, limited,
        )  # fmt: skip

    @cached_property
    def table(self) -> Table:
        """The totals of each item and the items of each total, as the turns take them."""
        bound, n_items = self.bound, len(self.bound.offsets) - 1
        sizes = np.bincount(bound.totals, minlength=bound.n_totals)
        owners, small = np.repeat(np.arange(n_items), np.diff(bound.offsets)), sizes <= FEW
        order = np.lexsort((bound.totals, ~small[bound.totals], owners))
        totals, kept = bound.totals[order], small[bound.totals[order]]
        large = bound.offsets[:-1] + np.bincount(owners[kept], minlength=n_items)
        members = owners[kept][np.argsort(totals[kept], kind="stable")]
        starts = np.concatenate([[0], np.cumsum(np.where(small, sizes, 0))])
        return Table(bound.offsets, totals, large, starts, members)

    def state_of(self, lists: Lists, price: Array | None = None) -> State:
        """Lists with their totals, and prices; none yet where none are given."""
        counts = comm.total(self.bound.counted(lists.items))
        price = np.zeros(self.bound.n_totals) if price is None else price.astype(np.float64)
        return State(lists.copy(), np.asarray(counts), price)

    def turns(
        self, columns: Columns, kind: int, rho: float, state: State, rules: Ruled, users: Array | None = None
    ) -> int:
        """Everybody, or some users of this process, take a turn, process after process; how many lists changed."""
        terms, changed, lists = self.market.terms(rho), 0, state.lists
        users = np.arange(len(lists.items)) if users is None else users
        for process in range(comm.size()):
            if comm.rank() == process:
                changed = take_ruled_turns(columns, kind, users, terms, rules, lists.exposed, state.counts, lists.items)
            comm.broadcast(lists.exposed, process)
            comm.broadcast(state.counts, process)
        return int(comm.total(changed))

    def pulls(self, rho: float, state: State) -> Array:
        """p: what a showing of each total is worth, by its bonus and its soft bounds.  (totals,)"""
        return np.asarray(book_of(state.counts, self.ruled(rho, state))[:, PULL])

    def over_items(self, per_total: Array) -> Array:
        """The sum over the totals of each item.  (totals,) → (n_items,)"""
        found = np.zeros(self.market.finder.n_items)
        np.add.at(found, np.repeat(np.arange(len(found)), np.diff(self.bound.offsets)), per_total[self.bound.totals])
        return found

    def item_discount(self, rho: float, lists: Lists) -> Array:
        """What one more showing of each item would earn by its own bonus.  (n_items,)"""
        if self.bound.target is None:
            return self.market.left_to_earn(rho, lists)
        bonus, levels = self.market.bonus, self.own_levels
        shown = lists.exposed / ONE
        with np.errstate(divide="ignore"):
            height = bonus.steepness * np.log(levels / (shown + bonus.delta))
        return np.asarray(rho * np.logaddexp(0, height) / bonus.steepness)

    def discount(self, rho: float, state: State) -> Array:
        """What one more showing of each item is worth, rules counted.  (n_items,)"""
        return self.item_discount(rho, state.lists) + self.over_items(self.pulls(rho, state))

    def misses(self, state: State) -> Array:
        """How many showings totals lack (positive) or have too many (negative).  (totals,)"""
        return np.asarray(np.maximum(self.bound.low - state.counts, 0) - np.maximum(state.counts - self.bound.high, 0))

    def most_over_items(self, per_total: Array) -> Array:
        """The largest over the totals of each item, 0 for none.  (totals,) → (n_items,)"""
        found = np.zeros(self.market.finder.n_items)
        np.maximum.at(
            found, np.repeat(np.arange(len(found)), np.diff(self.bound.offsets)), per_total[self.bound.totals]
        )
        return found

    def soften(self, columns: Columns, kind: int, rho: float, state: State, sweeps: int) -> float:
        """Turns with soft bounds, prices following, until hardly a list changes; the fraction changed first."""
        n_users, first = comm.row_range(len(state.lists.items)).whole, 0.0
        width = np.maximum(np.where(self.bound.high < MANY, self.bound.high, self.bound.low), 1)
        most = MOST_PRICE * self.scale * float(self.market.slots[0])
        for _ in range(sweeps):
            rules = self.ruled(rho, state)
            changed = self.turns(columns, kind, rho, state, rules)
            first = first or changed / n_users
            below, above = (
                state.price + rules.step * (edge - state.counts) for edge in (self.bound.low, self.bound.high)
            )
            state.price = np.clip(np.maximum(below, 0.0) + np.minimum(above, 0.0), -most, most)
            off = float(np.max(np.abs(self.misses(state)) / width, initial=0.0))
            if changed <= SETTLED * n_users and off <= CLOSE:
                break
        return first

    def harden(self, columns: Columns, kind: int, rho: float, state: State) -> None:
        """Lists that break a bound give way, in place; what is full is out of reach from here on."""
        for _ in range(HARD_SWEEPS):
            found, rules = self.breaking(columns, kind, rho, state), self.ruled(rho, state, self.binding)
            if not comm.total(len(found)):
                break
            self.turns(columns, kind, rho, state, rules, found)

    def breaking(self, columns: Columns, kind: int, rho: float, state: State) -> Array:
        """Users of this process whose lists cannot stay."""
        lists, rules = state.lists.items, self.ruled(rho, state, self.binding)
        found = np.zeros(len(lists), dtype=np.bool_)
        in_parts(
            lambda first, last: breaking_part(columns, kind, first, last, rules, state.counts, lists, found),
            len(lists), span=comm.row_range(len(lists)),
        )  # fmt: skip
        return np.flatnonzero(found)

    @property
    def binding(self) -> Array:
        """What a showing below a floor is worth where floors must hold.  (totals,)"""
        return np.full(self.bound.n_totals, BINDING * self.scale)

    def unbounded(self) -> "RuledMarket":
        """The same market where totals have no bounds, but what they earn."""
        none = np.zeros(self.bound.n_totals, dtype=np.int64)
        return replace(self, bound=replace(self.bound, low=none, high=none + MANY))

    def freed(self, state: State) -> State:
        """The same lists at no prices."""
        return replace(state, price=np.zeros(self.bound.n_totals))

    def polish(self, columns: Columns, kind: int, rho: float, state: State, sweeps: int) -> None:
        """Turns within the bounds at no price: the objective only rises, and what is met stays met."""
        free = self.freed(state)
        rules, n_users = self.ruled(rho, free, self.binding), comm.row_range(len(state.lists.items)).whole
        for _ in range(sweeps):
            if self.turns(columns, kind, rho, free, rules) <= SETTLED * n_users:
                break

    def value(self, columns: Columns, rho: float, state: State) -> float:
        """The objective of lists that are among the candidates."""
        bound, bonus = self.bound, self.market.bonus
        value = self.market.value(columns, rho, state.lists)
        if bound.target is not None:
            shown, part = state.lists.exposed >> ONE_BITS, (state.lists.exposed & (ONE - 1)) / ONE
            plain = bonus.sums[shown] + part * bonus.table[shown]
            own = np.empty(len(shown))
            earned_by(self.own_levels, shown, bonus.steepness, bonus.delta, own)
            next_one = self.item_discount(rho, state.lists._replace(exposed=shown << ONE_BITS))
            value += rho * float(own.sum() - plain.sum()) + float(part @ next_one)
        earned = np.empty(bound.n_totals)
        earned_by(bound.level, state.counts, bonus.steepness, bonus.delta, earned)
        return value + rho * float((bound.weight * earned).sum())
