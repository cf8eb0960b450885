"""Exposure market: users take turns, and each takes the list that is best where showing what is rarely shown pays."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from divmf.data.interactions import Interactions
from divmf.engine.arrays import Array
from divmf.market.bound import Bound
from divmf.market.rules import Rules
from divmf.ranking.lists import TopK
from divmf.rerank.candidates import lists, popularity_of
from divmf.rerank.settings import Order, Share, reranker

if TYPE_CHECKING:
    from divmf.market.solve import Lists

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
    train: Interactions | None = None,
    rules: Rules | None = None,
    order: Order = "score",
) -> TopK:
    """Best responses in a potential game (Monderer & Shapley, Games and Economic Behavior 1996), see docs/method.md.

    max Σ_u Σ_r w_r s_u,r + ρ Σ_i B(f_i), w_r the weight of slot r, B concave in the exposure f_i. Each user takes the
    list that is best given everybody else's, exactly, until hardly a list changes. With rules, the lists keep them
    (`divmf.Rules`); train: interactions, which targets by merit count.
    """
    bound = None if rules is None else bound_to_lists(rules, candidates, k, train)
    made = Solved(candidates, k, exposure, level, delta, bound)
    chosen = made.replacing(replace) if replace else made.at(rho)
    places = np.full(chosen.shape, -1)
    for slot, items in enumerate(chosen.T):
        places[:, slot] = np.where(items >= 0, (candidates.items == items[:, None]).argmax(axis=1), -1)
    return lists(candidates, places, order)


class Solved:
    """The lists of given candidates at any ρ."""

    def __init__(
        self, candidates: TopK, k: int, exposure: str, level: float, delta: float, bound: Bound | None = None
    ) -> None:
        from divmf.kernels.market import ONE
        from divmf.market.bonus import Bonus
        from divmf.market.columns import GivenLists
        from divmf.market.ruled import RuledMarket
        from divmf.market.solve import Market
        from divmf.market.values import exposure_weights, slot_weights

        weights = exposure_weights(k, exposure)
        share = len(candidates) * float(weights.sum()) / ONE / candidates.n_items
        bonus = Bonus(delta, level * share, 16.0, len(candidates))
        if bound is not None:
            candidates = candidates.without(bound.blocked)
        source = GivenLists(candidates.items, candidates.scores, candidates.n_items)
        self.market = Market(source, slot_weights(k), weights, bonus, ("all",))
        self.ruled = None if bound is None else RuledMarket(self.market, bound)

    def solved(self, rho: float, start: "Lists") -> "Lists":
        """The lists for ρ, from others."""
        from divmf.market.keeping import solve_ruled
        from divmf.market.solve import solve

        if self.ruled is None:
            return solve(self.market, rho, start).lists["all"]
        return solve_ruled(self.ruled, rho, start).solution.lists["all"]

    def at(self, rho: float) -> Array:
        """The lists at ρ, by way of smaller ones.  (n_lists, k)"""
        found = self.market.own[1]["all"]
        if self.ruled is not None:
            return self.solved(rho * (self.market.spread or 1.0), found).items
        for each in path_to(rho):
            found = self.solved(each * (self.market.spread or 1.0), found)
        return found.items

    def replacing(self, most: float) -> Array:
        """The lists at the largest ρ found that give at most so large a fraction of the slots to other items."""
        start = self.market.own[1]["all"]
        if self.ruled is not None:
            start = self.solved(0.0, start)
        own, low, high, unit = start.items, 0.0, FIRST, self.market.spread or 1.0
        kept, at = start, start

        def replaced(items: Array) -> float:
            stays = sum((own == slot[:, None]) & (slot[:, None] >= 0) for slot in items.T)
            return 1 - float(np.sum(stays)) / max(1, int((own >= 0).sum()))

        while high < 1e6:
            at = self.solved(high * unit, kept)
            if replaced(at.items) > most:
                break
            kept, low, high = at, high, high * STEPS
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            at = self.solved(middle * unit, kept)
            if replaced(at.items) > most:
                high = middle
            else:
                kept, low = at, middle
        return kept.items


def bound_to_lists(rules: Rules, candidates: TopK, k: int, train: Interactions | None) -> Bound:
    """Rules for given candidates: what is possible is what they allow."""
    from scipy import sparse

    from divmf.market.binding import bind
    from divmf.market.bound import Shop

    rows, slots = np.nonzero(candidates.items >= 0)
    ones = np.ones(len(rows), dtype=np.float32)
    shape = (len(candidates), candidates.n_items)
    listed = sparse.csr_array((ones, (rows, candidates.items[rows, slots])), shape=shape)
    popularity = None if train is None else popularity_of(candidates, train)
    return bind(rules, Shop(candidates.item_ids, candidates.user_ids, listed, True, k, popularity))


def path_to(rho: float) -> Iterator[float]:
    """ρ and smaller ones that lead to it; none where it is 0."""
    if rho > 0:
        yield from (rho / STEPS**step for step in range(max(0, int(np.log(rho / FIRST) / np.log(STEPS))), -1, -1))
