"""Exposure market: users take turns, and each takes the list that is best where showing what is rarely shown pays."""

from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from divmf.engine.arrays import Array
from divmf.ranking.lists import TopK
from divmf.rerank.candidates import lists
from divmf.rerank.settings import Order, Share, reranker

STEPS = 3.0  # ρ grows so much from one solution to the next: each begins with the lists of the one before
FIRST = 0.01  # where it begins
HALVINGS = 6  # of the range of ρ in which the fraction replaced is looked for


@reranker
def market(
    candidates: TopK,
    k: int = 5,
    *,
    rho: Annotated[
        float,
        Field(
            ge=0,
            le=1e6,
            description="ρ: what even exposure counts, in spreads of a user's scores; 0 = the model's list",
        ),
    ] = 0.2,
    replace: Annotated[
        Share, Field(description="instead of ρ: the fraction of all slots that may get another item; 0 = as ρ says")
    ] = 0.0,
    exposure: Annotated[
        Literal["count", "attention"], Field(description="what a showing counts in a slot: 1, or 1/log2(slot + 1)")
    ] = "count",
    level: Annotated[float, Field(gt=0, le=1e6, description="even shares at which an item's bonus ends")] = 0.9,
    delta: Annotated[float, Field(gt=0, le=100, description="δ: the smaller, the more a first showing counts")] = 1e-4,
    order: Order = "score",
) -> TopK:
    """Best responses in a potential game (Monderer & Shapley, Games and Economic Behavior 1996), see docs/method.md.

    max Σ_u Σ_r w_r s_u,r + ρ Σ_i B(f_i), w_r the weight of slot r, B concave in the exposure f_i. Each user takes the
    list that is best given everybody else's, exactly, until hardly a list changes.
    """
    made = Solved(candidates, k, exposure, level, delta)
    chosen = made.replacing(replace) if replace else made.at(rho)
    places = np.full(chosen.shape, -1)
    for slot, items in enumerate(chosen.T):
        places[:, slot] = np.where(items >= 0, (candidates.items == items[:, None]).argmax(axis=1), -1)
    return lists(candidates, places, order)


class Solved:
    """The lists of given candidates at any ρ."""

    def __init__(self, candidates: TopK, k: int, exposure: str, level: float, delta: float) -> None:
        from divmf.kernels.market import ONE
        from divmf.market.bonus import Bonus
        from divmf.market.columns import GivenLists
        from divmf.market.solve import Market
        from divmf.market.values import exposure_weights, slot_weights

        weights = exposure_weights(k, exposure)
        share = len(candidates) * float(weights.sum()) / ONE / candidates.n_items
        bonus = Bonus(delta, level * share, 16.0, len(candidates))
        source = GivenLists(candidates.items, candidates.scores, candidates.n_items)
        self.market = Market(source, slot_weights(k), weights, bonus, ("all",))

    def at(self, rho: float) -> Array:
        """The lists at ρ, by way of smaller ones.  (n_lists, k)"""
        from divmf.market.solve import solve

        found = self.market.own[1]["all"]
        for each in path_to(rho):
            found = solve(self.market, each * (self.market.spread or 1.0), found).lists["all"]
        return found.items

    def replacing(self, most: float) -> Array:
        """The lists at the largest ρ found that give at most so large a fraction of the slots to other items."""
        from divmf.market.solve import solve

        start = self.market.own[1]["all"]
        own, low, high, unit = start.items, 0.0, FIRST, self.market.spread or 1.0
        kept, at = start, start

        def replaced(items: Array) -> float:
            stays = sum((own == slot[:, None]) & (slot[:, None] >= 0) for slot in items.T)
            return 1 - float(np.sum(stays)) / max(1, int((own >= 0).sum()))

        while high < 1e6:
            at = solve(self.market, high * unit, kept).lists["all"]
            if replaced(at.items) > most:
                break
            kept, low, high = at, high, high * STEPS
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            at = solve(self.market, middle * unit, kept).lists["all"]
            if replaced(at.items) > most:
                high = middle
            else:
                kept, low = at, middle
        return kept.items


def path_to(rho: float) -> Iterator[float]:
    """ρ and smaller ones that lead to it; none where it is 0."""
    if rho > 0:
        yield from (rho / STEPS**step for step in range(max(0, int(np.log(rho / FIRST) / np.log(STEPS))), -1, -1))
