"""Ideas of docs/research.md against what is kept, on validation: `python -m benchmarks.research`.

Each begins from the models of `make results` (trained if they are not there). A curve is judged by the mean of 1 − Gini
over losses of 0 to 20% of validation nDCG@5, the best that each loss allows.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.frontier import Place, Run, chosen, curve, over_losses, trained
from benchmarks.side_by_side import table

DATASETS, SEEDS, K = ("ml-1m", "epinions-15", "lastfm-15"), (0, 1, 2), 5
EPOCHS = 80
LOST = np.linspace(0, 0.2, 21)  # the losses that a curve is judged by
RATES = (0.05, 0.1, 0.2, 0.4, 0.8)


def looked_at(model: Any, split: Any) -> tuple[float, float]:
    """Validation nDCG and Gini of a model."""
    from divmf.train.fitting import measure_both

    valid, _ = measure_both(model, split, K)
    return valid["ndcg"], valid["gini"]


def stepped(start: Any, split: Any, rate: float, gradient: Callable[[Any, int], None]) -> Iterator[tuple[float, float]]:
    """The points of a diversity phase of our own: Adam on a gradient, from a copy of a model."""
    from divmf.models.epochs import adam

    model = start.copy()
    optimiser = adam(model, rate, 0.0)
    yield looked_at(model, split)
    for epoch in range(EPOCHS):
        gradient(model, epoch)
        optimiser.step()
        yield looked_at(model, split)


def div_gradient(model: Any, split: Any) -> None:
    """Set .grad to that of the paper's L_div, as in an exact epoch."""
    from divmf.models.config import TrainConfig
    from divmf.models.diversity import diversity_gradient

    diversity_gradient(model, np.arange(model.n_users), None, split.train.matrix, TrainConfig(k=K), 0)


def with_bias(start: Any, split: Any, rate: float) -> Iterator[tuple[float, float]]:
    """DivMF's phase with an item bias that is trained: one more dimension, where every user has a one."""
    from divmf.models.mf import MF

    ones, zeros = (torch.ones(start.n_users, 1), torch.zeros(start.n_items, 1))
    wider = MF(torch.cat([start.users, ones], 1), torch.cat([start.items, zeros], 1), start.bias)

    def gradient(model: Any, _: int) -> None:
        with torch.no_grad():
            div_gradient(model, split)
            model.users.grad[:, -1] = 0  # the ones stay

    return stepped(wider, split, rate, gradient)


def jointly(start: Any, split: Any, rate: float, l2: float) -> Iterator[tuple[float, float]]:
    """The softmax loss and L_div together, L_div weighing more from step to step."""
    from divmf.models.full_softmax import softmax_gradient

    weights = np.geomspace(0.01, 100, EPOCHS)

    def gradient(model: Any, epoch: int) -> None:
        softmax_gradient(model, split.train.matrix, l2, 0.5)
        accurate = [table.grad / len(split.train) for table in (model.users, model.items)]
        div_gradient(model, split)
        for parameter, other in zip((model.users, model.items), accurate, strict=True):
            parameter.grad.mul_(float(weights[epoch]) / model.n_users).add_(other)

    return stepped(start, split, rate, gradient)


def diversity(folder: Path, seeds: tuple[int, ...]) -> None:
    """Ways to diversify the softmax model."""
    rows = []
    for name in DATASETS:
        found: dict[str, list[float]] = {}
        for seed in seeds:
            place = Place(name, "softmax", seed, folder)
            split = place.split()
            base = trained(place, split)
            l2 = float(Run.open(place.run).read_tuned()["l2"])
            areas = {}
            for method in ("market", "divmf"):
                found_points = curve(method, base, split, K, chosen(place, method, base, split), part="valid")
                areas[method] = over_losses(found_points.ndcg.mean(axis=1), 1 - found_points.gini, LOST)
            for rate in (0.001, 0.003):
                made = {
                    "divmf, item bias trained": with_bias(base.weights, split, rate),
                    "softmax + L_div": jointly(base.weights, split, rate, l2),
                }
                for way, points in made.items():
                    kept, uneven = np.array(list(points)).T
                    areas[f"{way}, rate {rate}"] = over_losses(kept, 1 - uneven, LOST)
            for way, even in areas.items():
                found.setdefault(way, []).append(even)
        rows += [[name, way, f"{np.mean(areas):.4f}", f"{np.std(areas, ddof=1):.4f}"] for way, areas in found.items()]
    table(["dataset", "way", "mean of 1 − Gini over 0–20% loss", "deviation over seeds"], rows)


