"""The market on models of other libraries, MovieLens-1M: how even exposure becomes, and whether it does so steadily.

implicit's ALS and BPR and irspack's iALS go in as vectors; lists of implicit's ALS in a CSV go through `divmf rerank`.
A fifth of each user's items is held out; lists of 5. `python -m benchmarks strangers` prints the table.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.frontier import DEEPEST, KS, Place, Points, curve, irspack_ials, measured
from divmf.data.split import Split
from divmf.estimator import Recommender
from divmf.models.scorer import Factors
from divmf.ranking.curve import Point
from divmf.ranking.lists import TopK

K = KS[0]
WIDTH = 500  # candidates a user in the CSV
RHOS = ("0.1", "0.4", "1.6", "6.4", "25.6")


def main() -> None:
    """Measure and print a Markdown table."""
    print("\n".join(rows()))


def section(folder: Path) -> str:
    """The table as a section of the page of results; measured once and kept in the folder."""
    file = folder / "strangers.md"
    if not file.exists():
        file.write_text("\n".join(rows()))
    return INTRODUCTION + "\n\n" + file.read_text()


def rows() -> Iterator[str]:
    """A row a model, as each is measured."""
    yield "| model | nDCG@5 | Gini | Gini at 10% loss | at 20% | lowest | nDCG@5 there | points | largest rise |"
    yield "|---" * 9 + "|"
    split = Place("ml-1m", "ials", 0, Path("fifth")).split()
    made: dict[str, Factors] = {}
    for label, train in models().items():
        made[label] = train(split.train.matrix)
        yield row(label, curve("market", recommender(made[label], split), split, K, {}))
    first = next(iter(made))
    yield row(f"lists of {first} in a CSV, {WIDTH} a user", reranked(recommender(made[first], split), split))


def models() -> Mapping[str, Callable[[sparse.csr_array], Factors]]:
    """Models of other libraries, each from the interactions."""
    from implicit.als import AlternatingLeastSquares
    from implicit.bpr import BayesianPersonalizedRanking

    def of(model: Any, met: sparse.csr_array) -> Factors:
        model.fit(sparse.csr_matrix(met), show_progress=False)
        return Factors.from_arrays(model.user_factors, model.item_factors)

    given = {"num_threads": 1, "random_state": 0}
    return {
        "implicit ALS, defaults (100 factors)": lambda met: of(AlternatingLeastSquares(**given), met),
        "implicit ALS, 64 factors": lambda met: of(AlternatingLeastSquares(factors=64, **given), met),
        "implicit BPR, defaults": lambda met: of(BayesianPersonalizedRanking(**given), met),
        "irspack iALS, 128 components": lambda met: irspack_ials(met, 0),
    }


def recommender(scorer: Factors, split: Split) -> Recommender:
    """A scorer as something that makes lists."""
    return Recommender(scorer.model, split, Point("accuracy", 0, {}, {}), K, None, scorer)


def reranked(model: Recommender, split: Split) -> Points:
    """The curve of `divmf rerank` on lists in a CSV, for some ρ; it ends as the others do."""
    found = [(0.0, *measured(model.lists(k=K, seen="train+valid"), split.test.matrix))]
    with tempfile.TemporaryDirectory() as name:
        wide, lists = Path(name) / "wide.csv", Path(name) / "lists.csv"
        model.lists(k=WIDTH, seen="train+valid").frame.select("user_id", "item_id", "score").write_csv(wide)
        for rho in RHOS:
            command = ["rerank", str(wide), "-k", str(K), "--set", f"rho={rho}", "-o", str(lists), "-q"]
            subprocess.run([sys.executable, "-m", "divmf", *command], check=True, stdout=subprocess.DEVNULL)
            read = TopK.read(lists).aligned(split.user_ids, split.item_ids)
            found.append((float(rho), *measured(read, split.test.matrix)))
            lists.unlink()
            if found[-1][-1].mean() < (1 - DEEPEST) * found[0][-1].mean():
                break
    knobs, covered, nats, uneven, users = (np.array(column) for column in zip(*found, strict=True))
    return Points(knobs, covered, nats, uneven, users, 0.0, {})


def row(label: str, made: Points) -> str:
    """A curve in a few numbers."""
    from benchmarks.matched import values_at

    kept = made.ndcg.mean(axis=1)
    ten, twenty = values_at(made, kept, [0.9 * kept[0], 0.8 * kept[0]])[:, 2]
    lowest = int(made.gini.argmin())
    rise = max(0.0, float(np.diff(made.gini).max()))
    return (
        f"| {label} | {kept[0]:.4f} | {made.gini[0]:.3f} | {ten:.3f} | {twenty:.3f} | {made.gini[lowest]:.3f} |"
        f" {kept[lowest]:.4f} | {len(made.gini)} | {rise:.4f} |"
    )


INTRODUCTION = """## Models of other libraries

The market on models that divmf did not train, MovieLens-1M, seed 0, k = 5, default settings, each to the first point at
which more than 45% of test nDCG is lost, or to where a larger ρ changes nothing. The largest rise is by how much the
test Gini rises at most from one ρ to the next larger: 0 where it falls throughout. Of the lists in the CSV, `divmf
rerank` sees neither a model nor other items than the candidates. Made by `python -m benchmarks strangers`."""
