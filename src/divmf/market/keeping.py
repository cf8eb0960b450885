"""Lists that keep rules, for one ρ: candidates on demand, turns, what is left to mend, and what is proven."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from divmf.data.filters import Blocked
from divmf.engine.arrays import Array
from divmf.engine.threads import in_parts
from divmf.kernels.market import Columns, Terms
from divmf.kernels.rules import keep_allowed
from divmf.market.chains import link
from divmf.market.columns import Demand, Held, Source, joined
from divmf.market.filling import fill
from divmf.market.repair import empty, mend_all
from divmf.market.ruled import RuledMarket, State
from divmf.market.solve import NEW, ROUNDS, Solution
from divmf.models.scorer import Factors, Scorer

DECIDES = 1e3  # spreads: a discount that counts more than any score
TRIES = 3  # how often candidates are found for what is short or below its floor, at the most
SOFT_SWEEPS, MORE_SWEEPS, OTHER_SWEEPS = 8, 3, 2  # with soft bounds: first, with new candidates, for other kinds
WAY_SWEEPS = 4  # with soft bounds, where a larger ρ follows
LAST_SWEEPS = 2  # within the bounds, at no price
OUT = np.float32(-1e30)  # a score below all others; sums with it stay finite


@dataclass(frozen=True, eq=False)
class Shut:
    """A scorer whose blocked items score below all others."""

    scorer: Scorer
    blocked: Array

    @property
    def n_users(self) -> int:
        """How many users there are."""
        return self.scorer.n_users

    @property
    def n_items(self) -> int:
        """How many items there are."""
        return self.scorer.n_items

    def scores(self, users: Array) -> Array:
        """The scores of some users.  (users, n_items)"""
        found = self.scorer.scores(users)
        found[:, self.blocked] = OUT
        return found


def shut(scorer: Scorer, blocked: Array) -> Scorer:
    """A scorer that puts blocked items last."""
    if not blocked.any():
        return scorer
    if isinstance(scorer, Factors):
        return Factors(scorer.users, scorer.items_t, np.where(blocked, OUT, scorer.bias).astype(np.float32))
    return Shut(scorer, blocked)


def held_within(held: Held, blocked: Blocked) -> Held:
    """What users have met, with what they may not be shown; of what is held out, what they may."""
    if blocked.pairs is None:
        return held
    rows = np.repeat(np.arange(len(held.offsets) - 1), np.diff(held.offsets))
    kept = np.asarray(blocked.pairs[rows, held.items]).ravel() == 0 if len(rows) else np.zeros(0, dtype=np.bool_)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=len(held.offsets) - 1))])
    return Held(blocked.with_seen(held.known), offsets, held.items[kept], held.opens[kept])


class Allowed:
    """Candidates of a source without the items that nobody may be shown."""

    def __init__(self, source: Source, blocked: Array) -> None:
        self.source, self.blocked = source, blocked
        self.n_items, self.weights = source.n_items, source.weights

    def find(self, discount: Array, kept: Array) -> Columns:
        """The candidates at these discounts."""
        columns = self.source.find(discount, kept)
        if self.blocked.any():
            columns = Columns(columns.starts, columns.ends.copy(), *(table.copy() for table in columns[2:]))
            in_parts(lambda first, last: keep_allowed(columns, self.blocked, first, last), len(columns.starts))
        return columns

    def demand(self, columns: Columns, kind: int, terms: Terms, discount: Array, radius: Array) -> list[Demand]:
        """What the best lists are worth at these discounts."""
        return self.source.demand(columns, kind, terms, discount, radius)


class Kept(NamedTuple):
    """What was found for one ρ, and the first kind's lists as they were while bounds were soft, with their prices."""

    solution: Solution
    soft: State


def approach(ruled: RuledMarket, rho: float, soft: State, first: int = SOFT_SWEEPS) -> Columns:
    """Turns with soft bounds, in place, of the first kind of lists; the candidates that they are of.

    first   how many there are, at the most, where there are no prices yet
    """
    market, columns = ruled.market, None
    bit, _ = market.bits[0]
    sweeps = MORE_SWEEPS if soft.price.any() else first
    for turn in range(ROUNDS):
        found = market.finder.find(ruled.discount(rho, soft), soft.lists.items)
        if found is columns:  # there are no others
            break
        columns = found
        if ruled.soften(columns, bit, rho, soft, MORE_SWEEPS if turn else sweeps) < NEW and turn:
            break
    assert columns is not None
    return columns


def solve_ruled(ruled: RuledMarket, rho: float, soft: State) -> Kept:
    """The lists for ρ that keep the rules, from those of the first kind for another ρ, which may break them.

    soft   becomes the lists for ρ with soft bounds
    """
    columns = approach(ruled, rho, soft)
    (bit, first), *others = ruled.market.bits
    states = {first: soft.copy()}
    found = keep(ruled, columns, bit, rho, states[first])
    for other, kind in others:
        states[kind] = states[first].copy()
        ruled.soften(found, other, rho, states[kind], OTHER_SWEEPS)
        keep(ruled, found, other, rho, states[kind])
    return Kept(Solution(rho, {kind: each.lists for kind, each in states.items()}, found), soft)


def keep(ruled: RuledMarket, columns: Columns, kind: int, rho: float, state: State) -> Columns:
    """Make lists keep every rule that can be kept, in place; the candidates that they are of."""
    for _ in range(TRIES):
        ruled.harden(columns, kind, rho, state)
        fill(ruled, columns, kind, rho, state)
        link(ruled, columns, kind, rho, state)
        lacking = np.maximum(ruled.bound.low - state.counts, 0)
        if not lacking.any() and not empty(state.lists.items):
            break
        # what lacks the most is looked for first; what is full, not at all
        most = ruled.most_over_items(np.where(lacking > 0, 0.5 + lacking / np.maximum(ruled.bound.low, 1), 0.0))
        full = ruled.over_items((state.counts >= ruled.bound.high).astype(np.float64)) > 0
        far = DECIDES * ruled.scale
        discount = ruled.item_discount(rho, state.lists) + far * most - 10 * far * full
        found = ruled.market.finder.find(discount, state.lists.items)
        if found is columns:  # there are no others
            mend_all(ruled, columns, kind, state)
            break
        columns = joined(columns, found)
    else:
        mend_all(ruled, columns, kind, state)
    ruled.polish(columns, kind, rho, state, LAST_SWEEPS)
    return columns
