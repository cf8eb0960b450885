"""The processes of one run: `torchrun` starts them, each holds a share of the users and all items.

Alone, every function here gives back what it was given, and torch is not loaded: one code path, one process or many.
Sums are the same to the last bit in every process, so all of them come to the same decisions. Whoever calls one of
these must know that every process does, in the same order.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import numpy as np

from divmf.engine.threads import PART_BYTES, PARTS, RowRange

if TYPE_CHECKING:
    from divmf.engine.arrays import Array

T = TypeVar("T")
# How long the others are waited for. One that was killed is noticed at once, by its closed connections and by torchrun;
# this is for one that hangs, and long: of two that share an epoch of hours, one may be minutes behind.
PATIENCE = timedelta(minutes=30)
# which of the times that torchrun started the processes this is; before they have met, its own count of them
ATTEMPT = ContextVar("ATTEMPT", default=f"divmf/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}")


class ProcessLost(RuntimeError):
    """Another process of the run is gone, so this one cannot go on."""


def launched() -> int:
    """How many processes torchrun (or whoever sets its variables) has started."""
    needed = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return int(os.environ["WORLD_SIZE"]) if all(name in os.environ for name in needed) else 1


def size() -> int:
    """How many processes there are, once they have met."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return 1
    return int(distributed.get_world_size())


def rank() -> int:
    """The number of this process; 0 decides, writes and shows progress."""
    return int(sys.modules["torch.distributed"].get_rank()) if size() > 1 else 0


def first() -> bool:
    """Whether this is the process that writes and speaks."""
    return rank() == 0


@contextmanager
def process_group(patience: timedelta = PATIENCE) -> Iterator[None]:
    """Meet the other processes that were started with this one, and part from them at the end.

    The threads of a process group end with its last reference. One that lived on would drop its last tensor while the
    interpreter ends, ask for a lock that nobody holds any more, and abort the process.
    """
    if launched() == 1:
        yield
        return
    import torch
    import torch.distributed.nn.functional  # takes the group there is for a default: there must be none yet
    from torch import distributed

    with ended_by_signal():
        with noticing():
            ATTEMPT.set(agreed(store := meeting_point(patience)))
            apart = distributed.PrefixStore(ATTEMPT.get(), store)  # type: ignore[attr-defined]
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            number = int(os.environ["RANK"])
            distributed.init_process_group(backend, timeout=patience, world_size=launched(), rank=number, store=apart)
        try:
            yield
        finally:
            with suppress(RuntimeError):
                distributed.destroy_process_group()


def meeting_point(patience: timedelta) -> Any:
    """The store of keys and values where processes find each other: torchrun's, else the first of them keeps it."""
    from torch import distributed

    kept = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return distributed.TCPStore(  # type: ignore[attr-defined]
        address, port, is_master=not kept and os.environ["RANK"] == "0", timeout=patience, wait_for_workers=False
    )


def agreed(store: Any) -> str:
    """A name for this attempt, on which all processes agree.

    Where torchrun starts them anew, its store still holds what they wrote before, and torch would take the addresses of
    processes that are gone for those of the new ones. So each says that it is here under a name of its own, and waits
    until the first one answers to that name.
    """
    own, others = uuid4().hex, set(range(1, launched()))
    number = int(os.environ["RANK"])
    if number:
        store.set(f"divmf/here/{number}", own)
        attempt = store.get(f"divmf/answer/{own}").decode()
        store.set(f"divmf/{attempt}/{number}", "")
        return f"divmf/{attempt}"
    while others:
        for other in tuple(others):
            if store.check([f"divmf/{own}/{other}"]):
                others.remove(other)
            elif store.check([f"divmf/here/{other}"]):
                store.set(f"divmf/answer/{store.get(f'divmf/here/{other}').decode()}", own)
        time.sleep(0.02)
    return f"divmf/{own}"


@contextmanager
def ended_by_signal() -> Iterator[None]:
    """SIGTERM, with which torchrun ends the others where one failed, as an error that says so."""

    def end(*_: Any) -> None:
        raise ProcessLost(LOST)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except BaseException:  # there is something left to say, and torchrun's signal may come before it is said
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise
    signal.signal(signal.SIGTERM, before)


