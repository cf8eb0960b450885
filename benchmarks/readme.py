"""The README's table of results: every method's diversity at 10% nDCG loss, k = 5, on the same model (EASE)."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.frontier import DATASETS, Place, Points
from benchmarks.matched import LOSSES, METRICS, seeds_of, table_of

SHOWN = {
    "market": "**exposure market** (the default)", "fairrec": "FairRec", "sinkhorn": "Sinkhorn",
    "bayes_rule": "Bayes rule", "popcon": "PopCon", "uimatch": "UImatch", "dual_prices": "dual prices",
    "fairmatch": "FairMatch",
}  # fmt: skip
NAMES, BASE, K, LOSS = ("ml-1m", "epinions-15"), "ease", 5, 0.1
PLACE = re.compile(r"(<!-- made by `make results` -->\n).*?(<!-- end -->)", re.DOTALL)


def write_table(file: Path, folder: Path, summary: str) -> None:
    """Put the table, and a summary of all tables, where the file has a place for it."""
    lines = ["| data | method | coverage | entropy | Gini |", "|---|---|---|---|---|"]
    for name in NAMES:
        lines += rows(name, folder)
    lines += ["", summary]
    text, found = PLACE.subn(lambda place: place[1] + "\n".join(lines) + "\n" + place[2], file.read_text())
    if not found:
        raise ValueError(f"{file} has no place for the table: two comments, as {PLACE.pattern} says")
    file.write_text(text)


def rows(name: str, folder: Path) -> Iterator[str]:
    """The model itself, then the methods; the best of a column is bold."""
    starts = [
        Points.load(Place(name, BASE, seed, folder).file("market", K)) for seed in seeds_of(name, BASE, folder, K)
    ]
    model = [np.mean([getattr(start, metric)[0] for start in starts]) for metric in METRICS]
    accuracy = np.mean([start.ndcg[0].mean() for start in starts])
    plain = " | ".join(number(value, metric) for value, metric in zip(model, METRICS, strict=True))
    yield f"| {DATASETS[name][0]} | EASE, accuracy only (nDCG@{K} {accuracy:.4f}) | {plain} |"
    table, at = table_of(name, BASE, folder, K), LOSSES.index(LOSS)
    for method in (method for method in SHOWN if method in table):
        low, high = table[method].interval()
        shown = []
        for column, (metric, sign) in enumerate(METRICS.items()):
            text = number(table[method].value[at, column], metric)
            best = max(sign * float(number(table[other].value[at, column], metric)) for other in SHOWN)
            bold = f"**{text}**" if sign * float(text) >= best else text
            shown.append(f"{bold} ± {(high - low)[at, column] / 2:.2f}")
        yield f"| | {SHOWN[method]} | {' | '.join(shown)} |"


def number(value: float, metric: str) -> str:
    """A metric with as many digits as mean something."""
    return f"{value:.2f}" if metric == "entropy" else f"{value:.3f}"
