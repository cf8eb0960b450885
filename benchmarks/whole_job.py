"""The whole job on MovieLens-1M against one BPR model of implicit, trained to its best validation nDCG@5.

The whole job: the default method with λ chosen on validation, the whole curve with the metrics of every point, the
point picked, everybody's lists written. For each of a few learning rates, the number of epochs that suits implicit best
is looked for before, and only the training of that one model is timed: the rates are nearly level in nDCG, not in time.
Both start from the split.
"""

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import real_split
from benchmarks.side_by_side import REPEATS, THREADS, both, in_turn, ratio, table

DIM, K, SEED = 32, 5, 0
RATES = (0.005, 0.01, 0.02, 0.05)
EVERY, PATIENCE, MOST = 5, 4, 150  # epochs between two looks; looks without a better one; epochs at the most


def implicit_model(rate: float, epochs: int) -> Any:
    """implicit's BPR, not yet trained."""
    from implicit.cpu.bpr import BayesianPersonalizedRanking

    return BayesianPersonalizedRanking(
        factors=DIM, learning_rate=rate, iterations=epochs, num_threads=THREADS, random_state=SEED
    )


def validation_ndcg(split: Any, model: Any) -> float:
    """nDCG@5 of implicit's vectors, by our lists and metrics."""
    from divmf.ranking.lists import TopK
    from divmf.ranking.metrics import measure

    lists = TopK.from_factors(model.user_factors, model.item_factors, split.train, K)
    return measure(lists, split.valid.matrix)["ndcg"]


def best_of_implicit(split: Any, train: Any) -> dict[float, tuple[float, int]]:
    """For a few learning rates, its best validation nDCG and after how many epochs."""
    found = {}
    for rate in RATES:
        model = implicit_model(rate, EVERY)
        looks: list[float] = []
        while len(looks) * EVERY < MOST and len(looks) - int(np.argmax(looks or [0])) <= PATIENCE:
            model.fit(train, show_progress=False)  # goes on from where it was
            looks.append(validation_ndcg(split, model))
        found[rate] = max(looks), EVERY * (1 + int(np.argmax(looks)))
        print(
            f"# implicit: nDCG {found[rate][0]:.4f} at rate {rate}, epoch {found[rate][1]}", file=sys.stderr, flush=True
        )
    return found


def whole_job(split: Any) -> float:
    """Train, the whole curve, pick, write lists; validation nDCG before diversifying."""
    from divmf.estimator import DivMF

    with tempfile.TemporaryDirectory() as folder:
        fitted = DivMF(dim=DIM, k=K, seed=SEED).fit(split, Path(folder) / "run")
        fitted.at(ndcg_drop=0.05).recommend_frame().write_parquet(Path(folder) / "lists.parquet")
        base = fitted.curve.base.valid["ndcg"]
    return float(base)


def main() -> None:
    """Measure and print a Markdown table."""
    from scipy import sparse
    from threadpoolctl import threadpool_limits

    split = real_split("ml-1m")
    train = sparse.csr_matrix(split.train.matrix)

    def by_implicit(rate: float, epochs: int) -> None:
        with threadpool_limits(1, "blas"):  # as it asks for: it has threads of its own
            implicit_model(rate, epochs).fit(train, show_progress=False)

    best = best_of_implicit(split, train)
    ours = whole_job(split)
    theirs = {f"{rate}": partial(by_implicit, rate, epochs) for rate, (_, epochs) in best.items()}
    took = in_turn({"divmf": lambda: whole_job(split)} | theirs, REPEATS, both)
    rows = [["divmf: train, curve, pick, lists", f"{ours:.4f}", *seconds_of(took["divmf"]), "", ""]]
    for rate, (ndcg, epochs) in best.items():
        seconds = took[f"{rate}"]
        ratios = [f"{ratio(took['divmf'][:, clock], seconds[:, clock]):.2f}" for clock in (0, 1)]
        label = f"implicit: one BPR model, {epochs} epochs at {rate}"
        rows.append([label, f"{ndcg:.4f}", *seconds_of(seconds), *ratios])
    columns = ["", "best validation nDCG@5", "seconds", "seconds of all cores", "divmf takes × this", "of all cores"]
    table(columns, rows)


def seconds_of(took: np.ndarray) -> list[str]:
    """Medians, by both clocks."""
    return [f"{median:.1f}" for median in np.median(took, axis=0)]
