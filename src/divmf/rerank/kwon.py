"""Kwon: the baseline that turns the top of each list upside down."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from divmf.data.interactions import Interactions
from divmf.engine.arrays import Array
from divmf.ranking.lists import TopK
from divmf.rerank.candidates import best, lists, lowest_of, popularity_of, unit_scores
from divmf.rerank.settings import Order, Scale, Share, reranker


@reranker
def kwon(
    candidates: TopK,
    k: int = 5,
    *,
    t_r: Annotated[
        Share, Field(description="T_R: what is predicted at least this is re-ranked; 1 = the model's list")
    ] = 0.9,
    t_h: Annotated[Share, Field(description="T_H: what counts as liked (at most T_R)")] = 0.8,
    ranking: Annotated[
        Literal["rating", "popularity", "liked"],
        Field(description="what is first above T_R: low predicted rating, unpopular (needs train), liked by few"),
    ] = "rating",
    scale: Scale = "auto",
    train: Interactions | None = None,
    lowest: Array | None = None,
    order: Order = "method",
) -> TopK:
    """Ranking-based aggregate diversity by reverse predicted rating (Adomavicius & Kwon, TKDE 2012).

    With r the user's scores scaled to [0, 1], A = {r ≥ T_R}, B = {T_H ≤ r < T_R}: the list is A by r ascending
    (or by popularity, or by the number of users with r ≥ T_H, ascending), then B, then the rest, by r descending.
    A low T_R puts the worst of many good items first: accuracy collapses, and that is the method.
    The original's: the two thresholds, the three rankings, one list after T_R and one before. The DivMF paper sets
    T_H = 0.8, T_R = 0.9 and scales scores by min–max, but does not say over which items; the original has ratings, on
    one scale for all. Over a user's 100 candidates T_R = 0.9 re-ranks hardly anything, over all unseen items about ten.
    Differs: only candidates are re-ranked; T_R = 1 re-ranks nothing, not even ties.
    """
    r = unit_scores(candidates, lowest_of(candidates, scale, lowest))  # (n_lists, width)
    above = (r >= t_r) & (t_r < 1)
    measure = r if ranking == "rating" else counts_of(candidates, r >= min(t_h, t_r), ranking, train)
    # columns ascend as r descends, so "B, then the rest, by r descending" is the order of the columns, after all of A
    after = -(measure.max(where=above, initial=0) + 1 + np.arange(candidates.width))  # (width,)
    keys = np.where(above, -measure, np.where(candidates.items >= 0, after, -np.inf))
    return lists(candidates, best(keys, k), order)


def counts_of(candidates: TopK, liked: Array, ranking: str, train: Interactions | None) -> Array:
    """The count by which A is ranked: popularity, or the number of users who like the item.  (n_lists, width)"""
    if ranking == "liked":
        counts = np.bincount(candidates.items[liked], minlength=candidates.n_items)
    elif train is None:
        raise ValueError(
            "kwon: ranking='popularity' needs the training interactions; give train=… (--train on the command line)"
        )
    else:
        counts = popularity_of(candidates, train)
    return counts[candidates.items].astype(np.float64)
