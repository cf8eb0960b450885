"""Lists by min-cost flow: the solver is ortools (extra `flow`), the graph is ours."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from divmf.engine.arrays import Array
from divmf.ranking.lists import TopK
from divmf.rerank.candidates import unit_scores

# scaled scores as the solver's whole numbers: finer than float32 tells scores apart near 1
UNITS = 10**7


def solver() -> Any:
    """ortools' min-cost flow, or an error that says how to get it."""
    try:
        from ortools.graph.python.min_cost_flow import SimpleMinCostFlow
    except ImportError as error:
        raise ImportError("min-cost flow needs ortools, which is not installed; pip install 'divmf[flow]'") from error
    return SimpleMinCostFlow()


def best_flow(candidates: TopK, supply: Array, layers: Sequence[tuple[Array, float]]) -> Array:
    """The columns of largest total scaled score less cost, ties to the smaller column.  (n_lists, max supply)

    supply   (n_lists,) how many items each user gets; fewer if the capacities do not allow it
    layers   (n_items,) how often an item may be given, and what each time costs in scaled scores; the cheapest first
    """
    n_lists, n_items = candidates.items.shape[0], candidates.n_items
    user, column = np.nonzero(candidates.items >= 0)
    item_node, sink = n_lists + candidates.items[user, column], n_lists + n_items
    # one unit of score outweighs every difference of column, so equal scores go to the smaller column
    weight = candidates.width + 1
    cost = column - np.rint(unit_scores(candidates)[user, column] * UNITS).astype(np.int64) * weight
    flow = solver()
    arcs = flow.add_arcs_with_capacity_and_unit_cost(*nodes(user, item_node), np.ones(len(user), dtype=np.int64), cost)
    into_sink = nodes(n_lists + np.arange(n_items), np.full(n_items, sink))
    for capacity, price in layers:
        prices = np.full(n_items, round(price * UNITS) * weight, dtype=np.int64)
        flow.add_arcs_with_capacity_and_unit_cost(*into_sink, capacity.astype(np.int64), prices)
    supplies = np.concatenate([supply, np.zeros(n_items, dtype=np.int64), [-supply.sum()]])
    flow.set_nodes_supplies(np.arange(sink + 1, dtype=np.int32), supplies.astype(np.int64))
    if (status := flow.solve_max_flow_with_min_cost()) != flow.OPTIMAL:
        raise RuntimeError(f"the min-cost flow solver gave up with status {status}")
    given = flow.flows(arcs) > 0
    return columns_of(user[given], column[given], n_lists, int(supply.max(initial=0)))


def nodes(tails: Array, heads: Array) -> tuple[Array, Array]:
    """Two arrays of node numbers as the solver takes them."""
    return tails.astype(np.int32), heads.astype(np.int32)


def columns_of(user: Array, column: Array, n_lists: int, k: int) -> Array:
    """Pairs, sorted by user, as lists of columns, −1 at their ends.  (n_lists, k)"""
    rank = np.arange(len(user)) - np.searchsorted(user, user)  # 0, 1, … within each user
    columns = np.full((n_lists, k), -1)
    columns[user, rank] = column
    return columns
