"""MF: a vector for each user and each item; a score is their dot product plus the item's bias."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np
import torch
from torch import Tensor

from divmf.engine.arrays import Array
from divmf.engine.threads import govern_torch

govern_torch()

# users whose vectors are drawn at a time. Torch draws 16 numbers at once, so the table is the same however many of
# such blocks it is drawn in, as long as the last, which has what is left, is no smaller than the others.
DRAWN = 1 << 12


@dataclass(frozen=True, eq=False)
class MF:
    """The parameters θ of matrix factorization.

    users   (n_users, dim)
    items   (n_items, dim)
    bias    (n_items,): zero in the paper's model
    price   (n_items,): what an item costs where lists are chosen (see `divmf.market.prices`); none in most models
    """

    users: Tensor
    items: Tensor
    bias: Tensor
    price: Tensor | None = None

    @classmethod
    def random(
        cls, n_users: int, n_items: int, dim: int, generator: torch.Generator, rows: slice | None = None,
        std: float = 0.01,
    ) -> Self:  # fmt: skip
        """Vectors from N(0, std²), no bias; rows: the users to keep, the same vectors as if all were kept."""
        first, last, _ = (rows or slice(None)).indices(n_users)
        users = torch.empty(last - first, dim)
        cuts = [*range(0, n_users - DRAWN + 1, DRAWN), n_users] if n_users >= DRAWN else [0, n_users]
        for start, end in pairwise(cuts):
            drawn = torch.empty(end - start, dim).normal_(0, std, generator=generator)
            low, high = max(start, first), min(end, last)
            if low < high:
                users[low - first : high - first] = drawn[low - start : high - start]
        items = torch.empty(n_items, dim).normal_(0, std, generator=generator)
        return cls(users, items, torch.zeros(n_items))

    @property
    def n_users(self) -> int:
        """|U|."""
        return self.users.shape[0]

    @property
    def n_items(self) -> int:
        """|I|."""
        return self.items.shape[0]

    @property
    def dim(self) -> int:
        """The length of a vector."""
        return self.users.shape[1]

    def tensors(self) -> dict[str, Tensor]:
        """The parameters by name, as they are written to disk."""
        own = {"users": self.users, "items": self.items, "bias": self.bias}
        return own if self.price is None else own | {"price": self.price}

    @property
    def offset(self) -> Tensor:
        """What is added to u·v_i where lists are chosen: b_i − p_i.  (n_items,)"""
        return self.bias if self.price is None else self.bias - self.price

    def scores(self, rows: slice | Tensor) -> Tensor:
        """What some users' lists are chosen by: r̂_ui − p_i, with r̂_ui = u·v_i + b_i.  (rows, n_items)"""
        return torch.addmm(self.offset, self.users[rows], self.items.T)

    def weighted(self, weights: Tensor) -> Self:
        """The same lists without prices, but a user's scores weigh so much more against them.  weights: (n_users,)

        A bias becomes one more dimension of the vectors, since it weighs as much as they do.
        """
        users, items, bias = self.users, self.items, self.bias
        if bias.any():
            users, items = torch.hstack([users, torch.ones_like(users[:, :1])]), torch.hstack([items, bias[:, None]])
        return replace(self, users=users * weights[:, None], items=items, bias=torch.zeros_like(bias))

    def factors(self) -> tuple[Array, Array]:
        """User and item vectors for any library that serves dot products: bias and price are one more dimension."""
        users, items = self.users.detach().cpu().numpy(), self.items.detach().cpu().numpy()
        ones = np.ones((len(users), 1), dtype=users.dtype)
        offset = self.offset.detach().cpu().numpy().astype(items.dtype)[:, None]
        return np.hstack([users, ones]), np.hstack([items, offset])

    def to(self, device: torch.device) -> Self:
        """The same parameters on a device; these themselves, where they are there."""
        return type(self)(*(tensor.to(device) for tensor in self.tensors().values()))

    def copy(self) -> Self:
        """The same numbers in new memory, cut off from any gradient."""
        return type(self)(*(tensor.detach().clone() for tensor in self.tensors().values()))
