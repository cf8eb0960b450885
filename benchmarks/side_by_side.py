"""Several ways to do one job, in turn, in one run: seconds, ratios, and the same with a competing process.

A busy machine slows all of them, so ratios mean something where seconds do not.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

THREADS = 2
REPEATS = 5
# read when the libraries are loaded; divmf reads its own
ENVIRONMENT = {"DIVMF_THREADS": str(THREADS), "OMP_NUM_THREADS": str(THREADS), "OPENBLAS_NUM_THREADS": str(THREADS)}

Ways = Mapping[str, Callable[[], object]]
Seconds = dict[str, np.ndarray]


def in_turn(ways: Ways, repeats: int = REPEATS, clock: Callable[[], Any] = time.perf_counter) -> Seconds:
    """Each way once to warm up, then all of them in turn, several times; the seconds of each.  (repeats, …)

    clock: time.process_time counts the time of all cores that worked, and not what other processes took; see `both`
    """
    for way in ways.values():
        way()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            began = clock()
            way()
            seconds[name].append(clock() - began)
    return {name: np.array(took) for name, took in seconds.items()}


def both() -> np.ndarray:
    """Two clocks: the one on the wall, and the time of all cores that worked, in processes started from here, too."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return np.array([time.perf_counter(), time.process_time() + children.ru_utime + children.ru_stime])


def ratio(above: np.ndarray, below: np.ndarray) -> float:
    """The median over the repeats of how often the one takes as long as the other."""
    return float(np.median(above / below))


@contextmanager
def competing() -> Iterator[None]:
    """Another process that computes without end on one core."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()


def table(columns: list[str], rows: list[list[str]]) -> None:
    """Print a Markdown table."""
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
    print(flush=True)


def milliseconds(seconds: np.ndarray) -> str:
    """The median, as people read it."""
    return f"{1000 * float(np.median(seconds)):,.0f} ms"


def prepare() -> None:
    """Two threads for everything that is loaded from now on."""
    os.environ.update(ENVIRONMENT)
