"""Seconds and peak memory of one exact diversity epoch against the number of users and of items, synthetic.

Each size is a process of its own. Memory is what the epoch needs beyond the parameters, their gradients, the
interactions and what pass 1 remembers of each user (the kept items): that should not grow with users.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from benchmarks.side_by_side import table

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "img" / "growth.png"
BY_USERS = [(n, 20_000) for n in (10_000, 30_000, 100_000, 300_000, 1_000_000)]
BY_ITEMS = [(20_000, n) for n in (5_000, 20_000, 80_000, 200_000)]
DIM, MET = 32, 10  # length of a vector; items each user has met


def child(n_users: int, n_items: int) -> dict[str, float]:
    """One size, in this process: seconds of an epoch, by the clock and of all cores together, and peak memory."""
    import time

    import torch
    from scipy import sparse

    from benchmarks.rerankers import peak_gigabytes
    from divmf.models.config import TrainConfig
    from divmf.models.diversity import diversity_gradient
    from divmf.models.mf import MF

    rng = np.random.default_rng(0)

    def epoch_of(some_users: int, some_items: int) -> tuple[float, float]:
        """Seconds of one epoch on random vectors, by the clock and of all cores together."""
        tables = (rng.standard_normal((n, DIM), dtype=np.float32) for n in (some_users, some_items))
        model = MF(*(torch.from_numpy(0.3 * made) for made in tables), torch.zeros(some_items))
        items = np.sort(rng.integers(0, some_items, (some_users, MET), dtype=np.int32), axis=1)
        offsets = np.arange(some_users + 1, dtype=np.int32) * MET
        seen = sparse.csr_array((np.ones(items.size, np.float32), items.ravel(), offsets), (some_users, some_items))
        everybody, config = np.arange(some_users), TrainConfig()
        began = np.array([time.perf_counter(), time.process_time()])
        diversity_gradient(model, everybody, None, seen, config, 0)
        seconds, of_cores = np.array([time.perf_counter(), time.process_time()]) - began
        return seconds, of_cores

    epoch_of(200, 300)  # compiled, and the libraries loaded
    before = peak_gigabytes()
    repeats = 1 if n_users * n_items > 1e9 else 5
    seconds, of_cores = np.median([epoch_of(n_users, n_items) for _ in range(repeats)], axis=0).tolist()
    return {"seconds": seconds, "core_seconds": of_cores, "gigabytes": peak_gigabytes() - before}


def known_gigabytes(n_users: int, n_items: int) -> float:
    """The parameters and their gradients, the interactions, and the items kept for each user."""
    parameters = 2 * 4 * DIM * (n_users + n_items)
    interactions = n_users * (8 * MET + 4)
    kept = n_users * 4 * (105 + 2)
    return (parameters + interactions + kept) / 2**30


def measured(n_users: int, n_items: int) -> dict[str, float]:
    """One size in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.growth", str(n_users), str(n_items)],
        cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, float] = json.loads(done.stdout)
    print(f"# {n_users:,} × {n_items:,}: {found}", file=sys.stderr, flush=True)
    return found


def draw(rows: list[dict[str, object]]) -> None:
    """The figure of docs/benchmarks.md."""
    import altair as alt
    import polars as pl

    charts = []
    for along, title in (("users", "users (items fixed)"), ("items", "items (users fixed)")):
        part = pl.DataFrame([row for row in rows if row["along"] == along])
        for field, label in (("core_seconds", "core seconds an epoch"), ("gigabytes", "peak GB")):
            charts.append(
                alt.Chart(part, width=260, height=190)
                .mark_line(point=True, color="#2a6f97")
                .encode(
                    alt.X("size:Q", title=title, axis=alt.Axis(format="~s", tickCount=5)),
                    alt.Y(f"{field}:Q", title=label),
                )
            )
    PICTURE.parent.mkdir(exist_ok=True)
    alt.concat(*charts, columns=2).save(PICTURE, scale_factor=2)


def main() -> None:
    """Measure, print a Markdown table, draw the figure."""
    rows: list[dict[str, object]] = []
    cells = []
    for along, sizes in (("users", BY_USERS), ("items", BY_ITEMS)):
        for n_users, n_items in sizes:
            found, known = measured(n_users, n_items), known_gigabytes(n_users, n_items)
            rows.append({"along": along, "size": n_users if along == "users" else n_items, **found})
            per_score = 1e9 * found["core_seconds"] / (n_users * n_items)
            sizes_in_gb = (found["gigabytes"], known, found["gigabytes"] - known)
            cells.append(
                [f"{n_users:,} × {n_items:,}", f"{found['seconds']:.2f}", f"{per_score:.2f}"]
                + [f"{size:.2f}" for size in sizes_in_gb]
            )
    header = ["users × items", "seconds an epoch", "core nanoseconds a score", "peak GB beyond the libraries"]
    table([*header, "of it parameters, gradients, data", "the rest"], cells)
    draw(rows)


if __name__ == "__main__":
    print(json.dumps(child(*map(int, sys.argv[1:]))))
