"""Exposure prices: lists of a trained model in which showing an item earns the more, the less it is shown.

The (x+1)-th list that shows an item earns a bonus of ρ·b(x), b(x) = log(1 + c/(x + δ)) + w·(share of items shown more
than x times), up to a factor. The best lists with it solve

    max  Σ_lists r̂_ui + ρ Σ_i B(f_i),   B(f) = Σ_{x<f} b(x),

f_i the number of lists with item i. The logarithm is, for items shown less than c times, the entropy of the exposure
as Boltzmann counted it, −Σ log f_i!; for those shown more it fades, and they stay as popular as they are. The other
part is what a showing adds to the evenness of all, N/2·(1 − Gini) for N places; who is shown more is read off lists at
hand, and every solution is then at least as good as they are (`Bonus.counted_from`).
That is a concave matching problem, and its optimum has a price p_i for each item at which every user, on their own,
asks for just that list: the top k of r̂_ui − p_i, with −p_i between the bonus of the last showing and that of the next.
See docs/method.md.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import gammaln

from divmf import comm
from divmf.ids import Array
from divmf.model import MF
from divmf.threads import in_parts
from divmf.topk import blocks, recommend

WIDTH = 64  # candidates kept for each user, beyond k, between passes over all items
ROUNDS = 256  # passes remembered; after that everybody's candidates are found anew
CLOSE = 1e-5  # two ways to multiply out a score agree to this, relatively
TOLERANCE = 0.01  # by how many ρ per recommendation the lists may at most be below the best ones
PATIENCE = 30  # steps that bring neither better lists nor a better bound before it gives up
# the pace of a price: it slows down where it passed its goal, and speeds up where it did not
DOWN, UP, PACES, FIRST_PACE = 0.5, 1.2, (0.005, 1.0), 0.1
# and the longest step it may take, in spreads of a user's scores, likewise, but it lengthens more slowly: where users
# want much the same, a step too long makes all of them come or go at once
LENGTHEN, LEASHES, FIRST_LEASH = 1.05, (0.0001, 1.0), 0.05
# items that nobody is shown: how many may be offered one by one, how often, and in steps of how many ρ
FEW, OFFERS, RAISE = 256, 10, 0.025
NEAR = 1 / 2  # how far from the end of a list demand is counted, in spreads of a user's scores
WARM = 0.6  # discounts grow more slowly than ρ, since what is shown more earns less: about as this power of it


class Market:
    """The lists of one model at any prices.

    Remembers candidates: prices that moved little change few lists, and those cannot leave the candidates as long as
    the k-th of them stands higher than any other item did, plus what any price has fallen since.
    """

    def __init__(self, model: MF, seen: sparse.csr_array, k: int) -> None:
        self.model, self.seen, self.k = model, seen, k
        self.width = min(model.n_items, k + WIDTH)
        tables = (model.users, model.items, model.bias)
        self.vectors = tuple(np.ascontiguousarray(table.detach().cpu().numpy()) for table in tables)
        n_users = model.n_users
        self.items = np.full((n_users, self.width), -1, dtype=np.int32)
        self.scores = np.zeros((n_users, self.width), dtype=np.float32)
        self.limit = np.full(n_users, np.inf, dtype=np.float32)  # nothing is certain yet
        self.found_in = np.zeros(n_users, dtype=np.int32)
        self.rounds: list[Array] = []
        self.lists = np.full((n_users, k), -1, dtype=np.int32)
        self.worth = np.zeros(n_users)
        self.close = np.zeros(model.n_items, dtype=np.int64)
        self.n_users = comm.place(n_users).whole  # of all processes: each visits its own

    def visit(self, price: Array, near: float = 0.0) -> tuple[Array, float]:
        """Everybody's lists at these prices: f, and the sum of the scores before prices.

        near: how far from the end of a list items are counted in `close`
        """
        self.close = np.zeros(self.model.n_items, dtype=np.int64)
        everybody = np.arange(len(self.lists))
        if len(self.rounds) == ROUNDS:
            self.rounds = []
        uncertain = self.reprice(everybody, price, near) if self.rounds else everybody
        if len(uncertain):
            self.search(uncertain, price)
            self.reprice(uncertain, price, near, fresh=True)
        counts = np.bincount(self.lists[self.lists >= 0], minlength=self.model.n_items)
        comm.add_up(counts)
        comm.add_up(self.close)
        return counts, float(comm.total(self.worth.sum()))

    def reprice(self, users: Array, price: Array, near: float, fresh: bool = False) -> Array:
        """These users' lists from their candidates; those whose list may not be among them.

        fresh: the candidates are of these very prices, so that nobody's can
        """
        from divmf.kernels.prices import reprice_part

        certain = np.zeros(len(users), dtype=np.bool_)
        fall = np.array([(then - price).max() for then in self.rounds], dtype=np.float32)
        margins = fall + np.float32(CLOSE * np.abs(price).max(initial=1.0))

        def part(first: int, last: int) -> Array:
            close = np.zeros(self.model.n_items, dtype=np.int32)
            reprice_part(
                users, self.items, self.scores, self.limit, self.found_in, margins, price, first, last, near,
                fresh, self.lists, self.worth, certain, close,
            )  # fmt: skip
            return close

        self.close += np.sum(in_parts(part, len(users), 4 * self.model.n_items), axis=0)
        return users[~certain]

    def search(self, users: Array, price: Array) -> None:
        """Find the candidates of these users among all items."""
        from divmf.kernels.prices import keep_part

        self.rounds.append(price)
        bias = self.model.bias - self.model.bias.new_tensor(price)
        found, scores = recommend(MF(self.model.users, self.model.items, bias), self.seen, self.width, users)
        turn, (vectors, item_vectors, model_bias) = len(self.rounds) - 1, self.vectors
        in_parts(
            lambda first, last: keep_part(
                users, vectors, item_vectors, model_bias, found, scores, turn, first, last,
                self.items, self.scores, self.limit, self.found_in,
            ),
            len(users),
        )  # fmt: skip

    @cached_property
    def spread(self) -> float:
        """How far a user's best score lies above the last candidate's, on average: the unit that ρ is measured in."""
        self.rounds = []  # the candidates without prices, whatever was looked at before
        self.visit(np.zeros(self.model.n_items, dtype=np.float32))
        listed = self.items >= 0
        highest = np.where(listed, self.scores, -np.inf).max(axis=1)
        lowest = np.where(listed, self.scores, np.inf).min(axis=1)
        found = (highest - lowest)[listed.any(axis=1)]
        total, counted = comm.total([found.sum(dtype=np.float64), len(found)])
        return float(total / counted) if counted else 0.0


@dataclass(frozen=True, eq=False)
class Bonus:
    """What showing an item is worth, in units of ρ.

    delta     δ: the smaller, the more the first showing is worth
    level     c: the exposure at which the logarithm begins to fade
    evenness  w: what evenness counts beside it
    shown     how often items are shown in the lists that evenness is counted from, sorted; nothing: as if nowhere
    """

    delta: float = 1e-4
    level: float = 5.0
    evenness: float = 0.0
    shown: Array = field(default_factory=lambda: np.zeros(1, dtype=np.int64))

    def counted_from(self, counts: Array) -> "Bonus":
        """Evenness as these lists have it.

        With g_i showings there, B holds Σ_i Σ_j min(f_i, g_j)/n. The evenness itself is ½ Σ_i Σ_j min(f_i, f_j)/n, and
        grows from g to f at least as much as B does: a sum of squares of m_x, how many are shown more than x times,
        above its tangent at g. So whatever is better with this bonus is better with evenness as it will be then.
        """
        return replace(self, shown=np.sort(counts))

    def next(self, shown: Array) -> Array:
        """b(x): what one more showing of an item shown x times is worth."""
        above = 1 - np.searchsorted(self.shown, shown, side="right") / len(self.shown)
        return np.asarray((np.log1p(self.level / (shown + self.delta)) + self.evenness * above) / self.unit)

    def total(self, shown: Array) -> Array:
        """B(f) = Σ_{x<f} b(x)."""
        floats, delta, level = shown.astype(np.float64), self.delta, self.level
        gained = gammaln(floats + delta + level) - gammaln(delta + level) - gammaln(floats + delta) + gammaln(delta)
        up_to = np.searchsorted(self.shown, shown, side="right")  # Σ_j min(f, g_j): those below whole, the others to f
        smaller = self.sums[up_to] + floats * (len(self.shown) - up_to)
        return np.asarray((gained + self.evenness * smaller / len(self.shown)) / self.unit)

    def wanted(self, price: Array, most: int) -> Array:
        """How often an item would be shown that pays a price for every showing: while the bonus is worth more."""
        with np.errstate(divide="ignore", over="ignore"):
            by_logarithm = np.ceil(self.level / np.expm1(price * self.unit) - self.delta)
        within = len(self.table) - np.searchsorted(self.table[::-1], price, side="right")
        beyond = np.clip(by_logarithm - len(self.table), 0, None)  # where no item is shown more, that alone counts
        return np.where(price > 0, np.clip(within + beyond, 0, most), most)

    @property
    def unit(self) -> float:
        """What b is divided by, so that ρ means much the same whatever evenness counts."""
        return 1 + self.evenness / 4

    @cached_property
    def sums(self) -> Array:
        """Of the showings of the items shown least, ever more of them."""
        return np.concatenate([[0.0], np.cumsum(self.shown, dtype=np.float64)])

    @cached_property
    def table(self) -> Array:
        """b(x) for as long as some item is shown more than x times: it falls."""
        return self.next(np.arange(int(self.shown[-1])))


@dataclass(frozen=True, eq=False)
class Prices:
    """What was found for one ρ.

    price         p_i, at most 0: a discount.  (n_items,) float32
    gap           proven: with this bonus no lists are better by more than this, in units of ρ, per recommendation
    converged     whether lists were found within the tolerance; those taken may be as far from these, to show more
    score, bonus  Σ_lists r̂_ui and Σ_i B(f_i) of the lists
    """

    rho: float
    price: Array
    gap: float
    converged: bool
    iterations: int
    score: float
    bonus: float


def solve(
    market: Market, rho: float, start: Array, bonus: Bonus, tolerance: float = TOLERANCE, iterations: int = 100,
    also: Array | None = None,
) -> Prices:  # fmt: skip
    """The prices for ρ: steps from a start towards the bonus of the next showing, until the lists are proven good.

    Any prices bound what can be reached (the dual), and any lists reach something (the primal); the gap between the
    lowest bound and the best lists is what is left to gain.
    also: prices whose lists are looked at too, so that the answer is at least as good as they are, up to the tolerance
    """
    spread = market.spread or rho  # a model may know nothing and have none
    near = min(rho, NEAR * spread)
    market.rounds = []  # what is `close` depends on the candidates: they must not depend on what was solved before
    n_shown = max(1, market.n_users * market.k)
    enough = tolerance * rho * n_shown
    reached, bound, found = -np.inf, np.inf, Found(start)
    least, least_at = np.inf, 0
    price, before = start, np.zeros(len(start))
    pace, leash = np.full(len(start), FIRST_PACE), np.full(len(start), FIRST_LEASH)

    def look(at: Array) -> tuple[Array, Found]:
        """The lists at some prices, and what they say of the optimum."""
        nonlocal reached, bound, found
        counts, score = market.visit(at, near=near)
        here = Found(at, score, float(bonus.total(counts).sum()), bool(counts.min(initial=1) > 0))
        value = here.value(rho)
        if value > reached:
            reached, found = value, here
        bound = min(bound, value + slack(counts, at, rho, bonus, market.n_users))
        return counts, here

    def auction(begin: Array, most: float) -> Found:
        """The lists after items that nobody was shown were offered at discounts of at most so much.

        At any discount only for as long as that costs less than the tolerance.
        """
        counts, here = look(begin)
        for _ in range(OFFERS):
            if here.whole or (np.isinf(most) and here.value(rho) < reached - enough):
                break
            offer = offered(market, here.price, counts, rho, most)
            if offer is None:
                break
            counts, here = look(offer)
        return here

    if also is not None:
        look(also)
    for step in range(iterations):
        counts, _ = look(price)
        if bound - reached < least:
            least, least_at = bound - reached, step
        if least <= enough or step - least_at >= PATIENCE:
            break
        lowest = np.where(counts > 0, -rho * bonus.next(np.maximum(counts - 1, 0)), -np.inf)
        miss = np.clip(price, lowest, -rho * bonus.next(counts)) - price
        passed = miss * before < 0
        pace = np.clip(pace * np.where(passed, DOWN, UP), *PACES)
        leash = np.clip(leash * np.where(passed, DOWN, LENGTHEN), *LEASHES)
        before = np.where(miss != 0, miss, before)
        # of the users who have the item close to their list's end, half would drop it if its price rose by `near`: the
        # more of them there are for what a showing changes of the bonus, the shorter the step to where both meet
        demand = market.close / (2 * near) * rho * (bonus.next(counts) - bonus.next(counts + 1))
        price = (price + np.clip(pace * miss / (1 + demand), -leash * spread, leash * spread)).astype(np.float32)
    first = rho * float(bonus.next(np.zeros(1))[0])
    auction(price, first)  # the last lists may be better but for an item that they lost
    # of lists that are as good, within the tolerance, those that show all there is
    whole = auction(found.price, np.inf)
    if whole.whole and whole.value(rho) >= reached - enough:
        found = whole
    gap = max(0.0, bound - found.value(rho)) / (rho * n_shown)
    return Prices(rho, found.price, gap, bound - reached <= enough, step + 1, found.score, found.bonus)


class Found(NamedTuple):
    """Prices that were looked at: Σ_lists r̂_ui and Σ_i B(f_i) of their lists, and whether these show every item."""

    price: Array
    score: float = 0.0
    bonus: float = 0.0
    whole: bool = False

    def value(self, rho: float) -> float:
        """What the lists are worth."""
        return self.score + rho * self.bonus


def offered(market: Market, price: Array, counts: Array, rho: float, most: float) -> Array | None:
    """The prices, but those of items that nobody is shown at what the user who comes nearest would take them for.

    Steps leave such items for last, since a few of them are within the tolerance; but coverage is what people look at.
    An item that goes for them, and was shown once, is offered next time: an auction. None where nothing is to be
    offered, or too much.
    counts: f of the lists at these prices, which must be those that the market gave last
    most: the largest discount that may be given
    """
    items = np.flatnonzero(counts == 0)
    if not 0 < len(items) <= FEW:
        return None
    nearest = np.full(len(items), -np.inf)
    users, vectors, bias = market.vectors
    met = market.seen[:, items]
    for rows in blocks(len(users), market.k * vectors.shape[1]):
        lists = market.lists[rows]
        scores = np.einsum("ud,ukd->uk", users[rows], vectors[lists]) + bias[lists] - price[lists]
        # whoever has a list that is not full has all there is
        end = np.where(lists.min(axis=1) >= 0, scores.min(axis=1), np.inf)
        ahead = users[rows] @ vectors[items].T + bias[items] - end[:, None]
        ahead[met[rows].nonzero()] = -np.inf
        nearest = np.maximum(nearest, ahead.max(axis=0, initial=-np.inf))
    nearest = np.max(comm.gathered(nearest), axis=0)
    # in whole steps, so that the last digits of scores, which blocks of another size may change, do not matter
    taken = (np.floor(nearest / (RAISE * rho)) - 1) * RAISE * rho
    pays = -taken < most
    if not pays.any():
        return None
    changed = price.copy()
    changed[items[pays]] = np.minimum(price[items], taken)[pays]
    return changed


def slack(counts: Array, price: Array, rho: float, bonus: Bonus, most: int) -> float:
    """Dual minus primal value of the best lists at prices p: Σ_i max_{x ≤ most} (p x + ρB(x)) − (p f + ρB(f)) ≥ 0."""
    exact = price.astype(np.float64)
    wanted = bonus.wanted(-exact / rho, most)  # the x of the maximum
    return float((exact * (wanted - counts) + rho * (bonus.total(wanted) - bonus.total(counts))).sum())


def follow(market: Market, rho: float, bonus: Bonus, before: tuple[float, Array] | None) -> Prices:
    """The solution for ρ from that of another ρ, at least as good as its lists are: what they would earn now."""
    last_rho, price = before or (rho, np.zeros(market.model.n_items, dtype=np.float32))
    start = price * (rho / last_rho) ** WARM
    bonus = bonus.counted_from(market.visit(price)[0])
    return solve(market, rho, start.astype(np.float32), bonus, also=price if before else None)
