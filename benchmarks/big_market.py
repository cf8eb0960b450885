"""A big synthetic marketplace on disk: parquet parts, each made on its own, so that none needs the memory of all.

`python -m benchmarks.big_market 1000000x20000x50000000 FOLDER` makes it, or what is not there of it yet. Users like a
few genres and items are seen by a power law (`data.synthetic`). The ids of a part's users lie all over the range of
ids, as they do in a log written day by day: no part can be passed over by a process that reads a range of users.
"""

import sys
from pathlib import Path

import numpy as np
import polars as pl

from divmf.data.synthetic import LEAST, SPAN, START, Shelves, Tastes
from divmf.engine.arrays import Array

PART = 2_500_000  # interactions in a part, about
SEED = 0


def parts_of(interactions: int) -> int:
    """How many parts there are."""
    return max(2, round(interactions / PART))


def scattered(numbers: Array, count: int) -> Array:
    """The same numbers in another order: n → n·m mod count, with m prime to count and near its golden section."""
    step = int(count * 0.6180339887)
    while np.gcd(step, count) != 1:
        step += 1
    return numbers * step % count


def part_of(number: int, shelves: Shelves, users: int, items: int, interactions: int) -> pl.DataFrame:
    """One part: all interactions of a range of users, in the order of their times."""
    n_parts = parts_of(interactions)
    first, last = (users * edge // n_parts for edge in (number, number + 1))
    rng = np.random.default_rng([SEED, 1, number])
    tastes = Tastes.random(last - first, shelves.n_genres, rng)
    wanted = interactions * (number + 1) // n_parts - interactions * number // n_parts
    drawn = np.empty(0, dtype=np.int64)  # user * items + item, each once
    while missing := wanted - len(drawn):
        short = np.maximum(LEAST - np.bincount(drawn // items, minlength=last - first), 0)
        counts = short + rng.multinomial(max(0, missing - short.sum()), tastes.activity)
        who = np.repeat(np.arange(last - first), counts)
        more = np.sort(np.concatenate([drawn, who * items + shelves.draw(tastes.draw(who, rng), rng)]))
        drawn = more[np.diff(more, prepend=-1) > 0][:wanted]
    times = START + rng.integers(0, SPAN, wanted)
    who = scattered(first + drawn // items, users)
    made = pl.DataFrame({"user": who, "item": drawn % items, "timestamp": times})
    named = [(pl.lit(letter) + pl.col(name).cast(pl.String).str.zfill(8)).alias(f"{name}_id")
             for letter, name in (("u", "user"), ("i", "item"))]  # fmt: skip
    return made.sort("timestamp").select(*named, "timestamp")


def write_market(folder: Path, users: int, items: int, interactions: int) -> None:
    """Make the parts that are not there yet; each is written under another name first."""
    folder.mkdir(parents=True, exist_ok=True)
    shelves = Shelves.random(items, np.random.default_rng([SEED, 0]))
    for number in range(parts_of(interactions)):
        path = folder / f"part-{number:05d}.parquet"
        if not path.exists():
            part_of(number, shelves, users, items, interactions).write_parquet(temporary := path.with_suffix(".tmp"))
            temporary.rename(path)
            print(f"# {path.name} of {parts_of(interactions)}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    write_market(Path(sys.argv[2]), *map(int, sys.argv[1].split("x")))
