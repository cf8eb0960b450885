"""SAPID's reranking: users one after the other get what the others will get least."""

from typing import Annotated

from pydantic import Field

from divmf.data.interactions import Interactions
from divmf.ranking.lists import TopK
from divmf.rerank.candidates import lists, popularity_of
from divmf.rerank.settings import Order, reranker


@reranker
def sapid(
    candidates: TopK,
    k: int = 5,
    *,
    train: Interactions,
    c: Annotated[int, Field(ge=1, description="candidates looked at; k or less = the model's list")] = 50,
    drop: Annotated[float, Field(ge=0, description="how many times the mean drop of score a large drop is")] = 1.0,
    order: Order = "method",
) -> TopK:
    """Reranking for a series of users in their order (Kim & Kang, WSDM 2025, SAPID). Reconstructed.

    A user's pool are the candidates above the last large drop of score among the top c, at least k. Of them the k with
    the smallest expected count f_i + (users left)·k·pop_i/Σpop are given.
    Differs: reconstructed; a drop is large if it is more than `drop` times the mean drop among the top c.
    """
    from divmf.kernels.rerank_sapid import sapid_columns

    popularity = popularity_of(candidates, train)
    share = popularity / max(popularity.sum(), 1)  # (n_items,)
    columns = sapid_columns(candidates.items, candidates.scores, share, k, max(c, k), drop)
    return lists(candidates, columns, order if c > k else "score")
