"""A process forked from one that computes has none of its threads, and would wait for them for ever."""

import os
from functools import cache


@cache
def first_used_by() -> int:
    """The process that was the first to compute."""
    return os.getpid()


def check_not_forked() -> None:
    """Refuse to compute in a copy of a process that did: threads, of polars as of our own pools, are not copied."""
    if first_used_by() != os.getpid():
        raise RuntimeError(
            "this process was forked from one that had used divmf, whose threads it does not have; start it with"
            " multiprocessing's 'spawn' or 'forkserver', or load the model after the fork (servers: no preloading)"
        )
