"""Lists that keep rules, for one ρ: candidates on demand, turns, what is left to mend, and what is proven."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from divmf.data.filters import Blocked
from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.threads import in_parts
from divmf.kernels.market import Columns, Terms
from divmf.kernels.rules import keep_allowed
from divmf.kernels.totals import best_total
from divmf.market.bound import MANY
from divmf.market.certificate import answers, asked
from divmf.market.columns import Asked, Held, Source, joined
from divmf.market.filling import fill
from divmf.market.repair import mend
from divmf.market.ruled import RuledMarket, Standing
from divmf.market.solve import NEW, ROUNDS, Solution
from divmf.models.scorer import Factors, Scorer

DECIDES = 1e3  # spreads: a discount that counts more than any score
TRIES = 3  # how often candidates are found for what is short or below its floor, at the most
DUAL_STEPS = 8  # of the discounts towards the dual's best
NEAR = 1e-6  # spreads: at other discounts than these nothing is asked for
SOFT_SWEEPS, MORE_SWEEPS, OTHER_SWEEPS = 8, 3, 2  # with soft bounds: first, with new candidates, for other kinds
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

    def ask(self, columns: Columns, kind: int, terms: Terms, discount: Array, radius: Array) -> list[Asked]:
        """What the best lists are worth at these discounts."""
        return self.source.ask(columns, kind, terms, discount, radius)


class Kept(NamedTuple):
    """What was found for one ρ, and the first kind's lists as they were while bounds were soft, with their prices."""

    solution: Solution
    soft: Standing


def approach(ruled: RuledMarket, rho: float, soft: Standing) -> Columns:
    """Turns with soft bounds, in place, of the first kind of lists; the candidates that they are of."""
    market, columns = ruled.market, None
    bit, _ = market.bits[0]
    sweeps = MORE_SWEEPS if soft.price.any() else SOFT_SWEEPS
    for turn in range(ROUNDS):
        found = market.finder.find(ruled.discount(rho, soft), soft.lists.items)
        if found is columns:  # there are no others
            break
        columns = found
        if ruled.soften(columns, bit, rho, soft, MORE_SWEEPS if turn else sweeps) < NEW and turn:
            break
    assert columns is not None
    return columns


def solve_ruled(ruled: RuledMarket, rho: float, soft: Standing) -> Kept:
    """The lists for ρ that keep the rules, from those of the first kind for another ρ, which may break them.

    soft   becomes the lists for ρ with soft bounds
    """
    columns = approach(ruled, rho, soft)
    (bit, first), *others = ruled.market.bits
    at = {first: soft.copy()}
    found = keep(ruled, columns, bit, rho, at[first])
    for other, kind in others:
        at[kind] = at[first].copy()
        ruled.soften(found, other, rho, at[kind], OTHER_SWEEPS)
        keep(ruled, found, other, rho, at[kind])
    return Kept(Solution(rho, {kind: each.lists for kind, each in at.items()}, found), soft)


def keep(ruled: RuledMarket, columns: Columns, kind: int, rho: float, at: Standing) -> Columns:
    """Make lists keep every rule that can be kept, in place; the candidates that they are of."""
    for _ in range(TRIES):
        ruled.harden(columns, kind, rho, at)
        fill(ruled, columns, kind, rho, at)
        lacking = np.maximum(ruled.bound.low - at.counts, 0)
        if not lacking.any() and not short(at):
            break
        # what lacks the most is looked for first; what is full, not at all
        most = ruled.most_over_items(np.where(lacking > 0, 0.5 + lacking / np.maximum(ruled.bound.low, 1), 0.0))
        full = ruled.over_items((at.counts >= ruled.bound.high).astype(np.float64)) > 0
        far = DECIDES * ruled.scale
        discount = ruled.item_discount(rho, at.lists) + far * most - 10 * far * full
        found = ruled.market.finder.find(discount, at.lists.items)
        if found is columns:
            mend(ruled, columns, kind, at)
            break
        columns = joined(columns, found)
    ruled.polish(columns, kind, rho, at, LAST_SWEEPS)
    return columns


def short(at: Standing) -> int:
    """How many slots are empty."""
    return int(comm.total((at.lists.items < 0).sum()))


class Proof(NamedTuple):
    """How far lists may be from the best that keep the rules.

    discount   (n_items,): what a full showing of an item is worth, rules counted; very low for what is blocked
    gap        no lists are better by more than this fraction of what these have gained over the model's own, or of a
               spread of values a slot where that is more
    """

    discount: Array
    gap: float


