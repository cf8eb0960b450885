"""The data of the benchmarks: real where it is present, else a synthetic market of the same size."""

import sys
from functools import cache
from typing import Any

SIZES = {"ml-1m": (6040, 3706, 1_000_209), "epinions-15": (5531, 4287, 186_995)}
REAL = tuple(SIZES)


@cache
def real_split(name: str) -> Any:
    """The leave-one-out split of a dataset by name."""
    from divmf.data.datasets import find, load, marketplace

    if find(name) is None:
        print(f"# {name} is not in the data directory: a synthetic market of its size instead", file=sys.stderr)
        return marketplace(*SIZES[name], seed=0).leave_one_out(0)
    return load(name).leave_one_out(0)
