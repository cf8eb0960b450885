"""Filling what is below its floor: who gives way is who loses least by it.

Every user says what the list would lose by an item of a total that lacks showings. Of each total, the users to whom it
costs the least are paid as much as the last of them needs, and take their turns.
"""

import numpy as np

from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.threads import in_parts
from divmf.kernels.market import Columns
from divmf.kernels.rules import offer_part
from divmf.kernels.totals import shown_by
from divmf.market.ruled import RuledMarket, State

FILLS, WORTH = 8, 0.05  # offers made, at the most; of what is missing, so much is filled by one that others follow
MORE = 1e-6  # spreads: what is paid beyond the cost


def fill(ruled: RuledMarket, columns: Columns, kind: int, rho: float, state: State) -> None:
    """Meet floors with these candidates, in place, as far as single changes of lists do."""
    for _ in range(FILLS):
        lacking = np.maximum(ruled.bound.low - state.counts, 0)
        missing = lacking.sum()
        if not missing:
            return
        costs, totals = offers(ruled, columns, kind, rho, state, lacking > 0)
        pay = pays(costs, totals, lacking) + MORE * ruled.scale
        users = np.flatnonzero((totals >= 0) & (costs <= pay[totals]))
        if not comm.total(len(users)):
            return
        step = np.where(lacking > 0, pay, ruled.binding)
        ruled.turns(columns, kind, rho, state, ruled.ruled(rho, ruled.freed(state), step), users)
        if np.maximum(ruled.bound.low - state.counts, 0).sum() > (1 - WORTH) * missing:
            return


def offers(
    ruled: RuledMarket, columns: Columns, kind: int, rho: float, state: State, lacking: Array
) -> tuple[Array, Array]:
    """What each user's list loses by an item of a total that lacks showings, and the total.  (n_users,) both"""
    n_users, terms = len(state.lists.items), ruled.market.terms(rho)
    rules = ruled.ruled(rho, ruled.freed(state), np.where(lacking, 0.0, ruled.binding))
    costs, totals = np.full(n_users, np.inf), np.full(n_users, -1)

    wanted = np.full(len(rules.large), -1)
    of_items = lacking[rules.totals]
    np.maximum.at(wanted, np.repeat(np.arange(len(wanted)), np.diff(rules.offsets))[of_items], rules.totals[of_items])

    def part(first: int, last: int) -> None:
        shown = shown_by(state.lists.exposed.copy(), state.counts.copy(), terms, rules)
        offer_part(columns, kind, first, last, terms, rules, shown, state.lists.items, wanted, costs, totals)

    in_parts(part, n_users, span=comm.row_range(n_users))
    return costs, totals


def pays(costs: Array, totals: Array, lacking: Array) -> Array:
    """The cost of the last of the cheapest offers that each total needs, of all processes; 0 where there are none."""
    some = totals >= 0
    costs, totals = (np.concatenate(comm.gathered_rows(each[some])) for each in (costs, totals))
    order = np.lexsort((costs, totals))
    costs, totals = costs[order], totals[order]
    position = np.arange(len(totals)) - np.searchsorted(totals, totals)
    taken = position < lacking[totals]
    found = np.full(len(lacking), -np.inf)
    np.maximum.at(found, totals[taken], costs[taken])
    return np.where(np.isfinite(found), np.maximum(found, 0.0), 0.0)
