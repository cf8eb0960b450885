"""The exposure market on softmax MF, EASE and iALS; a fifth held out."""

import tempfile
import time
from typing import Any

from benchmarks.side_by_side import table

LOSSES = (0.05, 0.1, 0.2)
NAMES = ("ml-1m", "epinions-15")
EASE_L2 = {"ml-1m": 400.0, "epinions-15": 100.0}


def curves(name: str) -> dict[str, tuple[Any, float]]:
    """The curve of each model and method, and the seconds that its points took."""
    from divmf import diversify
    from divmf.data.datasets import load
    from divmf.estimator import DivMF
    from divmf.models.ease import ease
    from divmf.models.ials import ials

    split = load(name).hold_out(seed=0)
    with tempfile.TemporaryDirectory() as folder:
        vectors = DivMF(l2=8.0, learning_rate=0.2, diversity_epochs=0).fit(split, folder).at(epoch=0).weights
    models = {
        "softmax MF, market": lambda: diversify(vectors.users, vectors.items, split, deepest=0.25),
        "EASE, market": lambda: diversify(ease(split.train.matrix, EASE_L2[name]), split, deepest=0.25),
        "iALS, market": lambda: diversify(ials(split.train.matrix, dim=64), split, deepest=0.25),
    }
    made = {}
    for label, fit in models.items():
        began = time.perf_counter()
        curve = fit().curve
        solving = sum(point.seconds or 0.0 for point in curve.points)
        made[label] = curve, solving
        print(
            f"# {name}, {label}: {time.perf_counter() - began:.1f} s in all, {solving:.1f} s of them solving",
            flush=True,
        )
    return made


def main() -> None:
    """Measure and print a Markdown table."""
    rows = []
    for name in NAMES:
        for label, (curve, seconds) in curves(name).items():
            gaps = [point.gap for point in curve.points if point.gap is not None and 0.05 <= lost(curve, point) <= 0.2]
            largest = f"{max(gaps):.1%}" if gaps else "–"
            values = [f"{curve.at_loss(loss, 'gini'):.3f}" for loss in LOSSES]
            covered = f"{curve.at_loss(LOSSES[0], 'coverage'):.3f}"
            rows.append([name, label, f"{curve.base.test['ndcg']:.4f}", covered, *values, largest, f"{seconds:.1f} s"])
    losses = [f"Gini at {loss:.0%}" for loss in LOSSES]
    table(["dataset", "model, method", "nDCG@5", f"coverage at {LOSSES[0]:.0%}", *losses, "gap", "solving"], rows)


def lost(curve: Any, point: Any) -> float:
    """The fraction of the base's validation nDCG that a point has lost."""
    return 1 - float(point.valid["ndcg"]) / float(curve.base.valid["ndcg"])