LOST = (
    "another process of this run was lost, or the job was cancelled. Every finished epoch is kept; the same command"
    " goes on from there, with this or any other number of processes"
)


@contextmanager
def noticing() -> Iterator[None]:
    """An error of the network or of waiting too long as what it means."""
    try:
        yield
    except ProcessLost:
        raise
    except RuntimeError as error:
        raise ProcessLost(LOST) from error


def speaks_for_all() -> bool:
    """Whether this process is the first that failed: it says why, and the others, who fail because it did, are silent.

    Asked of the store where torchrun's processes meet, which outlives any of them.
    """
    if launched() == 1:
        return True
    from torch import distributed

    try:
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = distributed.TCPStore(  # type: ignore[attr-defined]
            address, port, is_master=False, timeout=timedelta(seconds=5)
        )
        return bool(store.add(f"{ATTEMPT.get()}/failed", 1) == 1)
    except RuntimeError:  # without a store, rather twice than not at all
        return True


def all_reduce(value: Any) -> None:
    """Replace an array or a tensor by its sum over the processes."""
    if size() == 1:
        return
    import torch
    from torch import distributed

    with noticing():
        distributed.all_reduce(torch.from_numpy(value) if isinstance(value, np.ndarray) else value)


def total(value: Any) -> "Array":
    """The sum over the processes of an array that each of them has; numbers too."""
    summed = np.array(value, order="C")  # a copy: the caller's stays as it is
    all_reduce(summed)
    return summed


def total_of_parts(parts: Sequence["Array"], like: "Array") -> "Array":
    """The sum of every process's parts, all of the shape and type of `like`.

    float32 is added up in float64, so that it does not show who added what; where a sum is too large for as many parts
    as one process alone would make, that would be of no use.
    """
    exact = like.nbytes * PARTS <= PART_BYTES
    summed = np.zeros(like.shape, dtype=np.float64 if exact else like.dtype)
    for part in parts:
        summed += part
    all_reduce(summed)
    return summed.astype(like.dtype)


def row_range(n_rows: int) -> RowRange:
    """The rows of this process, where those of all are numbered one process after the other."""
    if size() == 1:
        return RowRange(0, n_rows, n_rows)
    counts = [int(count[0]) for count in gathered(np.array([n_rows]))]
    first = sum(counts[: rank()])
    return RowRange(first, first + n_rows, sum(counts), size())


def gathered(value: "Array") -> list["Array"]:
    """What each process has, by rank: arrays of one type and shape."""
    if size() == 1:
        return [value]
    import torch
    from torch import distributed

    own = torch.from_numpy(np.ascontiguousarray(value))
    held = [torch.empty_like(own) for _ in range(size())]
    with noticing():
        distributed.all_gather(held, own)
    return [each.numpy() for each in held]


def gathered_rows(value: "Array") -> list["Array"]:
    """What each process has, by rank: arrays that may differ in length."""
    counts = [int(count[0]) for count in gathered(np.array([len(value)]))]
    padded = np.zeros((max(counts), *value.shape[1:]), dtype=value.dtype)
    padded[: len(value)] = value
    return [rows[:count] for rows, count in zip(gathered(padded), counts, strict=True)]


def gathered_columns(value: "Array") -> list["Array"]:
    """What each process has, by rank: tables of as many rows that may differ in width."""
    return [table.T for table in gathered_rows(np.ascontiguousarray(value.T))]


def shared(value: T) -> T:
    """What the first process has."""
    if size() == 1:
        return value
    from torch import distributed

    held = [value]
    with noticing():
        distributed.broadcast_object_list(held, src=0)
    return held[0]


def all_gather(value: T) -> list[T]:
    """What each process has, by rank."""
    if size() == 1:
        return [value]
    from torch import distributed

    held: list[Any] = [None] * size()
    with noticing():
        distributed.all_gather_object(held, value)
    return held


def broadcast(value: "Array", process: int) -> None:
    """Replace an array by that of one process."""
    if size() == 1:
        return
    import torch
    from torch import distributed

    with noticing():
        distributed.broadcast(torch.from_numpy(value), src=process)


def barrier() -> None:
    """Go on when all processes are here: what one has written, the others can read."""
    all_reduce(np.zeros(1))
