"""Threads: one setting for all that computes in parallel, and work cut into a few large parts.

The setting is DIVMF_THREADS. Our own parts, torch, numba's loops and BLAS each keep threads; they take turns, and while
our parts run, BLAS has one for each of them.

A part is a range of rows that one thread takes from beginning to end, so threads meet once per pass over the data:
where they meet at every step, one that another process holds up stops them all.
"""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import NamedTuple, TypeVar

from threadpoolctl import ThreadpoolController

from divmf.engine.forked import check_not_forked

T = TypeVar("T")
PARTS = 16  # not the number of threads: sums over parts must not depend on that
PART_BYTES = 1 << 28  # what the partial sums of all parts may take together
MOST_THREADS = 1024
LEAST_PARTS = 4  # for each of several processes; up to PARTS / LEAST_PARTS of them, the parts are those of one process


class RowRange(NamedTuple):
    """The rows of one process among those of all: the first of them, and the one after the last (`engine.comm`)."""

    first: int
    last: int
    whole: int
    processes: int = 1


@cache
def threads() -> int:
    """How many threads compute: DIVMF_THREADS, else OMP_NUM_THREADS, else as many as cores this process may use.

    torchrun sets OMP_NUM_THREADS, so that the processes of one machine do not fight for its cores.
    """
    wanted = os.environ.get("DIVMF_THREADS", "")
    if wanted and not (wanted.isdecimal() and int(wanted)):
        raise ValueError(f"DIVMF_THREADS={wanted!r} is not a number of threads; give 1 or more")
    if wanted and int(wanted) > MOST_THREADS:
        raise ValueError(f"DIVMF_THREADS={wanted} is more than a machine can run; give 1 to {MOST_THREADS}")
    usual = os.environ.get("OMP_NUM_THREADS", "")
    if not wanted and usual.isdecimal() and int(usual):  # it may be a list, one number for each level of nesting
        wanted = usual
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(int(wanted), MOST_THREADS) if wanted else cores


def govern_torch() -> None:
    """Have torch compute on as many threads."""
    import torch

    torch.set_num_threads(threads())


def govern_numba() -> None:
    """Have numba's loops run on as many threads; on no more than it started with, if it was loaded before us."""
    if "numba" not in sys.modules:
        os.environ.setdefault("NUMBA_NUM_THREADS", str(threads()))
    import numba

    numba.set_num_threads(min(threads(), numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]


@cache
def workers() -> ThreadPoolExecutor:
    """The threads."""
    return ThreadPoolExecutor(threads(), thread_name_prefix="divmf")


@cache
def libraries() -> ThreadpoolController:
    """The BLAS libraries, on as many threads; scipy's, with which numba multiplies, must be loaded to be seen."""
    import scipy.linalg.blas  # noqa: F401

    found = ThreadpoolController()
    found.limit(limits=threads(), user_api="blas")  # not entered, so it stays
    return found


def in_parts(work: Callable[[int, int], T], n_rows: int, sum_bytes: int = 0, span: RowRange | None = None) -> list[T]:
    """work(first, last) for ranges that together are all rows, several at a time; their results in order.

    sum_bytes   the size of what a part returns to be summed; there are fewer parts where it is large
    span        where other processes do the same for rows of theirs: then the parts are those of all the rows, as one
                process would cut them, so that it makes no difference where the processes' rows begin
    """
    check_not_forked()
    span = span or RowRange(0, n_rows, n_rows)
    cuts = [min(max(cut - span.first, 0), n_rows) for cut in part_bounds(span.whole, span.processes, sum_bytes)]
    ranges = [(first, last) for first, last in pairwise(cuts) if first < last]
    with libraries().limit(limits=1, user_api="blas"):  # each part multiplies on its own
        return list(workers().map(lambda part: work(*part), ranges))


def part_bounds(n_rows: int, processes: int = 1, sum_bytes: int = 0) -> list[int]:
    """Where the parts of some rows begin, and where the last one ends; processes that begin there share no part."""
    n_parts = max(2, min(PARTS, PART_BYTES // max(1, sum_bytes)))
    if processes > 1:
        n_parts = max(n_parts, min(n_parts, LEAST_PARTS) * processes)
    return [n_rows * part // n_parts for part in range(n_parts + 1)]


def range_of(n_rows: int, process: int, processes: int) -> tuple[int, int]:
    """The rows that one of several processes takes: whole parts, nearly as many for each."""
    bounds = part_bounds(n_rows, processes)
    first, last = ((len(bounds) - 1) * number // processes for number in (process, process + 1))
    return bounds[first], bounds[last]


def ahead(work: Callable[[int], T], numbers: Iterable[int]) -> Iterator[T]:
    """work(number) for each number, in order; the next ones are made on other threads while one is in use.

    work must not share itself out: its threads are those it runs on.
    """
    check_not_forked()
    if threads() == 1:
        yield from map(work, numbers)
        return
    begun: deque[Future[T]] = deque()
    for number in numbers:
        begun.append(workers().submit(work, number))
        if len(begun) == threads():
            yield begun.popleft().result()
    while begun:
        yield begun.popleft().result()
