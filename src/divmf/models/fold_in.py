"""People who were not in training, and items that were not: their part of a model that stays as it is.

    chosen = choose(split)
    people = fold_in(chosen, histories)      # histories (n_people, n_items) sparse → Scorer of these people

What a user's part of the model is in training, it is here, exactly:

    ease      nothing of a user's own: what was met, times the weights
    ials      the least squares problem of the user, one solve
    softmax   n_u log Σ_i exp(u·v_i + b_i) − Σ_met (u·v_i + b_i) + ½ λ_u ‖u‖²: convex, by Newton's method with
              conjugate gradients, preconditioned by the curvature at the mean user
    bpr       Σ_met mean_j softplus(u·v_j − u·v_i) + ½ λ ‖u‖² over items j not met: convex, by Newton's method
    mse       Σ_met (1 − u·v_i)² + negatives · n_u · mean_j (u·v_j)² + ½ λ ‖u‖²: least squares, one solve

A history that is empty gives a zero vector: of the scores, the bias is left. A user's solution does not depend on the
others beside, but for the last digits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import sparse

from divmf.engine.arrays import Array
from divmf.engine.threads import in_parts
from divmf.models.ials import those_read, user_vectors
from divmf.models.newton import HALVINGS, NEWTON, TOLERANCE, minimum
from divmf.models.scorer import Factors, ItemItem, Scorer
from divmf.ranking.retrieval import blocks

GRADIENTS = 40  # conjugate gradients in a step of Newton's, at the most
NEGATIVES = 100  # items not met that each item met is compared with: all, if there are no more


class Fitted(Protocol):
    """A model with its name and the settings that it was fitted with, as `choose` returns it."""

    @property
    def scorer(self) -> Scorer:
        """What scores."""

    @property
    def name(self) -> str:
        """ease, ials, softmax, bpr or mse."""

    @property
    def settings(self) -> Mapping[str, float]:
        """ials: alpha, l2; softmax: l2 and pairs, the mean interactions of a user in training; bpr, mse: by `decay`."""


@dataclass(frozen=True, eq=False)
class Known:
    """A model with its name and settings, read from where they are kept."""

    scorer: Scorer
    name: str
    settings: Mapping[str, float]


def fold_in(model: Fitted, histories: sparse.csr_array, seed: int = 0) -> Scorer:
    """The scorer of people with such histories, one a row, for a model that stays as it is.

    seed   of the items that those met are compared with (bpr alone)
    """
    met = checked(histories, model.scorer.n_items)
    scorer, name, settings = model.scorer, model.name, model.settings
    if isinstance(scorer, ItemItem):
        return ItemItem(met, scorer.weights)
    if not isinstance(scorer, Factors):
        raise ValueError(f"a {type(scorer).__name__} cannot take in new people; give vectors, or weights between items")
    items = scorer.items_t.T
    if name == "ials":
        users = user_vectors(items, met, settings["alpha"], settings["l2"], scorer.gram)
    elif name == "softmax":
        counts = met.sum(axis=1, dtype=np.float64)
        l2 = settings["l2"] * ((counts + 1) / (settings["pairs"] + 1)) ** settings.get("l2_power", 0.5)
        users = softmax_vectors(scorer, met, l2)
    elif name == "bpr":
        l2 = decay(settings, np.diff(met.indptr)) / settings.get("negatives", 1)
        users = pairwise_vectors(items, scorer.bias, met, l2, np.random.default_rng(seed))
    elif name == "mse":
        counts = np.diff(met.indptr)
        users = squares_vectors(items, scorer.bias, met, decay(settings, counts), settings["negatives"] * counts)
    else:
        raise ValueError(f"people cannot be folded into a model {name!r}; choose ease, ials, softmax, bpr or mse")
    return Factors(users, scorer.items_t, scorer.bias)


def decay(settings: Mapping[str, float], counts: Array) -> Array:
    """λ of each user beside the sum of the losses of an epoch: that of a step, times the steps that a user is part of.

    l2      of a step
    steps   that every user is part of, if L2 is added to all of them; else a user has part in one for each sample
    each    samples of an item met that are in a step together
    """
    steps = settings.get("steps", 1)
    return np.asarray(
        settings["l2"] * (steps or counts * settings["negatives"] / settings["each"]) * np.ones(len(counts))
    )


def checked(histories: sparse.csr_array, n_items: int) -> sparse.csr_array:
    """Histories as 0/1 or weights over the catalog, each item of a person once."""
    if histories.shape[1] != n_items:
        raise ValueError(f"histories have {histories.shape[1]:,} columns; give one for each of {n_items:,} items")
    met: sparse.csr_array = histories.tocsr().astype(np.float32)
    if not met.has_canonical_format:
        met = met.copy()
        met.sum_duplicates()
        met.data[:] = np.minimum(met.data, 1)  # to have met an item twice is to have met it
    if met.nnz and not (np.isfinite(met.data).all() and met.data.min() >= 0):
        raise ValueError(f"weights must be finite and not negative; the smallest is {met.data.min():g}: leave it out")
    return met


def softmax_vectors(scorer: Factors, met: sparse.csr_array, l2: Array) -> Array:
    """The vectors of users with such interactions under the softmax loss, given those of the items.

    l2 (n_users,) → (n_users, dim)
    """
    users = np.tile(scorer.mean.vector, (met.shape[0], 1))

    def part(first: int, last: int) -> None:
        for block in blocks(last - first, scorer.n_items):
            rows = slice(first + block.start, first + block.stop)
            users[rows] = Softmax.of(scorer, met[rows], l2[rows]).solve(users[rows])

    in_parts(part, met.shape[0])
    return users


class Softmax:
    """The softmax problems of some users, side by side: every array has a row for each."""

    def __init__(self, scorer: Factors, counts: Array, pulled: Array, constant: Array, l2: Array) -> None:
        self.items_t, self.bias, self.counts, self.l2 = scorer.items_t, scorer.bias, counts[:, None], l2[:, None]
        self.pulled, self.constant, self.axes = pulled, constant, scorer.mean.axes
        # in the axes of the curvature at the mean user, that of any user is nearly diagonal
        self.scale = 1 / (self.counts * scorer.mean.curvature + np.maximum(self.l2, 1e-6))

    @classmethod
    def of(cls, scorer: Factors, met: sparse.csr_array, l2: Array) -> "Softmax":
        """What users met, by weight, and their λ."""
        counts = met.sum(axis=1, dtype=np.float64).astype(np.float32)
        read, some = those_read(met)
        pulled = some @ np.ascontiguousarray(scorer.items_t[:, read].T)
        return cls(scorer, counts, pulled, some @ scorer.bias[read], l2.astype(np.float32))

    def loss_and_shares(self, users: Array) -> tuple[Array, Array]:
        """The loss of each user, and the shares of all items.  (users,), (users, n_items)"""
        shares = users @ self.items_t + self.bias
        highest = shares.max(axis=1, keepdims=True)
        np.exp(shares - highest, out=shares)
        total = shares.sum(axis=1, keepdims=True)
        shares /= total
        own = (users * self.pulled).sum(axis=1) + self.constant
        loss = self.counts[:, 0] * (highest + np.log(total))[:, 0] - own + 0.5 * (self.l2 * users**2).sum(axis=1)
        return loss.astype(np.float64), shares

    def solve(self, users: Array) -> Array:
        """Newton's method from some vectors, each step halved until the loss does not rise."""
        loss, shares = self.loss_and_shares(users)
        size = norm(self.pulled) + norm(self.l2 * users) + 1e-6
        for _ in range(NEWTON):
            mean = shares @ self.items_t.T
            gradient = self.counts * mean - self.pulled + self.l2 * users
            if (norm(gradient) <= TOLERANCE * size).all():
                break
            step = self.step(shares, mean, gradient)
            length = np.ones((len(users), 1), dtype=np.float32)
            for _ in range(HALVINGS):
                tried = users + length * step
                new_loss, new_shares = self.loss_and_shares(tried)
                worse = new_loss > loss + 1e-6 * np.abs(loss)
                if not worse.any():
                    break
                length[worse] /= 2
            else:
                tried[worse] = users[worse]
                new_loss, new_shares = self.loss_and_shares(tried)
            users, loss, shares = tried, new_loss, new_shares
        return users

    def step(self, shares: Array, mean: Array, gradient: Array) -> Array:
        """Newton's step, by conjugate gradients: H x = −gradient with H = n (Σ s v vᵀ − v̄ v̄ᵀ) + λ."""
        x, residual = np.zeros_like(gradient), -gradient
        ahead = self.eased(residual)
        direction, along = ahead.copy(), dots(residual, ahead)
        enough = 0.1 * norm(gradient)
        for _ in range(GRADIENTS):
            moved = direction @ self.items_t  # (users, n_items)
            moved *= shares
            image = moved @ self.items_t.T - dots(mean, direction) * mean
            image = self.counts * image + self.l2 * direction
            length = along / np.maximum(dots(direction, image), 1e-30)
            x += length * direction
            residual -= length * image
            if (norm(residual) <= enough).all():
                break
            ahead = self.eased(residual)
            before, along = along, dots(residual, ahead)
            direction = ahead + along / np.maximum(before, 1e-30) * direction
        return x

    def eased(self, gradient: Array) -> Array:
        """H⁻¹ · gradient, nearly: along the axes of the mean user."""
        return np.asarray((gradient @ self.axes * self.scale) @ self.axes.T)