def mixed_negatives(seeds: tuple[int, ...]) -> None:
    """BPR with half of the negatives drawn by popularity."""
    from divmf.estimator import DivMF
    from divmf.kernels import draw

    uniform = draw.negatives
    rows = []
    for name in DATASETS:
        found: dict[str, list[float]] = {"uniform": [], "half of them by popularity": []}
        for seed in seeds:
            split = Place(name, "bpr", seed, Path()).split()
            met = np.sort(split.train.users.astype(np.int64) * split.n_items + split.train.items)

            def mixed(users: Any, *rest: Any, met: Any = met, split: Any = split) -> None:
                uniform(users, *rest)
                drawn, key = rest[-1], rest[-2]
                rng = np.random.default_rng([key % 2**63, int(rest[1][0])])
                popular = split.train.items[rng.integers(0, len(split.train), drawn.shape)]
                codes = users.astype(np.int64)[:, None] * split.n_items + popular
                known = met[np.minimum(np.searchsorted(met, codes), len(met) - 1)] == codes
                drawn[:] = np.where((rng.random(drawn.shape) < 0.5) & ~known, popular, drawn)

            for way, negatives in zip(found, (uniform, mixed), strict=True):
                draw.negatives = negatives
                with tempfile.TemporaryDirectory() as run:
                    fitted = DivMF(preset="paper", seed=seed, diversity_epochs=0).fit(split, run)
                    found[way].append(fitted.curve.base.valid["ndcg"])
        rows += [[name, way, f"{np.mean(best):.4f}", f"{np.std(best, ddof=1):.4f}"] for way, best in found.items()]
    draw.negatives = uniform
    table(["dataset", "negatives of BPR", "best validation nDCG@5", "deviation over seeds"], rows)


def rates(folder: Path, seeds: tuple[int, ...]) -> None:
    """Learning rates of the softmax loss: what whole fits reach, and the short fits that one is chosen by."""
    from divmf.models.config import TrainConfig
    from divmf.train.tuning import SEARCHES, TRIAL_EPOCHS, mean_of, trial

    rows = []
    for name in DATASETS:
        whole: dict[float, list[float]] = {rate: [] for rate in RATES}
        short: dict[float, list[float]] = {rate: [] for rate in RATES}
        taken = []
        for seed in seeds:
            place = Place(name, "softmax", seed, folder)
            split = place.split()
            trained(place, split)
            l2 = float(Run.open(place.run).read_tuned()["l2"])
            users = {}
            for rate in RATES:
                config = TrainConfig(seed=seed, l2=l2, learning_rate=rate)
                whole[rate].append(mean_of(trial(split, config, grown=1)))
                users[rate] = trial(split, replace(config, accuracy_epochs=TRIAL_EPOCHS))
                short[rate].append(mean_of(users[rate]))
            taken.append(replace(SEARCHES[1], ends=(-2, 2)).best(users.__getitem__))
        for rate in RATES:
            means = [f"{np.mean(found):.4f} ± {np.std(found, ddof=1):.4f}" for found in (whole[rate], short[rate])]
            rows.append([name, f"{rate:g}", *means, f"{taken.count(rate)} of {len(seeds)}"])
    table(["dataset", "learning rate", "whole fit, validation nDCG@5", "short fit", "taken"], rows)


if __name__ == "__main__":
    rates(Path(__file__).parent.parent / "results", SEEDS)
    diversity(Path(__file__).parent.parent / "results", SEEDS)
    mixed_negatives(SEEDS)
