"""MF: a vector for each user and each item; a score is their dot product plus the item's bias."""

from dataclasses import dataclass
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

    Attributes:
        users: (n_users, dim).
        items: (n_items, dim).
        bias: (n_items,), zero in the paper's model.
    """

    users: Tensor
    items: Tensor
    bias: Tensor

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
        return {"users": self.users, "items": self.items, "bias": self.bias}

    def scores(self, rows: slice | Tensor) -> Tensor:
        """r̂_ui = u·v_i + b_i of some users.

        Args:
            rows: Which users.

        Returns:
            A row of scores over all items for each.
        """
        return torch.addmm(self.bias, self.users[rows], self.items.T)

    def factors(self) -> tuple[Array, Array]:
        """Vectors for any library that serves dot products: the bias is one more dimension.

        Returns:
            Those of the users and those of the items, (n, dim + 1) each.
        """
        users, items = self.users.detach().cpu().numpy(), self.items.detach().cpu().numpy()
        ones = np.ones((len(users), 1), dtype=users.dtype)
        bias = self.bias.detach().cpu().numpy().astype(items.dtype)[:, None]
        return np.hstack([users, ones]), np.hstack([items, bias])

    def to(self, device: torch.device) -> Self:
        """The same parameters on a device.

        Args:
            device: Such as torch.device("cpu").

        Returns:
            These themselves, where they are there already.
        """
        return type(self)(*(tensor.to(device) for tensor in self.tensors().values()))

    def copy(self) -> Self:
        """The same numbers in new memory, cut off from any gradient."""
        return type(self)(*(tensor.detach().clone() for tensor in self.tensors().values()))
