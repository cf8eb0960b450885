"""The store in a database: SQLite (write-ahead log, synced at every commit) or PostgreSQL."""

import json
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from divmf.engine.masking import masked
from divmf.serve.store import Document, Entry, Event, Limits, Outcome, Showing, Snapshot, StoreDown

SCHEMA = """
CREATE TABLE IF NOT EXISTS divmf_showings (
  seq {serial}, at {real}, worker TEXT NOT NULL, person TEXT, request TEXT UNIQUE, items TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS divmf_exposure (item TEXT PRIMARY KEY, shown BIGINT NOT NULL, capacity BIGINT);
CREATE TABLE IF NOT EXISTS divmf_totals (
  name TEXT PRIMARY KEY, shown BIGINT NOT NULL, cap BIGINT, share {real} NOT NULL, since BIGINT NOT NULL, version TEXT);
CREATE TABLE IF NOT EXISTS divmf_events (
  seq {serial}, at {real}, worker TEXT NOT NULL, person TEXT NOT NULL, item TEXT NOT NULL, kind TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS divmf_documents (
  kind TEXT, name TEXT, seq BIGINT NOT NULL, body TEXT NOT NULL, capacity BIGINT, PRIMARY KEY (kind, name));
CREATE INDEX IF NOT EXISTS divmf_documents_seq ON divmf_documents (seq);
CREATE TABLE IF NOT EXISTS divmf_snapshots (name TEXT PRIMARY KEY, showing BIGINT NOT NULL, data {bytes} NOT NULL);
"""
COUNT = """
INSERT INTO divmf_exposure (item, shown) SELECT value, 1 FROM {array} WHERE true
ON CONFLICT (item) DO UPDATE SET shown = divmf_exposure.shown + 1
WHERE divmf_exposure.capacity IS NULL OR divmf_exposure.shown < divmf_exposure.capacity
"""
FULL = "SELECT item FROM divmf_exposure WHERE shown >= capacity AND item IN (SELECT value FROM {array})"
SHOW = "INSERT INTO divmf_showings (at, worker, person, request, items) VALUES (?, ?, ?, ?, ?) RETURNING seq"
MEET = "INSERT INTO divmf_events (at, worker, person, item, kind) VALUES (?, ?, ?, ?, ?) RETURNING seq"
DESCRIBE = """
INSERT INTO divmf_documents (kind, name, seq, body, capacity)
VALUES (?, ?, (SELECT COALESCE(MAX(seq), 0) + 1 FROM divmf_documents), ?, ?)
ON CONFLICT (kind, name) DO UPDATE SET seq = excluded.seq, body = excluded.body,
  capacity = COALESCE(excluded.capacity, divmf_documents.capacity) RETURNING seq
"""
LIMIT = """
INSERT INTO divmf_exposure (item, shown, capacity) VALUES (?, 0, ?)
ON CONFLICT (item) DO UPDATE SET capacity = excluded.capacity
"""
# the row without a name counts the slots of all pages, and says which rules hold
RULED = "SELECT version FROM divmf_totals WHERE name = ''"
SLOTS = "UPDATE divmf_totals SET shown = shown + ? WHERE name = ''"
AFTER = "shown + CAST(pair.value AS BIGINT)"
FITS = f"""(cap IS NULL OR {AFTER} <= cap) AND
  (share = 0 OR {AFTER} < share * ((SELECT shown FROM divmf_totals WHERE name = '') - since) + 0.999999)"""
ADD = f"""
UPDATE divmf_totals SET shown = {AFTER} FROM {{pairs}} WHERE name = pair.key AND {FITS}
"""
OVER = f"SELECT name FROM divmf_totals, {{pairs}} WHERE name = pair.key AND NOT ({FITS})"
RULE = """
INSERT INTO divmf_totals (name, shown, share, since, version) VALUES ('', 0, 0, 0, ?)
ON CONFLICT (name) DO UPDATE SET version = excluded.version
"""
CAP = """
INSERT INTO divmf_totals (name, shown, cap, share, since) VALUES (?, (SELECT COALESCE(SUM(shown), 0) FROM divmf_exposure
  WHERE item IN (SELECT value FROM {array})), ?, ?, (SELECT shown FROM divmf_totals WHERE name = ''))
"""
KEEP = """
INSERT INTO divmf_snapshots (name, showing, data)
VALUES ('ledger', (SELECT COALESCE(MAX(seq), 0) FROM divmf_showings), ?)
ON CONFLICT (name) DO UPDATE SET showing = excluded.showing, data = excluded.data
"""


# of PostgreSQL: a host that stops in the middle of a transaction does not hold up the others for longer
PATIENCE = ("statement_timeout", "idle_in_transaction_session_timeout")


@dataclass(frozen=True)
class Dialect:
    """Where the two databases differ."""

    types: Mapping[str, str]
    array: str
    pairs: str
    mark: str
    begin: tuple[str, ...]

    def say(self, statement: str) -> str:
        """A statement in this dialect."""
        for name, text in {"array": self.array, "pairs": self.pairs, **self.types}.items():
            statement = statement.replace(f"{{{name}}}", text)
        return statement.replace("?", self.mark)


