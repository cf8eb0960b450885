"""Solving the market: users take turns, each takes the list that is best given everybody else's.

    max  Σ_u a_u Σ_r w_r v_u,r + ρ Σ_i B(f_i),   B(f) = Σ_{x<f} b(x)

v is the value of an item to a user, w_r the weight of slot r, f_i the exposure of item i. With everybody else's lists
fixed, item i adds ρ·b(f_i without this user's), so a user's best list is found exactly by a small dynamic programme
(`divmf.kernels.market`), and the objective only rises. `divmf.market.certificate` says how far it may be from the best.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.threads import in_parts
from divmf.kernels.market import ONE, ONE_BITS, Columns, Terms, take_turns, worth_part
from divmf.market.bonus import Bonus
from divmf.market.columns import KINDS, Source

ROUNDS = 20  # how often candidates are found for one ρ, at the most
SWEEPS = 30  # turns of everybody with the same candidates, at the most
SETTLED = 0.01  # the fraction of lists that may still change when turns end
NEW = 0.003  # the fraction of lists that new candidates must change for candidates to be found once more


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
    """What was found for one ρ: lists of each kind, and the candidates they were chosen from."""

    rho: float
    lists: dict[str, Lists]
    columns: Columns


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
        nothing = np.full((n_users, k), -1, dtype=np.int32)
        columns, made = self.finder.find(np.zeros(self.finder.n_items), nothing), {}
        for bit, kind in self.bits:
            made[kind] = Lists(nothing.copy(), np.zeros(self.finder.n_items, dtype=np.int64))
            self.turns(columns, bit, 0.0, made[kind])
        return columns, made

    @property
    def bits(self) -> list[tuple[int, str]]:
        """The kinds of lists with their bits (`Columns.opens`)."""
        return [(1 << position, kind) for position, kind in enumerate(self.kinds)]

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
        comm.all_reduce(exposed)
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
        n_users = comm.row_range(len(lists.items)).whole
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
            span=comm.row_range(n_users),
        )  # fmt: skip
        full, part = lists.exposed >> ONE_BITS, (lists.exposed & (ONE - 1)) / ONE
        earned = self.bonus.sums[full] + part * self.bonus.table[full]
        return float(comm.total(sum(worth))) + rho * float(earned.sum())


def solve(market: Market, rho: float, start: Lists) -> Solution:
    """The lists for ρ, from others: users take turns until hardly a list changes, then look for new candidates.

    start   lists of the first kind, which stay as they are. Those of the other kinds, which differ from these in what
            is held out, follow from them in a few turns.
    """
    (bit, first), *others = market.bits
    lists = {first: start.copy()}
    for turn in range(ROUNDS):
        columns = market.finder.find(market.left_to_earn(rho, lists[first]), lists[first].items)
        if market.settle(columns, bit, rho, lists[first]) < NEW and turn:
            break
    for other, kind in others:
        lists[kind] = lists[first].copy()
        market.settle(columns, other, rho, lists[kind])
    return Solution(rho, lists, columns)
