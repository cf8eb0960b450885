"""Random from the top: the floor under every diversity method."""

from typing import Annotated

import numpy as np
from pydantic import Field

from divmf.ranking.lists import TopK
from divmf.rerank.candidates import best, lists
from divmf.rerank.settings import Order, Seed, reranker


@reranker
def random_top(
    candidates: TopK,
    k: int = 5,
    *,
    c: Annotated[int, Field(ge=1, description="candidates drawn from; k or less = the model's list")] = 20,
    seed: Seed = 0,
    order: Order = "method",
) -> TopK:
    """k of the top c at random: what diversity costs without any thought (a control, from no paper)."""
    draws = np.random.default_rng(seed).random(candidates.items.shape)
    drawn = (candidates.items >= 0) & (np.arange(candidates.width) < max(c, k))
    return lists(candidates, best(np.where(drawn, draws, -np.inf), k), order if c > k else "score")
