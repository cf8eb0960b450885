"""FairMatch: the baseline that finds rarely recommended items of quality by repeated maximum flows."""

from itertools import count
from math import gcd
from typing import Annotated

import numpy as np
from pydantic import Field
from scipy import sparse

from divmf.engine.arrays import Array
from divmf.ranking.lists import TopK
from divmf.rerank.candidates import lists, own, own_counts
from divmf.rerank.settings import Order, Share, reranker


@reranker
def fairmatch(
    candidates: TopK,
    k: int = 5,
    *,
    t: Annotated[
        int, Field(ge=1, description="candidates of each user that enter the graph; k or less = the model's list")
    ] = 100,
    alpha: Annotated[Share, Field(description="weight of the rank against the item's degree")] = 0.5,
    beta: Annotated[Share, Field(description="share of a list that may be replaced; 0 = the model's list")] = 0.5,
    divide: Annotated[
        bool, Field(description="divide the node capacities by their gcd, as the original; starves the flow")
    ] = False,
    order: Order = "method",
) -> TopK:
    """Rarely recommended items of quality by maximum flow (Mansoury et al., UMAP 2020, FairMatch).

    Graph source → item → user → sink over the top t, with capacity w_iu = α·rank_iu + (1−α)·degree_i on an edge (degree
    scaled to [1, t]) and an even share of Σw on each node. Items whose source edge a maximum flow leaves unsaturated
    are found; they are taken out, and so on until none is found. The most visible M = min(βk, found) items of a
    list give way to the user's found ones, in order of round and rank.
    The original's: the graph, its weights, the even shares, rounds until nothing is found, the most visible giving way.
    Open, and settings here: β (the DivMF paper names t and α alone), and whether capacities are divided by their gcd
    (`divide`; the original does). It tells found items by the labels of a push-relabel solver.
    Differs: we find the items that *some* maximum flow leaves unsaturated (the source side of the smallest minimum
    cut), which depends on no solver. Weights are rounded up. A list whose items all stay keeps the model's order.
    """
    round_of = rounds(candidates.items[:, :t], candidates.n_items, alpha, divide)  # (n_items,)
    columns = replaced(candidates, round_of, own_counts(candidates, k), k, t, round(beta * k))
    same = (np.sort(columns, axis=1) == np.sort(own(candidates, k), axis=1)).all(axis=1, keepdims=True)
    return lists(candidates, np.where(same, own(candidates, k), columns), order)


def replaced(candidates: TopK, round_of: Array, visibility: Array, k: int, t: int, most: int) -> Array:
    """The columns of each list after its most visible items gave way to found ones.  (n_lists, k)"""
    items, column = candidates.items, np.arange(candidates.width)
    own_items = items[:, :k]
    seen_often = np.where(own_items >= 0, visibility[own_items], np.iinfo(np.int64).max)
    kept = np.argsort(seen_often, axis=1, kind="stable")  # the least visible first, empty columns last
    found = (items >= 0) & (column >= k) & (column < t) & (round_of[items] > 0)
    found_order = np.argsort(
        np.where(found, round_of[items] * candidates.width + column, np.iinfo(np.int64).max), axis=1
    )
    n_new = np.minimum(found.sum(axis=1), most)[:, None]  # a user with found items has a full list
    rank = np.arange(k)
    width = kept.shape[1]
    old = np.take_along_axis(kept, np.broadcast_to(np.minimum(rank, width - 1), (len(items), k)), axis=1)
    new = np.take_along_axis(found_order, np.clip(rank - (k - n_new), 0, candidates.width - 1), axis=1)
    columns = np.where(rank < k - n_new, old, new)
    return np.where(rank < candidates.lengths[:, None], columns, -1)


def rounds(items: Array, n_items: int, alpha: float, divide: bool) -> Array:
    """In which round, from 1, each item is found; 0 for never.  (n_items,)"""
    t = items.shape[1]
    user, column = np.nonzero(items >= 0)
    item = items[user, column]
    round_of = np.zeros(n_items, dtype=np.int64)
    for number in count(1):
        if not len(item):
            break
        degree = np.bincount(item, minlength=n_items)
        low, high = degree[item].min(), degree[item].max()
        scaled = 1 + (t - 1) * (degree[item] - low) / max(high - low, 1)
        weight = np.ceil(alpha * (column + 1) + (1 - alpha) * scaled - 1e-9).astype(np.int64)
        found = unsaturated(item, user, weight, divide)
        if not len(found):
            break
        round_of[found] = number
        left = round_of[item] == 0
        user, column, item = user[left], column[left], item[left]
    return round_of


def unsaturated(item: Array, user: Array, weight: Array, divide: bool) -> Array:
    """The items whose source edge some maximum flow through source → item → user → sink leaves unsaturated."""
    items, item_node = np.unique(item, return_inverse=True)
    users, user_node = np.unique(user, return_inverse=True)
    total = int(weight.sum())
    if total > np.iinfo(np.int32).max:
        raise ValueError(
            f"fairmatch: the graph carries {total:,}, more than the flow solver can count; choose a smaller t"
        )
    per_item, per_user = -(-total // len(items)), -(-total // len(users))
    if divide:
        common = gcd(per_item, per_user)
        per_item, per_user = per_item // common, per_user // common
    source, sink, first_user = 0, 1 + len(items) + len(users), 1 + len(items)
    tails = np.concatenate([np.full(len(items), source), 1 + item_node, first_user + np.arange(len(users))])
    heads = np.concatenate([1 + np.arange(len(items)), first_user + user_node, np.full(len(users), sink)])
    capacity = np.concatenate([np.full(len(items), per_item), weight, np.full(len(users), per_user)])
    graph = sparse.csr_array((capacity.astype(np.int32), (tails, heads)), shape=(sink + 1, sink + 1))
    return items[source_side(graph, source, sink)[1:first_user]]


def source_side(graph: sparse.csr_array, source: int, sink: int) -> Array:
    """Which nodes the source reaches in what a maximum flow leaves of the graph: the smallest minimum cut."""
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    flow = maximum_flow(graph, source, sink).flow
    left = (graph - flow).tocsr()
    left.eliminate_zeros()
    reached = np.zeros(graph.shape[0], dtype=bool)
    reached[breadth_first_order(left, source, return_predecessors=False)] = True
    return reached
