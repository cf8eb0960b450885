"""Which entries of a row stay in T: the k recommended ones first, then the unmasked extras (Sec. 3.3.2)."""

import numpy as np
import torch
from torch import Tensor

from divmf.engine.arrays import Array
from divmf.ranking.select import top


def kept_items(scores: Tensor, k: int, extra: int, policy: str, rows: Array, key: int) -> Tensor:
    """The items of T's kept entries; the first k are the recommendation.  (rows, k) or (rows, k + extra)

    top     the `extra` highest scores after the recommended ones
    random  `extra` items drawn from the rest; the draw belongs to the user (`rows`) and the key
    none    nothing but the recommendation
    """
    n_items = scores.shape[1]
    k = min(k, n_items)
    extra = min(extra, n_items - k)
    if policy == "top":
        return top(scores, k + extra)[0]
    listed = top(scores, k)[0]
    if policy == "none" or extra == 0:
        return listed
    from divmf.kernels.draw import others

    kept = np.empty((len(rows), k + extra), dtype=np.int64)
    others(np.asarray(rows, dtype=np.int64), listed.cpu().numpy(), n_items, key, kept)
    return torch.from_numpy(kept).to(scores.device)
