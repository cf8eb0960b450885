"""The lists of a scorer, and how accurate they are on what is held out for validation, user by user."""

from dataclasses import replace

import numpy as np
import torch
from scipy import sparse

from divmf.data.split import Split
from divmf.engine.arrays import Array
from divmf.engine.threads import in_parts
from divmf.models.scorer import Factors, Scorer
from divmf.ranking.metrics import found_in, ndcg
from divmf.ranking.retrieval import blocks, recommend
from divmf.ranking.select import fill_seen, top


def valid_ndcg(scorer: Scorer, split: Split, k: int, catalog: Array | None = None) -> Array:
    """Validation nDCG@k of each user who has anything held out, train left out of the lists.  (such users,)

    catalog: the items that the scorer knows, by number, where it does not know all of them
    """
    held_out, seen = split.valid.matrix, split.train.matrix
    held = np.diff(held_out.indptr)
    users = np.flatnonzero(held)
    if catalog is None:
        items = best_items(scorer, seen, k, users)
    else:
        positions = best_items(scorer, seen[:, catalog], k, users)
        items = np.where(positions >= 0, catalog[positions], -1).astype(np.int32)
    return ndcg(found_in(held_out[users], items, k), held[users])


def best_items(scorer: Scorer, seen: sparse.csr_array, k: int, users: Array, discount: Array | None = None) -> Array:
    """The k best unseen items of some users, best first, ties to the lowest number.  (users, k) int32

    discount: what is added to the scores of items, if anything.  (n_items,)
    """
    if isinstance(scorer, Factors):
        model = scorer.model
        if discount is not None:
            model = replace(model, bias=model.bias + torch.from_numpy(discount.astype(np.float32)))
        return recommend(model, seen, k, users)[0]
    found = np.empty((len(users), k), dtype=np.int32)

    def part(first: int, last: int) -> None:
        for block in blocks(last - first, scorer.n_items):
            rows = slice(first + block.start, first + block.stop)
            made = scorer.scores(users[rows])
            if discount is not None:
                made += discount.astype(np.float32)
            scores = fill_seen(torch.from_numpy(made), users[rows], seen, -np.inf)
            found[rows] = top(scores, k)[0].numpy()

    in_parts(part, len(users))
    return found


def scores_of(scorer: Scorer, users: Array, items: Array) -> Array:
    """The scores of listed items, −inf for none.  users (lists,), items (lists, k) → (lists, k) float32"""
    found = np.full(items.shape, -np.inf, dtype=np.float32)
    for block in blocks(len(users), scorer.n_items):
        if isinstance(scorer, Factors):
            vectors = scorer.items_t.T[items[block]]  # (block, k, dim)
            made = np.einsum("ud,ukd->uk", scorer.users[users[block]], vectors) + scorer.bias[items[block]]
        else:
            made = np.take_along_axis(scorer.scores(users[block]), np.maximum(items[block], 0), axis=1)
        found[block] = np.where(items[block] >= 0, made, -np.inf)
    return found
