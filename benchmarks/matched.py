"""What a curve reaches at a loss of accuracy, or at an accuracy, with an interval: read off on test, resampling users.

A curve's points are ordered from the model's own lists to the most even. Test nDCG along it is noisy, so it is first
made to fall (isotonic regression: neighbours that do not are averaged); the point where it has fallen to the accuracy
in question lies between two neighbours. What is reported is the best value of the metric up to there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

from benchmarks.frontier import BASES, SEEDS, STRONG, Place, Points, methods_on
from divmf.engine.arrays import Array

LOSSES = (0.05, 0.1, 0.2, 0.4)
METRICS = {"coverage": 1, "entropy": 1, "gini": -1}  # and whether more or less of it is better
RESAMPLES = 400
Pair = tuple[str, str]  # base, method


@dataclass(frozen=True, eq=False)
class Cells:
    """A method's values for each loss and metric: as measured, and of each resample.  (…, n_losses, n_metrics)"""

    value: Array
    draws: Array  # (n_resamples, n_losses, n_metrics)

    def interval(self) -> tuple[Array, Array]:
        """The ends of the 95% intervals."""
        low, high = np.percentile(self.draws, [2.5, 97.5], axis=0)
        return low, high


def weights_of(n_users: int, seed: int, resamples: int = RESAMPLES) -> Array:
    """How often each user counts: once, then in each resample.  (1 + n_resamples, n_users)"""
    rng = np.random.default_rng(seed)
    drawn = [np.bincount(rng.integers(0, n_users, n_users), minlength=n_users) for _ in range(resamples)]
    return np.array([np.ones(n_users), *drawn], dtype=np.float32)


def cells(
    curves: Sequence[Any], weights: Array, losses: Sequence[float] = LOSSES, metrics: Mapping[str, int] = METRICS
) -> Cells:
    """A method's cells at some losses from where each curve begins, averaged over curves of several seeds.

    weights: as `weights_of` gives them; the same users in all seeds, for they are who is drawn
    """
    mean = np.mean([read_off(curve, weights, losses, metrics) for curve in curves], axis=0)
    return Cells(mean[0], mean[1:])


def read_off(
    curve: Any, weights: Array, losses: Sequence[float] = LOSSES, metrics: Mapping[str, int] = METRICS
) -> Array:
    """The metrics at each loss, for each weighting of the users.  (n_weightings, n_losses, n_metrics)"""
    kept = (weights @ curve.ndcg.T) / weights.sum(axis=1)[:, None]  # (n_weightings, n_points)
    return np.array([values_at(curve, ndcg, [(1 - loss) * ndcg[0] for loss in losses], metrics) for ndcg in kept])


def values_at(curve: Any, ndcg: Array, targets: Sequence[float], metrics: Mapping[str, int] = METRICS) -> Array:
    """The metrics where a curve of these nDCG has fallen to each target.  (n_targets, n_metrics)

    curve: `Points`, or whatever has a value of each metric for each point
    """
    falling = isotonic_regression(ndcg, increasing=False).x
    places = [place_of(falling, target) for target in targets]
    best = [sign * np.maximum.accumulate(sign * getattr(curve, name)) for name, sign in metrics.items()]
    return np.stack([np.interp(places, np.arange(len(values)), values) for values in best], axis=1)


def place_of(falling: Array, target: float) -> float:
    """Where a falling sequence passes a value, between the places of its numbers; its ends if it does not."""
    above = int(np.searchsorted(-falling, -target, side="right")) - 1  # the last place that is not below it
    if above < 0 or above == len(falling) - 1:
        return float(max(0, above))
    return above + float((falling[above] - target) / (falling[above] - falling[above + 1]))


def verdict(
    mine: Cells, others: Mapping[str, Cells], loss: int, metric: int, metrics: Mapping[str, int] = METRICS
) -> tuple[str, str]:
    """How a method stands in a cell: "best", "tied" or "behind", and the strongest of the others.

    Behind: some other is better, and the interval of the paired difference is on its side. Best: better than all, and
    all intervals on its own side.
    """
    sign = list(metrics.values())[metric]
    leads = {
        name: sign * (mine.draws[:, loss, metric] - other.draws[:, loss, metric]) for name, other in others.items()
    }
    strongest = max(others, key=lambda name: sign * others[name].value[loss, metric])
    if any(np.percentile(lead, 97.5) < 0 for lead in leads.values()):
        return "behind", strongest
    if all(np.percentile(lead, 2.5) > 0 for lead in leads.values()):
        return "best", strongest
    return "tied", strongest


def seeds_of(name: str, base: str, folder: Path, k: int) -> list[int]:
    """The seeds for which the market and all of its strongest rivals are made."""
    places = [Place(name, base, seed, folder) for seed in SEEDS]
    return [place.seed for place in places if all(place.file(method, k).exists() for method in ("market", *STRONG))]


def table_of(name: str, base: str, folder: Path, k: int) -> dict[str, Cells]:
    """The cells of every method on a base model that is made for all of `seeds_of`; none where that is empty."""
    seeds, made = seeds_of(name, base, folder, k), {}
    for method in methods_on(base) if seeds else ():
        files = [Place(name, base, seed, folder).file(method, k) for seed in seeds]
        if all(file.exists() for file in files):
            curves = [Points.load(file) for file in files]
            made[method] = cells(curves, weights_of(curves[0].ndcg.shape[1], seed=0))
    return made


def pairs_of(name: str, folder: Path, k: int, seed: int = 0) -> dict[Pair, Points]:
    """The curves of every base model and method of a seed, the market's first.

    Not of the model that is chosen automatically: it has the market's curve alone, and rivals on it are not made.
    """
    found = {}
    for base in (base for base in BASES if base != "auto"):
        for method in methods_on(base):
            file = Place(name, base, seed, folder).file(method, k)
            if file.exists():
                found[base, method] = Points.load(file)
    return dict(sorted(found.items(), key=lambda entry: entry[0][1] != "market"))


def at_accuracy(pairs: Mapping[Pair, Points], level: float) -> dict[Pair, Array]:
    """The metrics of each pair where its test nDCG is at a level; pairs that are never so accurate have none."""
    means = {pair: made.ndcg.mean(axis=1) for pair, made in pairs.items()}
    return {pair: values_at(made, means[pair], [level])[0] for pair, made in pairs.items() if means[pair][0] >= level}
