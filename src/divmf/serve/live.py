"""Live: recommendations one request at a time, with a ledger of what was shown.

    with divmf.Live("run", catalog="items.parquet") as live:
        page = live.recommend("u1", k=10)              # counts as shown
        page = live.recommend(history=["i7", "i9"])    # somebody new
        live.event("u1", page.items[0].item, "click")  # in the history at once
        live.exposure()["coverage"]

Several of them, in one process or in many, share a store: each counts its own showings at once and takes those of the
others in whenever it looks (`sync`). What is asked for a capacity is decided by the store, so it is exact.
"""

import asyncio
import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import polars as pl

from divmf.market.rules import Rules
from divmf.serve.engine import MOST_K, Engine, Options, Query
from divmf.serve.pages import Attempt, Basis, Full, Line, Recommendation
from divmf.serve.report import exposure_of, item_of
from divmf.serve.ruling import tables_of, told_of
from divmf.serve.shared import Shared, run_key
from divmf.serve.store import Document, Event, Outcome, Showing, Snapshot, Store
from divmf.serve.stores import open_store
from divmf.serve.writer import Writer

log = logging.getLogger(__name__)

TRIES = 20  # lists that are made anew because other workers took the last seat of an item
TOO_MANY = "other workers took the last seats of items again and again; ask once more"


