"""A million lists with capacities and ten thousand groups against the same lists without rules: time and memory.

Every user has the 50 best of 300 items drawn at random, by popularity and noise; k = 10. Each of the 20,000 items has a
capacity of four even shares, and each of 10,000 sellers is promised a tenth of an even share, which lists without rules
give nearly all of them, or half of one, which they do not. Every row is made by a process of its own, which reads the
candidates from disk.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

import divmf
from benchmarks.rerankers import peak_gigabytes
from divmf.engine.arrays import Array

N_LISTS, N_ITEMS, N_SELLERS, WIDTH, K = 1_000_000, 20_000, 10_000, 50, 10
DRAWN, AT_ONCE = 300, 10_000
RHO = 0.2
PROMISED = {
    "none": 0.0,
    "capacities; sellers have a tenth": 0.1,
    "capacities; sellers have half": 0.5,
}  # of an even share


def candidates(n_lists: int, first: int) -> tuple[Array, Array]:
    """Items and scores of some users, the best first."""
    rng = np.random.default_rng([0, first])
    popularity = -1.5 * np.log(np.arange(N_ITEMS) + 20.0)
    start, step = rng.integers(0, N_ITEMS, (2, n_lists, 1))
    items = (start + (2 * step + 1) * np.arange(DRAWN)) % N_ITEMS  # distinct where the step is prime to their number
    step5 = (2 * step + 1) % 5 == 0
    items = np.where(step5, (start + np.arange(DRAWN)) % N_ITEMS, items)
    scores = popularity[items] + rng.normal(size=items.shape)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :WIDTH]
    return tuple(np.take_along_axis(table, order, 1) for table in (items.astype(np.int32), scores.astype(np.float32)))


def make(folder: Path, n_lists: int) -> None:
    """The candidates of all users, on disk."""
    tables = [np.lib.format.open_memmap(folder / f"{name}.npy", "w+", kind, (n_lists, WIDTH))
              for name, kind in (("items", np.int32), ("scores", np.float32))]  # fmt: skip
    for first in range(0, n_lists, AT_ONCE):
        for table, made in zip(tables, candidates(min(AT_ONCE, n_lists - first), first), strict=True):
            table[first : first + len(made)] = made


def run(folder: Path, promised: float, ruled: bool) -> dict[str, float]:
    """Lists with or without rules that promise sellers so much of an even share; what they took."""
    items, scores = (np.load(folder / f"{name}.npy") for name in ("items", "scores"))
    wide = divmf.TopK(
        items, scores, pl.Series("user_id", np.arange(len(items))), pl.Series("item_id", np.arange(N_ITEMS))
    )
    even, seller = len(items) * K / N_ITEMS, np.random.default_rng(1).permutation(N_ITEMS) % N_SELLERS
    catalog = pl.DataFrame({"item_id": np.arange(N_ITEMS), "seller": seller})
    floor = max(1, int(promised * len(items) * K / N_SELLERS))
    rules = divmf.Rules(capacity={"count": int(4 * even)}, groups={"seller": {"floor": floor}}, catalog=catalog)
    few, gentle = divmf.TopK(items[:500], scores[:500], wide.user_ids[:500], wide.item_ids), {"floor": {"0": 1}}
    for small in (None, divmf.Rules(capacity={"count": 100}, groups={"seller": gentle}, catalog=catalog)):
        divmf.rerank.market(few, K, rules=small)  # compiled now
    began = time.process_time()
    made = divmf.rerank.market(wide, K, rho=RHO, rules=rules if ruled else None)
    seconds = time.process_time() - began
    counts = made.counts
    of_sellers = np.bincount(seller, counts, minlength=N_SELLERS)
    return {
        "seconds": seconds, "gigabytes": peak_gigabytes(), "over": int(np.maximum(counts - int(4 * even), 0).sum()),
        "missing": int(np.maximum(floor - of_sellers, 0).sum()), "empty": int((made.items < 0).sum()),
    }  # fmt: skip


def main(n_lists: int = N_LISTS) -> None:
    """A table of both."""
    print("| rules | CPU seconds | peak, GB | showings above capacities | missing to floors | empty slots |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, n_lists)
        for label, promised in PROMISED.items():
            call = [sys.executable, "-m", "benchmarks.shop", name, str(promised)]
            found = json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
            print(f"| {label} | {found['seconds']:.1f} | {found['gigabytes']:.2f} | {found['over']:,} |"
                  f" {found['missing']:,} | {found['empty']:,} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]), float(sys.argv[2]) or 0.5, bool(float(sys.argv[2])))))
