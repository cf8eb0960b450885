"""One thread that writes to a store: what comes while it writes goes into the next transaction, all of it."""

import queue
import threading
from concurrent.futures import Future
from contextlib import suppress

from divmf.serve.store import Entry, Outcome, Store, StoreDown

MOST = 512  # entries of one transaction
WAITING = 10_000  # entries that may wait; beyond it, the store is too slow


class Writer:
    """Writes entries to a store in the order in which they come; a result is there when they are on disk."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: queue.Queue[tuple[list[Entry], Future[list[Outcome]]] | None] = queue.Queue(WAITING)
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="divmf-writer", daemon=True)
        self._thread.start()

    def submit(self, entries: list[Entry]) -> "Future[list[Outcome]]":
        """Have entries written together; the result says what became of each."""
        done: Future[list[Outcome]] = Future()
        done.set_running_or_notify_cancel()  # who stops waiting does not stop what is counted from being kept
        with self._closing:
            if self._closed:
                done.set_exception(StoreDown("the service is shutting down"))
                return done
            try:
                self._queue.put_nowait((entries, done))
            except queue.Full:
                done.set_exception(StoreDown(f"{WAITING:,} writes are waiting; the store is too slow"))
        return done

    @property
    def closed(self) -> bool:
        """Whether nothing more is taken."""
        return self._closed

    @property
    def waiting(self) -> int:
        """How many writes wait."""
        return self._queue.qsize()

    def _work(self) -> None:
        more = True
        while more:
            first = self._queue.get()
            if first is None:
                return
            batch, size = [first], len(first[0])
            with suppress(queue.Empty):
                while size < MOST:
                    next_one = self._queue.get_nowait()
                    if next_one is None:
                        more = False
                        break
                    batch.append(next_one)
                    size += len(next_one[0])
            self._write(batch)

    def _write(self, batch: list[tuple[list[Entry], "Future[list[Outcome]]"]]) -> None:
        try:
            outcomes = self._store.write([entry for entries, _ in batch for entry in entries])
        except Exception as error:
            failure = error if isinstance(error, StoreDown) else StoreDown(f"{type(error).__name__}: {error}")
            for _, done in batch:
                done.set_exception(failure)
            return
        first = 0
        for entries, done in batch:
            done.set_result(outcomes[first : first + len(entries)])
            first += len(entries)

    def close(self) -> None:
        """Write what waits, then end."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        self._queue.put(None)
        self._thread.join()
