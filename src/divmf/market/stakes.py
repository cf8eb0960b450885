"""What users have at stake when their lists are diversified: those who will meet more lose more by a worse list.

The hits one expects of an item are what the user will yet meet, times the item's probability, which a model knows.
Where what a user will meet grows with the past, as it does in life, the list of an active user is worth more, and that
user's scores should give way less: they are multiplied by ((n + 50)/mean)^power, n the user's interactions.
The 50 keeps users with few, of whom little is known, from giving way almost for nothing.

Whether it grows can be seen in what is held out for validation: with leave-one-out it is one item, whoever the user is,
so the power is 0; with a share of each user's interactions it is 1.
"""

import numpy as np
from scipy import sparse

from divmf.data.split import Split
from divmf.engine import comm
from divmf.engine.arrays import Array

PRIOR = 50  # interactions that everybody is taken to have beside their own


def stakes_of(met: sparse.csr_array, power: float, mean: float | None = None) -> Array:
    """How much the scores of each user count: ((n + 50) / mean of n + 50)^power.  (n_users,) float32

    mean   interactions of a user, if not the mean of these
    """
    if mean is None:
        n_users, n_pairs = (comm.row_range(count).whole for count in (met.shape[0], met.nnz))
        mean = n_pairs / n_users
    relative = (np.diff(met.indptr) + PRIOR) / (mean + PRIOR)
    return np.asarray(relative**power, dtype=np.float32)


WIDE = 32  # the spread of a user's scores: how far the best lies above the one in this position


def spreads_of(scores: Array) -> Array:
    """How far the best of each row of scores lies above the 32nd; −inf for what may not be listed.  (rows,)"""
    n_items = scores.shape[1]
    best = np.partition(scores, max(0, n_items - WIDE), axis=1)[:, max(0, n_items - WIDE) :]
    found = best.max(axis=1) - np.where(np.isfinite(best), best, np.inf).min(axis=1)
    return np.where(np.isfinite(found), found, 0.0)


def steadied(weights: Array, spreads: Array, usual: float) -> Array:
    """Weights at which nobody's scores have less spread than is usual, so that nobody's list gives way more.

    Of somebody with a short history a model's scores may be close to each other, and any discount would outweigh them.
    """
    own = np.maximum(weights * spreads, np.finfo(np.float32).tiny)
    return np.asarray(weights * np.maximum(1.0, usual / own) if usual > 0 else weights)


def stake_of(split: Split) -> float:
    """The power: by how many per cent more is held out for validation where a user has one per cent more in train.

    From the straight line through all users who have something held out, at the mean; from 0 to 1.
    """
    held, past = (np.diff(part.matrix.indptr).astype(np.int64) for part in (split.valid, split.train))
    held, past = held[held > 0], past[held > 0]
    # whole numbers: with as much held out for everybody it is 0 to the last bit, for any number of processes
    sums = np.array([len(past), past.sum(), held.sum(), (past * past).sum(), (past * held).sum()])
    n, all_past, all_held, squares, products = (int(value) for value in comm.total(sums))
    spread, together = n * squares - all_past**2, n * products - all_past * all_held
    return float(np.clip(together * all_past / (spread * all_held), 0, 1)) if spread and all_held else 0.0
