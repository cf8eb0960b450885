"""Bayes rule: discount an item by how much everyone wants it."""

from typing import Annotated

import numpy as np
from pydantic import Field

from divmf.ranking.lists import TopK
from divmf.rerank.candidates import best, lists, log_softmax
from divmf.rerank.settings import Order, Share, reranker


@reranker
def bayes_rule(
    candidates: TopK,
    k: int = 5,
    *,
    a: Annotated[Share, Field(description="exponent of the discount; 0 = the model's list")] = 0.5,
    order: Order = "method",
) -> TopK:
    """Inversion of the recommendation task by Bayes' rule (Vargas & Castells, RecSys 2014).

    Top k of log s_ui − a·log Σ_u s_ui, with s the softmax of each user's scores: P(user | item) for a = 1.
    Differs: the softmax and the sum go over the candidates only.
    """
    log_s = log_softmax(candidates)  # (n_lists, width)
    mass = np.bincount(candidates.items.clip(0).ravel(), np.exp(log_s).ravel(), minlength=candidates.n_items)
    # far below its user's best, exp underflows; such a mass stays positive
    discount = a * np.log(np.maximum(mass, np.finfo(np.float64).tiny))
    return lists(candidates, best(log_s - discount[candidates.items], k), order)
