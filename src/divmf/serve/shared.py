"""What a worker shares with others by way of the store: it takes up what is there, then follows what the others do."""

import hashlib
import json
import logging
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from safetensors.numpy import load as unpack
from safetensors.numpy import save as pack

from divmf.engine.arrays import Array
from divmf.market.totals import Totals
from divmf.serve.engine import BLEND, Engine
from divmf.serve.ruling import limits_of, rules_of
from divmf.serve.store import Document, Entry, Event, Outcome, Showing, Store, StoreDown

log = logging.getLogger(__name__)

LATEST = 500  # showings that the studio can look back on
KEPT_ROWS = 100_000  # showings that stay in the log behind the last snapshot
MOST_MET = 1000  # items of a history: the latest
MOST_PEOPLE = 200_000  # whose histories are kept at hand: those who met something last
LAST_EVENTS = 200_000  # from which histories are made at a start
FIELDS = ("item", "title", "attributes", "similar", "capacity", "share")
LONGEST_TITLE, MOST_SHARES = 500, 1000


class Shared:
    """The engine of one worker, and how far it has read the store.

    lock        whoever reads or changes the engine holds it
    latest      the last showings, of all workers
    histories   what people met since the training, ids as text: of those who did last, the last each
    """

    def __init__(self, folder: Path, engine: Engine, store: Store) -> None:
        self.folder, self.store, self.engine = folder, store, engine
        self.worker = f"{os.getpid()}-{uuid4().hex[:8]}"
        self.lock = threading.RLock()
        self.latest: deque[Showing] = deque(maxlen=LATEST)
        self.histories: OrderedDict[str, dict[str, None]] = OrderedDict()
        self.described: dict[str, Document] = {}  # items that were added or changed, in the order of their adding
        self.synced = 0.0
        self._showing = self._event = self._document = 0  # numbers of the last ones that were taken in
        self.reading = threading.RLock()
        self._ids: tuple[Engine | None, int, bytes] = (None, 0, b"")
        self.version, self.base = "", base_of(self.engine)  # of the rules that hold, and of those of the start
        self.rules: dict[str, Any] | None = None  # the tables that were set since, if any
        self.refused = False  # whether the store has refused a page since, because of what others have shown
        self.foreign = False  # whether other rules hold that this worker was not started with
        self._take_up()

    # starting

    def _take_up(self) -> None:
        """Bring the ledger to where the store is: its documents, the last snapshot, and what was shown since."""
        counts, kept = self.store.counts(), self.store.snapshot()
        self._take_documents(starting=True)
        self._begin_rules()
        if kept is not None:
            self._restore(unpack(kept.data))
            self._showing = kept.showing
        self._event = max(0, self.store.last_event() - LAST_EVENTS)
        self.sync(everything=True)
        self.latest.clear()
        ledger = self.engine.ledger
        ledger.shown[:] = 0
        for text, count in counts.items():
            number = self.engine.items.of_text(text)
            if number is not None:
                ledger.shown[number] = count
        self.know_totals()
        self.latest.extend(row for _, row in self.store.showings(max(0, self._showing - LATEST), LATEST))
        if counts:
            log.info("the ledger goes on after %s requests", f"{ledger.requests:,}")

    def _restore(self, kept: dict[str, Array]) -> None:
        """Take up a snapshot, whatever numbers its items had."""
        items, ledger = self.engine.items, self.engine.ledger
        numbers = [items.of_text(text) for text in json.loads(kept.pop("ids").tobytes())]
        shares = ledger.shares.copy()  # those of documents are newer
        ledger.restore(kept, np.array([-1 if number is None else number for number in numbers], dtype=np.int64))
        for item in np.flatnonzero(shares != ledger.shares):
            ledger.set_share(int(item), float(shares[item]))

    def packed(self) -> bytes:
        """The ledger as a snapshot."""
        engine = self.engine
        if self._ids[:2] != (engine, len(engine.items)):
            text = json.dumps([str(each) for each in engine.items.ids]).encode()
            self._ids = engine, len(engine.items), text
        ids = np.frombuffer(self._ids[2], dtype=np.uint8)
        return bytes(pack(engine.ledger.arrays() | {"ids": ids}))

    def prune(self) -> None:
        """Let the store drop showings far behind the last snapshot."""
        if self._showing > KEPT_ROWS:
            self.store.forget(self._showing - KEPT_ROWS)

    # following

    def sync(self, everything: bool = False) -> int:
        """Take in what others have done since; how many showings. everything: what this worker did, too."""
        found = 0
        with self.reading:
            while rows := self.store.showings(self._showing):
                with self.lock:
                    for _, row in rows:
                        if everything or row.worker != self.worker:
                            self.count(row)
                            found += 1
                self._showing = rows[-1][0]
            while events := self.store.events(self._event):
                with self.lock:
                    self.learn(row for _, row in events if everything or row.worker != self.worker)
                self._event = events[-1][0]
            self._take_documents()
            if self.refused:
                self.refused = False
                with self.lock:
                    self.engine.ledger.heard()
                self.know_totals()
            self.synced = time.monotonic()
        return found

    def texts(self, items: Array) -> tuple[str, ...]:
        """The ids of items as the store writes them."""
        return tuple(str(self.engine.items.ids[item]) for item in items)

    def row_of(self, items: Array, person: str | None, request: str | None = None) -> Showing:
        """A page as the store keeps it."""
        totals = self.engine.totals
        limited = () if totals is None else totals.limited(items)
        return Showing(
            self.texts(items), person, time.time(), self.worker, request, self.version, limited
        )  # fmt: skip

    def count(self, row: Showing) -> None:
        """A page that somebody is shown."""
        numbers = self.numbers_of(row.items)
        if len(numbers):
            self.engine.shown(numbers)
        self.latest.append(row)

    def uncount(self, row: Showing) -> None:
        """A page that was not shown after all."""
        self.engine.shown(self.numbers_of(row.items), -1)

    def numbers_of(self, texts: Iterable[str]) -> Array:
        """The numbers of the items that there are now, by their ids as the store writes them."""
        found = map(self.engine.items.of_text, texts)
        return np.array([number for number in found if number is not None], dtype=np.int64)

    def learn(self, events: Iterable[Event]) -> None:
        """What people met, into their histories."""
        for event in events:
            met = self.histories.setdefault(event.person, {})
            met.pop(event.item, None)
            met[event.item] = None
            if len(met) > MOST_MET:
                del met[next(iter(met))]
            self.histories.move_to_end(event.person)
        while len(self.histories) > MOST_PEOPLE:
            self.histories.popitem(last=False)

    def met_by(self, person: str) -> list[int]:
        """What somebody met since the training."""
        found = map(self.engine.items.of_text, self.histories.get(person, ()))
        return [number for number in found if number is not None]

    def _take_documents(self, starting: bool = False) -> None:
        """Items and settings that were written since, in order."""
        rows = self.store.documents(self._document)
        with self.lock:
            self.take_items([document for _, document in rows if document.kind == "item"])
        for number, document in rows:
            if document.kind == "setting":
                self._take_setting(document.name, json.loads(document.text), starting)
            self._document = number

    def _take_setting(self, name: str, told: Mapping[str, Any], starting: bool) -> None:
        if name == "point" and told["run"] == run_key(self.engine):
            with self.lock:
                self._move(int(told["epoch"]))
        elif name == "rules":
            self._take_rules(told, starting)
        elif name == "reload" and starting:  # what was picked then is newer than a point set before
            self._move(self.engine.run.read_picked().epoch)
        elif name == "reload" and told["by"] != self.worker:
            self.reopen()

    def _move(self, epoch: int) -> None:
        if epoch != self.engine.epoch:
            self.engine.move_to(self.engine.point_at(epoch))

    # rules

    def _begin_rules(self) -> None:
        """The rules of the start hold, unless others were set since for the same start; workers agree by the store."""
        if self.version or not self.base:
            return
        version = uuid4().hex
        text = json.dumps({"version": version, "base": self.base, "rules": None})
        limits = limits_of(self.engine.totals, version, self.engine.items.ids)
        self.store.write([Document("setting", "rules", text), limits])
        self.version = version

    def _take_rules(self, told: Mapping[str, Any], starting: bool) -> None:
        """Rules that were set, by this worker or another one."""
        if told["version"] == self.version or (starting and told["base"] != self.base):
            return
        if told["base"] != self.base:
            self.foreign = True
            log.error("another worker was started with other rules; pages are refused until this one has them, too")
            return
        self.foreign = False
        self.put_rules(told["rules"], told["version"])
        if not starting:
            self.know_totals()

    def check_own(self) -> None:
        """Refuse to go on where other rules hold that this worker was not started with."""
        if self.foreign:
            raise StoreDown("another worker was started with other rules; start this one with the same --rules")

    def put_rules(self, tables: dict[str, Any] | None, version: str) -> Totals | None:
        """Keep rules from now on, given as their tables; none: those of the start."""
        bound = self.engine.first_rules()[0] if tables is None else None
        if tables:
            bound = self.engine.bound_now(rules_of(tables))
        with self.lock:
            self.engine.rule(bound)
            totals, missing = self.engine.totals, 0
            if totals is not None:
                missing = len(self.engine.items) - (len(totals.bound.offsets) - 1)
                totals.enter(missing)
            for document in self.described.values():
                self._share_and_join(document)
            self.rules, self.version = tables, version
        return totals

    def change_rules(
        self, tables: dict[str, Any] | None, submit: "Callable[[list[Entry]], Future[list[Outcome]]]"
    ) -> "Future[list[Outcome]]":
        """Keep other rules from now on, here and, once they are written, in all workers."""
        version = uuid4().hex
        self.sync()  # rules may name what another worker was told of just now
        with self.reading:
            before = self.rules, self.version
            with self.lock:
                totals = self.put_rules(tables, version)
                text = json.dumps({"version": version, "base": self.base, "rules": tables})
                limits = limits_of(totals, version, self.engine.items.ids)
                done = submit([Document("setting", "rules", text), limits])
            try:
                done.result()
            except RuntimeError:
                self.put_rules(*before)
                raise
        self.know_totals()
        return done

    def know_totals(self) -> None:
        """Take over how often the store has counted each total that is limited."""
        counted = self.store.totals()
        with self.lock:
            totals = self.engine.totals
            if totals is not None:
                pairs = [counted.get(totals.bound.called(each), (0, 0)) for each in range(totals.n_totals)]
                totals.know(*np.array(pairs, dtype=np.int64).reshape(-1, 2).T)

    # items

    def document_of(self, given: Mapping[str, Any]) -> Document:
        """An item to be added or changed, as a document; refuses what cannot be."""
        items = self.engine.items
        if unknown := [name for name in given if name not in FIELDS]:
            raise ValueError(f"items: {unknown[0][:200]!r} is unknown; an item has {', '.join(FIELDS)}")
        if given.get("item") is None:
            raise ValueError("items: one has no id; give it as item")
        key = items.key(given["item"], "item")
        if len(title := str(given.get("title") or "")) > LONGEST_TITLE:
            raise ValueError(f"title of {str(key)!r} has {len(title):,} characters; give at most {LONGEST_TITLE}")
        capacity, share = given.get("capacity"), given.get("share")
        if capacity is not None and not -1 <= capacity < 1 << 62:
            raise ValueError(f"capacity={capacity} of {str(key)!r} must be −1 (no limit), 0 or more")
        if share is not None and not 0 <= share <= MOST_SHARES:
            raise ValueError(f"share={share} of {str(key)!r} must be from 0 to {MOST_SHARES}")
        for each in given.get("similar") or ():
            if items.number(each, "similar") is None:
                raise ValueError(f"similar of {str(key)!r}: there is no item {str(each)[:200]!r}; add it first")
        told = {name: given[name] for name in FIELDS if given.get(name) is not None and name != "item"}
        before = self.described.get(str(key))
        known = {} if before is None else json.loads(before.text)
        attributes = known.get("attributes", {}) | told.get("attributes", {})
        merged = known | told | ({"attributes": attributes} if attributes else {})
        return Document("item", str(key), json.dumps(merged), capacity)

    def take_items(self, documents: Sequence[Document]) -> None:
        """Add items, or change them; those of a run with other ids are passed over."""
        documents = [each for each in documents if self.engine.items.can_be(each.name)]
        fresh = {each.name: json.loads(each.text) for each in documents if self.engine.items.of_text(each.name) is None}
        if fresh:
            similar = [self._known(told.get("similar", ())) for told in fresh.values()]
            shares = np.array([float(told.get("share", 1.0)) for told in fresh.values()])
            self.engine.add_items([self.engine.items.from_text(name) for name in fresh], similar, shares)
        for document in documents:
            self._describe(document)

    def _known(self, ids: Iterable[int | str]) -> Array:
        found = (self.engine.items.number(each, "similar") for each in ids)
        return np.array([number for number in found if number is not None], dtype=np.int64)

    def _describe(self, document: Document) -> None:
        engine, told = self.engine, json.loads(document.text)
        number = engine.items.of_text(document.name)
        assert number is not None
        attributes = {name: str(value) for name, value in told.get("attributes", {}).items()}
        engine.catalog.describe(number, told.get("title"), attributes)
        self._share_and_join(document)
        if "capacity" in told:
            engine.ledger.set_capacity(number, None if told["capacity"] < 0 else int(told["capacity"]))
        self.described[document.name] = document

    def _share_and_join(self, document: Document) -> None:
        """The share that an item may expect, and the totals of rules that its attributes say it is in."""
        engine, told = self.engine, json.loads(document.text)
        number = engine.items.of_text(document.name)
        if number is None:
            return
        if "share" in told and engine.ledger.shares[number] != told["share"]:
            engine.ledger.set_share(number, float(told["share"]))
        if engine.totals is not None and told.get("attributes"):
            engine.totals.join(number, {name: str(value) for name, value in told["attributes"].items()})

    # newer runs

    def reopen(self) -> None:
        """Read the run folder anew while requests go on, then go on with it; discounts are blended over."""
        made = Engine(self.folder, self.engine.options)
        with self.lock:
            old, self.engine = self.engine, made
            try:
                self.take_items(list(self.described.values()))
                numbers = old.numbers_in(made)
                capacity, shares = made.ledger.capacity.copy(), made.ledger.shares.copy()
                made.go_on(old.ledger.blended(made.ledger.terms, made.ledger.discount, numbers, BLEND))
                made.ledger.set_shares(shares)
                for item in np.flatnonzero(capacity != made.ledger.capacity):
                    made.ledger.set_capacity(int(item), int(capacity[item]))
                self._keep_rules(base_of(made))  # before the next page, or the store would not count it for them
            except BaseException:
                self.engine = old
                raise
        log.info("went over to %s as it is now: %s", self.folder, made.point.name)

    def _keep_rules(self, base: str) -> None:
        """A newer run keeps the rules that were set, unless it brings others along."""
        if base == self.base:
            self.put_rules(self.rules, self.version)
        else:
            self.version, self.base, self.rules = "", base, None
            self._begin_rules()
        self.know_totals()


def base_of(engine: Engine) -> str:
    """What tells the rules that a service was started with from others; empty, if there are none."""
    return "" if engine.totals is None else engine.totals.bound.digest


def run_key(engine: Engine) -> str:
    """What tells one run from another, so that a point set for one is not taken for a point of the other."""
    digest = hashlib.blake2b(engine.run.config_file.read_bytes(), digest_size=8)
    digest.update(json.dumps(engine.curve.points[0].to_json()).encode())
    return digest.hexdigest()
