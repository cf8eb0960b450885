"""What a curve reaches at a loss of accuracy, with an interval: read off on test, resampling users.

A curve's points are ordered from the model's own lists to the most even. Test nDCG along it is noisy, so it is first
made to fall (isotonic regression: neighbours that do not are averaged); the point where it has fallen by the loss lies
between two neighbours. What is reported is the best value of the metric up to there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import isotonic_regression

from benchmarks.frontier import BASES, Place, Points, methods_on
from divmf.engine.arrays import Array

LOSSES = (0.01, 0.05, 0.1, 0.2)
METRICS = {"coverage": 1, "entropy": 1, "gini": -1}  # and whether more or less of it is better
RESAMPLES = 400
Key = tuple[str, str]  # base, method


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


def cells(curves: Sequence[Points], bases: Sequence[Array], weights: Sequence[Array]) -> Cells:
    """A method's cells, averaged over seeds.

    bases: for each seed, the users' nDCG that the loss is counted from; weights: for each seed, as `weights_of` gives
    """
    each = [read_off(curve, base, weight) for curve, base, weight in zip(curves, bases, weights, strict=True)]
    mean = np.mean(each, axis=0)
    return Cells(mean[0], mean[1:])


def read_off(curve: Points, base: Array, weights: Array) -> Array:
    """The metrics at each loss, for each weighting of the users.  (n_weightings, n_losses, n_metrics)"""
    users = weights.sum(axis=1)
    kept = (weights @ curve.ndcg.T) / users[:, None]  # (n_weightings, n_points)
    start = weights @ base.astype(np.float32) / users  # (n_weightings,)
    best = [sign * np.maximum.accumulate(sign * getattr(curve, name)) for name, sign in METRICS.items()]
    found = np.empty((len(weights), len(LOSSES), len(METRICS)))
    for row, ndcg in enumerate(kept):
        falling = isotonic_regression(ndcg, increasing=False).x
        places = [place_of(falling, (1 - loss) * start[row]) for loss in LOSSES]
        for column, values in enumerate(best):
            found[row, :, column] = np.interp(places, np.arange(len(values)), values)
    return found


def place_of(falling: Array, target: float) -> float:
    """Where a falling sequence passes a value, between the places of its numbers; its ends if it does not."""
    above = int(np.searchsorted(-falling, -target, side="right")) - 1  # the last place that is not below it
    if above < 0 or above == len(falling) - 1:
        return float(max(0, above))
    return above + float((falling[above] - target) / (falling[above] - falling[above + 1]))


def verdict(mine: Cells, others: Mapping[str, Cells], loss: int, metric: int) -> tuple[str, str]:
    """How a method stands in a cell: "best", "tied" or "behind", and the strongest of the others.

    Behind: some other is better, and the interval of the paired difference is on its side. Best: better than all, and
    all intervals on its own side.
    """
    sign = list(METRICS.values())[metric]
    leads = {
        name: sign * (mine.draws[:, loss, metric] - other.draws[:, loss, metric]) for name, other in others.items()
    }
    strongest = max(others, key=lambda name: sign * others[name].value[loss, metric])
    if any(np.percentile(lead, 97.5) < 0 for lead in leads.values()):
        return "behind", strongest
    if all(np.percentile(lead, 2.5) > 0 for lead in leads.values()):
        return "best", strongest
    return "tied", strongest


def table_of(name: str, folder: Path, seeds: Sequence[int], k: int, frame: str) -> dict[Key, Cells]:
    """The cells of every method in a frame: on the shared model alone, or on either, the loss counted from BPR's."""
    bases = ["softmax"] if frame == "shared" else list(BASES)
    start = [start_of(name, bases[-1], seed, folder, k) for seed in seeds]
    weights = [weights_of(len(start[0]), seed=0)] * len(seeds)  # the same users in all seeds: they are who is drawn
    made = {}
    for base in bases:
        for method in methods_on(base):
            files = [Place(name, base, seed, folder).file(method, k) for seed in seeds]
            if all(file.exists() for file in files):
                made[base, method] = cells([Points.load(file) for file in files], start, weights)
    return made


def start_of(name: str, base: str, seed: int, folder: Path, k: int) -> Array:
    """The users' test nDCG of the model itself: what every curve on it begins with."""
    return np.asarray(Points.load(Place(name, base, seed, folder).file("market", k)).ndcg[0])
