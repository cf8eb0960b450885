"""Exposure market: users take turns, and each takes the list that is best where showing what is rarely shown pays."""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field
from scipy import sparse

from divmf.data.interactions import Interactions
from divmf.engine.arrays import Array
from divmf.market.bound import Bound
from divmf.market.rules import Rules
from divmf.ranking.lists import TopK
from divmf.rerank.candidates import lists, popularity_of, replaced
from divmf.rerank.settings import Order, Share, reranker

if TYPE_CHECKING:
    from divmf.market.certificate import Certificate
    from divmf.market.keeping import Kept
    from divmf.market.ruled import State
    from divmf.market.solve import Lists, Solution

STEPS = 3.0  # ρ grows so much from one solution to the next: each begins with the lists of the one before
FIRST = 0.01  # where it begins
TRIES = 6  # between two ρ, of which one loses too much
CLOSE = 0.02  # a loss that falls short of the one allowed by no more than this fraction is close enough
LEAST_WAY = 0.1  # from either of two ρ to the next one between them, as a part of their distance


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
    list that is best given everybody else's, exactly, until hardly a list changes.

    Args:
        candidates: Lists longer than k, of any model.
        k: The length of a list.
        rho: ρ, what even exposure counts beside the scores.
        replace: Instead of ρ: the fraction of all slots that may get another item.
        exposure: What a showing counts in a slot.
        level: Even shares at which an item's bonus ends.
        delta: δ, the smaller, the more a first showing counts.
        train: Interactions, which targets by merit count.
        rules: What the lists keep (`divmf.Rules`).
        order: What the items of a list are ordered by.

    Returns:
        The lists of k.
    """
    bound = None if rules is None else bound_to_lists(rules, candidates, k, train)
    made = MarketOfLists(candidates, k, exposure, level, delta, bound)
    found = made.within(made.replaced, replace) if replace else made.at(rho)
    return made.listed(found, order)


class Found(NamedTuple):
    """Lists of given candidates: ρ in spreads of a user's scores, and what was found for it; nothing where ρ is 0."""

    rho: float
    items: Array
    solution: "Solution | None"
    kept: "Kept | None" = None


