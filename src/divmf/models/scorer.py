"""Scorer: what a model is to everything that makes lists, blocks of scores of some users over all items."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from scipy import sparse

from divmf.engine.arrays import Array
from divmf.engine.threads import in_parts

if TYPE_CHECKING:  # torch is loaded where a model needs it
    from divmf.models.mf import MF


class Scorer(Protocol):
    """A model as the market sees it. Users are numbered as in this process's part of the data."""

    @property
    def n_users(self) -> int:
        """How many users it can score."""

    @property
    def n_items(self) -> int:
        """|I|, the whole catalog."""

    def scores(self, users: Array) -> Array:
        """The scores of some users, by number, for all items: the higher, the better.  (users, n_items) float32

        It is called from several threads at once, and the array it returns is written to.
        """


class Mean(NamedTuple):
    """The mean user, and how the softmax bends there: its axes, as columns, and the curvature along each.

    vector (dim,), axes (dim, dim), curvature (dim,): all float32
    """

    vector: Array
    axes: Array
    curvature: Array


@dataclass(frozen=True, eq=False)
class Factors:
    """Dot products of user and item vectors, plus a bias of the item.

    users (n_users, dim), items_t (dim, n_items), bias (n_items,): all float32
    """

    users: Array
    items_t: Array
    bias: Array

    @classmethod
    def of(cls, model: "MF") -> "Factors":
        """The vectors and the bias of an MF."""
        users, items, bias = (tensor.detach().cpu().numpy() for tensor in (model.users, model.items, model.bias))
        return cls(np.ascontiguousarray(users, np.float32), np.ascontiguousarray(items.T, np.float32), bias)

    @classmethod
    def from_arrays(cls, user_factors: Any, item_factors: Any, item_bias: Any = None) -> "Factors":
        """From vectors trained anywhere, a row each."""
        users, items = (np.ascontiguousarray(table, dtype=np.float32) for table in (user_factors, item_factors))
        if users.ndim != 2 or items.ndim != 2 or users.shape[1] != items.shape[1]:
            raise ValueError(f"factors of shapes {users.shape} and {items.shape} do not multiply: give both one width")
        bias = np.zeros(len(items), np.float32) if item_bias is None else np.asarray(item_bias, np.float32)
        if bias.shape != (len(items),):
            raise ValueError(f"item_bias has shape {bias.shape}; give one number for each of {len(items):,} items")
        for name, table in (("user_factors", users), ("item_factors", items), ("item_bias", bias)):
            if not np.isfinite(table).all():
                raise ValueError(f"{name} holds NaN or infinite numbers")
        return cls(users, np.ascontiguousarray(items.T), bias)

    @property
    def n_users(self) -> int:
        """How many users have a vector."""
        return len(self.users)

    @property
    def n_items(self) -> int:
        """How many items have a vector."""
        return int(self.items_t.shape[1])

    def scores(self, users: Array) -> Array:
        """u·v_i + b_i.  (users, n_items)"""
        return np.asarray(self.users[users] @ self.items_t + self.bias)

    @cached_property
    def gram(self) -> Array:
        """VᵀV of the items; kept, since everybody folded in by least squares needs it.  (dim, dim) float64"""
        return gram_of(self.items_t.T)

    @cached_property
    def mean(self) -> Mean:
        """The mean user; kept, since everybody folded in by softmax begins there."""
        vector = self.users.mean(axis=0)
        scores = vector @ self.items_t + self.bias
        shares = np.exp(scores - scores.max()).astype(np.float64)
        shares /= shares.sum()
        centred = self.items_t - (self.items_t @ shares)[:, None]
        curvature, axes = np.linalg.eigh((centred * shares) @ centred.T)
        return Mean(vector, axes.astype(np.float32), np.maximum(curvature, 0).astype(np.float32))

    @property
    def model(self) -> "MF":
        """The same numbers as an MF."""
        import torch

        from divmf.models.mf import MF

        items = np.ascontiguousarray(self.items_t.T)
        return MF(*(torch.from_numpy(table) for table in (self.users, items, self.bias)))


def gram_of(vectors: Array) -> Array:
    """VᵀV, added up part by part, so that it does not depend on the number of threads.  (dim, dim) float64"""
    parts = in_parts(lambda first, last: vectors[first:last].T @ vectors[first:last], len(vectors))
    return np.asarray(np.sum(parts, axis=0, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class ItemItem:
    """What a user has met, times the weights between items: EASE, nearest neighbours, co-occurrence.

    met       (n_users, n_items) sparse: interactions, 0/1 or weighted
    weights   (n_items, n_items) dense or sparse float32: from the item met (row) to the item scored (column)
    """

    met: sparse.csr_array
    weights: Any

    @property
    def n_users(self) -> int:
        """How many users there are."""
        return int(self.met.shape[0])

    @property
    def n_items(self) -> int:
        """How many items there are."""
        return int(self.weights.shape[1])

    def scores(self, users: Array) -> Array:
        """Σ_j met_uj · weight_ji.  (users, n_items)"""
        weights, met = self.weights, self.met
        if not isinstance(weights, np.ndarray):
            found = met[users] @ weights
            return np.ascontiguousarray(found.toarray(), dtype=np.float32)
        from divmf.kernels.products import rows_times_weights

        scores = np.empty((len(users), self.n_items), dtype=np.float32)
        values = np.asarray(met.data, dtype=np.float32)
        rows_times_weights(met.indptr, met.indices, values, np.asarray(users), weights, scores)
        return scores


@dataclass(frozen=True, eq=False)
class Blocks:
    """Any function from user numbers to their scores over all items.

    function   user numbers (users,) int64 → scores (users, n_items); higher is better
    """

    function: Callable[[Array], Any]
    n_users: int
    n_items: int

    def scores(self, users: Array) -> Array:
        """What the function gives, if it has the right shape and holds numbers alone."""
        found = np.array(self.function(users), dtype=np.float32, order="C")  # a copy: it is written to
        if found.shape != (len(users), self.n_items):
            raise ValueError(
                f"the scorer returned an array of shape {found.shape} for {len(users):,} users;"
                f" it must be one score for each of {self.n_items:,} items: {(len(users), self.n_items)}"
            )
        if not np.isfinite(found).all():
            raise ValueError("the scorer returned NaN or infinite scores; scores must be finite numbers")
        return found
