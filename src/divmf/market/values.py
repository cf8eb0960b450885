"""What a list is worth: how much a value and a showing count in each slot."""

import numpy as np

from divmf.engine.arrays import Array
from divmf.kernels.market import ONE

DISCOUNT_POWER = 2.0  # a slot counts as this power of nDCG's discount: later slots hold less likely items


def slot_weights(k: int) -> Array:
    """w_r: what a value counts in each slot, 1 in the last.  (k,) float64

    nDCG counts the r-th slot 1/log₂(r + 1), and the items of later slots are less likely, too.
    """
    weights = np.log2(np.arange(k) + 2.0) ** -DISCOUNT_POWER
    return np.asarray(weights / weights[-1])


def exposure_weights(k: int, kind: str) -> Array:
    """e_r: what a showing counts in each slot, in whole numbers, `ONE` for a full one.  (k,) int64

    "count": all slots alike; "attention": 1/log₂(r + 1), as nDCG counts them
    """
    if kind == "count":
        return np.full(k, ONE, dtype=np.int64)
    if kind == "attention":
        return np.asarray(np.rint(ONE / np.log2(np.arange(k) + 2.0)), dtype=np.int64)
    raise ValueError(f"exposure={kind!r} is unknown; choose 'count' or 'attention'")
