"""A run at one operating point, ready to answer one request after the other; it knows nothing of stores."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from divmf.engine.arrays import Array
from divmf.kernels.ledger import shown_at
from divmf.market.bound import Bound
from divmf.market.ledger import Ledger, Terms
from divmf.market.response import Page, best_response
from divmf.market.rules import Rules
from divmf.market.totals import Totals
from divmf.models.scorer import Factors
from divmf.ranking.curve import Curve, Point
from divmf.serve.catalog import Catalog, Names
from divmf.serve.pages import Basis
from divmf.serve.people import People, Taste, fitted_of
from divmf.serve.ruling import bound_now, split_discount
from divmf.train.runs import Run

MOST_K, MOST_HISTORY, MOST_EXCLUDED = 200, 1000, 10_000  # of a request
RECENT = 2048  # requests from which the discount of a new item is found
SAMPLE = 256  # users of the training who stand in for them at first
BLEND = 0.5  # how much of a newer run's discounts is taken over at once


@dataclass(frozen=True)
class Query:
    """One request, as numbers.

    person    who is known of: a user's number, or −1
    history   numbers of items, for somebody who is not known, or who has met more since
    out       numbers of items that must not be in the list, beside what was met
    accuracy  0: discounts count in full; 1: not at all
    discount  other discounts than the ledger's, for a preview
    """

    k: int
    person: int = -1
    history: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    out: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    accuracy: float = 0.0
    discount: Array | None = None


@dataclass(frozen=True)
class Options:
    """How a run is served.

    horizon   requests over which exposure is shared out; as many as the run has users, if not given
    catalog   titles and attributes of items; that of the rules, if not given
    rules     what pages keep; the rules of the run, if not given
    group     an attribute of the catalog whose values are watched; refused where there is no such one
    """

    horizon: int | None = None
    catalog: str | Path | pl.DataFrame | None = None
    rules: Rules | None = None
    group: str | None = None


class Engine:
    """Model, people, catalog and ledger of a run."""

    def __init__(self, folder: str | Path, options: Options, point: Point | None = None) -> None:
        self.run, self.options = Run.open(folder), options
        self.split, self.config = self.run.read_split(), self.run.read_config()
        self.curve: Curve = self.run.read_curve()
        self.point = self.run.read_picked() if point is None else point
        market = self.config.method == "market"
        trained = None if market else Factors.of(self.run.read_model(self.point))  # the paper's method has no discounts
        fitted = fitted_of(self.run, self.split, trained)
        self.people = People(fitted, self.split, self.config.stake if market else 0.0)
        self.users, items = Names(self.split.user_ids), Names(self.split.item_ids)
        self.n_trained = len(items)
        rules = options.rules
        self.catalog = Catalog.read(items, rules.catalog if options.catalog is None and rules else options.catalog)
        if options.group is not None and options.group not in self.catalog.columns:
            known = ", ".join(self.catalog.columns) or "none: give a catalog that has it"
            raise ValueError(f"group={options.group!r} is not an attribute of the catalog; there are {known}")
        self.ledger = Ledger(self.terms(self.point), self.discount_of(self.point))
        self.recent: list[tuple[Taste, float]] = []
        self.totals: Totals | None = None
        self.rule(*self.first_rules())

    def first_rules(self) -> tuple[Bound | None, Array | None]:
        """The rules that pages keep if no others are set, and what their totals are paid at first."""
        if self.options.rules is not None:
            return self.bound_now(self.options.rules), None
        return self.run.read_rules(), split_discount(self.run, self.point, self.config)[1]

    def bound_now(self, rules: Rules) -> Bound:
        """Rules for the items that there are now."""
        return bound_now(rules, self.catalog, self.split, self.config.k)

    def rule(self, bound: Bound | None, pay: Array | None = None) -> None:
        """Keep these rules from now on; pay: what a showing of each total is paid at first, nothing if not given."""
        self.totals, ledger = None, self.ledger
        shares = np.ones(ledger.n_items)
        if bound is not None:
            scale = ledger.terms.horizon / max(self.split.n_users, 1)
            self.totals = Totals(bound, ledger, self.people.spread or 1.0, scale)
            if pay is not None:
                self.totals.begin(pay)
            if bound.target is not None:
                shares = bound.target * len(bound.target)
        ledger.set_shares(shares)

    @property
    def items(self) -> Names:
        """The ids of items."""
        return self.catalog.names

    @property
    def epoch(self) -> int:
        """The number of the operating point; 0 is the model before diversifying."""
        return 0 if self.point.knob is None else self.point.epoch

    def point_at(self, epoch: int) -> Point:
        """The point of the curve with this number."""
        found = [point for point in self.curve.points if point.knob is not None and point.epoch == epoch]
        if not epoch:
            return self.curve.base
        if not found:
            raise ValueError(f"epoch={epoch} is not a point of this run's curve; GET /curve lists them")
        return found[0]

    def terms(self, point: Point) -> Terms:
        """What the ledger is kept by at a point of the curve."""
        rho = (point.knob or 0.0) if self.config.method == "market" else 0.0
        config = self.config
        return Terms(
            rho, config.k, self.options.horizon or self.split.n_users, config.delta, config.level, config.steepness,
            config.exposure,
        )  # fmt: skip

    def discount_of(self, point: Point) -> Array:
        """The discounts of the run at a point, for all items; new ones have the median.  (n_items,) float64

        Where the run has rules, these hold what totals were paid, too; these are the items' own.
        """
        found, _ = split_discount(self.run, point, self.config)
        return np.append(found, np.full(len(self.items) - self.n_trained, np.median(found)))

    def query(
        self, user: int | str | None, history: Sequence[int | str], k: int | None, exclude: Sequence[int | str],
        where: Mapping[str, str | Sequence[str]] | None, accuracy: float, met: Iterable[int],
    ) -> tuple[Query, Basis]:  # fmt: skip
        """A request as numbers, and what it rests on; refuses what cannot be.

        met: numbers of items that the user is known to have met since the training
        """
        k = self.config.k if k is None else k
        if not 1 <= k <= min(MOST_K, len(self.items)):
            raise ValueError(f"k={k} must be from 1 to {min(MOST_K, len(self.items))}")
        if not 0 <= accuracy <= 1:
            raise ValueError(f"accuracy={accuracy} must be from 0 to 1")
        if len(history) > MOST_HISTORY:
            raise ValueError(f"history names {len(history):,} items; give the last {MOST_HISTORY:,}")
        if len(exclude) > MOST_EXCLUDED:
            raise ValueError(f"exclude names {len(exclude):,} items; give at most {MOST_EXCLUDED:,}")
        number = None if user is None else self.users.number(user, "user")
        person = -1 if number is None else number
        met = [*self.known_items(history, "history"), *met]
        out = [np.array(self.known_items(exclude, "exclude"), dtype=np.int64)]
        if where:
            wanted = {name: [values] if isinstance(values, str) else list(values) for name, values in where.items()}
            out.append(self.catalog.left_out(wanted))
        kind = "history" if met else "user" if person >= 0 else "nothing"
        basis = Basis(kind, tuple(each for each in history if self.items.number(each, "history") is None))
        return Query(k, person, np.unique(np.array(met, dtype=np.int64)), np.concatenate(out), accuracy), basis

    def known_items(self, ids: Iterable[int | str], what: str) -> list[int]:
        """The numbers of items; ids that there are not are passed over: catalogs and histories are never in step."""
        found = (self.items.number(each, what) for each in ids)
        return [number for number in found if number is not None]

    def taste(self, query: Query) -> Taste:
        """Whose scores a request is answered by."""
        people = self.people
        if not len(query.history):
            return people.nobody if query.person < 0 else people.known_user(query.person)
        if query.person < 0:
            return people.with_history(query.history)
        return people.with_history(np.union1d(people.met_by(query.person), query.history))

    def left_out(self, query: Query) -> Array:
        """What must not be in the list: what was met, what is excluded, what is full; each once."""
        met = self.people.met_by(query.person) if query.person >= 0 else query.history[:0]
        ruled = [] if self.totals is None else [self.totals.out(self.totals.room(), query.person)]
        return np.unique(np.concatenate([met, query.history, query.out, self.ledger.full, *ruled]))

    def answer(self, query: Query) -> tuple[Page, Taste]:
        """The best list of a request; nothing is counted."""
        taste, share = self.taste(query), 1.0 - query.accuracy
        ledger, given, totals = self.ledger, query.discount, self.totals
        own = ledger.discount if given is None else given
        discount = (share * (own if totals is None else own + totals.discounts())).astype(np.float32)

        def settled(items: Array) -> Array:
            own = ledger.at(items) if given is None else given[items]
            return np.asarray(share * (own if totals is None else own + totals.discounts(items)))

        page = best_response(
            self.people.scores(taste), taste.weight, self.left_out(query), discount, settled, query.k,
            ledger.exposures(query.k), None if totals is None else totals.within(totals.room(), query.k),
        )  # fmt: skip
        return page, taste

    def count(self, page: Page, taste: Taste) -> None:
        """The page is shown."""
        if not len(page.items):
            return
        self.shown(page.items)
        if len(self.recent) < RECENT:
            self.recent.append((taste, page.bar))
        else:
            self.recent[self.ledger.requests % RECENT] = (taste, page.bar)

    def shown(self, items: Array, sign: int = 1) -> None:
        """Count a page in the ledger and in the totals of rules; sign −1: it was not shown after all."""
        (self.ledger.count if sign > 0 else self.ledger.uncount)(items)
        if self.totals is not None:
            self.totals.count(items, self.ledger, sign)

    def set_full(self, name: str) -> None:
        """A total of rules was found to be full."""
        if self.totals is not None:
            self.totals.set_full(name)

    def add_items(self, keys: list[int | str], similar: list[Array], shares: Array) -> None:
        """New items, each like some others, at the discounts of their shares."""
        self.people = self.people.with_items(similar)
        for key in keys:
            self.catalog.add(key, None, {})
        first = self.ledger.n_items
        numbers = np.arange(first, first + len(keys))
        self.ledger.enter(shares)
        if self.totals is not None:
            self.totals.enter(len(keys))
        self.ledger.start[numbers] = discounts = self.entering(numbers)
        self.ledger.expect(numbers, discounts)
        self.ledger.at(numbers)

    def entering(self, numbers: Array) -> Array:
        """The discount of new items at which recent requests would have shown them at their pace.  (items,)

        The least discount at which a request shows an item is what the list asked for beyond the item's own value; the
        higher the discount, the more requests take the item, and the fewer showings are worth it.
        """
        rho = self.ledger.pace.rho
        if not rho:
            return np.zeros(len(numbers))
        recent = self.recent if len(self.recent) >= SAMPLE else [*self.recent, *self._yesterday()]
        bars = np.array([bar for _, bar in recent])
        least = bars[:, None] - self.people.values([taste for taste, _ in recent], numbers)
        least.sort(axis=0)
        found = np.empty(len(numbers))
        for column, item in enumerate(numbers):
            low, high = 0.0, self.ledger.highest(int(item))
            for _ in range(50):
                middle = (low + high) / 2
                taken = np.searchsorted(least[:, column], middle) / len(bars)
                if taken < shown_at(middle, self.ledger.levels[item], self.ledger.pace) / self.ledger.pace.horizon:
                    low = middle
                else:
                    high = middle
            found[column] = high
        return found

    def _yesterday(self) -> list[tuple[Taste, float]]:
        """Users of the training with what their lists ask for now, while there were few requests."""
        count = min(SAMPLE, len(self.users))
        users = np.linspace(0, len(self.users) - 1, count).astype(np.int64)
        found = []
        for user in users:
            page, taste = self.answer(Query(self.config.k, int(user)))
            found.append((taste, page.bar))
        return found

    def numbers_in(self, other: "Engine") -> Array:
        """The number that each of these items has in another engine, −1 for those that are gone."""
        found = (other.items.number(key, "item") for key in self.items.ids)
        return np.array([-1 if number is None else number for number in found], dtype=np.int64)

    def move_to(self, point: Point) -> None:
        """Go on at another point of the curve; discounts are those of the point, blended with the present ones."""
        if self.config.method != "market":
            raise ValueError(
                f"this run was made by {self.config.method!r}; only the market's runs have points to move to"
            )
        same = np.arange(self.ledger.n_items)
        self.go_on(self.ledger.blended(self.terms(point), self.discount_of(point), same, BLEND))
        self.point = point

    def go_on(self, ledger: Ledger) -> None:
        """Take over a ledger; what totals are paid, and what they were given, stays."""
        self.ledger, self.recent = ledger, []
        if self.totals is not None:
            self.totals = self.totals.moved(ledger)
