"""How far lists that keep rules may be from the best ones that do: the dual with a discount for each item and total.

    D = Σ_u (the best list at d_i + Σ_T∋i p_T) + Σ_i max_x (ρ B_i(x) − d_i x)
        + Σ_T max_{low ≤ x ≤ high} (ρ g_T B_T(x) − p_T x)

is at least the objective of any lists that keep the rules. Discounts that make it small are looked for among the
candidates from the prices at which lists were found, as without rules (`divmf.market.certificate`).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.kernels.market import ONE, Columns
from divmf.kernels.totals import best_total
from divmf.market.bound import MANY
from divmf.market.certificate import TIGHT, answers, demand_at, total_of
from divmf.market.columns import joined
from divmf.market.keeping import OUT, Kept
from divmf.market.ruled import RuledMarket, State
from divmf.market.solve import Lists

STEPS = 24  # of all discounts and prices, from one look at all items to the next
LOOKS = 2  # at all items, at the most
FIRST_STEP, FASTER, SLOWER = 0.02, 1.2, 0.5  # in units of ρ and spreads; a step grows while its direction stays
LOOSE = 0.1  # a gap that further looks will not make small
NEAR = 1e-6  # spreads: at other discounts than these no demand is counted


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
    rho, columns, lists = solution.rho, solution.columns, solution.lists[first]
    state = ruled.state_of(lists)
    value = ruled.value(columns, rho, state)
    own_columns, own_lists = market.own
    gained = value - ruled.value(own_columns, rho, ruled.state_of(own_lists[first]))
    n_slots = comm.row_range(len(lists.items)).whole * float(market.slots.sum())
    unit, n_items = max(gained, ruled.scale * n_slots), market.finder.n_items
    low, high = box = box_of(ruled, rho, state)
    start = np.concatenate([ruled.item_discount(rho, lists), ruled.pulls(rho, soft)])
    prices = best = np.clip(start, low, high)
    step = np.repeat([FIRST_STEP * rho, FIRST_STEP * ruled.scale], [n_items, len(prices) - n_items])
    lowest, gap = np.inf, np.inf
    for look in range(LOOKS):
        prices, step = lowered(partial(dual_at, ruled, columns, bit, rho), prices, step, box)
        discount = item_prices(ruled, prices)
        worth, _ = demand_at(market, columns, bit, rho, discount, np.full(n_items, NEAR * ruled.scale))
        bound = total_of(worth, surpluses(ruled, rho, prices)[0])
        if bound < lowest:
            best, lowest = prices, bound
        gap = max(0.0, lowest - value) / unit
        if not TIGHT < gap < LOOSE or look == LOOKS - 1:
            break
        found = market.finder.find(discount, lists.items)
        columns = columns if found is columns else joined(columns, found)
    return Proof(np.where(ruled.bound.blocked.items, OUT, item_prices(ruled, best)), float(f"{gap:.9g}"))


def lowered(
    dual: Callable[[Array], tuple[float, Array]], prices: Array, step: Array, box: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Prices at which a bound is lower, and the steps that were taken last.

    Each moves by its own step, within the box, towards where demand meets what is offered
    (Rprop: Riedmiller & Braun 1993).
    dual   the bound at some prices, and how far demand exceeds what is offered
    """
    best, lowest, before = prices, np.inf, np.zeros(len(prices))
    for _ in range(STEPS):
        bound, excess = dual(prices)
        if bound < lowest:
            best, lowest = prices, bound
        same = np.sign(excess) * before
        step = np.where(same > 0, FASTER * step, np.where(same < 0, SLOWER * step, step))
        before = np.where(same < 0, 0.0, np.sign(excess))
        prices = np.clip(prices - before * step, *box)
    return best, step


def box_of(ruled: RuledMarket, rho: float, state: State) -> tuple[Array, Array]:
    """Where prices of the best lists lie: between what the next and the last showing earn; bounds take over beyond."""
    bound, free = ruled.bound, ruled.freed(state)
    lists, one = state.lists, state.counts.clip(max=1)
    fewer = Lists(lists.items, np.maximum(lists.exposed - ONE, 0))
    loose = ruled.unbounded()
    earned, before = (
        loose.pulls(rho, State(lists, counts, free.price)) for counts in (state.counts, state.counts - one)
    )
    low = np.where(bound.high < MANY, -np.inf, earned)
    high = np.where(bound.low > 0, np.inf, before)
    own, own_before = ruled.item_discount(rho, lists), ruled.item_discount(rho, fewer)
    return np.concatenate([own, low]), np.concatenate([own_before, high])


def item_prices(ruled: RuledMarket, prices: Array) -> Array:
    """What a showing of each item is worth with its totals.  (n_items + totals,) → (n_items,)"""
    n_items = ruled.market.finder.n_items
    return np.asarray(prices[:n_items] + ruled.over_items(prices[n_items:]))


def dual_at(ruled: RuledMarket, columns: Columns, kind: int, rho: float, prices: Array) -> tuple[float, Array]:
    """D, of the candidates alone, and by how much demand exceeds what is offered.  (n_items + totals,)"""
    worth, demand = answers(ruled.market, columns, kind, rho, item_prices(ruled, prices))
    surplus, supply = surpluses(ruled, rho, prices)
    shown = np.zeros(ruled.bound.n_totals)
    np.add.at(shown, ruled.bound.totals, np.repeat(demand, np.diff(ruled.bound.offsets)))
    return total_of(worth, surplus), np.concatenate([demand, shown]) - supply


def surpluses(ruled: RuledMarket, rho: float, prices: Array) -> tuple[float, Array]:
    """What items and totals are worth beyond their prices, and the exposure at which they are.  (n_items + totals,)"""
    n_items = ruled.market.finder.n_items
    own, supply = item_surplus(ruled, rho, prices[:n_items])
    of_totals, wanted = totals_surplus(ruled, rho, prices[n_items:])
    return own + of_totals, np.concatenate([supply, wanted])


def item_surplus(ruled: RuledMarket, rho: float, own: Array) -> tuple[float, Array]:
    """Σ_i max_x (ρ B_i(x) − d_i x), and the x."""
    bonus, levels = ruled.market.bonus, ruled.own_levels
    if not len(levels):
        supply = np.minimum(np.searchsorted(-rho * bonus.table, -own), bonus.most)
        return float((rho * bonus.sums[supply] - own * supply).sum()), supply
    found = [best_total(level, rho, price, 0, bonus.most, bonus.steepness, bonus.delta)
             for level, price in zip(levels, own, strict=True)]  # fmt: skip
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
