"""Seconds and peak memory of each model against users and items, synthetic; what auto would do with large catalogs.

`python -m benchmarks sizes`. Each model and size is a process of its own, 64 dimensions, 20 interactions a user;
memory is what the fit needs beyond libraries and data. What auto would do is what it counts before it begins, and what
it does within a minute or two of counted work, in a process of its own for each catalog (`python -m
benchmarks.models_growth auto 100000` for one of them).
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.side_by_side import table

ROOT = Path(__file__).parent.parent
BY_USERS = tuple((n, 5_000) for n in (2_500, 10_000, 40_000))
BY_ITEMS = tuple((5_000, n) for n in (2_500, 10_000, 20_000))
MODELS = ("ials", "ease", "softmax", "bpr")
BUDGETS = {20_000: 60.0, 100_000: 60.0, 1_000_000: 150.0}  # items, and counted seconds for auto
MET, DIM, MOST_FOR_EASE = 20, 64, 10_000
USERS = 20_000  # of auto with large catalogs


def fit_of(model: str, train: Any) -> Callable[[], object]:
    """The fit of a model with usual settings; of bpr, one epoch."""
    from divmf.models.auto import refit
    from divmf.models.config import TrainConfig
    from divmf.models.epochs import accuracy_epoch, epoch_rng, initial_model, optimisers_of

    if model != "bpr":
        start = {
            "ials_alpha": 0.1,
            "ials_l2": 0.01,
            "dim": DIM,
            "alpha": 0.1,
            "l2": 8.0 if model == "softmax" else 0.01,
        }
        return lambda: refit(model, {"l2": 80.0} if model == "ease" else start, train)
    config = TrainConfig(model="bpr", dim=DIM)
    made = initial_model(train.n_users, train.n_items, config)
    optimiser = optimisers_of(made, config)["accuracy"]
    return lambda: accuracy_epoch(made, train, config, optimiser, epoch_rng(0, "accuracy", 1))


def child(model: str, n_users: int, n_items: int) -> dict[str, float]:
    """One model and size, in this process."""
    import time

    from benchmarks.rerankers import peak_gigabytes
    from divmf.data.datasets import marketplace

    fit_of(model, marketplace(200, 100, 2000))()  # compiled, and the libraries loaded
    train = marketplace(n_users, n_items, max(MET * n_users, 2 * n_items))
    fit, before, began = fit_of(model, train), peak_gigabytes(), time.process_time()
    fit()
    return {"seconds": time.process_time() - began, "gigabytes": peak_gigabytes() - before}


def measured(model: str, n_users: int, n_items: int) -> list[str]:
    """The cells of one model and size, from a process of its own."""
    if model == "ease" and n_items > MOST_FOR_EASE:
        return ["–", "–"]
    found = by_process(model, n_users, n_items)
    return [f"{found['seconds']:.1f}", f"{found['gigabytes']:.2f}"]


def by_process(*words: Any) -> dict[str, Any]:
    """What a process of its own says, for its memory."""
    command = [sys.executable, "-m", "benchmarks.models_growth", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    print(f"# {' '.join(map(str, words))}: {found}", file=sys.stderr, flush=True)
    return found


def catalog(n_items: int) -> Any:
    """The split of a made-up market with so many items."""
    from divmf.data.datasets import marketplace

    return marketplace(USERS, n_items, max(MET * USERS, 2 * n_items)).hold_out()


def counted(n_items: int) -> list[str]:
    """What auto counts before it begins: its budget, what the first trial of each kind costs, and what is left out."""
    from divmf.models.auto import openings, usual_budget
    from divmf.models.searches import ARMS, Bench

    split = catalog(n_items)
    budget = usual_budget(split)
    _, live, left_out = openings(Bench(split, 5, 0), list(ARMS), budget)
    cells = [f"{live[name].seconds:.0f} s" if name in live else left_out[name].split(" of memory")[0] for name in ARMS]
    return [f"{n_items:,}", f"{budget:.0f} s", *cells]


def chosen(n_items: int) -> dict[str, Any]:
    """What auto does within its budget, in this process."""
    import time

    from benchmarks.rerankers import peak_gigabytes
    from divmf.models.auto import choose
    from divmf.models.searches import ARMS, told

    split = catalog(n_items)
    before, began = peak_gigabytes(), time.process_time()
    found = choose(split, 5, BUDGETS[n_items])
    trials = [f"{sum(trial.name == name for trial in found.tried)} {name}" for name in ARMS]
    return {
        "trials": ", ".join(trials), "chosen": f"{found.name} ({told(found.settings)})",
        "ndcg": max(trial.ndcg for trial in found.tried), "seconds": time.process_time() - began,
        "gigabytes": peak_gigabytes() - before,
    }  # fmt: skip


def by_auto(n_items: int) -> list[str]:
    """The cells of one catalog."""
    found = by_process("auto", n_items)
    figures = [f"{found['ndcg']:.4f}", f"{found['seconds']:.0f}", f"{found['gigabytes']:.2f}"]
    return [f"{n_items:,}", f"{BUDGETS[n_items]:.0f} s", found["trials"], found["chosen"], *figures]


def main() -> None:
    """Measure and print three Markdown tables."""
    sizes = (*BY_USERS, *BY_ITEMS)
    rows = [[f"{n_users:,} × {n_items:,}", *(cell for model in MODELS for cell in measured(model, n_users, n_items))]
            for n_users, n_items in sizes]  # fmt: skip
    names = [f"{model}, an epoch" if model == "bpr" else model for model in MODELS]
    table(["users × items", *(f"{name}: {what}" for name in names for what in ("core seconds", "GB"))], rows)
    items = f"items ({USERS:,} users)"
    table([items, "usual budget", "first trial of ials", "ease", "softmax"], list(map(counted, BUDGETS)))
    table([items, "budget", "trials", "chosen", "validation nDCG@5", "core seconds", "GB"], list(map(by_auto, BUDGETS)))


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    elif sys.argv[1] == "auto":
        print(json.dumps(chosen(int(sys.argv[2]))))
    else:
        print(json.dumps(child(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
