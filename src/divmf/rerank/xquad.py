"""xQuAD for the long tail: a list should hold head and tail as the user's past does."""

from typing import Annotated

import numpy as np
from pydantic import Field

from divmf.data.ids import numbers_of
from divmf.data.interactions import Interactions
from divmf.engine.arrays import Array
from divmf.ranking.lists import TopK
from divmf.rerank.candidates import lists, popularity_of, unit_scores
from divmf.rerank.settings import Order, Share, reranker


@reranker
def xquad(
    candidates: TopK,
    k: int = 5,
    *,
    train: Interactions,
    weight: Annotated[
        Share, Field(description="λ: weight of head and tail against the score; 0 = the model's list")
    ] = 0.5,
    head: Annotated[Share, Field(description="share of the catalog, the most popular, that is the head")] = 0.2,
    order: Order = "method",
) -> TopK:
    """Personalised long-tail promotion by xQuAD (Abdollahpouri, Burke & Mobasher, FLAIRS 2019).

    k times the candidate with the largest (1−λ)·r_ui + λ·P(c|u)·(1 − share of c in the list so far) is appended, where
    c ∈ {head, tail} is the item's class and P(c|u) its share among the items the user met in training.
    Differs: r is the score scaled over the candidates; a user without training items counts as the average one.
    """
    from divmf.kernels.rerank_xquad import xquad_columns

    popularity = popularity_of(candidates, train)
    in_head = np.zeros(candidates.n_items, dtype=np.int64)
    in_head[np.argsort(-popularity, kind="stable")[: round(head * candidates.n_items)]] = 1
    taste = head_shares(candidates, train, in_head)  # (n_lists,)
    columns = xquad_columns(candidates.items, unit_scores(candidates), in_head, taste, weight, k)
    return lists(candidates, columns, order)


def head_shares(candidates: TopK, train: Interactions, in_head: Array) -> Array:
    """P(head | u): the share of head items among those each user met in training.  (n_lists,)"""
    number = numbers_of(train.item_ids, candidates.item_ids)[train.items]
    known = number >= 0
    met = np.bincount(train.users[known], minlength=train.n_users)
    met_head = np.bincount(train.users[known], in_head[number[known]], minlength=train.n_users)
    average = met_head.sum() / max(met.sum(), 1)
    shares = np.append(np.divide(met_head, met, out=np.full(len(met), average), where=met > 0), average)
    return shares[numbers_of(candidates.user_ids, train.user_ids)]  # −1, an unknown user, is the last: the average
