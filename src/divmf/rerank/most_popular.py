"""Most popular: the opposite of diversity, to check the evaluator and to show the other end."""

from typing import Annotated

import numpy as np
from pydantic import Field

from divmf.data.interactions import Interactions
from divmf.ranking.lists import TopK
from divmf.rerank.candidates import best, lists, popularity_of, unit_scores
from divmf.rerank.settings import Order, Share, reranker


@reranker
def most_popular(
    candidates: TopK,
    k: int = 5,
    *,
    train: Interactions,
    weight: Annotated[Share, Field(description="weight of popularity against the score; 0 = the model's list")] = 1.0,
    order: Order = "method",
) -> TopK:
    """The candidates most met in training (Cremonesi et al., RecSys 2010, TopPop).

    Top k of (1−w)·r_ui + w·pop_i / max pop.
    Differs: among the user's candidates, not the whole catalog.
    """
    popularity = popularity_of(candidates, train)
    share = popularity / max(popularity.max(), 1)  # (n_items,)
    listed = candidates.items >= 0
    r = np.where(listed, unit_scores(candidates), 0)
    keys = np.where(listed, (1 - weight) * r + weight * share[candidates.items], -np.inf)
    return lists(candidates, best(keys, k), order)
