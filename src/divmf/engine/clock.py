"""Where the time goes: seconds by phase, which add up to all the time there was."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

OTHER = "other"


class Clock:
    """Runs from when it is made; at any moment one phase is on, and a phase inside another stops that one's count.

    now   tells the time, in seconds
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._last = now()
        self._on = [OTHER]
        self._seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """What happens inside counts for this phase."""
        self._count()
        self._on.append(name)
        try:
            yield
        finally:
            self._count()
            self._on.pop()

    def _count(self) -> None:
        """Give the time since the last count to the phase that is on."""
        now = self._now()
        self._seconds[self._on[-1]] = self._seconds.get(self._on[-1], 0.0) + now - self._last
        self._last = now

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of each phase so far, in the order they first came, what belongs to none at the end."""
        self._count()
        return {name: took for name, took in self._seconds.items() if name != OTHER} | {OTHER: self._seconds[OTHER]}