class Live:
    """A run folder as a service: answers requests, keeps the ledger, follows the other workers of its store.

    Args:
        run: A run folder with a picked point, as `divmf pick` leaves it.
        store: Where showings are kept (`divmf.serve.stores`); sqlite:///RUN.live.sqlite, if not given.
        horizon: Requests over which exposure is shared out; as many as the run has users, if not given.
        catalog: A file or frame with titles and attributes of items: item_id, title, …
        rules: What pages keep (`divmf.Rules`); those that the run was trained with, if not given.
        group: An attribute of the catalog whose values are watched; refused where there is no such one.
    """

    def __init__(
        self, run: str | Path, *, store: str | Store | None = None, horizon: int | None = None,
        catalog: str | Path | pl.DataFrame | None = None, rules: Rules | None = None, group: str | None = None,
    ) -> None:  # fmt: skip
        options, folder = Options(horizon, catalog, rules, group), Path(run)
        url = store or f"sqlite:///{os.fspath(folder).rstrip('/')}.live.sqlite"
        engine = Engine(folder, options)  # what cannot be served leaves no store behind
        self.store = open_store(url) if isinstance(url, str) else url
        try:
            self.shared = Shared(folder, engine, self.store)
        except BaseException:
            self.store.close()
            raise
        self.lock, self.worker, self._writer = self.shared.lock, self.shared.worker, Writer(self.store)

    @property
    def engine(self) -> Engine:
        """Model, catalog and ledger as they are now."""
        return self.shared.engine

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Write what waits and a snapshot; let go of the store."""
        if not self._writer.closed:
            try:
                self.snapshot()
            except RuntimeError as error:
                log.warning("no snapshot was kept: %s; the log has all that is needed", error)
            self._writer.close()
            self.store.close()

    # one request

    def recommend(
        self, user: int | str | None = None, *, history: Sequence[int | str] = (), k: int | None = None,
        exclude: Sequence[int | str] = (), where: Mapping[str, str | Sequence[str]] | None = None,
        accuracy: float = 0.0, dry_run: bool = False,
    ) -> Recommendation:  # fmt: skip
        """The best page for somebody now; it counts as shown unless dry_run says otherwise.

        Args:
            user: An id; of the training, or one of whom events were told, or any other.
            history: Items that the person met, instead of, or beside, what is known.
            k: The length of the page; that of the run, if not given.
            exclude: Items that must not be in the list.
            where: Attributes that items must have.
            accuracy: How little this page may give up: 0, discounts count in full; 1, they do not count.
            dry_run: Only look; nothing is counted.

        Returns:
            The items with their titles, scores and discounts, and what the page rests on.
        """
        query, basis = self.query(user, history, k, exclude, where, accuracy)
        person = None if user is None else str(user)
        for _ in range(TRIES):
            made = self.attempt(query, person, dry_run)
            if made.done is None:
                return self.told(made, basis)
            outcome = self._result(made)
            if self.kept(made, outcome):
                return self.told(made, basis)
            if outcome.stale:
                self.follow_rules()
        raise Full(TOO_MANY)

    async def arecommend(self, query: Query, basis: Basis, person: str | None, dry_run: bool) -> Recommendation:
        """As `recommend`, for an event loop: it waits for the store without holding up others."""
        for _ in range(TRIES):
            made = self.attempt(query, person, dry_run)
            if made.done is None:
                return self.told(made, basis)
            try:
                (outcome,) = await asyncio.wrap_future(made.done)
            except RuntimeError:
                self.take_back(made)
                raise
            if self.kept(made, outcome):
                return self.told(made, basis)
            if outcome.stale:
                await asyncio.to_thread(self.follow_rules)
        raise Full(TOO_MANY)

    def follow_rules(self) -> None:
        """Other rules hold now: take them up."""
        before = self.shared.version
        self.sync()
        if self.shared.version == before:
            self.shared.check_own()

    def query(
        self, user: int | str | None = None, history: Sequence[int | str] = (), k: int | None = None,
        exclude: Sequence[int | str] = (), where: Mapping[str, str | Sequence[str]] | None = None,
        accuracy: float = 0.0,
    ) -> tuple[Query, Basis]:  # fmt: skip
        """A request as numbers, and what it rests on; refuses what cannot be."""
        with self.lock:
            met = [] if user is None else self.shared.met_by(str(self.engine.users.key(user, "user")))
            return self.engine.query(user, history, k, exclude, where, accuracy, met)

    def attempt(self, query: Query, person: str | None, dry_run: bool) -> Attempt:
        """The best page now; unless it is a dry run, counted, and on its way to the store."""
        with self.lock:
            page, taste = self.engine.answer(query)
            if dry_run or not len(page.items):
                return Attempt(page, taste, None, None)
            self.engine.count(page, taste)
            row = self.shared.row_of(page.items, person)
            return Attempt(page, taste, row, self._writer.submit([row]))

    def _result(self, made: Attempt) -> Outcome:
        assert made.done is not None
        try:
            return made.done.result()[0]
        except RuntimeError:
            self.take_back(made)
            raise

    def take_back(self, made: Attempt) -> None:
        """A page was not shown after all."""
        assert made.row is not None
        with self.lock:
            self.shared.uncount(made.row)

    def kept(self, made: Attempt, outcome: Outcome) -> bool:
        """Whether the store took a page; if an item was full, it is taken back, and the item is known to be full."""
        assert made.row is not None
        with self.lock:
            if outcome.kept:
                self.shared.latest.append(made.row)
                return True
            self.shared.uncount(made.row)
            self.shared.refused = True
            for name in outcome.over:
                self.engine.set_full(name)
            for number in self.shared.numbers_of(outcome.full):
                self.engine.ledger.set_full(int(number))
            return False

    def told(self, made: Attempt, basis: Basis) -> Recommendation:
        """A page in the words of the outside."""
        catalog, page = self.engine.catalog, made.page
        lines = tuple(
            Line(catalog.names.ids[item], catalog.title(item), value / made.taste.weight, discount)
            for item, value, discount in zip(
                page.items.tolist(), page.values.tolist(), page.discounts.tolist(), strict=True
            )
        )
        return Recommendation(lines, basis.kind, made.row is not None, basis.unknown)

    # what happens elsewhere

    def showing(
        self, items: Sequence[int | str], user: int | str | None = None, request: str | None = None
    ) -> "Future[list[Outcome]]":
        """Have a page that was rendered elsewhere counted; see `shown`."""
        if not 1 <= len(items) <= MOST_K or len(set(map(str, items))) < len(items):
            raise ValueError(f"items must name 1 to {MOST_K} items, each once; {len(items)} given")
        with self.lock:
            numbers = [self.engine.items.number(each, "items") for each in items]
            if None in numbers:
                raise ValueError(f"items: there is no item {str(items[numbers.index(None)])[:200]!r}; add it first")
            person = None if user is None else str(self.engine.users.key(user, "user"))
            return self._writer.submit([self.shared.row_of(np.array(numbers, dtype=np.int64), person, request)])

    def rendered(self, items: Sequence[int | str], user: int | str | None, outcome: Outcome) -> bool:
        """Count a page that the store took; whether it was new."""
        if outcome.full:
            raise Full(f"items: {outcome.full[0]!r} is at its capacity and may not be shown any more")
        if outcome.over:
            raise Full(f"items: {outcome.over[0]} is at its cap and may not be shown any more now")
        if outcome.repeated:
            return False
        with self.lock:
            texts = self.shared.texts(np.array(self.engine.known_items(items, "items"), dtype=np.int64))
            self.shared.count(Showing(texts, None if user is None else str(user), time.time(), self.worker))
        return True

    def shown(self, items: Sequence[int | str], user: int | str | None = None, request: str | None = None) -> bool:
        """Count a page that was rendered elsewhere.

        Args:
            items: The ids of its items, in order.
            user: Who was shown it.
            request: A name of the caller's; the same name is counted once.

        Returns:
            Whether it was new.
        """
        outcome = self.showing(items, user, request).result()[0]
        if outcome.stale:
            self.follow_rules()
            outcome = self.showing(items, user, request).result()[0]
        return self.rendered(items, user, outcome)

    def events(self, events: Sequence[tuple[int | str, int | str, str]]) -> "Future[list[Outcome]]":
        """Somebody met items: (user, item, kind), into the histories at once, and into the log."""
        with self.lock:
            users, items = self.engine.users, self.engine.items
            now = time.time()
            made = [
                Event(str(users.key(user, "user")), str(items.key(item, "item")), kind, now, self.worker)
                for user, item, kind in events
            ]
            self.shared.learn(made)
        return self._writer.submit(list(made))

    def event(self, user: int | str, item: int | str, kind: str = "click") -> None:
        """Somebody met an item; it is kept when this returns.

        Args:
            user: Who.
            item: What.
            kind: How, such as "click" or "purchase".
        """
        self.events([(user, item, kind)]).result()

    def describing(self, items: Sequence[Mapping[str, Any]]) -> "Future[list[Outcome]]":
        """Have items added or changed; see `put_items`."""
        with self.lock:
            self.engine.catalog.check_columns({name for item in items for name in item.get("attributes") or ()})
            documents = [self.shared.document_of(item) for item in items]
            self.shared.take_items(documents)
        return self._writer.submit(list(documents))

    def put_items(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Add items, or change them.

        Args:
            items: Each a mapping with `item`, its id, and of these what is to be set: `title`; `attributes`, what it is
                filtered by; `similar`, ids of items that a new one is like (the mean of all, if not given);
                `capacity`, in how many lists it may be, counted since the store began (−1 any number, 0 none);
                `share`, how many times its even share of the exposure it may expect.
        """
        self.describing(items).result()

    def ruling(self, rules: Rules | Mapping[str, Any] | None) -> "Future[list[Outcome]]":
        """Have other rules kept from now on; see `set_rules`."""
        tables = tables_of(rules) if isinstance(rules, Rules) else rules
        return self.shared.change_rules(None if tables is None else dict(tables), self._writer.submit)

    def set_rules(self, rules: Rules | Mapping[str, Any] | None) -> None:
        """Keep other rules from now on, here and in all workers.

        Args:
            rules: Rules, or the tables of rules.toml; {} for none, None for those of the start again.
        """
        self.ruling(rules).result()

    def rules(self) -> dict[str, Any]:
        """The rules that hold: how they were set, and what each total was promised and given."""
        with self.lock:
            totals, tables = self.engine.totals, self.shared.rules
            told = {"set": tables, "from": "request" if tables is not None else "start" if totals else "none"}
            if totals is None:
                return told | {"impossible": [], "totals": [], "n_totals": 0}
            rows, bound = told_of(totals), totals.bound
            return told | {"impossible": list(bound.impossible), "totals": rows, "n_totals": bound.n_totals}

    # what one wants to know

    def exposure(self, group: str | None = None) -> dict[str, Any]:
        """How showings are shared out over the last horizons.

        Args:
            group: A column of the catalog, for the shares of its values.

        Returns:
            Coverage, Gini, Lorenz curve, items starved, drift.
        """
        with self.lock:
            return exposure_of(self.engine, group) | {"waiting": self._writer.waiting}

    def item(self, item: int | str) -> dict[str, Any]:
        """What is known of an item.

        Args:
            item: Its id.

        Returns:
            How often it was shown, to whom of late, at what discount, and what would give it more.
        """
        with self.lock:
            number = self.engine.items.number(item, "item")
            if number is None:
                raise KeyError(f"there is no item {str(item)[:200]!r}")
            return item_of(self.engine, number, self.shared.latest)

    def search(self, text: str, limit: int = 20) -> list[dict[str, Any]]:
        """Items by a part of their id or title.

        Args:
            text: That part.
            limit: How many at the most.

        Returns:
            Id, title and number of showings of each.
        """
        with self.lock:
            ledger, catalog = self.engine.ledger, self.engine.catalog
            found, ids = catalog.search(text, limit), catalog.names.ids
            return [{"item": ids[i], "title": catalog.title(i), "shown": int(ledger.shown[i])} for i in found]

    # the operating point, newer runs, other workers

    def set_point(self, epoch: int) -> "Future[list[Outcome]]":
        """Go on at another point of the curve, here and in all workers; discounts are blended over.

        Args:
            epoch: The number of the point; 0 is the model before diversifying.

        Returns:
            A future that is done when the store has it.
        """
        with self.lock:
            self.engine.move_to(self.engine.point_at(epoch))
            text = json.dumps({"epoch": epoch, "run": run_key(self.engine)})
        return self._writer.submit([Document("setting", "point", text)])

    def reload(self) -> "Future[list[Outcome]]":
        """Take the run folder in again, as it is now: a newer model, another pick; the other workers follow."""
        self.shared.reopen()
        text = json.dumps({"at": time.time(), "by": self.worker})
        return self._writer.submit([Document("setting", "reload", text)])

    def sync(self) -> int:
        """Take in what other workers have done since; how many showings there were."""
        return self.shared.sync()

    def snapshot(self) -> None:
        """Keep the ledger in the store, so that a start need not play the whole log."""
        self.shared.refused = True  # compare totals with the store's
        self.sync()
        with self.lock:
            done = self._writer.submit([Snapshot(self.shared.packed())])
        done.result()
        self.shared.prune()

    @property
    def behind(self) -> float:
        """Seconds since this worker last took in what others did."""
        return time.monotonic() - self.shared.synced
