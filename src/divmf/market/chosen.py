"""What a point of the market is made of: the lists of each kind, and the discounts at which they were chosen."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from divmf.files import damaged
from divmf.ids import Array
from divmf.market.columns import KINDS
from divmf.model import MF
from divmf.topk import recommend


class Chosen(NamedTuple):
    """Lists as they were chosen.

    discount   (n_items,) float32: what a showing of an item earned
    lists      of each kind (see `KINDS`): (n_users, k) int32, −1 where a list is shorter
    """

    discount: Array
    lists: dict[str, Array]

    def tensors(self) -> dict[str, Tensor]:
        """As they are written to disk."""
        lists = {f"users.{kind}": torch.tensor(items) for kind, items in self.lists.items()}
        return {"discount": torch.from_numpy(self.discount.astype(np.float32))} | lists

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], n_items: int, path: Path) -> "Chosen":
        """From what was read from a file, if it is whole and names no item that there is not."""
        names = ["discount", *(f"users.{kind}" for kind in KINDS)]
        if missing := [name for name in names if name not in tensors]:
            raise damaged(path, f"it has no {missing[0]}")
        lists = {kind: tensors[f"users.{kind}"].numpy() for kind in KINDS}
        for kind, items in lists.items():
            if items.dtype != np.int32 or items.ndim != 2:
                raise damaged(path, f"users.{kind} holds {items.dtype} in {items.ndim} dimensions, not lists of items")
            if items.size and not -1 <= items.min() <= items.max() < n_items:
                raise damaged(path, f"users.{kind} names items that there are not")
        return cls(tensors["discount"].numpy(), lists)

    def first(self, kind: str, k: int, model: MF, seen: sparse.csr_array, rows: Array) -> tuple[Array, Array]:
        """The first k of some users' lists, and their scores; what a longer one goes on with follows the discounts.

        seen: what stays out of lists of this kind
        """
        items = self.lists[kind][rows][:, :k]
        if (more := k - items.shape[1]) > 0:
            items = np.hstack([items, self.next_best(items, more, model, seen, rows)])
        return np.ascontiguousarray(items), scores_of(model, rows, items)

    def next_best(self, items: Array, more: int, model: MF, seen: sparse.csr_array, rows: Array) -> Array:
        """The best items by score plus discount that are neither seen nor listed, in that order.  (rows, more)"""
        listed = sparse.csr_array(
            (np.ones((items >= 0).sum()), items[items >= 0], np.append(0, np.cumsum((items >= 0).sum(axis=1)))),
            shape=(len(rows), model.n_items),
        )
        users = torch.from_numpy(rows).to(model.users.device)
        discounted = MF(model.users[users], model.items, model.bias + torch.from_numpy(self.discount).to(model.bias))
        out = sparse.csr_array(seen[rows] + listed)
        out.sum_duplicates()
        found, _ = recommend(discounted, out, more)
        return found


def scores_of(model: MF, rows: Array, items: Array) -> Array:
    """The scores of listed items, −inf for none.  (rows, k) float32"""
    users, vectors, bias = (tensor.detach().cpu().numpy() for tensor in (model.users, model.items, model.bias))
    scores = np.empty(items.shape, dtype=np.float32)
    for slot, listed in enumerate(items.T):
        scores[:, slot] = np.einsum("ud,ud->u", users[rows], vectors[listed]) + bias[listed]
    return np.where(items >= 0, scores, -np.inf).astype(np.float32)
