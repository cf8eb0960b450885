"""The exact gradient of L_div, for the whole matrix or a block of it, in the memory of one chunk of users."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.threads import RowRange
from divmf.models import losses
from divmf.models.config import TrainConfig, check
from divmf.models.mf import MF
from divmf.models.unmask import kept_items
from divmf.ranking.retrieval import BLOCK_SCORES, blocks
from divmf.ranking.select import fill_seen, top

# A seen item's score while L_div is computed: no mass, and, being finite, no NaN where a user has seen nearly all.
UNREACHABLE = -1e9


@dataclass(frozen=True)
class Lengths:
    """How much of a row a mini-batch with some of the items looks at, Sec. 3.3.3.

    listed   items of T: a block with c_b of |I| items holds k·c_b/|I| of a user's k recommendations on average
    extra    further items unmasked
    skewed   scores that Reg_skew reads: those of T, or the k best of the block

    Differs: k·c_b/|I| is taken to the nearest whole number, and at least 1. Reg_skew of one score is 0 whatever it is,
    so where blocks are small it reads more than is listed.
    """

    listed: int
    extra: int
    skewed: int

    @classmethod
    def of(cls, config: TrainConfig, n_items: int, in_block: int) -> Self:
        """For a block of `in_block` of the items; the last block of an epoch may be smaller than the others."""
        k = config.diversity_k or config.k
        n_blocks = math.ceil(n_items / min(config.columns or n_items, n_items))
        share = math.ceil(k / n_blocks) if config.blocks == "release" else math.floor(k * in_block / n_items + 0.5)
        listed = min(max(1, share), in_block)
        extra = math.ceil(config.unmask / n_blocks) if config.unmask_policy != "none" else 0
        extra = min(extra, in_block - listed)
        return cls(listed, extra, listed + extra if config.skew_rows == "kept" else min(k, in_block))

    @property
    def kept(self) -> int:
        """Items of T, with the unmasked ones."""
        return self.listed + self.extra

    @property
    def widest(self) -> int:
        """Items of a row that are looked for."""
        return max(self.kept, self.skewed)


# entries of T that pass 1 remembers for pass 2 (a gigabyte); of larger blocks they are found again
REMEMBERED = 1 << 28


@torch.no_grad()
def diversity_gradient(
    model: MF, users: Array, items: Array | None, seen: sparse.csr_array, config: TrainConfig, key: int,
    block_scores: int = BLOCK_SCORES,
) -> float:  # fmt: skip
    """Set the parameters' .grad to the gradient of L_div of a submatrix; L_div.  Exact, in memory of one chunk.

    The gradient of −Σ_i log(c_i + ε) equals that of −Σ_u Σ_i t_ui / (c_i + ε) with c held constant. So pass 1 sums the
    column mass c over chunks of users, and pass 2 finds each chunk's gradient on its own. Of several processes, each
    makes the chunks of its own users; c and the gradient of the items are summed.
    """
    lengths = Lengths.of(config, model.n_items, model.n_items if items is None else len(items))
    best_only = config.unmask_policy == "top" or lengths.extra == 0
    span = comm.row_range(len(users))  # all processes must go the same way
    fits = span.whole // span.processes * lengths.widest <= REMEMBERED
    if model.users.device.type == "cpu" and model.users.dtype == torch.float32 and best_only and fits:
        return gradient_by_kernel(model, users, items, seen, config, lengths, span)
    return gradient_by_chunks(model, users, items, seen, config, lengths, key, block_scores)


def gradient_by_kernel(
    model: MF, users: Array, items: Array | None, seen: sparse.csr_array, config: TrainConfig, lengths: Lengths,
    span: RowRange,
) -> float:  # fmt: skip
    """As `gradient_by_chunks`, compiled for the CPU, where T keeps the best items of each user and no others."""
    from divmf.kernels.diversity import Block, gradient_of

    columns = slice(None) if items is None else items
    rows = slice(None) if len(users) == model.n_users else users
    vectors = np.ascontiguousarray(model.items.detach().numpy()[columns])
    met = sparse.csr_array((len(users), len(vectors)))
    if config.mask_seen:
        met = seen if len(users) == model.n_users else seen[users]
        met = met if items is None else met[:, items]
    block = Block(
        np.ascontiguousarray(model.users.detach().numpy()[rows]), vectors, np.ascontiguousarray(vectors.T),
        np.ascontiguousarray(model.bias.numpy()[columns]), met.indptr, met.indices, np.float32(UNREACHABLE),
    )  # fmt: skip
    n_skewed = lengths.skewed if config.reg_skew else 0
    total, *found = gradient_of(block, lengths.kept, n_skewed, config.eps if config.reg_cov else None, span)
    check(total, "diversity")
    for table, own, gradient in zip((model.users, model.items), (rows, columns), found, strict=True):
        table.grad = torch.zeros_like(table)
        table.grad.numpy()[own] = gradient
    return total


def gradient_by_chunks(
    model: MF, users: Array, items: Array | None, seen: sparse.csr_array, config: TrainConfig, lengths: Lengths,
    key: int, block_scores: int,
) -> float:  # fmt: skip
    """The same on any device, in any precision and with any items kept: what the kernel must equal."""
    vectors, bias, met = model.items.detach(), model.bias, seen
    if items is not None:
        columns = torch.from_numpy(items).to(model.items.device)
        vectors, bias, met = vectors[columns], bias[columns], seen[users][:, items]
    user_gradient, item_gradient = torch.zeros_like(model.users), torch.zeros_like(vectors)
    mass = vectors.new_zeros(len(vectors)) if config.reg_cov else None
    width = lengths.kept
    remembered = torch.empty((len(users), width) if len(users) * width <= REMEMBERED else 0, dtype=torch.int32)

    def hide_seen(values: Tensor, rows: slice, value: float) -> None:
        if config.mask_seen:
            fill_seen(values, users[rows] if items is None else np.arange(rows.start, rows.stop), met, value)

    def scored(rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Some of the block's users: their numbers, their vectors and their scores."""
        chosen = torch.from_numpy(users[rows]).to(vectors.device)
        scores = torch.addmm(bias, model.users[chosen], vectors.T)  # (rows, items)
        hide_seen(scores, rows, UNREACHABLE)
        return chosen, model.users[chosen], scores

    first_user = comm.row_range(model.n_users).first  # a draw belongs to a user, whatever process has them

    def kept_of(scores: Tensor, rows: slice) -> Tensor:
        drawn_for = users[rows] + first_user
        return kept_items(scores, lengths.listed, lengths.extra, config.unmask_policy, drawn_for, key)

    def skewed_of(scores: Tensor, kept: Tensor) -> Tensor:
        """The items Reg_skew reads: the first of the kept ones, or more of the best than T holds."""
        best_first = lengths.kept if config.unmask_policy == "top" else lengths.listed
        inside = lengths.skewed <= best_first or config.skew_rows == "kept"
        return kept[:, : lengths.skewed] if inside else top(scores, lengths.skewed)[0]

    total, log_z = 0.0, vectors.new_empty(len(users))
    for rows in blocks(len(users), len(vectors), block_scores):
        _, _, scores = scored(rows)
        kept = kept_of(scores, rows)
        if int(kept.min()) < 0:  # a row without enough numbers in it
            total = math.nan
            break
        log_z[rows] = scores.logsumexp(dim=1)
        if mass is not None:
            mass += losses.column_mass(losses.log_mass(scores, kept, log_z[rows]).exp(), kept, len(mass))
        if config.reg_skew:
            total += float(losses.skewness(losses.log_mass(scores, skewed_of(scores, kept), log_z[rows])))
        if len(remembered):
            remembered[rows] = kept.to(torch.int32)
    total = check(float(comm.total(total)), "diversity")
    if mass is not None:
        comm.all_reduce(mass)
        total += float(losses.coverage(mass, config.eps))
    for rows in blocks(len(users), len(vectors), block_scores):
        chosen, user_vectors, scores = scored(rows)
        kept = remembered[rows].long().to(scores.device) if len(remembered) else kept_of(scores, rows)
        skewed = skewed_of(scores, kept) if config.reg_skew else None
        gradient = losses.score_gradient_(scores, kept, skewed, log_z[rows], mass, config.eps)
        hide_seen(gradient, rows, 0.0)  # matters for a user who has seen all of the block's items
        user_gradient[chosen] = gradient @ vectors
        item_gradient.addmm_(gradient.T, user_vectors)
    comm.all_reduce(item_gradient)
    if items is not None:
        whole = torch.zeros_like(model.items)
        whole[columns] = item_gradient
        item_gradient = whole
    model.users.grad, model.items.grad = user_gradient, item_gradient
    return total