def certify_ruled(ruled: RuledMarket, kept: Kept) -> Proof:
    """Discounts of items and totals that bound the objective of the first kind of lists, and the bound."""
    market, (solution, soft) = ruled.market, kept
    (bit, first), *_ = market.bits
    rho, columns = solution.rho, solution.columns
    value = ruled.value(columns, rho, ruled.standing(solution.lists[first]))
    own, per_total = lowered(ruled, columns, bit, rho, soft, value)
    discount = own + ruled.over_items(per_total)
    worth, _ = asked(market, columns, bit, rho, discount, np.full(len(discount), NEAR * ruled.scale))
    bound = float(comm.total(worth)) + item_surplus(ruled, rho, own)[0] + totals_surplus(ruled, rho, per_total)[0]
    own_columns, own_lists = market.own
    gained = value - ruled.value(own_columns, rho, ruled.standing(own_lists[first]))
    n_slots = comm.row_range(len(soft.lists.items)).whole * float(market.slots.sum())
    gap = max(0.0, bound - value) / max(gained, ruled.scale * n_slots)
    return Proof(np.where(ruled.bound.blocked.items, OUT, discount), float(f"{gap:.9g}"))


def lowered(
    ruled: RuledMarket, columns: Columns, kind: int, rho: float, soft: Standing, value: float
) -> tuple[Array, Array]:
    """Discounts of items and of totals at which the bound, of the candidates alone, is low.

    Subgradient steps of Polyak's length: the objective of the lists stands for the optimum, which it is close to. What
    is shown more has more users close to their choice, so its discount moves less.
    """
    own, per_total = ruled.item_discount(rho, soft.lists), ruled.pulls(rho, soft)
    best, lowest = (own, per_total), np.inf
    for _ in range(DUAL_STEPS):
        worth, demand = answers(ruled.market, columns, kind, rho, own + ruled.over_items(per_total))
        surplus, supply = item_surplus(ruled, rho, own)
        total_surplus, wanted = totals_surplus(ruled, rho, per_total)
        bound = float(comm.total(worth)) + surplus + total_surplus
        if bound < lowest:
            best, lowest = (own, per_total), bound
        shown = np.zeros(ruled.bound.n_totals)
        np.add.at(shown, ruled.bound.totals, np.repeat(demand, np.diff(ruled.bound.offsets)))
        item_excess, total_excess = demand - supply, shown - wanted
        scale, total_scale = 1 / (demand + 1), 1 / (shown + 1)
        steepness = float((item_excess**2 * scale).sum() + (total_excess**2 * total_scale).sum())
        if bound <= value or not steepness:
            break
        length = (bound - value) / steepness
        own = own - length * scale * item_excess
        per_total = per_total - length * total_scale * total_excess
    return best


def item_surplus(ruled: RuledMarket, rho: float, own: Array) -> tuple[float, Array]:
    """Σ_i max_x (ρ B_i(x) − d_i x), and the x."""
    bonus, levels = ruled.market.bonus, ruled.own_levels
    if not len(levels):
        supply = np.minimum(np.searchsorted(-rho * bonus.table, -own), bonus.most)
        return float((rho * bonus.sums[supply] - own * supply).sum()), supply
    found = [best_total(level, rho, asked, 0, bonus.most, bonus.steepness, bonus.delta)
             for level, asked in zip(levels, own, strict=True)]  # fmt: skip
    return float(sum(worth for worth, _ in found)), np.array([supply for _, supply in found])


def totals_surplus(ruled: RuledMarket, rho: float, per_total: Array) -> tuple[float, Array]:
    """Σ_T max_{low ≤ x ≤ high} (ρ g_T B_T(x) − p_T x), and the x."""
    bound, bonus = ruled.bound, ruled.market.bonus
    most = bonus.most * len(ruled.market.slots)
    high = np.minimum(np.where(bound.high < MANY, bound.high, most), most)
    plain = (bound.level <= 0) | (bound.weight <= 0)
    wanted = np.where(per_total >= 0, bound.low, high)
    worth = float((-per_total * wanted)[plain].sum())
    for total in np.flatnonzero(~plain):
        found, supply = best_total(
            bound.level[total], rho * bound.weight[total], per_total[total], bound.low[total], high[total],
            bonus.steepness, bonus.delta,
        )  # fmt: skip
        worth += found
        wanted[total] = supply
    return worth, wanted
