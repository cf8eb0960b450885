"""FairRec: every item is guaranteed some slots, given out in turns."""

from typing import Annotated

import numpy as np
from pydantic import Field

from divmf.ranking.lists import TopK
from divmf.rerank.candidates import lists
from divmf.rerank.settings import Order, Share, reranker


@reranker
def fairrec(
    candidates: TopK,
    k: int = 5,
    *,
    alpha: Annotated[
        Share, Field(description="α: each item is guaranteed floor(α·mk/n) slots; 0 = the model's list")
    ] = 0.5,
    order: Order = "method",
) -> TopK:
    """A guaranteed minimum exposure by round-robin (Patro et al., WWW 2020, FairRec).

    There are floor(α·mk/n) copies of each item. In turns every user takes the best candidate of which a copy is left;
    when nothing can be taken, the lists are filled up by score.
    Differs: only candidates are given, so an item that is nobody's candidate, or whose users' lists are full, has less.
    """
    from divmf.kernels.rerank_fill import fill_up, give_in_turns

    copies = np.full(candidates.n_items, int(alpha * len(candidates) * k / candidates.n_items + 1e-9))
    columns = np.full((len(candidates), k), -1)
    give_in_turns(candidates.items, copies, columns)
    fill_up(columns, candidates.lengths)
    return lists(candidates, columns, order)
