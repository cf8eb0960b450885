"""The whole path of the market against 60 exact diversity epochs from the same model, metrics of neither counted."""

import tempfile
from typing import Any

import numpy as np

from benchmarks.data import REAL, real_split
from benchmarks.side_by_side import REPEATS, table

EPOCHS, L2 = 60, 8.0


def accurate(split: Any) -> Any:
    """The model that both begin from."""
    from divmf.estimator import DivMF

    with tempfile.TemporaryDirectory() as folder:
        return DivMF(l2=L2, learning_rate=0.2, diversity_epochs=0).fit(split, folder).at(epoch=0).weights


def diversified(split: Any, start: Any, method: str, epochs: int) -> tuple[float, int]:
    """Seconds in the diversity phase of a method alone, and how many points it made."""
    from divmf.engine.clock import Clock
    from divmf.models.config import TrainConfig
    from divmf.train.fitting import fit
    from divmf.train.runs import Run

    config, clock, model = TrainConfig(method=method, accuracy_epochs=0, diversity_epochs=epochs), Clock(), start.copy()
    with tempfile.TemporaryDirectory() as folder:
        points = list(fit(Run.start(folder, split, config, model=model), split, config, model, clock))
    return clock.seconds["market" if method == "market" else "diversity epochs"], len(points) - 1


def main() -> None:
    """Measure and print a Markdown table."""
    from divmf.models.config import TrainConfig

    rows = []
    for name in REAL:
        split = real_split(name)
        model = accurate(split)
        ways = {"market": TrainConfig().diversity_epochs, "divmf": EPOCHS}
        took: dict[str, list[float]] = {method: [] for method in ways}
        made = {}
        for turn in range(1 + REPEATS):
            for method, epochs in ways.items():
                seconds, made[method] = diversified(split, model, method, epochs)
                took[method] += [seconds] if turn else []  # the first is to warm up
        market, divmf = np.array(took["market"]), np.array(took["divmf"])
        ratios = market / divmf
        rows.append([
            name, f"{np.median(market):.1f} s ({made['market']} points)", f"{np.median(divmf):.1f} s",
            f"{np.median(ratios):.2f} ({ratios.min():.2f}–{ratios.max():.2f})",
        ])  # fmt: skip
    table(["dataset", "the path of the market", f"{EPOCHS} exact diversity epochs", "ratio"], rows)
