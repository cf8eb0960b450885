"""Lists that keep rules, for one ρ: candidates on demand, turns, what is left to mend, and what is proven."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from divmf.data.filters import Blocked
from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.threads import in_parts
from divmf.kernels.market import ONE, Columns, answer_part
from divmf.kernels.rules import best_total, keep_allowed
from divmf.market.bound import MANY
from divmf.market.columns import Held, Source
from divmf.market.repair import mend
from divmf.market.ruled import RuledMarket, Standing
from divmf.market.solve import DUAL_STEPS, NEW, ROUNDS, Lists, Solution
from divmf.models.scorer import Factors, Scorer

DECIDES = 1e3  # spreads: a discount that counts more than any score
TRIES = 3  # how often candidates are found for what is short or below its floor
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

    def find(self, discount: Array, kept: Array) -> tuple[Columns, Array]:
        """The candidates at these discounts, and what lies beyond them."""
        columns, beyond = self.source.find(discount, kept)
        if self.blocked.any():
            n_users = len(columns.starts)
            columns = Columns(columns.starts, columns.ends.copy(), *columns[2:])
            in_parts(lambda first, last: keep_allowed(columns, self.blocked, first, last), n_users)
        return columns, beyond


def solve_ruled(ruled: RuledMarket, rho: float, start: Mapping[str, Lists]) -> Solution:
    """The lists for ρ that keep the rules, from others, which may break them."""
    market = ruled.market
    at = {kind: ruled.standing(start[kind]) for kind in market.kinds}
    (bit, first), *others = market.bits
    for turn in range(ROUNDS):
        discount = np.max([ruled.discount(rho, each) for each in at.values()], axis=0)
        asked = ruled.pulls(rho, at[first])
        columns, beyond = market.finder.find(discount, np.stack([each.lists.items for each in at.values()]))
        changed = ruled.soften(columns, bit, rho, at[first])
        for other, kind in others:
            ruled.soften(columns, other, rho, at[kind])
        if turn and changed < NEW:
            break
    value = ruled.value(columns, rho, at[first])
    served, bound = tightened(ruled, columns, bit, rho, (discount, asked), beyond, value)
    for number, kind in market.bits:
        mended = keep(ruled, columns, number, rho, at[kind])
        if kind == first:
            value = ruled.value(mended, rho, at[first])
    own_columns, own = market.own
    gained = value - ruled.value(own_columns, rho, ruled.standing(own[first]))
    n_slots = comm.place(len(own[first].items)).whole * float(market.slots.sum())
    gap = max(0.0, bound - value) / (gained if gained > 0 else ruled.scale * n_slots)
    lists = {kind: each.lists for kind, each in at.items()}
    return Solution(rho, lists, np.where(ruled.bound.blocked.items, -np.inf, served), gap)


def keep(ruled: RuledMarket, columns: Columns, kind: int, rho: float, at: Standing) -> Columns:
    """Make lists keep every rule that can be kept, in place; the candidates that they are of."""
    ruled.harden(columns, kind, rho, at)
    for _ in range(TRIES):
        lacking = at.counts < ruled.bound.low
        if not lacking.any() and not short(at):
            return columns
        far = DECIDES * ruled.scale
        needed = ruled.over_items(lacking.astype(np.float64)) > 0
        full = ruled.over_items((at.counts >= ruled.bound.high).astype(np.float64)) > 0
        discount = ruled.discount(rho, at) + far * needed - 10 * far * full
        columns, _ = ruled.market.finder.find(discount, kept_of(ruled, kind, at))
        before = int(np.maximum(ruled.bound.low - at.counts, 0).sum()), short(at)
        ruled.harden(columns, kind, rho, at)
        if before == (int(np.maximum(ruled.bound.low - at.counts, 0).sum()), short(at)):
            break
    if ((at.counts < ruled.bound.low).any() or short(at)) and mend(ruled, columns, kind, at):
        ruled.polish(columns, kind, rho, at)
    return columns


def kept_of(ruled: RuledMarket, kind: int, at: Standing) -> Array:
    """Present lists in the shape that finders take: of this kind alone."""
    kept = np.full((len(ruled.market.kinds), *at.lists.items.shape), -1, dtype=np.int32)
    kept[kind.bit_length() - 1] = at.lists.items
    return kept


def short(at: Standing) -> int:
    """How many slots are empty."""
    return int(comm.total((at.lists.items < 0).sum()))


def tightened(
    ruled: RuledMarket, columns: Columns, kind: int, rho: float, start: tuple[Array, Array], beyond: Array, value: float
) -> tuple[Array, float]:
    """Discounts that bound the objective, and the lowest bound found; none is above those of the start.

    start   what the candidates were found by, and of it what totals are worth
    value   of lists that nearly keep the rules
    """
    found_by, per_total = start
    own, highest = found_by - ruled.over_items(per_total), found_by
    best, lowest = found_by, np.inf
    for _ in range(DUAL_STEPS):
        discount = own + ruled.over_items(per_total)
        worth, demand = answers(ruled, columns, kind, rho, discount, beyond)
        surplus, supply = item_surplus(ruled, rho, own)
        total_surplus, wanted = totals_surplus(ruled, rho, per_total)
        bound = float(f"{worth + surplus + total_surplus:.12g}")
        if bound < lowest:
            best, lowest = discount, bound
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
        own = np.minimum(own, highest - ruled.over_items(per_total))
    return best, lowest


def answers(
    ruled: RuledMarket, columns: Columns, kind: int, rho: float, discount: Array, beyond: Array
) -> tuple[float, Array]:
    """What everybody's best lists are worth at fixed discounts, and what they show.  (n_items,) in full showings"""
    terms, n_items, n_users = ruled.market.terms(rho), len(discount), len(columns.starts)

    def part(first: int, last: int) -> tuple[float, Array]:
        asked = np.zeros(n_items, dtype=np.int64)
        return answer_part(columns, kind, first, last, terms, discount, beyond, asked), asked

    demand, worth = np.zeros(n_items, dtype=np.int64), 0.0
    for found, asked in in_parts(part, n_users, 8 * n_items, place=comm.place(n_users)):
        worth += found
        demand += asked
    comm.add_up(demand)
    return float(comm.total(worth)), demand / ONE


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
