"""The whole job on MovieLens-1M against one BPR model of implicit, trained to its best validation nDCG@5.

The whole job: the default method with λ chosen on validation, the whole curve with the metrics of every point, the
point picked, everybody's lists written. implicit's best learning rate and number of epochs are looked for before, and
only the training of that one model is timed. Both start from the split.
"""

import sys
import tempfile
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
    from divmf.metrics import measure
    from divmf.topk import TopK

    lists = TopK.from_factors(model.user_factors, model.item_factors, split.train, K)
    return measure(lists, split.valid.matrix)["ndcg"]


def best_of_implicit(split: Any, train: Any) -> tuple[float, float, int]:
    """Its best validation nDCG over a few learning rates, that rate, and after how many epochs."""
    found = [(0.0, RATES[0], 0)]
    for rate in RATES:
        model = implicit_model(rate, EVERY)
        looks: list[float] = []
        while len(looks) * EVERY < MOST and len(looks) - int(np.argmax(looks or [0])) <= PATIENCE:
            model.fit(train, show_progress=False)  # goes on from where it was
            looks.append(validation_ndcg(split, model))
        found.append((max(looks), rate, EVERY * (1 + int(np.argmax(looks)))))
        print("# implicit: nDCG {:.4f} at rate {} after {} epochs".format(*found[-1]), file=sys.stderr, flush=True)
    return max(found)


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

    def by_implicit() -> None:
        with threadpool_limits(1, "blas"):  # as it asks for: it has threads of its own
            implicit_model(rate, epochs).fit(train, show_progress=False)

    ndcg, rate, epochs = best_of_implicit(split, train)
    ours = whole_job(split)
    took = in_turn({"divmf": lambda: whole_job(split), "implicit": by_implicit}, REPEATS, both)
    labels = {
        "divmf": ["divmf: train, curve, pick, lists", f"{ours:.4f}"],
        "implicit": [f"implicit: one BPR model, {epochs} epochs at {rate}", f"{ndcg:.4f}"],
    }
    rows = []
    for name, seconds in took.items():
        medians, theirs = np.median(seconds, axis=0), took["implicit"]
        rows.append(labels[name] + [f"{median:.1f}" for median in medians]
                    + [f"{ratio(seconds[:, clock], theirs[:, clock]):.2f}" for clock in (0, 1)])  # fmt: skip
    table(["", "best validation nDCG@5", "seconds", "seconds of all cores", "ratio", "ratio of all cores"], rows)
