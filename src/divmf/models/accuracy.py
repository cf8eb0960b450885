"""How accurate a scorer is on what is held out for validation, user by user."""

import numpy as np
import torch
from scipy import sparse

from divmf.ids import Array
from divmf.metrics import found_in, ndcg
from divmf.models.scorer import Factors, Scorer
from divmf.select import fill_seen, top
from divmf.split import Split
from divmf.threads import in_parts
from divmf.topk import blocks, recommend


def valid_ndcg(scorer: Scorer, split: Split, k: int) -> Array:
    """Validation nDCG@k of each user who has anything held out, train left out of the lists.  (such users,)"""
    held_out = split.valid.matrix
    held = np.diff(held_out.indptr)
    users = np.flatnonzero(held)
    items = best_items(scorer, split.train.matrix, k, users)
    return ndcg(found_in(held_out[users], items, k), held[users])


def best_items(scorer: Scorer, seen: sparse.csr_array, k: int, users: Array) -> Array:
    """The k best unseen items of some users, best first, ties to the lowest number.  (users, k) int32"""
    if isinstance(scorer, Factors):
        return recommend(scorer.model, seen, k, users)[0]
    found = np.empty((len(users), k), dtype=np.int32)

    def part(first: int, last: int) -> None:
        for block in blocks(last - first, scorer.n_items):
            rows = slice(first + block.start, first + block.stop)
            scores = fill_seen(torch.from_numpy(scorer.scores(users[rows])), users[rows], seen, -np.inf)
            found[rows] = top(scores, k)[0].numpy()

    in_parts(part, len(users))
    return found
