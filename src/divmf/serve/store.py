"""Where showings, events and items are kept: what was acknowledged is there after any crash.

A store is written by one call, `write`, all or nothing, and read by what comes after a sequence number, so that several
workers follow each other. There are three (`divmf.serve.stores`): SQLite on one host, PostgreSQL and Redis for several.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True)
class Showing:
    """A page that somebody is shown.

    items     ids as text, in order
    request   a name that the caller gave: the same one is counted once
    rules     the version of the rules that the page keeps; totals: its showings of each total that these limit
    """

    items: tuple[str, ...]
    person: str | None
    timestamp: float
    worker: str
    request: str | None = None
    rules: str = ""
    totals: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Event:
    """Somebody met an item: a click, a purchase."""

    person: str
    item: str
    kind: str
    timestamp: float
    worker: str


@dataclass(frozen=True)
class Document:
    """What is known of something by name, as JSON text: an item, or a setting that all workers share.

    capacity   of an item: in how many lists it may be, −1 for no limit; None if the document does not say
    """

    kind: str
    name: str
    text: str
    capacity: int | None = None


@dataclass(frozen=True)
class Snapshot:
    """The ledger as it was; showing: the number of the last showing when it was written, which the store sets."""

    data: bytes
    showing: int = 0


class Limit(NamedTuple):
    """How many showings a total may have: at most `cap` since the store began, or at most a share of all slots since
    the limit was set, rounded up; members are the items whose showings so far count towards the cap.
    """

    cap: int | None
    share: float
    members: tuple[str, ...]


@dataclass(frozen=True)
class Limits:
    """All totals that are limited from now on, by name; a limit that stays as it was keeps its count.

    version   showings that were made under another one are refused
    """

    version: str
    limits: Mapping[str, Limit]


Entry = Showing | Event | Document | Snapshot | Limits


class Outcome(NamedTuple):
    """What became of an entry: the number it got; the items or the totals that were full, or stale: made under other
    rules (then nothing of it was kept); or repeated: a showing with this name was counted before.
    """

    number: int = 0
    full: tuple[str, ...] = ()
    repeated: bool = False
    over: tuple[str, ...] = ()
    stale: bool = False

    @property
    def kept(self) -> bool:
        """Whether the entry was taken."""
        return not (self.full or self.over or self.stale)


class Store(Protocol):
    """A durable log that several workers share. `write` is called by one thread, the others by any."""

    def write(self, entries: Sequence[Entry]) -> list[Outcome]:
        """Keep the entries, on disk when this returns; a showing with a full item is refused, the others are kept."""

    def showings(self, after: int, limit: int = 10_000) -> list[tuple[int, Showing]]:
        """The showings after a number, in order."""

    def events(self, after: int, limit: int = 100_000) -> list[tuple[int, Event]]:
        """The events after a number, in order."""

    def last_event(self) -> int:
        """The number of the last event; 0 if there is none."""

    def documents(self, after: int) -> list[tuple[int, Document]]:
        """The documents written after a number, each as it is now, in order."""

    def counts(self) -> Mapping[str, int]:
        """How often each item was shown."""

    def totals(self) -> Mapping[str, tuple[int, int]]:
        """Of each total that is limited: how often it was shown, and how many slots there were since it is limited."""

    def snapshot(self) -> Snapshot | None:
        """The last snapshot."""

    def forget(self, before: int) -> None:
        """Drop the showings before a number from the log; their counts stay."""

    def close(self) -> None:
        """Let go of files and connections."""


class StoreDown(RuntimeError):
    """The store did not take what was written, or could not be read; nothing was acknowledged."""
