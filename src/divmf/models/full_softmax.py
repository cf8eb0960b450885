"""The accuracy phase by full softmax: every item is a negative, and the whole matrix is one step.

What users have met may have weights: the loss of a pair counts so many times.
"""

import math

import numpy as np
import torch
from scipy import sparse

from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.threads import in_parts
from divmf.models import losses
from divmf.models.mf import MF
from divmf.ranking.retrieval import blocks


def softmax_gradient(model: MF, met: sparse.csr_array, l2: float, power: float = 0.0) -> float:
    """Set the parameters' .grad to the gradient of L_soft + ½ (Σ_u λ_u ‖u‖² + Σ_i λ_i ‖v_i‖²); L_soft.

    In the scores the gradient is n_u·S_u − Y_u, so a chunk of users needs nothing from the others: memory of one
    chunk, and processes that share the users add up the gradient of the items.
    """
    on_cpu = model.users.device.type == "cpu" and model.users.dtype == torch.float32
    loss = (by_kernel if on_cpu else by_autograd)(model, met)
    for table, weights in zip((model.users, model.items), l2_of_rows(met, l2, power), strict=True):
        assert table.grad is not None
        table.grad.addcmul_(table.detach(), torch.from_numpy(weights).to(table)[:, None])
    return loss


def l2_of_rows(met: sparse.csr_array, l2: float, power: float) -> tuple[Array, Array]:
    """λ of every user and every item: λ·((n + 1) / mean of n + 1)^power, n the interactions it has, by their weights.

    A row of the loss grows with n; the same λ for all would leave rows with many nearly free and bury those with few.
    """
    n_users, by_user = comm.row_range(met.shape[0]).whole, met.sum(axis=1, dtype=np.float64)
    by_item = comm.total(met.sum(axis=0, dtype=np.float64))
    means = by_item.sum() / n_users + 1, by_item.sum() / met.shape[1] + 1
    by_row = [l2 * ((counts + 1) / mean) ** power for counts, mean in zip((by_user, by_item), means, strict=True)]
    return by_row[0], by_row[1]


def by_autograd(model: MF, met: sparse.csr_array) -> float:
    """The readable way, on any device."""
    total = 0.0
    for table in (model.users, model.items):
        table.requires_grad_()
        table.grad = torch.zeros_like(table)
    for rows in blocks(model.n_users, model.n_items):
        pairs, scores = met[rows].tocoo(), model.scores(rows)
        users, items = (torch.from_numpy(each.astype(np.int64)).to(model.users.device) for each in pairs.coords)
        loss = losses.softmax(scores, users, items, torch.from_numpy(pairs.data).to(scores))
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    comm.all_reduce(model.items.grad)
    return float(comm.total(total))


def by_kernel(model: MF, met: sparse.csr_array) -> float:
    """As `by_autograd`, compiled for the CPU."""
    from divmf.kernels.rows import Weighted, rows_at_once, softmax_part

    users, items = (np.ascontiguousarray(table.detach().numpy()) for table in (model.users, model.items))
    items_t, values = np.ascontiguousarray(items.T), met.data.astype(np.float32)
    data = Weighted(users, items, items_t, model.bias.numpy(), met.indptr, met.indices, values)
    user_gradient = np.empty_like(users)

    def part(first: int, last: int) -> tuple[float, Array]:
        gradient = np.zeros_like(items_t)
        at_once = rows_at_once(last - first, len(items))
        return softmax_part(data, first, last, at_once, user_gradient, gradient), gradient

    found = in_parts(part, len(users), items.nbytes, comm.row_range(len(users)))
    model.users.grad = torch.from_numpy(user_gradient)
    summed = comm.total_of_parts([gradient for _, gradient in found], items_t)
    model.items.grad = torch.from_numpy(np.ascontiguousarray(summed.T))
    return float(comm.total(math.fsum(loss for loss, _ in found)))
