"""What several processes do in test_distributed.py: `torchrun distributed_work.py FOLDER [DATASET …]`; or one alone."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from divmf.data.datasets import load, marketplace
from divmf.data.split import Split
from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.market.stakes import stake_of, stakes_of
from divmf.models.config import TrainConfig
from divmf.models.diversity import diversity_gradient
from divmf.models.epochs import epoch_rng, optimisers_of
from divmf.models.full_softmax import softmax_gradient
from divmf.models.mf import MF
from divmf.models.sampling import submatrices
from divmf.models.steps import by_autograd, on_all_rows, on_touched_rows
from divmf.ranking.lists import TopK
from divmf.ranking.metrics import measure
from divmf.ranking.retrieval import recommend
from divmf.train.fitting import fit
from divmf.train.runs import Run

EXACT = {"softmax in float32", "diversity in float32", "metrics", "stakes"}  # of these every bit is the same

DIVERSITY: dict[str, dict[str, Any]] = {
    "whole": {},
    "random": {"unmask_policy": "random"},
    "listed": {"unmask_policy": "none", "skew_rows": "list"},
    "blocks": {"rows": 50, "columns": 25},
    "released blocks": {"preset": "release", "diversity_k": 4, "unmask_policy": "random", "rows": 50, "columns": 25},
}

CURVES: dict[str, dict[str, Any]] = {
    "softmax and market": {"l2": 8.0, "accuracy_epochs": 6, "diversity_epochs": 5, "stake": 1.0},
    "the paper": {"preset": "paper", "accuracy_epochs": 3, "diversity_epochs": 4, "learning_rate": 0.005},
    "rows and blocks": {
        "preset": "paper", "adam": "rows", "rows": 400, "columns": 500, "accuracy_epochs": 3, "diversity_epochs": 3,
        "learning_rate": 0.005, "unmask_policy": "random",
    },
    "in turn": {"preset": "paper", "schedule": "alternating", "diversity_epochs": 3, "learning_rate": 0.005},
    "both at once": {"preset": "paper", "schedule": "joint", "diversity_epochs": 4, "rows": 500},
    "released": {"preset": "release", "accuracy_epochs": 2, "diversity_epochs": 2, "learning_rate": 0.005},
}  # fmt: skip


def share_of(split: Split) -> Split:
    """What this process holds."""
    return split if comm.size() == 1 else split.of_process(comm.rank(), comm.size())


def everybodys(table: Any) -> Array:
    """The rows of all processes."""
    return np.concatenate(comm.gathered_rows(table.detach().numpy()))


MARKET = marketplace(users=123, items=60, interactions=1500, seed=1)


def some_split() -> Split:
    return share_of(MARKET.leave_one_out(0))


def some_model(split: Split, dtype: torch.dtype = torch.float64) -> MF:
    """A model that knows something, so that scores differ."""
    span = comm.row_range(split.n_users)
    rng = np.random.default_rng(0)
    tables = [torch.from_numpy(0.6 * rng.normal(size=(n, 5))).to(dtype) for n in (span.whole, split.n_items)]
    bias = torch.from_numpy(rng.normal(size=split.n_items)).to(dtype)
    users = tables[0][span.first : span.first + split.n_users].clone()
    return MF(users.requires_grad_(), tables[1].requires_grad_(), bias)


def gradients(model: MF, loss: float) -> list[Array]:
    assert model.items.grad is not None
    return [np.array([loss]), everybodys(model.users.grad), model.items.grad.numpy()]


def weights(model: MF, loss: float) -> list[Array]:
    return [np.array([loss]), everybodys(model.users), model.items.detach().numpy()]


def exact_steps(split: Split) -> dict[str, list[Array]]:
    """One step on everything."""
    found = {}
    for dtype in (torch.float64, torch.float32):
        model = some_model(split, dtype)
        found[f"softmax in {str(dtype)[6:]}"] = gradients(model, softmax_gradient(model, split.train.matrix, 0.5))
        model, config = some_model(split, dtype), TrainConfig(k=3, unmask=10)
        loss = diversity_gradient(model, np.arange(model.n_users), None, split.train.matrix, config, 5)
        found[f"diversity in {str(dtype)[6:]}"] = gradients(model, loss)
    return found


def diversity_steps(split: Split) -> dict[str, list[Array]]:
    """The gradients of every block of an epoch, float64."""
    found = {}
    for name, settings in DIVERSITY.items():
        config, model = TrainConfig(**{"k": 3, "unmask": 10} | settings), some_model(split)
        rng, span = np.random.default_rng(3), comm.row_range(model.n_users)
        blocks = submatrices(model.n_users, model.n_items, config.rows, config.columns, rng, span)
        for number, (users, items) in enumerate(blocks):
            loss = diversity_gradient(model, users, items, split.train.matrix, config, 7)
            found[f"{name}, block {number}"] = gradients(model, loss)
    return found


def sampled_steps(split: Split) -> dict[str, list[Array]]:
    """BPR and MSE, one step on all pairs, and an epoch of small steps."""
    found = {}
    for accuracy, shuffle in (("bpr", "triples"), ("bpr", "pairs"), ("mse", "pairs")):
        for batch in (1 << 20, 64):
            for steps, adam in (
                (on_all_rows, "dense"), (on_touched_rows, "rows"), (by_autograd, "dense"), (by_autograd, "rows"),
            ):  # fmt: skip
                config = TrainConfig(  # type: ignore[arg-type]
                    model=accuracy, shuffle=shuffle, batch=batch, adam=adam, negatives=2, l2=0.01
                )
                model = some_model(split)
                optimiser = optimisers_of(model, config)["accuracy"]
                loss = steps(model, split.train, config, optimiser, epoch_rng(0, "accuracy", 1))
                size = "one step" if batch > 64 else "an epoch"
                found[f"{accuracy}, {shuffle}, {steps.__name__}, {adam}, {size}"] = weights(model, loss)
    return found


def stakes_and_metrics(split: Split) -> dict[str, list[Array]]:
    model = some_model(split, torch.float32)
    items, scores = recommend(model, split.train.matrix, 4)
    lists = TopK(items, scores, split.user_ids, split.item_ids)
    measured = measure(lists, split.valid.matrix, comm.total(split.train.popularity))
    return {
        "stakes": [
            np.array([stake_of(split)]),
            np.array([stake_of(share_of(MARKET.hold_out(0)))]),
            np.concatenate(comm.gathered_rows(stakes_of(split.train.matrix, 0.7))),
        ],
        "metrics": [np.array(list(measured.values())), np.concatenate(comm.gathered_rows(items))],
    }


def single_steps() -> dict[str, list[Array]]:
    split = some_split()
    return exact_steps(split) | diversity_steps(split) | sampled_steps(split) | stakes_and_metrics(split)


def curves(folder: Path, dataset: str) -> None:
    """A run of each kind in a folder of its own."""
    data = load(dataset)
    split = share_of((data.k_core(15) if dataset == "ml-100k" else data).leave_one_out(0))
    for name, settings in CURVES.items():
        config = TrainConfig(**settings)
        run = Run.start(folder / name.replace(" ", "-"), split, config)
        for _ in fit(run, split, config):
            pass


def main() -> None:
    folder, *datasets = sys.argv[1:]
    with comm.process_group():
        found = single_steps()
        if comm.first():
            flat = {f"{name}/{number}": array for name, arrays in found.items() for number, array in enumerate(arrays)}
            np.savez(Path(folder) / "steps.npz", **flat)  # type: ignore[arg-type]
        for dataset in datasets:
            curves(Path(folder), dataset)
    (Path(folder) / f"threads-{os.environ['RANK']}.json").write_text(json.dumps(threads_of_torch()))


def threads_of_torch() -> list[str]:
    """The threads by which processes speak to each other, as Linux names them."""
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return [name for name in names if "gloo" in name]


if __name__ == "__main__":
    main()
