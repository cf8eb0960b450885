"""Min-cost flow: the best lists when every slot above a wanted exposure has a price."""

from typing import Annotated

import numpy as np
from pydantic import Field

from divmf.engine.arrays import Array
from divmf.market.rules import Rules
from divmf.ranking.lists import TopK
from divmf.rerank.candidates import lists, own_counts
from divmf.rerank.capped import capped
from divmf.rerank.flow import best_flow
from divmf.rerank.settings import Order, Share, reranker


@reranker
def mincost_flow(
    candidates: TopK,
    k: int = 5,
    *,
    alpha: Annotated[
        Share, Field(description="α: how far the wanted exposure is the model's own; 1 = the model's list")
    ] = 0.5,
    penalty: Annotated[
        float, Field(ge=0, le=100, description="what a slot above the wanted exposure costs, in scaled scores")
    ] = 1.0,
    rules: Rules | None = None,
    order: Order = "method",
) -> TopK:
    """Discrepancy from a wanted exposure by min-cost flow (Antikacioglu & Ravi, KDD 2017). Needs the extra `flow`.

    max Σ r_ui − Σ_i cost(f_i): r the score scaled to [0, 1], cost 0 up to target_i = ceil(α·own_i + (1−α)·q), where
    own_i is how often the model's own lists hold i and q = mk/n; above it each slot costs `penalty`, above 2·target_i
    twice that, above 4·target_i three times, and so on: convex, so that the flow gives exactly the best lists.
    Differs: the original's proportional part is the popularity in the data; with the model's own exposure, α = 1 is
    its own list. With rules, capacities and filters hold: no layer goes beyond a capacity.
    """
    candidates, most, _ = capped(rules, candidates, k, "mincost_flow")
    even = len(candidates) * k / candidates.n_items
    target = np.ceil(alpha * own_counts(candidates, k) + (1 - alpha) * even - 1e-9)
    columns = best_flow(
        candidates, np.minimum(candidates.lengths, k), within(most, convex(target, len(candidates), penalty))
    )
    columns = np.pad(columns, ((0, 0), (0, k - columns.shape[1])), constant_values=-1)
    return lists(candidates, columns, order)


def convex(target: Array, n_lists: int, penalty: float) -> list[tuple[Array, float]]:
    """The layers of the cost: as wide as all before them together, each dearer by `penalty`, up to everyone."""
    layers, width = [(target, 0.0)], np.maximum(target, 1)
    while width.min() < n_lists:
        layers.append((width, len(layers) * penalty))
        width = 2 * width
    return [*layers, (np.full(len(target), n_lists), len(layers) * penalty)]


def within(most: Array, layers: list[tuple[Array, float]]) -> list[tuple[Array, float]]:
    """The layers as far as capacities go, the cheapest first."""
    made, left = [], most
    for width, price in layers:
        made.append((np.minimum(width, left), price))
        left = left - made[-1][0]
    return made
