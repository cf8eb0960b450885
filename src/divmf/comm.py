"""The processes of one run: `torchrun` starts them, each holds a share of the users and all items.

Alone, every function here gives back what it was given, and torch is not loaded: one code path, one process or many.
Sums are the same to the last bit in every process, so all of them come to the same decisions.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np

from divmf.ids import Array

T = TypeVar("T")
PATIENCE = timedelta(seconds=50)  # how long the others are waited for before the run ends


def rank() -> int:
    """The number of this process; 0 decides, writes and shows progress."""
    return int(os.environ.get("RANK", "0")) if size() > 1 else 0


def size() -> int:
    """How many processes there are."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def first() -> bool:
    """Whether this is the process that writes and speaks."""
    return rank() == 0


@contextmanager
def joined(patience: timedelta = PATIENCE) -> Iterator[None]:
    """Meet the other processes, and part from them at the end."""
    if size() == 1:
        yield
        return
    from torch import distributed

    distributed.init_process_group("gloo", timeout=patience)
    try:
        yield
    finally:
        distributed.destroy_process_group()


def total(value: Array) -> Array:
    """The sum over the processes of an array that each of them has; numbers too."""
    if size() == 1:
        return value
    import torch
    from torch import distributed

    summed = torch.from_numpy(np.array(value, order="C"))  # a copy: the caller's stays as it is
    distributed.all_reduce(summed)
    return summed.numpy()


def shared(value: T) -> T:
    """What the first process has."""
    if size() == 1:
        return value
    from torch import distributed

    held = [value]
    distributed.broadcast_object_list(held, src=0)
    return held[0]


def everyones(value: T) -> list[T]:
    """What each process has, by rank."""
    if size() == 1:
        return [value]
    from torch import distributed

    held: list[Any] = [None] * size()
    distributed.all_gather_object(held, value)
    return held
