"""Max-flow coverage: as many different items as can be recommended at all."""

from typing import Annotated

import numpy as np
from pydantic import Field
from scipy import sparse

from divmf.engine.arrays import Array
from divmf.ranking.lists import TopK
from divmf.rerank.candidates import lists, own, unit_scores
from divmf.rerank.flow import columns_of
from divmf.rerank.settings import Order, Share, reranker


@reranker
def maxflow_coverage(
    candidates: TopK,
    k: int = 5,
    *,
    t_h: Annotated[Share, Field(description="T_H: what may be recommended for coverage; 1 = the model's list")] = 0.8,
    order: Order = "method",
) -> TopK:
    """The most different items by maximum flow (Adomavicius & Kwon, INFORMS J. on Computing 2014).

    Graph source → user (capacity k) → item (if r_ui ≥ T_H, capacity 1) → sink (capacity 1): a maximum flow gives every
    item it can to one user; the rest of the lists is by score. It is for coverage, not for how even the counts are.
    Differs: r is scaled over the candidates; at T_H = 1 nothing moves, not even ties.
    """
    from divmf.kernels.rerank_fill import fill_up

    if t_h == 1:
        return lists(candidates, own(candidates, k), order)
    columns = most_items(candidates, unit_scores(candidates) >= t_h, k)
    everybody = np.full(candidates.n_items, len(candidates))
    fill_up(candidates.items, candidates.lengths, everybody, columns)
    return lists(candidates, columns, order)


def most_items(candidates: TopK, allowed: Array, k: int) -> Array:
    """Places (n_lists, k) that hold as many different items as possible, each once, from the allowed ones."""
    from scipy.sparse.csgraph import maximum_flow

    n_lists, n_items = len(candidates), candidates.n_items
    user, column = np.nonzero(allowed)
    if not len(user):
        return np.full((n_lists, k), -1)
    source, sink, first_item = 0, 1 + n_lists + n_items, 1 + n_lists
    tails = np.concatenate([np.full(n_lists, source), 1 + user, first_item + np.arange(n_items)])
    heads = np.concatenate(
        [1 + np.arange(n_lists), first_item + candidates.items[user, column], np.full(n_items, sink)]
    )
    capacity = np.ones(len(tails), dtype=np.int32)
    capacity[:n_lists] = k
    flow = maximum_flow(sparse.csr_array((capacity, (tails, heads)), shape=(sink + 1, sink + 1)), source, sink).flow
    given = flow[1 + user, first_item + candidates.items[user, column]] > 0
    return columns_of(user[given], column[given], n_lists, k)
