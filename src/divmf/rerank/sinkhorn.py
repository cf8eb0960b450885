"""Sinkhorn: the lists as a transport plan from users to items with a wanted exposure."""

from typing import Annotated

import numpy as np
from pydantic import Field

from divmf.engine.arrays import Array
from divmf.ranking.lists import TopK
from divmf.rerank.candidates import best, lists, unit_scores
from divmf.rerank.settings import Order, Share, reranker

# how far the exposures may be from the wanted ones, relatively; lists do not change with less
TOLERANCE = 1e-3
# the powers of e that a plan may reach; float64 ends at 709
LARGEST_POWER = 700


@reranker
def sinkhorn(
    candidates: TopK,
    k: int = 5,
    *,
    rho: Annotated[
        Share, Field(description="ρ: share of the exposure that is spread evenly; 0 = the model's list")
    ] = 0.5,
    # exp(1/ε) must leave room in float64 for the scales of the plan
    epsilon: Annotated[float, Field(ge=0.002, description="ε: softness of the plan, in scaled scores")] = 0.05,
    passes: Annotated[int, Field(ge=1, description="passes over rows and columns at most")] = 50,
    order: Order = "method",
) -> TopK:
    """Entropic optimal transport with wanted item exposures (Cuturi, NIPS 2013; Benamou et al., SISC 2015).

    The plan P nearest to exp(s_ui/ε), s the user's score scaled to [0, 1], with Σ_i P_ui = k, 0 ≤ P ≤ 1 and
    Σ_u P_ui = (1−ρ)·base_i + ρ·q; it has the form min(1, a_u b_i exp(s_ui/ε)), and the list is its top k, which is the
    top k of s_ui + ε log b_i.
    Differs: the base exposure is that of the plan without column sums, not of the hard lists, so that ρ = 0 is the
    model's list at every ε. The even share goes to items that are someone's candidate, to none more than it has
    candidates; what those cannot take stays with the base. Where no plan has the wanted exposures, b would
    run to infinity; it is held at |log b| ≤ 700 − 1/ε, so that nothing overflows.
    """
    scores = unit_scores(candidates)
    bias = epsilon * log_column_scale(candidates, scores, k, rho, epsilon, passes)
    return lists(candidates, best(scores + bias[candidates.items], k), order)


def log_column_scale(candidates: TopK, scores: Array, k: int, rho: float, epsilon: float, passes: int) -> Array:
    """log b of the plan.  (n_items,)"""
    from divmf.kernels.rerank_transport import column_sums, scale_columns, scale_rows

    items = candidates.items
    kernel = np.exp((scores - 1) / epsilon)  # (n_lists, width), 0 where there is no candidate
    pairs = np.argsort(items, axis=None, kind="stable")[(items < 0).sum() :]  # those of an item together
    by_item, users = kernel.ravel()[pairs], (pairs // candidates.width).astype(np.int32)  # (n_pairs,)
    offsets = np.concatenate([[0], np.cumsum(candidates.counts)])
    row, column = np.ones(len(candidates)), np.ones(candidates.n_items)
    limit = np.exp(LARGEST_POWER - 1 / epsilon)
    row_total = np.minimum(candidates.lengths, k).astype(np.float64)
    scale_rows(kernel, items, column, row_total, row)
    base = column_sums(by_item, users, offsets, row, column)
    target = (1 - rho) * base + rho * even_exposure(candidates.counts, row_total.sum())
    for _ in range(passes):
        sums = column_sums(by_item, users, offsets, row, column)
        if (np.abs(sums - target) <= TOLERANCE * target).all():
            break
        scale_columns(by_item, users, offsets, row, target, column)
        np.clip(column, 1 / limit, limit, out=column)
        scale_rows(kernel, items, column, row_total, row)
    return np.log(column)


def even_exposure(degree: Array, total: float) -> Array:
    """The evenest exposure with this sum that gives no item more than it has candidates: min(degree, level)."""
    ascending = np.sort(degree)
    n_above = np.arange(len(degree), 0, -1)
    # if all from position j on get the level and those before it their degree
    level = (total - (np.cumsum(ascending) - ascending)) / n_above
    return np.asarray(np.minimum(degree, level[np.argmax(level <= ascending)]))