class MarketOfLists:
    """The market of given candidates, at any strength; scores in, lists and discounts out."""

    def __init__(
        self, candidates: TopK, k: int, exposure: str = "count", level: float = 0.9, delta: float = 1e-4,
        bound: Bound | None = None,
    ) -> None:  # fmt: skip
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
        self.candidates, self.market = candidates, Market(source, slot_weights(k), weights, bonus, ("all",))
        self.unit = self.market.spread or 1.0
        self.ruled = None if bound is None else RuledMarket(self.market, bound)

    @cached_property
    def own(self) -> "Lists":
        """The candidates' own first k; with rules, those that keep them at ρ = 0."""
        own = self.market.own[1]["all"]
        return own if self.ruled is None else self.market.lists(self.solved(0.0, Found(0.0, own.items, None)).items)

    def solved(self, rho: float, before: Found) -> Found:
        """The lists for ρ, from others."""
        from divmf.market.keeping import solve_ruled
        from divmf.market.solve import solve

        if self.ruled is not None:
            kept = solve_ruled(self.ruled, rho * self.unit, self.state_of(before))
            return Found(rho, kept.solution.lists["all"].items, kept.solution, kept)
        found = solve(self.market, rho * self.unit, self.lists_of(before))
        return Found(rho, found.lists["all"].items, found)

    def at(self, rho: float) -> Found:
        """The lists at ρ, by way of smaller ones."""
        own = self.market.own[1]["all"]
        found = Found(0.0, own.items, None)
        if self.ruled is not None:
            return self.kept_at(rho, found)
        for each in path_to(rho):
            found = self.solved(each, found)
        return found

    def kept_at(self, rho: float, found: Found) -> Found:
        """The lists at ρ that keep rules; on the way there bounds are soft."""
        from divmf.market.keeping import WAY_SWEEPS, approach, solve_ruled

        assert self.ruled is not None
        soft = self.state_of(found)
        for each in list(path_to(rho))[:-1]:
            approach(self.ruled, each * self.unit, soft, WAY_SWEEPS)
        kept = solve_ruled(self.ruled, rho * self.unit, soft)
        return Found(rho, kept.solution.lists["all"].items, kept.solution, kept)

    def state_of(self, found: Found) -> "State":
        """What the next solution with rules begins from."""
        assert self.ruled is not None
        return self.ruled.state_of(self.market.own[1]["all"]) if found.kept is None else found.kept.soft.copy()

    def lists_of(self, found: Found) -> "Lists":
        """What the next solution begins from."""
        return self.own if found.solution is None else found.solution.lists["all"]

    def within(self, lost: Callable[[Array], float], most: float) -> Found:
        """The lists at the largest ρ found that lose at most so much; the candidates' own, if none do.

        ρ grows until more is lost, or larger ρ change nothing; then it is looked for where the line between the two
        neighbours on a scale of log ρ says that so much is lost.
        """
        kept, had = Found(0.0, self.own.items, None), 0.0
        low, high, loses = FIRST / STEPS, FIRST, np.inf
        while high < 1e6:
            at = self.solved(high, kept)
            loses = lost(at.items)
            if loses > most:
                break
            settled = np.array_equal(at.items, kept.items) and not np.array_equal(at.items, self.own.items)
            kept, had, low, high = at, loses, high, high * STEPS
            if settled:
                return kept
        for _ in range(TRIES):
            if loses <= most or had >= (1 - CLOSE) * most:
                break
            way = min(max((most - had) / (loses - had), LEAST_WAY), 1 - LEAST_WAY)
            middle = float(low * (high / low) ** way)
            at = self.solved(middle, kept)
            if (found := lost(at.items)) <= most:
                kept, had, low = at, found, middle
            else:
                loses, high = found, middle
        return kept

    def replaced(self, items: Array) -> float:
        """The fraction of the slots to which lists give other items than the candidates' own do."""
        return replaced(self.own.items, items)

    def loss_on(self, held_out: sparse.csr_array) -> Callable[[Array], float]:
        """The fraction that lists lose of the nDCG that the candidates' own have."""
        from divmf.ranking.metrics import found_in, ndcg

        held = np.diff(held_out.indptr)
        if not held.any():
            raise ValueError("valid: it has nothing of the users of these lists; give what they met later")

        def accuracy(items: Array) -> float:
            return float(ndcg(found_in(held_out, items, items.shape[1]), held)[held > 0].mean())

        own = accuracy(self.own.items)
        if not own:
            raise ValueError(
                "valid: the lists hold nothing of it, so their nDCG is 0 and there is none to lose; were its items"
                " filtered out of the lists? Set the strength by --replace or --rho (replace, rho) instead"
            )
        return lambda items: 1 - accuracy(items) / own

    def certificate(self, found: Found) -> "Certificate":
        """The discounts of a solution, and how far it may be from the best lists of these candidates."""
        from divmf.market.certificate import Certificate, certify
        from divmf.market.proof import certify_ruled

        if self.ruled is not None and found.kept is not None:
            return Certificate(*certify_ruled(self.ruled, found.kept))
        if found.solution is None:
            return Certificate(np.zeros(self.candidates.n_items), 0.0)
        return certify(self.market, found.solution)

    def respond(self, discount: Array) -> Array:
        """The lists that are best at given discounts, in units of the scores: nothing is solved.  (n_lists, k)"""
        from divmf.kernels.response import respond_part

        made = np.empty(self.own.items.shape, dtype=np.int32)
        columns = self.market.finder.find(discount, made)
        respond_part(columns, 1, 0, len(made), self.market.terms(0.0), discount.astype(np.float64), made)
        return made

    def listed(self, found: Found | Array, order: Order = "score") -> TopK:
        """Lists with their scores."""
        chosen = found.items if isinstance(found, Found) else found
        columns = np.full(chosen.shape, -1)
        for slot, items in enumerate(chosen.T):
            columns[:, slot] = np.where(items >= 0, (self.candidates.items == items[:, None]).argmax(axis=1), -1)
        return lists(self.candidates, columns, order)


def bound_to_lists(rules: Rules, candidates: TopK, k: int, train: Interactions | None) -> Bound:
    """Rules for given candidates: what is possible is what they allow."""
    from divmf.market.binding import bind
    from divmf.market.bound import Shop

    there = candidates.items >= 0
    offsets = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    items = candidates.items.ravel() if there.all() else candidates.items[there]
    ones = np.broadcast_to(np.ones(1, dtype=np.bool_), len(items))  # what stands in memory once
    listed = sparse.csr_array((ones, items, offsets), shape=(len(candidates), candidates.n_items))
    popularity = None if train is None else popularity_of(candidates, train)
    return bind(rules, Shop(candidates.item_ids, candidates.user_ids, listed, True, k, popularity))


def path_to(rho: float) -> Iterator[float]:
    """ρ and smaller ones that lead to it; none where it is 0."""
    if rho > 0:
        yield from (rho / STEPS**step for step in range(max(0, int(np.log(rho / FIRST) / np.log(STEPS))), -1, -1))
