"""Which items of a row are on top: the one place where ties are broken."""

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from divmf.engine.arrays import Array


def top(scores: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """top(v, k) of Sec. 3.2.1 for each row: the items of the `width` largest scores, best first, and those scores.

    Differs: of items that tie, the ones with the lowest number are kept, so that exactly `width` are, and
    the choice depends on neither chunk nor thread. −1 and −inf stand where a row has too few finite scores.
    """
    if width < 1:
        raise ValueError(f"width={width} keeps nothing; choose 1 or more")
    if scores.device.type != "cpu":
        return top_by_sorting(scores.detach(), width)
    from divmf.kernels.select import largest

    rows = scores.detach().contiguous()
    items = torch.empty(len(rows), width, dtype=torch.int64)
    kept = torch.empty(len(rows), width, dtype=rows.dtype)
    largest(rows.numpy(), items.numpy(), kept.numpy())
    return items, kept


def top_by_sorting(scores: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """As `top`, for devices without the kernel."""
    missing = scores.new_full((len(scores), max(0, width - scores.shape[1])), -torch.inf)
    numbers = torch.where(scores.isnan(), -torch.inf, scores)
    kept, items = torch.sort(torch.cat([numbers, missing], dim=1), dim=1, descending=True, stable=True)
    kept, items = kept[:, :width].contiguous(), items[:, :width].contiguous()
    return items.masked_fill_(kept == -torch.inf, -1), kept


def fill_seen(scores: Tensor, rows: Array, seen: sparse.csr_array, value: float) -> Tensor:
    """Write `value` over the scores of the items that users `rows` have seen, in place; keeps the gradient right."""
    if scores.device.type == "cpu" and not scores.requires_grad:
        from divmf.kernels.select import fill_rows

        fill_rows(scores.numpy(), rows, seen.indptr, seen.indices, value)
        return scores
    places = seen[rows].tocoo()
    at = tuple(torch.from_numpy(place.astype(np.int64)).to(scores.device) for place in places.coords)
    return scores.index_put_(at, scores.new_tensor(value))