SQLITE = Dialect(
    {"serial": "INTEGER PRIMARY KEY AUTOINCREMENT", "real": "REAL", "bytes": "BLOB"}, "json_each(?)",
    "json_each(?) AS pair", "?", ("BEGIN IMMEDIATE",),
)  # fmt: skip
# the lock makes the order of numbers that of commits, so that nobody who reads what comes after a number misses one
POSTGRESQL = Dialect(
    {
        "serial": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "real": "DOUBLE PRECISION", "bytes": "BYTEA",
    },
    "jsonb_array_elements_text(?::jsonb) AS value", "jsonb_each_text(?::jsonb) AS pair", "%s",
    ("BEGIN", "SELECT pg_advisory_xact_lock(7297613)"),
)  # fmt: skip


class SqlStore:
    """The store in a database; one connection writes, another one reads."""

    def __init__(self, connect: Callable[[], Any], dialect: Dialect, failures: tuple[type[Exception], ...]) -> None:
        self._connect, self._dialect, self._failures = connect, dialect, failures
        self._connections: dict[str, Any] = {}
        self._writing, self._reading = threading.Lock(), threading.Lock()
        self._closed = False
        try:
            self._transaction(lambda database: self._create(database))
        except StoreDown as error:
            raise ValueError(f"the store cannot be opened: {error}") from error

    def _create(self, database: Any) -> None:
        for statement in self._dialect.say(SCHEMA).split(";"):
            if statement.strip():
                database.execute(statement)

    def _use(self, name: str) -> Any:
        if self._closed:
            raise StoreDown("the store is closed")
        if name not in self._connections:
            self._connections[name] = self._connect()
        return self._connections[name]

    def _drop(self, name: str) -> None:
        connection = self._connections.pop(name, None)
        with suppress(Exception):
            if connection is not None:
                connection.close()

    def _run(self, database: Any, statement: str, values: Sequence[Any] = ()) -> Any:
        return database.execute(self._dialect.say(statement), values)

    def _transaction(self, work: Callable[[Any], Any]) -> Any:
        """work(connection) as one transaction; a connection that fails is made anew at the next call."""
        with self._writing:
            try:
                database = self._use("write")
                for statement in self._dialect.begin:
                    database.execute(statement)
                try:
                    found = work(database)
                    database.execute("COMMIT")
                except BaseException:
                    database.execute("ROLLBACK")
                    raise
            except self._failures as error:
                self._drop("write")
                raise StoreDown(masked(str(error).strip().splitlines()[0])) from error
        return found

    def _read(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._reading:
            try:
                return list(self._run(self._use("read"), statement, values).fetchall())
            except self._failures as error:
                self._drop("read")
                raise StoreDown(masked(str(error).strip().splitlines()[0])) from error

    def write(self, entries: Sequence[Entry]) -> list[Outcome]:
        """Keep the entries, in one transaction."""
        made: list[Outcome] = self._transaction(lambda database: [self._keep(database, entry) for entry in entries])
        return made

    def _keep(self, database: Any, entry: Entry) -> Outcome:
        if isinstance(entry, Showing):
            return self._show(database, entry)
        if isinstance(entry, Event):
            values: tuple[Any, ...] = (entry.timestamp, entry.worker, entry.person, entry.item, entry.kind)
            return Outcome(self._run(database, MEET, values).fetchone()[0])
        if isinstance(entry, Document):
            if entry.capacity is not None:
                limit = None if entry.capacity < 0 else entry.capacity
                self._run(database, LIMIT, (entry.name, limit))
            values = (entry.kind, entry.name, entry.text, entry.capacity)
            return Outcome(self._run(database, DESCRIBE, values).fetchone()[0])
        if isinstance(entry, Limits):
            return self._limit(database, entry)
        self._run(database, KEEP, (entry.data,))
        return Outcome()

    def _limit(self, database: Any, entry: Limits) -> Outcome:
        """Set the limits; those that stay as they were go on counting."""
        self._run(database, RULE, (entry.version,))
        there = self._run(database, "SELECT name, cap, share FROM divmf_totals WHERE name <> ''").fetchall()
        limits = entry.limits
        same = {name for name, *was in there if name in limits and limits[name][:2] == tuple(was)}
        for name in {name for name, *_ in there} - same:
            self._run(database, "DELETE FROM divmf_totals WHERE name = ?", (name,))
        for name in limits.keys() - same:
            cap, share, members = limits[name]
            counted = json.dumps(members if cap is not None else [])
            self._run(database, CAP, (name, counted, cap, share))
        return Outcome()

    def _show(self, database: Any, showing: Showing) -> Outcome:
        """One row and the counts of its items; nothing at all if one of them is full."""
        if showing.request is not None:
            cursor = self._run(database, "SELECT seq FROM divmf_showings WHERE request = ?", (showing.request,))
            if (found := cursor.fetchone()) is not None:
                return Outcome(found[0], repeated=True)
        version = self._run(database, RULED).fetchone()
        if version is not None and version[0] != showing.rules:
            return Outcome(stale=True)
        items, totals = json.dumps(showing.items), json.dumps(dict(showing.totals))
        database.execute("SAVEPOINT one")
        if version is not None:
            self._run(database, SLOTS, (len(showing.items),))
        if showing.totals and self._run(database, ADD, (totals,)).rowcount < len(showing.totals):
            over = self._run(
                database, OVER, (totals,)
            ).fetchall()  # those counted are seen twice, and may be named, too
            database.execute("ROLLBACK TO one")
            return Outcome(over=tuple(row[0] for row in over))
        counted = self._run(database, COUNT, (items,)).rowcount
        if counted < len(showing.items):
            database.execute("ROLLBACK TO one")
            full = self._run(database, FULL, (items,)).fetchall()
            return Outcome(full=tuple(row[0] for row in full))
        values = (showing.timestamp, showing.worker, showing.person, showing.request, items)
        number = self._run(database, SHOW, values).fetchone()[0]
        database.execute("RELEASE one")
        return Outcome(number)

    def showings(self, after: int, limit: int = 10_000) -> list[tuple[int, Showing]]:
        """The showings after a number, in order."""
        rows = self._read(
            "SELECT seq, items, person, at, worker, request FROM divmf_showings WHERE seq > ? ORDER BY seq LIMIT ?",
            (after, limit),
        )
        return [(row[0], Showing(tuple(json.loads(row[1])), *row[2:])) for row in rows]

    def events(self, after: int, limit: int = 100_000) -> list[tuple[int, Event]]:
        """The events after a number, in order."""
        rows = self._read(
            "SELECT seq, person, item, kind, at, worker FROM divmf_events WHERE seq > ? ORDER BY seq LIMIT ?",
            (after, limit),
        )
        return [(row[0], Event(*row[1:])) for row in rows]

    def last_event(self) -> int:
        """The number of the last event."""
        return int(self._read("SELECT COALESCE(MAX(seq), 0) FROM divmf_events")[0][0])

    def documents(self, after: int) -> list[tuple[int, Document]]:
        """The documents written after a number, each as it is now, in order."""
        rows = self._read(
            "SELECT seq, kind, name, body, capacity FROM divmf_documents WHERE seq > ? ORDER BY seq", (after,)
        )
        return [(row[0], Document(*row[1:])) for row in rows]

    def counts(self) -> dict[str, int]:
        """How often each item was shown."""
        return dict(tuple(row) for row in self._read("SELECT item, shown FROM divmf_exposure"))

    def totals(self) -> dict[str, tuple[int, int]]:
        """Of each total that is limited: how often it was shown, and how many slots there were since it is limited."""
        rows = self._read("SELECT name, shown, since FROM divmf_totals")
        slots = {name: shown for name, shown, _ in rows}.get("", 0)
        return {name: (shown, slots - since) for name, shown, since in rows if name}

    def snapshot(self) -> Snapshot | None:
        """The last snapshot."""
        rows = self._read("SELECT data, showing FROM divmf_snapshots WHERE name = 'ledger'")
        return Snapshot(bytes(rows[0][0]), rows[0][1]) if rows else None

    def forget(self, before: int) -> None:
        """Drop the showings before a number from the log."""
        self._transaction(lambda database: self._run(database, "DELETE FROM divmf_showings WHERE seq < ?", (before,)))

    def close(self) -> None:
        """Close both connections."""
        self._closed = True
        with self._writing, self._reading:
            for name in list(self._connections):
                self._drop(name)


def sqlite_store(url: str) -> SqlStore:
    """sqlite:///live.sqlite (relative) or sqlite:////var/lib/live.sqlite; ?synchronous=normal syncs less often.

    In the full mode a commit is on disk before it is acknowledged, whatever happens to the machine; in the normal mode
    it survives the end of the process, but not always that of the machine.
    """
    parts = urlsplit(url)
    path, options = Path(unquote(parts.path[1:])), parse_qs(parts.query)
    mode = options.pop("synchronous", ["full"])[0].lower()
    if parts.netloc or not path.name or options or mode not in ("full", "normal"):
        raise ValueError(
            f"store={url!r} is not understood; write sqlite:///live.sqlite or sqlite:////var/lib/live.sqlite,"
            " with ?synchronous=normal at the end if the last commits may be lost with the machine"
        )
    if not path.parent.is_dir():
        raise ValueError(f"store={url!r}: there is no folder {path.parent}; make it first")

    def connect() -> sqlite3.Connection:
        made = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
        made.execute("PRAGMA journal_mode = WAL")
        made.execute(f"PRAGMA synchronous = {mode}")
        return made

    return SqlStore(connect, SQLITE, (sqlite3.Error,))


def postgresql_store(url: str) -> SqlStore:
    """postgresql://user@host/database; the tables are those of the first schema of the search path."""
    import psycopg

    def connect() -> Any:
        made: Any = psycopg.connect(
            url, autocommit=True, connect_timeout=5, application_name="divmf", tcp_user_timeout=10_000
        )
        for setting in ("synchronous_commit = on", *(f"{name} = '15s'" for name in PATIENCE)):
            made.execute(f"SET {setting}")
        return made

    return SqlStore(connect, POSTGRESQL, (psycopg.Error,))