def dots(a: Array, b: Array) -> Array:
    """The dot product of each row.  (rows, 1)"""
    return np.asarray((a * b).sum(axis=1, keepdims=True))


def norm(a: Array) -> Array:
    """The length of each row.  (rows,)"""
    return np.asarray(np.sqrt((a * a).sum(axis=1)))


def squares_vectors(items: Array, bias: Array, met: sparse.csr_array, l2: Array, unmet: Array) -> Array:
    """The vectors of users under the squared error, given those of the items.

    unmet (n_users,): what all items not met count together, each met counting 1
    """
    n_items, dim = items.shape
    items, bias = items.astype(np.float64), bias.astype(np.float64)
    every, pulled = items.T @ items, items.T @ bias
    users = np.zeros((met.shape[0], dim), dtype=np.float32)

    def part(first: int, last: int) -> None:
        for user in range(first, last):
            own = met.indices[met.indptr[user] : met.indptr[user + 1]]
            weight = unmet[user] / max(1, n_items - len(own))
            between = items[own].T @ items[own]
            curvature = between + weight * (every - between) + 0.5 * l2[user] * np.eye(dim)
            wanted = items[own].T @ (1 - bias[own]) - weight * (pulled - items[own].T @ bias[own])
            users[user] = np.linalg.lstsq(curvature, wanted, rcond=None)[0]

    in_parts(part, met.shape[0])
    return users


