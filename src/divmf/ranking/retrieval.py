"""The k best unseen items of every user by a model of vectors, without the dense matrix of scores."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from scipy import sparse

from divmf.engine.arrays import Array
from divmf.engine.threads import in_parts
from divmf.ranking.select import fill_seen, top

if TYPE_CHECKING:
    from torch import Tensor

Found = list[tuple[Array, Array]]  # items and scores, (rows, k) each


class DotProduct(Protocol):
    """What scores by dot products: a vector for each user and item, and what each item has beside it."""

    @property
    def users(self) -> "Tensor": ...  # noqa: D102
    @property
    def items(self) -> "Tensor": ...  # noqa: D102
    @property
    def bias(self) -> "Tensor": ...  # noqa: D102


class Vectors(NamedTuple):
    """Vectors of a model trained elsewhere."""

    users: "Tensor"
    items: "Tensor"
    bias: "Tensor"


# a block of scores is made, read and forgotten: about the second-level caches of a few cores
BLOCK_SCORES = 1 << 20


def blocks(n_rows: int, n_columns: int, block_scores: int = BLOCK_SCORES) -> Iterator[slice]:
    """Ranges of rows that together hold about `block_scores` scores each."""
    size = max(1, block_scores // max(1, n_columns))
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def recommend(model: DotProduct, seen: sparse.csr_array, k: int, rows: Array | None = None) -> tuple[Array, Array]:
    """The k best unseen items of each user, without the dense matrix: items and scores, (rows, k)."""
    ((items, scores),) = recommend_each(model, [seen], k, rows)
    return items, scores


def recommend_each(
    model: DotProduct, seen: list[sparse.csr_array], k: int, rows: Array | None = None
) -> list[tuple[Array, Array]]:
    """As `recommend`, once for each matrix of seen items, scoring only once; each must hold all of the one before."""
    rows = np.arange(len(model.users)) if rows is None else rows
    import torch

    on_cpu = model.users.device.type == "cpu" and model.users.dtype == torch.float32
    shape = (len(rows), k)
    results = [(np.empty(shape, dtype=np.int32), np.empty(shape, dtype=np.float32)) for _ in seen]
    with torch.no_grad():
        (top_by_kernel if on_cpu else top_by_blocks)(model, seen, rows, results)
    return results


def top_by_blocks(
    model: DotProduct, seen: list[sparse.csr_array], rows: Array, results: list[tuple[Array, Array]]
) -> None:
    """Fill the lists of some users, on any device."""
    import torch

    for block in blocks(len(rows), len(model.items)):
        chosen = rows[block]
        vectors = model.users[torch.tensor(chosen, device=model.users.device)]
        scores = vectors @ model.items.T + model.bias  # (block, n_items)
        for matrix, (items, kept) in zip(seen, results, strict=True):
            fill_seen(scores, chosen, matrix, -np.inf)
            best, best_scores = top(scores, kept.shape[1])
            items[block], kept[block] = best.cpu().numpy(), best_scores.cpu().numpy()


def top_by_kernel(
    model: DotProduct, seen: list[sparse.csr_array], rows: Array, results: list[tuple[Array, Array]]
) -> None:
    """As `top_by_blocks`, compiled for the CPU."""
    from divmf.kernels.rows import rows_at_once, top_part

    users = np.ascontiguousarray(model.users.detach().numpy())
    items_t = np.ascontiguousarray(model.items.detach().numpy().T)
    tables = (
        tuple(matrix.indptr for matrix in seen), tuple(matrix.indices for matrix in seen), np.asarray(rows),
    )  # fmt: skip
    found = tuple(items for items, _ in results), tuple(scores for _, scores in results)
    bias = model.bias.detach().numpy()

    def part(first: int, last: int) -> None:
        at_once = rows_at_once(last - first, len(model.items))
        top_part(users, items_t, bias, *tables, first, last, at_once, *found)

    in_parts(part, len(rows))
