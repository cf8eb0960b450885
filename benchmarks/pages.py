"""The first five of lists that were chosen for ten, beside lists of five; EASE, a fifth held out, test metrics.

`python -m benchmarks pages` prints Gini / coverage of five slots where their nDCG@5 has lost so much.
"""

from typing import Any

import numpy as np

from benchmarks.exposure import EASE_L2, LOSSES
from benchmarks.side_by_side import table

K, LONGER = 5, 10


def five(split: Any, model: Any, k: int, exposure: str) -> Any:
    """nDCG@5, Gini and coverage of the first five at every point.  (points, 3)"""
    from divmf import diversify
    from divmf.ranking.metrics import measure

    made, rows = diversify(model, split, k=k, exposure=exposure, deepest=0.3), []
    for point in made.curve.points:
        lists = made.at(epoch=point.epoch if point.knob else 0).lists(k=K, seen="train+valid")
        found = measure(lists.aligned(split.user_ids, split.item_ids), split.test.matrix, split.train.popularity)
        rows.append([found[name] for name in ("ndcg", "gini", "coverage")])
    return np.array(rows)


def main(names: tuple[str, ...] = ("ml-1m",)) -> None:
    """Measure and print a Markdown table."""
    from divmf.data.datasets import load
    from divmf.models.ease import ease

    rows = []
    for name in names:
        split = load(name).hold_out(seed=0)
        model, base = ease(split.train.matrix, EASE_L2[name]), 0.0
        for k, exposure in ((K, "count"), (LONGER, "count"), (LONGER, "attention")):
            found = five(split, model, k, exposure)
            base, order = base or found[0, 0], np.argsort(found[:, 0])
            cells = []
            for loss in LOSSES:
                kept = base * (1 - loss)
                at = [np.interp(kept, found[order, 0], found[order, column]) for column in (1, 2)]
                cells.append(f"{at[0]:.3f} / {at[1]:.3f}" if kept >= found[:, 0].min() else "–")
            rows.append([name, str(k), exposure, *cells])
    table(["dataset", "k", "exposure", *(f"at {loss:.0%}" for loss in LOSSES)], rows)
