"""What a point of the market is made of: the lists of each kind, and the discounts at which they were chosen."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from divmf.data.filters import Blocked
from divmf.engine.arrays import Array
from divmf.engine.files import damaged
from divmf.market.columns import KINDS
from divmf.models.accuracy import best_items
from divmf.models.scorer import Scorer
from divmf.ranking.metrics import found_in

NEVER_SHOWN = -1e29  # files hold finite numbers: a discount as low as this is of an item that rules block


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

    def first(
        self, kind: str, k: int, scorer: Scorer, seen: sparse.csr_array, rows: Array, blocked: Blocked | None = None
    ) -> Array:
        """The first k of some users' lists; what a longer one goes on with are the best by score plus discount.

        seen: what stays out of lists of this kind; blocked: what else does, whose slots go to the next best
        """
        items = self.lists[kind][rows]
        if blocked is None:
            items = items[:, :k]
            if (more := k - items.shape[1]) > 0:
                items = np.hstack([items, self.next_best(items, more, scorer, seen, rows, self.discount)])
            return np.ascontiguousarray(items)
        items = without(items, rows, blocked)[:, :k]
        seen, discount = blocked.with_seen(seen), blocked.penalty(self.discount)
        more = k - int((items >= 0).sum(axis=1).min(initial=k))
        if more:
            found = self.next_best(items, more, scorer, seen, rows, discount)
            items = left_justified(np.hstack([items, found]))[:, :k]
        return np.ascontiguousarray(items)

    def next_best(
        self, items: Array, more: int, scorer: Scorer, seen: sparse.csr_array, rows: Array, discount: Array
    ) -> Array:
        """The best items by score plus discount that are neither seen nor listed, in that order.  (rows, more)"""
        users, slots = np.nonzero(items >= 0)
        listed = sparse.csr_array((np.ones(len(users)), (rows[users], items[users, slots])), shape=seen.shape)
        discount = np.where(discount > NEVER_SHOWN, discount, -np.inf)
        return best_items(scorer, sparse.csr_array(seen + listed), more, rows, discount)


def without(items: Array, rows: Array, blocked: Blocked) -> Array:
    """Lists of some users without what is blocked, the others moved up; −1 behind them."""
    out = blocked.items[np.maximum(items, 0)] | (items < 0)
    if blocked.pairs is not None:
        out |= found_in(blocked.pairs[rows], items, items.shape[1])
    return left_justified(np.where(out, -1, items))


def left_justified(items: Array) -> Array:
    """Each row with its −1 behind the others, which stay in their order."""
    return np.take_along_axis(items, np.argsort(items < 0, axis=1, kind="stable"), axis=1)
