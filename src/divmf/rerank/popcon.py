"""PopCon's reranking for single items: every slot is given to what adds most to score, entropy and coverage."""

from typing import Annotated

import numpy as np
from pydantic import Field

from divmf.ranking.lists import TopK
from divmf.rerank.candidates import lists
from divmf.rerank.settings import Order, Seed, reranker


@reranker
def popcon(
    candidates: TopK,
    k: int = 5,
    *,
    beta: Annotated[float, Field(ge=0, description="exponent of the score; 0 = the model's list")] = 10.0,
    seed: Seed = 0,
    order: Order = "method",
) -> TopK:
    """Configuration-aware reranking, for single items (Jeon et al., PAKDD 2023, PopCon).

    k rounds; in each, users in random order take the candidate with the largest a + (1−a)(ΔH/log n + Δcov), where
    a = sigmoid(s)^β and ΔH, Δcov are what one more slot for the item adds to entropy and coverage of all lists so far.
    Differs: the original is for bundles; the sigmoid is of the model's own scores, so β depends on their scale.
    """
    from divmf.kernels.rerank_popcon import popcon_columns

    rng = np.random.default_rng(seed)
    users = np.array([rng.permutation(len(candidates)) for _ in range(k)])  # (k, n_lists)
    scores = np.where(candidates.items >= 0, candidates.scores, 0).astype(np.float64)
    a = np.exp(-beta * np.logaddexp(0, -scores))  # −log sigmoid(s) = log(1 + e^−s)
    return lists(candidates, popcon_columns(users, candidates.items, a, candidates.n_items), order)
