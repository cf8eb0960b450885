"""FairRec: every item is guaranteed some slots, given out in turns."""

from typing import Annotated

import numpy as np
from pydantic import Field

from divmf.market.rules import Rules
from divmf.ranking.lists import TopK
from divmf.rerank.candidates import lists
from divmf.rerank.capped import capped
from divmf.rerank.settings import Order, Share, reranker


@reranker
def fairrec(
    candidates: TopK,
    k: int = 5,
    *,
    alpha: Annotated[
        Share, Field(description="α: each item is guaranteed floor(α·mk/n) slots; 0 = the model's list")
    ] = 0.5,
    rules: Rules | None = None,
    order: Order = "method",
) -> TopK:
    """A guaranteed minimum exposure by round-robin (Patro et al., WWW 2020, FairRec).

    There are floor(α·mk/n) copies of each item. In turns every user takes the best candidate of which a copy is left;
    when nothing can be taken, the lists are filled up by score. With rules, capacities and filters hold, and a floor is
    an item's guarantee where it is more.
    Differs: only candidates are given, so an item that is nobody's candidate, or whose users' lists are full, has less.
    """
    from divmf.kernels.rerank_fill import fill_up, give_in_turns

    candidates, most, least = capped(rules, candidates, k, "fairrec", floors=True)

    even = int(alpha * len(candidates) * k / candidates.n_items + 1e-9)
    copies = np.minimum(np.maximum(least, even), most)
    columns, left = np.full((len(candidates), k), -1), copies.copy()
    give_in_turns(candidates.items, left, columns)
    fill_up(candidates.items, candidates.lengths, most - copies + left, columns)
    return lists(candidates, columns, order)
