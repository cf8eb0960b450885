"""The whole job on MovieLens-1M against one BPR model of implicit, trained to its best validation nDCG@5.

The whole job: the model chosen (`DivMF()`), the whole curve with the metrics of every point, the point picked,
everybody's lists written; from the split on. The whole command: `divmf train`, with imports and reading, the picked
point measured, in a process of its own.

implicit's learning rate, regularization and number of epochs are looked for before, for each number of factors, and
only one training with the settings of the best validation nDCG is timed. The most accurate of all is the last row.

`python -m benchmarks job` does so with leave-one-out and all that is tried; `python -m benchmarks.whole_job
--factors 32 --hold-out` with one number of factors and a fifth of every user's interactions held out.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.data import real_split
from benchmarks.models import split_of
from benchmarks.side_by_side import THREADS, both, in_turn, prepare, ratio, table

DATA, K, SEED, REPEATS = "ml-1m", 5, 0, 2
FACTORS, RATES, L2 = (32, 64, 128), (0.01, 0.02, 0.05), (0.003, 0.01, 0.03)
EVERY, PATIENCE, MOST = 10, 3, 200  # epochs between two looks; looks without a better one; epochs at the most


class Best(NamedTuple):
    """What suits implicit best, with so many factors."""

    ndcg: float
    rate: float
    l2: float
    epochs: int


def implicit_model(factors: int, rate: float, l2: float, epochs: int) -> Any:
    """implicit's BPR, not yet trained; a training that goes on draws other samples."""
    from implicit.cpu.bpr import BayesianPersonalizedRanking

    return BayesianPersonalizedRanking(
        factors=factors,
        learning_rate=rate,
        regularization=l2,
        iterations=epochs,
        num_threads=THREADS,
        random_state=np.random.default_rng(SEED),
    )


def validation_ndcg(split: Any, model: Any) -> float:
    """nDCG@5 of implicit's vectors, by our lists and metrics."""
    from divmf.ranking.lists import TopK
    from divmf.ranking.metrics import measure

    lists = TopK.from_factors(model.user_factors, model.item_factors, split.train, K)
    return measure(lists, split.valid.matrix)["ndcg"]


def best_of_implicit(split: Any, train: Any, factors: int, rates: Sequence[float], weights: Sequence[float]) -> Best:
    """Of a few learning rates and λ, those with the best validation nDCG, and after how many epochs."""
    found = []
    for rate, l2 in product(rates, weights):
        model = implicit_model(factors, rate, l2, EVERY)
        looks: list[float] = []
        while len(looks) * EVERY < MOST and len(looks) - int(np.argmax(looks or [0])) <= PATIENCE:
            model.fit(train, show_progress=False)  # goes on from where it was
            looks.append(validation_ndcg(split, model))
        found.append(Best(max(looks), rate, l2, EVERY * (1 + int(np.argmax(looks)))))
        print(f"# implicit, {factors} factors: {found[-1]}", file=sys.stderr, flush=True)
    return max(found)


def whole_job(split: Any) -> float:
    """Choose a model, the whole curve, pick, write lists; validation nDCG before diversifying."""
    from divmf.estimator import DivMF

    with tempfile.TemporaryDirectory() as folder:
        fitted = DivMF(k=K, seed=SEED).fit(split, Path(folder) / "run")
        fitted.at(ndcg_drop=0.05).recommend_frame().write_parquet(Path(folder) / "lists.parquet")
        base = fitted.curve.base.valid["ndcg"]
    return float(base)


def whole_command(hold_out: bool) -> None:
    """The same as a command, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["train", DATA, "-o", f"{folder}/run", "-q", *(["--hold-out", "20%"] if hold_out else [])]
        subprocess.run([sys.executable, "-m", "divmf", *words], check=True)


def main(
    numbers: Sequence[int] = FACTORS, hold_out: bool = False, rates: Sequence[float] = RATES,
    weights: Sequence[float] = L2,
) -> None:  # fmt: skip
    """Measure and print a Markdown table."""
    from scipy import sparse
    from threadpoolctl import threadpool_limits

    split = split_of(DATA, SEED) if hold_out else real_split(DATA)
    train = sparse.csr_matrix(split.train.matrix)

    def by_implicit(factors: int, best: Best) -> None:
        with threadpool_limits(1, "blas"):  # as it asks for: it has threads of its own
            implicit_model(factors, best.rate, best.l2, best.epochs).fit(train, show_progress=False)

    ours: list[float] = []
    best = {factors: best_of_implicit(split, train, factors, rates, weights) for factors in numbers}
    theirs = {f"{factors}": partial(by_implicit, factors, found) for factors, found in best.items()}
    mine = {"job": lambda: ours.append(whole_job(split)), "command": partial(whole_command, hold_out)}
    took = in_turn(mine | theirs, REPEATS, both)
    named = {"job": "divmf: choose, curve, pick, lists", "command": "`divmf train ml-1m`, imports and reading included"}
    rows = [[label, f"{ours[0]:.4f}", *seconds_of(took[way]), "", ""] for way, label in named.items()]
    for factors, found in sorted(best.items(), key=lambda each: each[1].ndcg):
        seconds = took[f"{factors}"]
        ratios = [" and ".join(f"{ratio(took[way][:, clock], seconds[:, clock]):.2f}" for way in named)
                  for clock in (0, 1)]  # fmt: skip
        label = f"implicit: one BPR model, {factors} factors, {found.epochs} epochs at {found.rate}, λ {found.l2}"
        rows.append([label, f"{found.ndcg:.4f}", *seconds_of(seconds), *ratios])
    columns = [
        "",
        "validation nDCG@5",
        "seconds",
        "seconds of all cores",
        "job and command take × this",
        "of all cores",
    ]
    table(columns, rows)


def seconds_of(took: np.ndarray) -> list[str]:
    """Medians, by both clocks."""
    return [f"{median:.1f}" for median in np.median(took, axis=0)]


if __name__ == "__main__":
    prepare()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--factors", type=int, nargs="*", default=FACTORS, help="of implicit's models")
    parser.add_argument("--hold-out", action="store_true", help="hold out a fifth in the place of one interaction")
    parser.add_argument("--rates", type=float, nargs="*", default=RATES, help="learning rates that are tried")
    parser.add_argument("--l2", type=float, nargs="*", default=L2, help="λ that are tried")
    asked = parser.parse_args()
    main(asked.factors, asked.hold_out, asked.rates, asked.l2)
