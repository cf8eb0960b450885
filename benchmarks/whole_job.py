"""The whole job on MovieLens-1M against one BPR model of implicit, trained to its best validation nDCG@5.

The whole job: the model chosen (`DivMF()`), the whole curve with the metrics of every point, the point picked,
everybody's lists written; from the split on. The whole command: `divmf train`, with imports and reading, the picked
point measured, in a process of its own.

implicit's number of factors, learning rate and number of epochs are looked for before, and only the training of that
one model is timed: for each number of factors the most accurate one, since they are nearly level in nDCG, not in time.

`python -m benchmarks job` does so with leave-one-out and all numbers of factors; `python -m benchmarks.whole_job
--factors 32 --hold-out` with one of them and a fifth of every user's interactions held out.
"""

import argparse
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.data import real_split
from benchmarks.models import split_of
from benchmarks.side_by_side import THREADS, both, in_turn, prepare, ratio, table

DATA, K, SEED, REPEATS = "ml-1m", 5, 0, 2
FACTORS, RATES = (32, 64, 128), (0.005, 0.01, 0.02, 0.05)
EVERY, PATIENCE, MOST = 10, 2, 200  # epochs between two looks; looks without a better one; epochs at the most


class Best(NamedTuple):
    """What suits implicit best, with so many factors."""

    ndcg: float
    rate: float
    epochs: int


def implicit_model(factors: int, rate: float, epochs: int) -> Any:
    """implicit's BPR, not yet trained."""
    from implicit.cpu.bpr import BayesianPersonalizedRanking

    return BayesianPersonalizedRanking(
        factors=factors, learning_rate=rate, iterations=epochs, num_threads=THREADS, random_state=SEED
    )


def validation_ndcg(split: Any, model: Any) -> float:
    """nDCG@5 of implicit's vectors, by our lists and metrics."""
    from divmf.ranking.lists import TopK
    from divmf.ranking.metrics import measure

    lists = TopK.from_factors(model.user_factors, model.item_factors, split.train, K)
    return measure(lists, split.valid.matrix)["ndcg"]


def best_of_implicit(split: Any, train: Any, factors: int) -> Best:
    """Of a few learning rates, the one with the best validation nDCG, and after how many epochs."""
    found = []
    for rate in RATES:
        model = implicit_model(factors, rate, EVERY)
        looks: list[float] = []
        while len(looks) * EVERY < MOST and len(looks) - int(np.argmax(looks or [0])) <= PATIENCE:
            model.fit(train, show_progress=False)  # goes on from where it was
            looks.append(validation_ndcg(split, model))
        found.append(Best(max(looks), rate, EVERY * (1 + int(np.argmax(looks)))))
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


def main(numbers: tuple[int, ...] = FACTORS, hold_out: bool = False) -> None:
    """Measure and print a Markdown table."""
    from scipy import sparse
    from threadpoolctl import threadpool_limits

    split = split_of(DATA, SEED) if hold_out else real_split(DATA)
    train = sparse.csr_matrix(split.train.matrix)

    def by_implicit(factors: int, best: Best) -> None:
        with threadpool_limits(1, "blas"):  # as it asks for: it has threads of its own
            implicit_model(factors, best.rate, best.epochs).fit(train, show_progress=False)

    ours: list[float] = []
    best = {factors: best_of_implicit(split, train, factors) for factors in numbers}
    theirs = {f"{factors}": partial(by_implicit, factors, found) for factors, found in best.items()}
    mine = {"job": lambda: ours.append(whole_job(split)), "command": partial(whole_command, hold_out)}
    took = in_turn(mine | theirs, REPEATS, both)
    named = {"job": "divmf: choose, curve, pick, lists", "command": "`divmf train ml-1m`, imports and reading included"}
    rows = [[label, f"{ours[0]:.4f}", *seconds_of(took[way]), "", ""] for way, label in named.items()]
    for factors, found in best.items():
        seconds = took[f"{factors}"]
        ratios = [" and ".join(f"{ratio(took[way][:, clock], seconds[:, clock]):.2f}" for way in named)
                  for clock in (0, 1)]  # fmt: skip
        label = f"implicit: one BPR model, {factors} factors, {found.epochs} epochs at {found.rate}"
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
    asked = parser.parse_args()
    main(tuple(asked.factors), asked.hold_out)
