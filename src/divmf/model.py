"""MF: a vector for each user and each item; a score is their dot product plus the item's bias."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class MF:
    """The parameters θ of matrix factorization.

    users   (n_users, dim)
    items   (n_items, dim)
    bias    (n_items,): zero in the paper's model
    """

    users: Tensor
    items: Tensor
    bias: Tensor

    @classmethod
    def random(cls, n_users: int, n_items: int, dim: int, generator: torch.Generator, std: float = 0.01) -> Self:
        """Vectors from N(0, std²), no bias."""
        users = torch.empty(n_users, dim).normal_(0, std, generator=generator)
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
        return {"users": self.users, "items": self.items, "bias": self.bias}

    def scores(self, rows: slice | Tensor) -> Tensor:
        """R̂ of some users: r̂_ui = u·v_i + b_i.  (rows, n_items)"""
        return torch.addmm(self.bias, self.users[rows], self.items.T)

    def copy(self) -> Self:
        """The same numbers in new memory, cut off from any gradient."""
        return type(self)(*(tensor.detach().clone() for tensor in self.tensors().values()))
