"""Seconds and peak memory of every reranker, each in a process of its own, at the strongest end of its knob.

Two sizes: MovieLens-1M (candidates from a truncated SVD; a synthetic market of its size where it is absent) and
70,000 users × 44,000 items (synthetic). 100 candidates a user, lists of 5, two threads. Compilation is not counted:
each method first runs on a few users.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
K, WIDTH, THREADS = 5, 100, 2

CHILD = """
import json, sys, time
import numpy as np
import polars as pl
from divmf.data.interactions import Interactions
from divmf.rerank import METHODS
from divmf.ranking.lists import TopK
from benchmarks.rerankers import peak_gigabytes
folder, name, k = sys.argv[1], sys.argv[2], int(sys.argv[3])
arrays = np.load(folder + "/candidates.npz")
train = Interactions(arrays["train_users"], arrays["train_items"], None,
                     pl.Series(np.arange(len(arrays["items"]))), pl.Series(np.arange(int(arrays["n_items"]))))
wide = TopK(arrays["items"], arrays["scores"], train.user_ids, train.item_ids)
method = METHODS[name]
few = TopK(wide.items[:200].copy(), wide.scores[:200].copy(), wide.user_ids[:200], wide.item_ids)
strongest = {method.knob: method.grid[-1]}
method.run(few, k, strongest, train, 0)
seconds = []
while len(seconds) < 3 and sum(seconds) < 20:
    began = time.perf_counter()
    made = method.run(wide, k, strongest, train, 0)
    seconds.append(time.perf_counter() - began)
print(json.dumps({"seconds": float(np.median(seconds)), "runs": len(seconds),
                  "gigabytes": peak_gigabytes()}))
"""


def main() -> None:
    """Measure and print a Markdown table."""
    from divmf.rerank import METHODS

    rows: dict[str, list[str]] = {name: [] for name in METHODS}
    sizes = {"MovieLens-1M": movielens, "70,000 × 44,000": large}
    for make in sizes.values():
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder))
            for name in METHODS:
                found = measured(folder, name)
                rows[name] += [f"{found['seconds']:.2f}", f"{found['gigabytes']:.2f}"]
                print(f"# {name}: {found}", file=sys.stderr, flush=True)
    header = [f"{size}: {what}" for size in sizes for what in ("seconds", "GB")]
    print("| method | " + " | ".join(header) + " |\n|---|" + "---|" * len(header))
    for name, cells in rows.items():
        print(f"| {name} | " + " | ".join(cells) + " |")


def measured(folder: str, name: str) -> dict[str, float]:
    """One method in a process of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": str(THREADS), "NUMBA_NUM_THREADS": str(THREADS)}
    command = [sys.executable, "-c", CHILD, folder, name, str(K)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def peak_gigabytes() -> float:
    """The largest memory of this process so far (Linux); getrusage would count the parent's from before exec too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**20


def movielens(folder: Path) -> None:
    """Candidates of MovieLens-1M from a truncated SVD."""
    from scipy.sparse.linalg import svds

    from divmf.data.datasets import find, load, marketplace

    split = (load("ml-1m") if find("ml-1m") else marketplace(6040, 3706, 1_000_209)).leave_one_out(0)
    left, values, right = svds(split.train.matrix.astype(np.float64), k=32, random_state=0)
    write(folder, left * values, right.T, split.train)


def large(folder: Path) -> None:
    """Candidates of a synthetic market with the users and items of Yelp-15, from random vectors with a popular few."""
    from divmf.data.datasets import marketplace

    data = marketplace(70_000, 44_000, 2_800_000)
    rng = np.random.default_rng(0)
    items = rng.normal(size=(44_000, 32)) * (1 + data.popularity[:, None] / data.popularity.max())
    write(folder, rng.normal(size=(70_000, 32)), items, data)


def write(folder: Path, users: np.ndarray, items: np.ndarray, train: object) -> None:
    """The best candidates of these factors, for the child processes to read."""
    import torch

    from divmf.data.interactions import Interactions
    from divmf.models.mf import MF
    from divmf.ranking.retrieval import recommend

    assert isinstance(train, Interactions)
    model = MF(
        torch.tensor(users, dtype=torch.float32),
        torch.tensor(items.copy(), dtype=torch.float32),
        torch.zeros(len(items)),
    )
    found, scores = recommend(model, train.matrix, WIDTH)
    np.savez(folder / "candidates.npz", items=found, scores=scores, n_items=len(items),
             train_users=train.users, train_items=train.items)  # fmt: skip
