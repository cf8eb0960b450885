"""Which items of a row are on top: the one place where ties are broken."""

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from divmf.engine.arrays import Array

if TYPE_CHECKING:  # torch is loaded where a model needs it, not for lists alone
    from torch import Tensor


def top_of(scores: Array, width: int) -> tuple[Array, Array]:
    """As `top`, of an array."""
    from divmf.kernels.select import largest

    if width < 1:
        raise ValueError(f"width={width} keeps nothing; choose 1 or more")
    rows = np.ascontiguousarray(scores)
    items, kept = np.empty((len(rows), width), dtype=np.int64), np.empty((len(rows), width), dtype=rows.dtype)
    largest(rows, items, kept)
    return items, kept


def top(scores: "Tensor", width: int) -> tuple["Tensor", "Tensor"]:
    """top(v, k) of Sec. 3.2.1 for each row: the items of the `width` largest scores, best first, and those scores.

    Differs: of items that tie, the ones with the lowest number are kept, so that exactly `width` are, and
    the choice depends on neither chunk nor thread. −1 and −inf stand where a row has too few finite scores.
    """
    import torch

    if scores.device.type != "cpu":
        return top_by_sorting(scores.detach(), width)
    items, kept = top_of(scores.detach().numpy(), width)
    return torch.from_numpy(items), torch.from_numpy(kept)


def top_by_sorting(scores: "Tensor", width: int) -> tuple["Tensor", "Tensor"]:
    """As `top`, for devices without the kernel."""
    import torch

    if width < 1:
        raise ValueError(f"width={width} keeps nothing; choose 1 or more")
    missing = scores.new_full((len(scores), max(0, width - scores.shape[1])), -torch.inf)
    numbers = torch.where(scores.isnan(), -torch.inf, scores)
    kept, items = torch.sort(torch.cat([numbers, missing], dim=1), dim=1, descending=True, stable=True)
    kept, items = kept[:, :width].contiguous(), items[:, :width].contiguous()
    return items.masked_fill_(kept == -torch.inf, -1), kept


def fill_seen(scores: "Tensor", rows: Array, seen: sparse.csr_array, value: float) -> "Tensor":
    """Write `value` over the scores of the items that users `rows` have seen, in place; keeps the gradient right."""
    if scores.device.type == "cpu" and not scores.requires_grad:
        from divmf.kernels.select import fill_rows

        fill_rows(scores.numpy(), rows, seen.indptr, seen.indices, value)
        return scores
    import torch

    pairs = seen[rows].tocoo()
    indices = tuple(torch.from_numpy(each.astype(np.int64)).to(scores.device) for each in pairs.coords)
    return scores.index_put_(indices, scores.new_tensor(value))
