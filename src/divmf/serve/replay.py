"""A log of requests played against a service, in process or by HTTP: what people got, who was shown, how fast."""

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import polars as pl

from divmf.data.catalogs import same_type
from divmf.data.ids import numbers_of
from divmf.data.split import Split
from divmf.data.tables import find_column
from divmf.data.times import as_times
from divmf.ranking.metrics import found_in, gini
from divmf.serve.live import Live

PERIODS = 20

PANELS = {
    "nDCG of the next item": ("ndcg", None), "coverage of the ceiling": ("of_ceiling", "of_ceiling_so_far"),
    "Gini of exposure": ("gini", "gini_so_far"), "latency, ms": ("p99_ms", "p50_ms"),
}  # fmt: skip

Ask = Callable[[Any], list[Any]]  # the items of a page for a user


@dataclass
class Played:
    """What came of a replay, request by request.

    pages     ids of the items shown; hits: the slot of the item that was met next, from 1, 0 if it was not shown
    seconds   how long each request took
    """

    pages: list[list[Any]] = field(default_factory=list)
    hits: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    failures: int = 0

    def periods(self, n_items: int, periods: int = PERIODS) -> list[dict[str, Any]]:
        """Accuracy, exposure and latency over time, and over everything so far."""
        cuts = np.unique(np.linspace(0, len(self.pages), min(periods, max(1, len(self.pages))) + 1).astype(int))
        told: list[dict[str, Any]] = []
        so_far: Counter[Any] = Counter()
        for first, last in pairwise(cuts.tolist()):
            own = Counter(item for page in self.pages[first:last] for item in page)
            so_far += own
            ever = {f"{name}_so_far": value for name, value in exposure(so_far, n_items).items()}
            told.append({"requests": last} | self._part(slice(first, last)) | exposure(own, n_items) | ever)
        return told

    def _part(self, rows: slice) -> dict[str, float]:
        hits, seconds = np.array(self.hits[rows]), np.array(self.seconds[rows])
        gain = np.where(hits > 0, 1 / np.log2(np.maximum(hits, 1) + 1.0), 0.0)
        return {
            "hit": float((hits > 0).mean()), "ndcg": float(gain.mean()),
            "p50_ms": 1000 * float(np.quantile(seconds, 0.5)), "p99_ms": 1000 * float(np.quantile(seconds, 0.99)),
        }  # fmt: skip

    def summary(self, n_items: int) -> dict[str, Any]:
        """The whole of it."""
        (whole,) = self.periods(n_items, 1)
        return {name: value for name, value in whole.items() if not name.endswith("so_far")} | {
            "failures": self.failures, "items": n_items,
        }  # fmt: skip


def exposure(shown: Counter[Any], n_items: int) -> dict[str, float]:
    """Coverage, that of the ceiling (what so many slots could show), and Gini."""
    counts = np.zeros(max(n_items, len(shown)), dtype=np.int64)
    counts[: len(shown)] = list(shown.values())
    ceiling = min(len(counts), max(1, int(counts.sum())))
    return {"coverage": len(shown) / len(counts), "of_ceiling": len(shown) / ceiling, "gini": gini(counts)}


def requests_of(frame: pl.DataFrame, limit: int | None = None) -> list[tuple[Any, Any]]:
    """(user, item met then) in the order of time, or of the file where it has no times."""
    user, item = find_column(frame, "user"), find_column(frame, "item")
    moment = find_column(frame, "time", required=False)
    if moment is not None:
        frame = frame.with_columns(pl.Series("·time", as_times(frame[moment]))).sort("·time", maintain_order=True)
    rows = frame.select(user, item).rows()
    return rows if limit is None else rows[:limit]


def met_before(split: Split, requests: Sequence[tuple[Any, Any]]) -> int:
    """How many requests met an item that the run knows the user has met; it cannot be on a page."""
    users, items = (
        numbers_of(same_type(pl.Series(list(ids)), known), known)
        for ids, known in zip(zip(*requests, strict=True), (split.user_ids, split.item_ids), strict=True)
    )
    there = np.flatnonzero((users >= 0) & (items >= 0))
    return int(found_in(split.known[users[there]], items[there, None], 1).sum())


def play(requests: Sequence[tuple[Any, Any]], ask: Ask, tell: Callable[[Any, Any], None] | None = None) -> Played:
    """One request after the other; tell: what each person met then. Without it, failures are counted."""
    played = Played()
    for user, item in requests:
        began = time.perf_counter()
        try:
            page = ask(user)
        except (OSError, ValueError, http.client.HTTPException):
            if tell is not None:
                raise
            played.failures += 1
            continue
        played.seconds.append(time.perf_counter() - began)
        played.pages.append(page)
        played.hits.append(page.index(item) + 1 if item in page else 0)
        if tell is not None:
            tell(user, item)
    return played


def in_process(live: Live, k: int | None) -> Ask:
    """Ask a `Live`."""
    return lambda user: [line.item for line in live.recommend(user, k=k).items]


class Client:
    """Asks a service by HTTP, over one connection."""

    def __init__(self, url: str, token: str | None, k: int | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url={url!r} is no service; write http://127.0.0.1:8000")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=30)
        self._headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
        self._k = k

    def post(self, path: str, body: Any) -> Any:
        """An answer, or an error that says what the service said."""
        self._connection.request("POST", path, json.dumps(body), self._headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise ValueError(f"{path} was answered with {answer.status}: {content[:300].decode(errors='replace')}")
        return json.loads(content)

    def __call__(self, user: Any) -> list[Any]:
        """The items of a page."""
        page = self.post("/recommend", {"user": user} | ({} if self._k is None else {"k": self._k}))
        return [slot["item"] for slot in page["items"]]

    def tell(self, user: Any, item: Any) -> None:
        """Tell what somebody met."""
        self.post("/events", {"events": [{"user": user, "item": item}]})


def load(requests: Sequence[tuple[Any, Any]], clients: Sequence[Ask]) -> tuple[Played, float]:
    """All clients at once, each with its part of the requests; what came of it, and the seconds it took."""
    played, lock = Played(), threading.Lock()

    def work(number: int) -> None:
        own = requests[number :: len(clients)]
        made = play(own, clients[number])
        with lock:
            for name in ("pages", "hits", "seconds"):
                getattr(played, name).extend(getattr(made, name))
            played.failures += made.failures

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(clients))]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return played, time.perf_counter() - began


def rows_for_chart(periods: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A row for each panel and moment."""
    for period in periods:
        for panel, (own, other) in PANELS.items():
            line = "99th percentile" if own == "p99_ms" else "in the period"
            yield {"requests": period["requests"], "panel": panel, "line": line, "value": period[own]}
            if other is not None:
                line = "median" if other == "p50_ms" else "since the start"
                yield {"requests": period["requests"], "panel": panel, "line": line, "value": period[other]}
