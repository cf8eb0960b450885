"""Solving the market: users take turns, each takes the list that is best given everybody else's.

    max  Σ_u a_u Σ_r w_r v_u,r + ρ Σ_i B(f_i),   B(f) = Σ_{x<f} b(x)

v is the value of an item to a user, w_r the weight of slot r, f_i the exposure of item i. With everybody else's lists
fixed, item i adds ρ·b(f_i without this user's), so a user's best list is found exactly by a small dynamic programme
(`divmf.kernels.market`), and the objective only rises. How far it may be from the best there is follows from the dual:
for any discounts d,

    D(d) = Σ_u (the best list at these discounts) + Σ_i max_x (ρ B(x) − d_i x)

is at least the objective of any lists.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.threads import in_parts
from divmf.kernels.market import ONE, ONE_BITS, Columns, Terms, answer_part, take_turns, worth_part
from divmf.market.bonus import Bonus
from divmf.market.columns import KINDS, Source

ROUNDS = 3  # how often candidates are found for one ρ, at the most, before the certificate
SWEEPS = 30  # turns of everybody with the same candidates, at the most
SETTLED = 0.003  # the fraction of lists that may still change when turns end
NEW = 0.05  # the fraction of lists that new candidates must change for candidates to be found once more
DUAL_STEPS = 4  # how often discounts are moved towards the dual's best


class Lists(NamedTuple):
    """Everybody's lists, and the exposure they give.

    items     (n_users, k) int32, −1 where a list is shorter
    exposed   (n_items,) int64, in units of `ONE`, by the lists of all processes
    """

    items: Array
    exposed: Array

    def copy(self) -> "Lists":
        """The same in memory of its own."""
        return Lists(self.items.copy(), self.exposed.copy())


class Solution(NamedTuple):
    """What was found for one ρ.

    lists      of each kind
    discount   (n_items,): what a full showing of an item earns where lists are chosen
    gap        no lists are better by more than this fraction of what these have gained over the model's own
    """

    rho: float
    lists: dict[str, Lists]
    discount: Array
    gap: float


@dataclass(frozen=True, eq=False)
class Market:
    """Candidates of users, and what their lists are worth.

    slots, exposure   (k,): what a value and a showing count in each slot (`divmf.market.values`)
    """

    finder: Source
    slots: Array
    exposure: Array
    bonus: Bonus
    kinds: tuple[str, ...] = KINDS

    @cached_property
    def own(self) -> tuple[Columns, dict[str, Lists]]:
        """The model's own lists, of each kind, with the candidates they are made of."""
        n_users, k = len(self.finder.weights), len(self.slots)
        columns, _ = self.finder.find(np.zeros(self.finder.n_items), np.zeros((0, n_users, k), dtype=np.int32))
        made = {}
        for bit, kind in self.bits:
            nobody = np.full((n_users, k), -1, dtype=np.int32)
            made[kind] = Lists(nobody, np.zeros(self.finder.n_items, dtype=np.int64))
            self.turns(columns, bit, 0.0, made[kind])
        return columns, made

    @property
    def bits(self) -> list[tuple[int, str]]:
        """The kinds of lists with their bits (`Columns.opens`)."""
        return [(1 << place, kind) for place, kind in enumerate(self.kinds)]

    @cached_property
    def spread(self) -> float:
        """How far a user's best value lies above the last candidate's, on average: the unit that ρ is measured in."""
        columns, _ = self.own
        some = columns.ends > columns.starts
        highest, lowest = columns.values[columns.starts[some]], columns.values[columns.ends[some] - 1]
        total, counted = comm.total([(highest.astype(np.float64) - lowest).sum(), some.sum()])
        return float(f"{total / counted:.12g}") if counted else 0.0

    def lists(self, items: Array) -> Lists:
        """Lists with the exposure they give."""
        exposed = np.zeros(self.finder.n_items, dtype=np.int64)
        for slot, weight in zip(items.T, self.exposure, strict=True):
            exposed += weight * np.bincount(slot[slot >= 0], minlength=len(exposed))
        comm.add_up(exposed)
        return Lists(items, exposed)

    def left_to_earn(self, rho: float, lists: Lists) -> Array:
        """What one more showing of each item would earn: its discount, nearly.  (n_items,)"""
        return np.asarray(rho * self.bonus.table[lists.exposed >> ONE_BITS])

    def terms(self, rho: float) -> Terms:
        """What lists are worth at ρ."""
        return Terms(self.slots, self.exposure, rho * self.bonus.table)

    def turns(self, columns: Columns, kind: int, rho: float, lists: Lists) -> int:
        """Everybody takes a turn, process after process; how many lists changed."""
        terms, changed = self.terms(rho), 0
        for process in range(comm.size()):
            if comm.rank() == process:
                changed = take_turns(columns, kind, 0, len(lists.items), terms, *reversed(lists))
            comm.broadcast(lists.exposed, process)
        return int(comm.total(changed))

    def settle(self, columns: Columns, kind: int, rho: float, lists: Lists) -> float:
        """Turns until hardly a list changes; the fraction of lists that the first turn changed."""
        n_users = comm.place(len(lists.items)).whole
        first = changed = self.turns(columns, kind, rho, lists)
        for _ in range(SWEEPS - 1):
            if changed <= SETTLED * n_users:
                break
            changed = self.turns(columns, kind, rho, lists)
        return first / n_users

    def value(self, columns: Columns, rho: float, lists: Lists) -> float:
        """The objective of lists that are among the candidates."""
        n_users = len(lists.items)
        worth = in_parts(
            lambda first, last: worth_part(columns, first, last, self.slots, lists.items), n_users,
            place=comm.place(n_users),
        )  # fmt: skip
        full, part = lists.exposed >> ONE_BITS, (lists.exposed & (ONE - 1)) / ONE
        earned = self.bonus.sums[full] + part * self.bonus.table[full]
        return float(comm.total(sum(worth))) + rho * float(earned.sum())

    def dual(
        self, columns: Columns, kind: int, rho: float, discount: Array, beyond: Array
    ) -> tuple[float, Array, Array]:
        """D(d); the exposure that users ask for at these discounts, and that items earn more by than they give."""
        terms, n_items, n_users = self.terms(rho), len(discount), len(columns.starts)

        def part(first: int, last: int) -> tuple[float, Array]:
            demand = np.zeros(n_items, dtype=np.int64)
            return answer_part(columns, kind, first, last, terms, discount, beyond, demand), demand

        demand, worth = np.zeros(n_items, dtype=np.int64), 0.0
        for found, asked in in_parts(part, n_users, 8 * n_items, place=comm.place(n_users)):
            worth += found
            demand += asked
        comm.add_up(demand)
        # b falls, so what earns more than the discount are the first showings
        supply = np.searchsorted(-rho * self.bonus.table, -discount)
        surplus = rho * self.bonus.sums[supply] - discount * supply
        # twelve digits, so that sums in another order, by more processes, give the same number
        return float(f"{comm.total(worth) + surplus.sum():.12g}"), demand, supply * ONE

    def tightened(
        self, columns: Columns, kind: int, rho: float, start: Array, beyond: Array, lists: Lists
    ) -> tuple[Array, float]:
        """Discounts that bound the objective more tightly, and D at the best of them; none above those of the start.

        start: what the candidates were found by, so that what lies beyond them stays a bound where discounts are lower

        Subgradient steps of Polyak's length: the objective of the lists stands for the optimum, which it is close to.
        An item of more exposure has more users close to their choice, so its discount moves less.
        """
        value, scale = self.value(columns, rho, lists), 1 / (lists.exposed / ONE + 1)
        discount, best, lowest = start, start, np.inf
        for _ in range(DUAL_STEPS):
            bound, demand, supply = self.dual(columns, kind, rho, discount, beyond)
            if bound < lowest:
                best, lowest = discount, bound
            excess = (demand - supply) / ONE
            steepness = float((excess * scale * excess).sum())
            if bound <= value or not steepness:
                break
            discount = np.clip(discount - (bound - value) / steepness * scale * excess, 0.0, start)
        return best, lowest


def solve(market: Market, rho: float, start: Mapping[str, Lists]) -> Solution:
    """The lists for ρ, from others: users take turns until hardly a list changes, then look for new candidates.

    start   lists of each kind, which stay as they are
    """
    lists = {kind: start[kind].copy() for kind in market.kinds}
    (bit, first), *others = market.bits
    for turn in range(ROUNDS):
        # what some kind of lists lacks must be a candidate, whatever the others show
        discount = np.max([market.left_to_earn(rho, made) for made in lists.values()], axis=0)
        columns, beyond = market.finder.find(discount, np.stack([made.items for made in lists.values()]))
        changed = market.settle(columns, bit, rho, lists[first])
        for other, kind in others:  # so that the next candidates suit them, too
            market.turns(columns, other, rho, lists[kind])
        if turn and changed < NEW:
            break
    for other, kind in others:
        market.settle(columns, other, rho, lists[kind])
    discount, bound = market.tightened(columns, bit, rho, discount, beyond, lists[first])
    value = market.value(columns, rho, lists[first])
    own_columns, own = market.own
    gained = value - market.value(own_columns, rho, own[first])
    return Solution(rho, lists, discount, max(0.0, bound - value) / gained if gained > 0 else 0.0)
