"""One synthetic market for the tests of behaviour: skewed popularity, personal tastes."""

from functools import cache

import numpy as np
import polars as pl
import torch

from divmf.data.interactions import Interactions
from divmf.data.split import Split
from divmf.models.mf import MF
from divmf.ranking.lists import TopK
from divmf.ranking.retrieval import recommend


@cache
def market_split() -> Split:
    """400 users, 200 items; the chance of an interaction falls with the item's rank and rises with taste."""
    rng = np.random.default_rng(0)
    users, items = rng.normal(size=(400, 6)), rng.normal(size=(200, 6))
    appeal = users @ items.T - 1.5 * np.log(np.arange(1, 201))[rng.permutation(200)]
    noisy = appeal + rng.gumbel(size=appeal.shape)
    chosen = np.argsort(-noisy, axis=1)[:, :20]
    frame = pl.DataFrame({"user_id": np.repeat(np.arange(400), 20), "item_id": chosen.ravel()})
    return Interactions.from_frame(frame).leave_one_out(seed=0)


@cache
def market() -> TopK:
    """The 50 best unseen items of each user by a truncated SVD of the training matrix."""
    split = market_split()
    left, values, right = np.linalg.svd(split.train.matrix.toarray(), full_matrices=False)
    user_vectors, item_vectors = left[:, :8] * values[:8], right[:8].T
    model = MF(
        *(
            torch.from_numpy(np.array(each, dtype=np.float32))
            for each in (user_vectors, item_vectors, np.zeros(split.n_items))
        )
    )
    return TopK(*recommend(model, split.train.matrix, 50), split.user_ids, split.item_ids)