def pairwise_vectors(items: Array, bias: Array, met: sparse.csr_array, l2: Array, rng: np.random.Generator) -> Array:
    """The vectors of users with such interactions under the pairwise loss of BPR, given those of the items.

    Each item met is compared with the same NEGATIVES items that were not; l2 (n_users,): λ beside the sum over the
    items met.
    """
    n_items, dim = items.shape
    order = rng.permutation(n_items)
    users = np.zeros((met.shape[0], dim), dtype=np.float32)

    def part(first: int, last: int) -> None:
        for user in range(first, last):
            own = met.indices[met.indptr[user] : met.indptr[user + 1]]
            others = order[~np.isin(order, own)][:NEGATIVES]
            if len(own) and len(others):
                users[user] = pairwise_vector(items[own], bias[own], items[others], bias[others], float(l2[user]))

    in_parts(part, met.shape[0])
    return users


def pairwise_vector(own: Array, own_bias: Array, others: Array, others_bias: Array, l2: float) -> Array:
    """min Σ_i mean_j softplus((u·v_j + b_j) − (u·v_i + b_i)) + ½ λ ‖u‖², by Newton's method.  (dim,)"""
    apart = (own[:, None].astype(np.float64) - others[None]).reshape(-1, own.shape[1])  # (pairs, dim)
    ahead = (own_bias[:, None].astype(np.float64) - others_bias[None]).ravel()
    weight = 1 / len(others)

    def loss(u: Array) -> float:
        return float(weight * np.logaddexp(0, -(apart @ u + ahead)).sum() + 0.5 * l2 * u @ u)

    def step_from(u: Array) -> Array | None:
        wrong = 1 / (1 + np.exp(np.clip(apart @ u + ahead, -500, 500)))  # (pairs,): how far each is out of order
        gradient = l2 * u - weight * (wrong @ apart)
        if np.linalg.norm(gradient) <= TOLERANCE * (np.linalg.norm(weight * wrong @ np.abs(apart)) + 1e-12):
            return None
        curvature = weight * (apart * (wrong * (1 - wrong))[:, None]).T @ apart + l2 * np.eye(len(u))
        return np.asarray(np.linalg.solve(curvature, -gradient))

    return minimum(np.zeros(own.shape[1]), loss, step_from)
