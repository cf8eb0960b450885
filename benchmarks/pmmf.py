"""A rival in the manner of P-MMF (Xu et al., WWW 2023): max–min fairness of providers by online mirror descent.

    max  (1/T) Σ_t s_t·x_t + λ min_p e_p/γ_p,   e = (1/T) Σ_t Aᵀx_t,   e ≤ γ

A says who provides what, T is the number of users. Users come one after another; each takes the k items that are best
by score less the price of their providers, μ, among those whose providers have room left. The price follows the
gradient γ − Aᵀx_t of the dual by mirror descent with momentum, and stays within Σ_S γ_p μ_p ≥ −λ for every set S of
providers: a price below nothing is a subsidy, and together subsidies are no more than λ.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from scipy import sparse

from divmf.engine.arrays import Array

FULL = -1e30


class Settings(NamedTuple):
    """What P-MMF is run with.

    even     whether providers are to have the same, γ_p alike; else in proportion to their items
    capped   whether e ≤ γ holds, the sum of γ being (1 + 1/providers)·k as in the paper; else providers have no caps
    rate     how far a step goes, in spreads of a user's scores
    passes   over all users; what the last one makes counts, and it begins with the prices of those before
    """

    even: bool = True
    capped: bool = True
    rate: float = 0.001
    passes: int = 1


MOMENTUM = 0.2  # the share of the new gradient


def pmmf(items: Array, scores: Array, groups: sparse.csr_array, k: int, strength: float, settings: Settings) -> Array:
    """Lists of k from candidates.  (n_users, k)

    items, scores   (n_users, width): the best first
    groups          (n_items, providers): whose each item is
    strength        λ, in spreads of a user's scores for each slot
    """
    n_users = len(items)
    n_items, n_groups = groups.shape
    spread = float((scores[:, 0] - scores[:, -1]).mean()) or 1.0
    sizes = np.ones(n_groups) if settings.even else np.asarray(groups.sum(axis=0)).ravel()
    share = np.maximum(sizes, 1e-9) / sizes.sum()
    shown = k * groups.nnz / n_items  # of providers, by one list: an item may have several
    gamma = share * shown * (1 + 1 / n_groups)
    made = np.full((n_users, k), -1, dtype=np.int32)
    subsidy = np.zeros(n_groups)  # γ_p μ_p
    for _ in range(settings.passes):
        room = np.floor(gamma * n_users) if settings.capped else np.full(n_groups, np.inf)
        _arrive(
            items, scores.astype(np.float64), groups.indptr, groups.indices, gamma, room, strength * spread * k,
            settings.rate * spread, MOMENTUM, settings.capped, subsidy, made,
        )  # fmt: skip
    return made


@njit(cache=True)
def _arrive(
    items: Array, scores: Array, begins: Array, of: Array, gamma: Array, room: Array, most: float, rate: float,
    momentum: float, capped: bool, subsidy: Array, made: Array,
) -> None:  # fmt: skip
    """Users take their lists one after another; prices follow."""
    n_users, width = items.shape
    k, gradient = made.shape[1], np.zeros(len(gamma))
    for user in range(n_users):
        worth = scores[user].copy()
        for at in range(width):
            item = items[user, at]
            if item < 0:
                worth[at] = -np.inf
                continue
            full = False
            for position in range(begins[item], begins[item + 1]):
                worth[at] -= subsidy[of[position]] / gamma[of[position]]
                full = full or room[of[position]] < 1
            if full:
                worth[at] += FULL  # taken where there is nothing else
        best = np.sort(np.argsort(-worth, kind="mergesort")[:k])  # listed in order of score
        gradient *= 1 - momentum
        gradient += momentum  # of γ_p μ_p: 1 less what was shown, in units of γ_p
        for r in range(k):
            if worth[best[r]] == -np.inf:
                continue
            item = items[user, best[r]]
            made[user, r] = item
            for position in range(begins[item], begins[item + 1]):
                gradient[of[position]] -= momentum / gamma[of[position]]
                room[of[position]] -= 1
        subsidy -= rate * gradient
        if not capped:
            subsidy[:] = np.minimum(subsidy, 0.0)  # a price above nothing is a cap's
        _keep_within(subsidy, most)


@njit(cache=True)
def _keep_within(subsidy: Array, most: float) -> None:
    """The nearest of which those below nothing add up to no more than `most`."""
    below = -subsidy[subsidy < 0.0]
    if below.sum() <= most:
        return
    below = np.sort(below)[::-1]
    sums = np.cumsum(below)
    cut = 0.0
    for number in range(len(below)):
        here = (sums[number] - most) / (number + 1)
        if below[number] > here:
            cut = here
    for group in range(len(subsidy)):
        if subsidy[group] < 0.0:
            subsidy[group] = min(subsidy[group] + cut, 0.0)
