"""Dual prices: each item asks for a price, raised while it is recommended too often."""

from typing import Annotated

import numpy as np
from pydantic import Field

from divmf.engine.arrays import Array
from divmf.market.rules import Rules
from divmf.ranking.lists import TopK
from divmf.rerank.candidates import lists, unit_scores
from divmf.rerank.capped import capped
from divmf.rerank.settings import Order, reranker


@reranker
def dual_prices(
    candidates: TopK,
    k: int = 5,
    *,
    c: Annotated[
        float,
        Field(ge=1, allow_inf_nan=True, description="capacity of an item in multiples of q; inf = the model's list"),
    ] = 2.0,
    passes: Annotated[int, Field(ge=1, description="passes over all lists at most")] = 200,
    step: Annotated[
        float, Field(gt=0, description="η: how far a price moves in the first pass, in scaled scores")
    ] = 0.2,
    rules: Rules | None = None,
    order: Order = "method",
) -> TopK:
    """Lagrangian prices of the capacity problem by subgradient steps (Held, Wolfe & Crowder, Math. Programming 1974).

    max Σ s_ui with k items a user and at most cap = ceil(c·q) users an item, q = mk/n. At prices μ the best lists are
    the top k of s_ui − μ_i, and μ_i ← max(0, μ_i + η_t (f_i − cap)/cap), η_t = η/√t, leads to the best prices. s is the
    user's score scaled to [0, 1]. A price is an item bias: serving stays one dot product.
    Differs: of all passes, the one with the least Σ max(0, f − cap)² is given; capacities hold nearly, not exactly.
    With rules, their capacities and filters hold: at the prices, pairs are given out in order, the best first.
    """
    candidates, most, _ = capped(rules, candidates, k, "dual_prices")
    price = prices(candidates, k, c, passes, step, most)
    columns = priced(candidates, price, k) if rules is None else given_out(candidates, price, most, k)
    return lists(candidates, columns, order)


def given_out(candidates: TopK, price: Array, most: Array, k: int) -> Array:
    """The columns that pairs get in the order of r_ui − price_i while items have capacity.  (n_lists, k)"""
    from divmf.kernels.rerank_fill import give_in_order

    user, column = np.nonzero(candidates.items >= 0)
    items = candidates.items[user, column]
    order = np.lexsort((user, items, price[items] - unit_scores(candidates)[user, column]))
    columns, size = np.full((len(candidates), k), -1), np.zeros(len(candidates), dtype=np.int64)
    give_in_order((user * candidates.width + column)[order], candidates.items, most.copy(), columns, size)
    return columns


def prices(candidates: TopK, k: int, c: float, passes: int, step: float, most: Array | None = None) -> Array:
    """μ: the price of each item at which the lists exceed the capacities least.  (n_items,)"""
    from divmf.kernels.rerank_prices import top_priced

    scores = unit_scores(candidates)
    price = best_price = np.zeros(candidates.n_items)
    capacity = np.full(candidates.n_items, c * len(candidates) * k / candidates.n_items)
    capacity = np.maximum(np.minimum(np.ceil(capacity - 1e-9), np.inf if most is None else most), 1e-9)
    if np.isinf(capacity).all():
        return price
    columns = np.empty((len(candidates), k), dtype=np.int64)
    least = np.inf
    for number in range(1, passes + 1):
        counts = np.zeros(candidates.n_items, dtype=np.int64)
        top_priced(scores, candidates.items, price, columns, counts)
        excess = (np.maximum(counts - capacity, 0) ** 2).sum()
        if excess < least:
            least, best_price = excess, price
        if excess == 0 and not price[counts < capacity].any():
            break  # the optimum: no item over its capacity, and no price where there is room
        price = np.maximum(0, price + step / np.sqrt(number) * (counts - capacity) / capacity)
    return best_price


def priced(candidates: TopK, price: Array, k: int) -> Array:
    """The columns of the top k of r_ui − price_i, with r the scaled scores.  (n_lists, k)"""
    from divmf.kernels.rerank_prices import top_priced

    columns = np.empty((len(candidates), k), dtype=np.int64)
    top_priced(unit_scores(candidates), candidates.items, price, columns, np.zeros(candidates.n_items, dtype=np.int64))
    return columns
