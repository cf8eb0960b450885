"""The README's table of results: every method's diversity at 10% nDCG loss, k = 5, on the shared model."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.frontier import DATASETS, Place, Points
from benchmarks.matched import LOSSES, METRICS, table_of

SHOWN = {
    "market": "**exposure market** (the default)", "divmf": "DivMF", "kwon": "Kwon", "karakaya": "Karakaya",
    "fairmatch": "FairMatch", "uimatch": "UImatch", "bayes_rule": "Bayes rule", "popcon": "PopCon",
    "sinkhorn": "Sinkhorn", "mincost_flow": "min-cost flow", "fairrec": "FairRec",
}  # fmt: skip
NAMES, K, LOSS = ("ml-1m", "epinions-15"), 5, 0.1
PLACE = re.compile(r"(<!-- made by `make results` -->\n).*?(<!-- end -->)", re.DOTALL)


def write_table(file: Path, folder: Path, seeds: Sequence[int]) -> None:
    """Put the table where the file has a place for it."""
    lines = ["| data | method | coverage | entropy | Gini |", "|---|---|---|---|---|"]
    for name in NAMES:
        lines += rows(name, folder, seeds)
    text, found = PLACE.subn(lambda place: place[1] + "\n".join(lines) + "\n" + place[2], file.read_text())
    if not found:
        raise ValueError(f"{file} has no place for the table: two comments, as {PLACE.pattern} says")
    file.write_text(text)


def rows(name: str, folder: Path, seeds: Sequence[int]) -> Iterator[str]:
    """The model itself, then the methods; the best of a column is bold."""
    starts = [Points.load(Place(name, "softmax", seed, folder).file("market", K)) for seed in seeds]
    model = [np.mean([getattr(start, metric)[0] for start in starts]) for metric in METRICS]
    accuracy = np.mean([start.ndcg[0].mean() for start in starts])
    plain = " | ".join(number(value, metric) for value, metric in zip(model, METRICS, strict=True))
    yield f"| {DATASETS[name][0]} | MF, accuracy only (nDCG@{K} {accuracy:.4f}) | {plain} |"
    table = {method: cells for (_, method), cells in table_of(name, folder, seeds, K, "shared").items()}
    at = LOSSES.index(LOSS)
    for method in (method for method in SHOWN if method in table):
        low, high = table[method].interval()
        shown = []
        for column, (metric, sign) in enumerate(METRICS.items()):
            value = table[method].value[at, column]
            best = max(sign * table[other].value[at, column] for other in SHOWN if other in table)
            text = number(value, metric)
            bold = f"**{text}**" if sign * value >= best else text
            shown.append(f"{bold} ± {(high - low)[at, column] / 2:.2f}")
        yield f"| | {SHOWN[method]} | {' | '.join(shown)} |"


def number(value: float, metric: str) -> str:
    """A metric with as many digits as mean something."""
    return f"{value:.2f}" if metric == "entropy" else f"{value:.3f}"
