"""Karakaya: the baseline that walks from an item too often recommended to a similar, rarely recommended one."""

from typing import Annotated

import numpy as np
from pydantic import Field
from scipy import sparse

from divmf.data.ids import numbers_of, same_ids
from divmf.data.interactions import Interactions
from divmf.engine.arrays import Array
from divmf.ranking.lists import TopK
from divmf.ranking.retrieval import blocks
from divmf.ranking.select import top_of
from divmf.rerank.candidates import lists, lowest_of, own, own_counts, popularity_of, unit_scores
from divmf.rerank.settings import Order, Scale, Seed, Share, reranker


@reranker
def karakaya(
    candidates: TopK,
    k: int = 5,
    *,
    train: Interactions,
    threshold: Annotated[
        Share, Field(description="T: an item comes in if predicted at least this; 1 = the model's list")
    ] = 0.5,
    walks: Annotated[int, Field(ge=1, description="W: walks tried for one item")] = 10,
    steps: Annotated[int, Field(ge=1, description="L: steps of a walk")] = 5,
    neighbours: Annotated[int, Field(ge=1, description="similar items an item is joined to")] = 50,
    share: Annotated[float, Field(gt=0, description="what is too often: this many times the even share mk/n")] = 1.0,
    scale: Scale = "auto",
    lowest: Array | None = None,
    seed: Seed = 0,
    order: Order = "method",
) -> TopK:
    """Replacement by similar, rarely recommended items (Karakaya & Aytekin, KAIS 2018). Reconstructed.

    Items are joined to their nearest by cosine over the training data. Users in random order; for each listed item
    recommended more than q = mk/n times, the most frequent first: up to W random walks of L steps, each step
    with probability ∝ similarity. The first item met that is a candidate, not in the list, recommended less than
    q times and predicted at least T takes the place.
    The original's: that often recommended items of a list are replaced by similar, rarely recommended ones, which
    random walks over the similarities of items find (the second of its two methods), if their predicted rating is
    high enough. Ours, for want of its text: the graph (`neighbours` by cosine), the number and length of walks, what
    is often (`share`), and the order of the users. The DivMF paper gives none of these; it scales scores by min–max.
    Differs: only candidates come in; at T = 1 nothing does, not even ties.
    """
    from divmf.kernels.rerank_walks import Graph, Walks, replace_by_walks

    columns = own(candidates, k)
    if threshold < 1:
        graph = Graph(*similar_items(aligned_matrix(candidates, train), neighbours))
        rng = np.random.default_rng(seed)
        often = share * len(candidates) * k / candidates.n_items
        predicted = unit_scores(candidates, lowest_of(candidates, scale, lowest))
        counts = own_counts(candidates, k)
        replace_by_walks(
            rng.permutation(len(candidates)), candidates.items, predicted, columns, counts, graph,
            Walks(often, threshold, walks, steps), rng,
        )  # fmt: skip
    return lists(candidates, columns, order)


def aligned_matrix(candidates: TopK, train: Interactions) -> sparse.csr_array:
    """The training matrix with the columns of the candidates' catalog.  (train users, n_items)"""
    if same_ids(candidates.item_ids, train.item_ids):
        return train.matrix
    popularity_of(candidates, train)  # an error if no item is known
    column = numbers_of(train.item_ids, candidates.item_ids)[train.items]
    kept = column >= 0
    pairs = (train.users[kept], column[kept])
    return sparse.csr_array((np.ones(kept.sum(), dtype=np.float32), pairs), shape=(train.n_users, candidates.n_items))


def similar_items(matrix: sparse.csr_array, neighbours: int) -> tuple[Array, Array]:
    """The most similar items of each item by cosine, −1 for none, and the cumulated probability of a step to them.

    Both (n_items, neighbours); the last probability of an item with neighbours is 1.
    """
    n_items = matrix.shape[1]
    by_item = matrix.T.tocsr()
    norms = np.sqrt(np.maximum(matrix.sum(axis=0), 1))  # (n_items,)
    items = np.empty((n_items, neighbours), dtype=np.int32)
    similarity = np.empty((n_items, neighbours))
    for block in blocks(n_items, n_items):
        met_both = (by_item[block] @ matrix).toarray()  # (block, n_items), exact, so that equal cosines are equal
        cosines = met_both / np.outer(norms[block], norms)
        cosines[np.arange(len(cosines)), np.arange(block.start, block.stop)] = 0
        cosines[cosines <= 0] = -np.inf
        items[block], similarity[block] = top_of(cosines, neighbours)
    mass = np.cumsum(np.where(items >= 0, similarity, 0), axis=1)
    return items, mass / np.maximum(mass[:, -1:], np.finfo(float).tiny)
