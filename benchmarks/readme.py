"""The README's table of results: some methods' diversity at 10% nDCG loss, k = 5, on the shared model."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.frontier import DATASETS, Place, Points
from benchmarks.matched import LOSSES, METRICS, table_of

SHOWN = {"market": "**market** (the default)", "divmf": "DivMF (the paper's method)", "sinkhorn": "Sinkhorn",
         "fairrec": "FairRec"}  # fmt: skip
NAME, K, LOSS = "ml-1m", 5, 0.1
PLACE = re.compile(r"(<!-- made by `make results` -->\n).*?(<!-- end -->)", re.DOTALL)


def write_table(file: Path, folder: Path, seeds: Sequence[int]) -> None:
    """Put the table where the file has a place for it."""
    lines = [f"| {DATASETS[NAME][0]} | coverage | entropy | Gini |", "|---|---|---|---|", *rows(NAME, folder, seeds)]
    text, found = PLACE.subn(lambda place: place[1] + "\n".join(lines) + "\n" + place[2], file.read_text())
    if not found:
        raise ValueError(f"{file} has no place for the table: two comments, as {PLACE.pattern} says")
    file.write_text(text)


def rows(name: str, folder: Path, seeds: Sequence[int]) -> Iterator[str]:
    """The model itself, then the methods; the best of a column is bold."""
    starts = [Points.load(Place(name, "softmax", seed, folder).file("market", K)) for seed in seeds]
    model = [np.mean([getattr(start, metric)[0] for start in starts]) for metric in METRICS]
    plain = " | ".join(number(value, metric) for value, metric in zip(model, METRICS, strict=True))
    yield f"| the model alone | {plain} |"
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
        yield f"| {SHOWN[method]} | {' | '.join(shown)} |"


def number(value: float, metric: str) -> str:
    """A metric with as many digits as mean something."""
    return f"{value:.2f}" if metric == "entropy" else f"{value:.3f}"
