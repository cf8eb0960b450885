"""Exposure prices: lists of a trained model in which showing an item earns the more, the less it is shown.

The (x+1)-th list that shows an item earns a bonus of ρ·b(x), b(x) = log(1 + (c/(x + δ))^q)/q, and the r-th place of a
list counts w_r, less and less. The best lists with it solve

    max  Σ_users a_u Σ_r w_r r̂_u,r + ρ Σ_i B(f_i),   B(f) = Σ_{x<f} b(x),

f_i the number of lists with item i, r̂_u,r the r-th best score in a list, a_u what a user has at stake. Below c the
bonus is the entropy of the exposure as Boltzmann counted it, −Σ log f_i!; beyond c it ends, the more sharply the larger
q, and who has enough keeps what the scores give. That is a matching with concave gains, and its optimum has a price p_i
for each item at which every user asks for just that list.

Served is one dot product: the top k of s_u·r̂_ui − p_i, with a scale s_u for each user, that at which the list is worth
most to the user. See docs/method.md.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse

from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.threads import PART_BYTES, in_parts, threads
from divmf.models.mf import MF
from divmf.ranking.retrieval import SPARE, recommend

WIDTH = 64  # candidates kept for each user, beyond k, between passes over all items
ALONE = 512  # users whose lists are found by one thread
CLOSE = 1e-5  # two ways to multiply out a score agree to this, relatively
TOLERANCE = 0.01  # how far lists may be from the best with their scales, per recommendation, in units of `unit`
STEPS, IN_VAIN = 18, 4  # at the most; and how many times that while nothing better than the start is found
RESTLESS = 0.7  # the share of the steps in which scales move; then prices alone, which settle sooner
# how far around the end of a list demand is looked at, at first, at the least and at the most (that in ρ)
WINDOW, NARROWEST, WIDEST = 0.1, 0.01, 4.0
STRIDE = 0.1  # by how much larger and smaller scales are tried at first, as a logarithm
DISCOUNT_POWER = 2.0  # the r-th place counts as this power of nDCG's discount: later places hold less likely items
# an auction: how many users each item may bid for, what share of the way to the next best user's price it bids, in
# steps of what share of the unit, and how many bids there are per item
BIDDERS, BID, RAISE, BIDS = 24, 0.5, 0.00002, 40


class Market:
    """The lists of one model at any prices.

    Remembers candidates: prices that moved little change few lists, and those cannot leave the candidates as long as
    the k-th of them stands higher than any other item did, plus what any price has fallen since.
    shares: what users have at stake, a_u.  (n_users,); all alike if not given
    """

    def __init__(self, model: MF, seen: sparse.csr_array, k: int, shares: Array | None = None) -> None:
        from divmf.kernels.prices import scores_of

        n_users = model.n_users
        self.shares = np.ones(n_users, dtype=np.float32) if shares is None else shares
        self.model, self.seen, self.k = model.weighted(torch.ones_like(model.users[:, 0])), seen, k
        self.vectors, self.item_vectors = (
            np.ascontiguousarray(table.detach().cpu().numpy()) for table in (self.model.users, self.model.items)
        )
        self.places = place_weights(k)
        found, _ = recommend(self.model, seen, min(model.n_items, k + WIDTH))
        self.own, self.width = np.ascontiguousarray(found[:, :k]), found.shape[1]
        everybody = np.broadcast_to(np.arange(n_users)[:, None], found.shape)
        scores = self.shares[:, None] * scores_of(everybody, found, self.vectors, self.item_vectors)
        self.spread = spread_of(np.where(found >= 0, scores, np.nan))
        self.items = np.full((n_users, self.width + k), -1, dtype=np.int32)
        self.scores = np.zeros(self.items.shape, dtype=np.float32)
        self.limit = np.full(n_users, np.inf, dtype=np.float32)  # nothing is certain yet
        self.found_at, self.found_in = np.ones(n_users, dtype=np.float32), np.zeros(n_users, dtype=np.int32)
        self.rounds: list[Array] = []
        self.lists = np.full((n_users, k), -1, dtype=np.int32)
        self.ends, self.worth = np.zeros(n_users, dtype=np.float32), np.zeros(n_users)
        self.n_users = comm.place(n_users).whole  # of all processes: each visits its own

    def visit(self, at: "Standing", windows: Array | None = None, strides: Array | None = None) -> Array:
        """Everybody's lists at these prices: how many hold each item, and how many nearly do (`respond_part`).

        strides: by how much larger and smaller scales are tried; the scales are changed in place. None: they stay
        """
        everybody, n_items = np.arange(len(self.lists)), self.model.n_items
        windows = np.full(n_items, 1e-9, dtype=np.float32) if windows is None else windows
        stay = np.zeros(0, dtype=np.float32)
        demand = np.zeros((n_items, 1 + 2 * bins()), dtype=np.int64)
        uncertain = everybody
        if self.rounds:
            uncertain = self.respond(everybody, at, windows, stay if strides is None else strides, demand)
        if len(uncertain):
            self.search(uncertain, at)
            self.respond(uncertain, at, windows, stay if strides is None else strides, demand, fresh=True)
        comm.add_up(demand)
        return demand

    def respond(
        self, users: Array, at: "Standing", windows: Array, strides: Array, demand: Array, fresh: bool = False
    ) -> Array:
        """These users' lists from their candidates, added to the demand; those whose list may not be among them.

        fresh: the candidates are of these very prices, so that nobody's can
        """
        from divmf.kernels.prices import margins_of, respond_part

        certain = np.zeros(len(users), dtype=np.bool_)
        margins = margins_of(np.array(self.rounds), at.price)
        margins += np.float32(CLOSE * np.abs(at.price).max(initial=1.0))
        certainty = (self.limit, self.found_at, self.found_in, margins)

        def part(first: int, last: int) -> Array:
            seen = np.zeros(demand.shape, dtype=np.int32)
            respond_part(
                users, self.items, self.scores, self.shares, self.places, at.price, windows, certainty, fresh,
                len(strides) > 0, first, last, at.scale, strides, self.lists, self.ends, self.worth, certain, seen,
            )  # fmt: skip
            return seen

        # as many parts as there are threads: what each counts is a large table
        for seen in (
            in_parts(part, len(users), PART_BYTES // threads()) if len(users) > ALONE else [part(0, len(users))]
        ):
            demand += seen
        return users[~certain]

    def search(self, users: Array, at: "Standing") -> None:
        """Find the candidates of these users among all items."""
        from divmf.kernels.prices import keep_part

        self.rounds.append(at.price)
        found, _ = recommend(at.of(self.model), self.seen, min(self.model.n_items, self.width + SPARE), users)
        turn, certainty = len(self.rounds) - 1, (self.limit, self.found_at, self.found_in)
        now = at.scale[users]
        kept = (self.items, self.scores, certainty)
        in_parts(
            lambda first, last: keep_part(
                users, found, at.price, self.own, now, self.vectors, self.item_vectors, turn, first, last, *kept
            ),
            len(users),
        )

    @cached_property
    def by_item(self) -> sparse.csr_array:
        """What users have met, item by item."""
        return sparse.csr_array(self.seen.T)

    def start(self) -> "Standing":
        """No prices, and the scales of users who are shown what they like best."""
        return Standing(np.zeros(self.model.n_items, dtype=np.float32), self.shares.copy())


class Standing(NamedTuple):
    """Prices, at most 0, a discount (n_items,), and how much the scores of users count against them (n_users,)."""

    price: Array
    scale: Array

    def copy(self) -> "Standing":
        """The same in memory of its own."""
        return Standing(self.price.copy(), self.scale.copy())

    def of(self, model: MF) -> MF:
        """A model without bias at these prices, as if they were its bias."""
        price, scale = (torch.from_numpy(table).to(model.users.device) for table in self)
        return MF(model.users * scale[:, None], model.items, -price)


def bins() -> int:
    """Ranges of distance that demand is counted in, on either side."""
    from divmf.kernels.prices import BINS

    return BINS


def place_weights(k: int) -> Array:
    """w_r: what a place counts, the last being 1.  (k,) float32

    nDCG counts the r-th place 1/log₂(r + 1), and the items of later places are less likely, too.
    """
    weights = np.log2(np.arange(k) + 2.0) ** -DISCOUNT_POWER
    return np.asarray(weights / weights[-1], dtype=np.float32)


def spread_of(scores: Array) -> float:
    """How far a user's best score lies above the last candidate's, on average: the unit that ρ is measured in."""
    some = np.isfinite(scores).any(axis=1)
    found = np.nanmax(scores[some], axis=1) - np.nanmin(scores[some], axis=1)
    total, counted = comm.total([found.sum(dtype=np.float64), len(found)])
    return float(total / counted) if counted else 0.0


@dataclass(frozen=True, eq=False)
class Bonus:
    """What showing an item is worth, in units of ρ.

    delta      δ: the smaller, the more the first showing is worth
    level      c: the exposure at which the bonus ends
    steepness  q: how sharply
    most       how often an item can be shown: as often as there are users
    """

    delta: float
    level: float
    steepness: float
    most: int

    @cached_property
    def table(self) -> Array:
        """b(x), what one more showing of an item shown x times is worth: it falls.  (most,)"""
        shown = np.arange(self.most)
        # log(1 + y^q) by way of log y, for y^q may be too large to write
        return np.asarray(np.logaddexp(0, self.steepness * np.log(self.level / (shown + self.delta))) / self.steepness)

    @cached_property
    def sums(self) -> Array:
        """B(f) = Σ_{x<f} b(x).  (most + 1,)"""
        return np.concatenate([[0.0], np.cumsum(self.table)])


@dataclass(frozen=True, eq=False)
class Prices:
    """What was found for one ρ.

    gap           proven: with these scales no lists are better by more than this per recommendation, in units of
                  `unit_of`
    converged     whether that is within the tolerance
    worth, bonus  Σ_users a_u Σ_r w_r r̂_u,r and Σ_i B(f_i) of the lists
    """

    rho: float
    at: Standing
    gap: float
    converged: bool
    iterations: int
    worth: float
    bonus: float


class Found(NamedTuple):
    """A standing that was looked at, and its lists."""

    at: Standing
    counts: Array
    worth: float
    bonus: float
    slack: float

    def value(self, rho: float) -> float:
        """What the lists are worth, with the bonus."""
        return self.worth + rho * self.bonus

    @property
    def unshown(self) -> int:
        """How many items nobody is shown."""
        return int((self.counts == 0).sum())


def unit_of(market: Market, rho: float) -> float:
    """What gaps are measured in: ρ, or how far the scores of a user differ, where ρ is more."""
    return min(rho, market.spread) if market.spread else rho  # a model may know nothing and have no spread


def solve(
    market: Market, rho: float, start: Standing, bonus: Bonus, tolerance: float = TOLERANCE, steps: int = STEPS
) -> Prices:
    """The prices for ρ: from a start, each towards where as many lists hold the item as it wants, until all do, nearly.

    Of all lists on the way the best are taken; those of the start are among them. What is left to gain is bounded by
    the dual: `slack_of`.
    """
    from divmf.kernels.prices import FIRST_PACE, slack_of, step_prices

    unit = unit_of(market, rho)
    market.rounds = []  # what demand is seen depends on the candidates: they must not depend on what was solved before
    n_shown, table, sums = max(1, market.n_users * market.k), rho * bonus.table, rho * bonus.sums
    enough = tolerance * unit * n_shown
    n_items = len(start.price)
    windows, strides = np.full(n_items, WINDOW * unit, dtype=np.float32), np.full_like(start.scale, STRIDE)
    paces, sides = np.full(n_items, FIRST_PACE), np.zeros(n_items)

    def look(at: Standing, moving: bool) -> tuple[Found, Array]:
        demand = market.visit(at, windows, strides if moving else None)
        counts = np.ascontiguousarray(demand[:, 0])
        slack = slack_of(counts, at.price, table, sums)
        worth = float(comm.total(market.worth.sum()))
        return Found(at.copy(), counts, worth, float(bonus.sums[counts].sum()), slack), demand

    here, demand = look(start.copy(), moving=False)
    stay, best, at, step = here, here, here.at.copy(), 0
    limits = (NARROWEST * unit, WIDEST * rho)
    while best is stay and step < IN_VAIN * steps:
        first = step
        while here.slack > enough and step < first + steps:
            at = Standing(step_prices(at.price, demand, table, limits, windows, paces, sides), at.scale)
            here, demand = look(at, moving=step - first < RESTLESS * steps)
            best = max(best, here, key=lambda found: found.value(rho))
            step += 1
        if here.slack > enough or here.unshown:
            at = Standing(auction(market, here, table, unit), at.scale)
            here, demand = look(at, moving=False)
            best = max(best, here, key=lambda found: found.value(rho))
        # lists as good as those of the start, within the tolerance, that are nearer to the optimum of their scales
        if best is stay and here.slack < stay.slack and here.value(rho) >= stay.value(rho) - enough:
            best = here
        if here.slack <= enough:
            break
    gap = max(0.0, best.slack) / (unit * n_shown)
    return Prices(rho, best.at, gap, gap <= tolerance, step, best.worth, best.bonus)


def auction(market: Market, shown: Found, table: Array, unit: float) -> Array:
    """Prices at which items that want to be shown more are taken by the users who come nearest, each in its turn.

    Steps move all prices at once, so they settle only where many users stand at every price. What is shown to few is
    auctioned: one that had to go for another bids next (`bid_in_turn`). The lists must be those that the market gave
    last. Prices only fall, so at the end some may be lower than they need be.
    """
    from divmf.kernels.prices import bid_in_turn, scores_of

    price, scale, tables = shown.at.price.copy(), shown.at.scale, (market.vectors, market.item_vectors)
    place, items = comm.place(len(market.lists)), np.arange(len(price))[:, None]
    # the nearest users of each item, and some; whoever has a list that is not full has all there is
    nearness = (market.item_vectors, market.vectors * scale[:, None], -np.minimum(market.ends, 1e30))
    bidders, _ = recommend(MF(*map(torch.from_numpy, nearness)), market.by_item, min(BIDDERS + SPARE, len(scale)))
    bidders = np.where(np.isfinite(market.ends)[bidders], bidders, -1)
    # added up one by one, as lists are: the last digits decide between bids
    near = scores_of(bidders, np.broadcast_to(items, bidders.shape), *tables)
    ahead = np.where(bidders >= 0, scale[bidders] * near - market.ends[bidders], -np.inf)
    # of all processes' the same as one would find
    near = np.concatenate(comm.gathered_columns(ahead), axis=1)
    who = np.concatenate(comm.gathered_columns(np.where(bidders >= 0, bidders + place.first, -1)), axis=1)
    best = np.lexsort((who, -near), axis=1)[:, :BIDDERS]
    near, who = np.take_along_axis(near, best, axis=1), np.take_along_axis(who, best, axis=1)
    own = np.unique(who)
    mine = own[(own >= place.first) & (own < place.first + len(scale))] - place.first
    lists = market.lists[mine]
    values = scale[mine, None] * scores_of(np.broadcast_to(mine[:, None], lists.shape), lists, *tables) - price[lists]
    lists, values = (np.concatenate(comm.gathered_rows(rows)) for rows in (lists, values))
    bid_in_turn(
        np.searchsorted(own[own >= 0], who), near, shown.counts.copy(), lists, values.astype(np.float64), table,
        (RAISE * unit, BID, BIDS * len(price)), price,
    )  # fmt: skip
    return price


def follow(market: Market, rho: float, bonus: Bonus, before: Standing | None) -> Prices:
    """The solution for ρ from that of another ρ, at least as good as its lists are: what they would earn now."""
    return solve(market, rho, before or market.start(), bonus)
