"""How far lists may be from the best there are: the dual of the market.

For any discounts d ≥ 0, one for each item,

    D(d) = Σ_u (what the best list is worth at these discounts) + Σ_i max_x (ρ B(x) − d_i x)

is at least the objective of any lists. The first sum is taken over all items there are, so the bound is one of the true
objective. The pass over all scores that finds it also finds how many users would take an item at somewhat other
discounts, and so where that meets what the item offers: there D is lower.
"""

from typing import NamedTuple

import numpy as np

from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.threads import in_parts
from divmf.kernels.bound import balances
from divmf.kernels.market import ONE, ONE_BITS, Columns, answer_part
from divmf.market.columns import no_counts
from divmf.market.solve import Lists, Market, Solution

LEAST, LOOKS = 5, 12  # looks at all items: at the least, for the discounts serve later lists as well; at the most
TIGHT, STALLED = 0.02, 0.97  # a gap small enough; one that hardly falls from one look to the next
LOOSE = 0.05  # a gap that, from a ρ nearby, more than the least looks will not make small
PART_WAY = 0.8  # of the way to where demand meets what is offered: neighbours move too
RADIUS, LEAST_RADIUS, LARGEST_RADIUS = 0.08, 0.01, 3.0  # how far around a discount demand is looked at; the first
OF_SPAN, MOST_SPAN = 0.1, 10.0  # the first radius as a share of what the exposure of an item leaves open, ρ at the most
ROOM, WIDER = 1.5, 2.0  # the next radius: in units of the way to the balance; where it lies beyond, of the last


class Certificate(NamedTuple):
    """What was found of one solution.

    discount   (n_items,): what a full showing of an item earns where lists are chosen
    gap        no lists are better by more than this fraction of what these have gained over the model's own
    """

    discount: Array
    gap: float


def certify(market: Market, found: Solution, nearby: Array | None = None) -> Certificate:
    """Discounts that bound the objective of the first kind of lists tightly, and the bound.

    nearby   (n_items,): the discounts of a certificate for a ρ nearby, if there is one, to begin from
    """
    (bit, first), *_ = market.bits
    lists, rho = found.lists[first], found.rho
    value = market.value(found.columns, rho, lists)
    own_columns, own = market.own
    gained = value - market.value(own_columns, rho, own[first])
    unit = min(rho, market.spread) or 1.0  # of the radii
    discount, radius = beginning(market, rho, lists, unit, nearby)
    best, lowest, gap = discount, np.inf, 0.0
    for look in range(1, LOOKS + 1):
        worth, counts = demand_at(market, found.columns, bit, rho, discount, radius)
        bound = total_of(worth, surplus(market, rho, discount))
        if bound < lowest:
            best, lowest = discount, bound
        before, gap = gap, max(0.0, lowest - value) / gained if gained > 0 else 0.0
        most = LEAST if nearby is not None and gap > LOOSE else LOOKS
        if look >= most or (look >= LEAST and (gap <= TIGHT or gap > STALLED * before)):
            break
        discount, radius = balanced(market, rho, discount, radius, counts, unit)
    return Certificate(best, gap)


def beginning(market: Market, rho: float, lists: Lists, unit: float, nearby: Array | None) -> tuple[Array, Array]:
    """Discounts to begin from, and how far around them to look first: without others, what one more showing earns.

    An item that is shown x times earns its discount by the last of these showings, and not by one more. Where x is
    small, the two are far apart, and what users would have to lose decides where the discount lies; that hardly changes
    from one ρ to the next, so it is as near to the discount there as the exposure allows.
    """
    one_more = market.left_to_earn(rho, lists)
    if nearby is None:
        return one_more, np.full(len(one_more), RADIUS * unit)
    last = rho * market.bonus.table[np.maximum(lists.exposed - 1, 0) >> ONE_BITS]
    last = np.where(lists.exposed > 0, last, np.inf)
    span = np.minimum(last - one_more, MOST_SPAN * rho)
    radius = np.clip(OF_SPAN * span, RADIUS * unit, LARGEST_RADIUS * unit)
    return np.clip(nearby.astype(np.float64), one_more, last), radius


def demand_at(
    market: Market, columns: Columns, kind: int, rho: float, discount: Array, radius: Array
) -> tuple[float, Array]:
    """What the best lists of this process's users are worth, and the exposure all would give (`demand_of_rows`)."""
    worth, counts = 0.0, no_counts(len(discount))
    for part in market.finder.demand(columns, kind, market.terms(rho), discount, radius):
        worth += part.worth
        counts += part.counts
    comm.all_reduce(counts)
    return worth, counts


def balanced(
    market: Market, rho: float, discount: Array, radius: Array, counts: Array, unit: float
) -> tuple[Array, Array]:
    """Discounts nearer to where demand meets what is offered, and how far around them to look next."""
    found = np.empty(len(discount))
    balances(counts, discount, radius, rho * market.bonus.table, found)
    way = np.abs(found - discount)
    wider = np.where(way < radius, ROOM * way, WIDER * radius)
    moved = np.maximum(discount + PART_WAY * (found - discount), 0.0)
    return moved, np.clip(wider, LEAST_RADIUS * unit, LARGEST_RADIUS * unit)


def answers(market: Market, columns: Columns, kind: int, rho: float, discount: Array) -> tuple[float, Array]:
    """What the best lists of this process's users are worth, and what those of all show, in full showings."""
    terms, n_items, n_users = market.terms(rho), len(discount), len(columns.starts)

    def part(first: int, last: int) -> tuple[float, Array]:
        exposure = np.zeros(n_items, dtype=np.int64)
        return answer_part(columns, kind, first, last, terms, discount, exposure), exposure

    demand, worth = np.zeros(n_items, dtype=np.int64), 0.0
    for found, exposure in in_parts(part, n_users, 8 * n_items, span=comm.row_range(n_users)):
        worth += found
        demand += exposure
    comm.all_reduce(demand)
    return worth, demand / ONE


def offered(market: Market, rho: float, discount: Array) -> Array:
    """The exposure up to which each item earns at least its discount by a showing: b falls, so it is the first ones."""
    return np.searchsorted(-rho * market.bonus.table, -discount)


def surplus(market: Market, rho: float, discount: Array) -> float:
    """Σ_i max_x (ρ B(x) − d_i x)."""
    supply = offered(market, rho, discount)
    return float((rho * market.bonus.sums[supply] - discount * supply).sum())


def total_of(worth: float, rest: float) -> float:
    """A bound: what all processes' lists are worth, and the rest; the same whatever order it was added up in."""
    return float(f"{comm.total(worth) + rest:.12g}")
