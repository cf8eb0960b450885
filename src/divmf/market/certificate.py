"""How far lists may be from the best there are: the dual of the market.

For any discounts d ≥ 0, one for each item,

    D(d) = Σ_u (what the best list is worth at these discounts) + Σ_i max_x (ρ B(x) − d_i x)

is at least the objective of any lists. The first sum is taken over all items there are, so the bound is one of the true
objective. Discounts that make it small are looked for among the candidates, where that is cheap.
"""

from typing import NamedTuple

import numpy as np

from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.threads import in_parts
from divmf.kernels.bound import join
from divmf.kernels.market import ONE, ONE_BITS, Columns, answer_part
from divmf.market.solve import Market, Solution

STEPS = 8  # of all discounts, from one look at all items to the next
LOOKS = 2  # at all items, at the most
FIRST_STEP, FASTER, SLOWER = 0.02, 1.2, 0.5  # in units of ρ; a step grows while its direction stays, else it halves
TIGHT, LOOSE = 0.02, 0.1  # a gap small enough, and one that further looks will not make small


class Certificate(NamedTuple):
    """What was found of one solution.

    discount   (n_items,): what a full showing of an item earns where lists are chosen
    gap        no lists are better by more than this fraction of what these have gained over the model's own
    """

    discount: Array
    gap: float


def certify(market: Market, found: Solution) -> Certificate:
    """Discounts that bound the objective of the first kind of lists tightly, and the bound."""
    (bit, first), *_ = market.bits
    lists, columns, rho = found.lists[first], found.columns, found.rho
    own_columns, own = market.own
    value = market.value(columns, rho, lists)
    gained = value - market.value(own_columns, rho, own[first])
    discount = best = market.left_to_earn(rho, lists)
    # where lists are best, a discount lies between what one more showing would earn and what the last one earns
    box = discount, rho * market.bonus.table[np.maximum((lists.exposed >> ONE_BITS) - 1, 0)]
    lowest, step = np.inf, np.full(len(discount), FIRST_STEP * rho)
    for look in range(LOOKS):
        discount, step = lowered(market, columns, bit, rho, discount, step, box)
        bound = total_of(market.finder.bound(columns, bit, market.terms(rho), discount), surplus(market, rho, discount))
        if bound < lowest:
            best, lowest = discount, bound
        gap = max(0.0, lowest - value) / gained if gained > 0 else 0.0
        if not TIGHT < gap < LOOSE or look == LOOKS - 1:
            break
        columns = joined(columns, market.finder.find(discount, lists.items))
    return Certificate(best, gap)


def joined(columns: Columns, others: Columns) -> Columns:
    """The candidates of both."""
    most = columns.ends - columns.starts + others.ends - others.starts
    ends = np.cumsum(most)
    tables = (np.empty(ends[-1], dtype=table.dtype) for table in (columns.items, columns.values, columns.opens))
    made = Columns(ends - most, ends, *tables)
    join(columns, others, made)
    return made


def lowered(
    market: Market, columns: Columns, kind: int, rho: float, discount: Array, step: Array, box: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Discounts at which D, of the candidates alone, is lower, and the steps that were taken last.

    Each moves by its own step, within the box, towards where the exposure that users ask for is what the item offers
    (Rprop: Riedmiller & Braun 1993).
    """
    best, lowest, before = discount, np.inf, np.zeros(len(discount))
    for _ in range(STEPS):
        worth, demand = answers(market, columns, kind, rho, discount)
        excess = demand - offered(market, rho, discount)
        bound = total_of(worth, surplus(market, rho, discount))
        if bound < lowest:
            best, lowest = discount, bound
        same = np.sign(excess) * before
        step = np.where(same > 0, FASTER * step, np.where(same < 0, SLOWER * step, step))
        before = np.where(same < 0, 0.0, np.sign(excess))
        discount = np.clip(discount - before * step, *box)
    return best, step


def answers(market: Market, columns: Columns, kind: int, rho: float, discount: Array) -> tuple[float, Array]:
    """What the best lists of this process's users are worth, and what those of all show, in full showings."""
    terms, n_items, n_users = market.terms(rho), len(discount), len(columns.starts)

    def part(first: int, last: int) -> tuple[float, Array]:
        demand = np.zeros(n_items, dtype=np.int64)
        return answer_part(columns, kind, first, last, terms, discount, demand), demand

    demand, worth = np.zeros(n_items, dtype=np.int64), 0.0
    for found, asked in in_parts(part, n_users, 8 * n_items, span=comm.row_range(n_users)):
        worth += found
        demand += asked
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
