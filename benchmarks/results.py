"""`make results`: the market and its rivals on five datasets and four models, as docs/results.md and pictures.

Curves are made in results/ (what is there is not made again), then the page is written of what is there: it says which
datasets, seeds, lengths of lists and methods these are. `--page` writes the page alone. The section of the paper's
experiments stays as it stands in the page (`benchmarks/paper.py` makes it).
"""

import argparse
import importlib.metadata
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import levels, paper, strangers
from benchmarks.frontier import (
    BASES,
    DATASETS,
    FIXED,
    KS,
    SEEDS,
    STRONG,
    VECTORS,
    WIDTHS,
    Place,
    Points,
    jobs,
    make_curves,
    methods_on,
)
from benchmarks.matched import LOSSES, METRICS, Cells, seeds_of, table_of, verdict
from benchmarks.readme import write_table
from divmf.engine.files import read_json

ROOT = Path(__file__).parent.parent
COMPARED = [base for base in BASES if base != "auto"]
FULL = 0.9995  # a coverage that is shown as 1.000


def main() -> None:
    """Make the curves of the datasets named (of all, if none is), then the page of what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*DATASETS, []], help="datasets; all if none is named")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many")
    parser.add_argument("--page", action="store_true", help="write the page of the curves that are there")
    parser.add_argument("--folder", type=Path, default=ROOT / "results", help="where curves are kept")
    asked = parser.parse_args()
    folder = asked.folder / "fifth"
    if not asked.page:
        asked_jobs = jobs(folder, asked.names or list(DATASETS), SEEDS[: asked.seeds])
        make_curves(asked_jobs, lambda line: print(line, flush=True))
    file = ROOT / "docs" / "results.md"
    section = paper.HEADING + file.read_text().partition(paper.HEADING)[2]
    file.write_text(page(folder, file.parent / "img") + "\n\n" + section)
    write_table(ROOT / "README.md", folder, summary(folder))
    print(file)


class Cell(NamedTuple):
    """How the market stands in one cell of the tables, beside the strongest of the others."""

    dataset: str
    base: str
    k: int
    metric: str
    loss: float
    standing: str
    value: float
    rival: str
    rival_value: float


@cache
def tables(folder: Path) -> dict[tuple[str, str, int], dict[str, Cells]]:
    """The cells of all methods for each dataset, base model and k that is made."""
    keys = [(name, base, k) for name in DATASETS for base in COMPARED for k in KS]
    found = {(name, base, k): table_of(name, base, folder, k) for name, base, k in keys}
    return {key: table for key, table in found.items() if table}


def standings(folder: Path) -> Iterator[Cell]:
    """Every cell that is made."""
    for (name, base, k), table in tables(folder).items():
        others = {method: made for method, made in table.items() if method != "market"}
        for row, loss in enumerate(LOSSES):
            for column, metric in enumerate(METRICS):
                how, rival = verdict(table["market"], others, row, column)
                values = [float(table[method].value[row, column]) for method in ("market", rival)]
                yield Cell(name, base, k, metric, loss, how, values[0], rival, values[1])


def summary(folder: Path) -> str:
    """All cells in two sentences."""
    cells = list(standings(folder))
    counts = Counter(cell.standing for cell in cells)
    seeds = max(len(seeds_of(*key[:2], folder, key[2])) for key in tables(folder))
    of_k = {k: dict.fromkeys(DATASETS[name][0] for name, _, there in tables(folder) if there == k) for k in KS}
    sets = "; ".join(f"k = {k}: {', '.join(names)}" for k, names in of_k.items() if names)
    bases = ", ".join(dict.fromkeys(base for _, base, _ in tables(folder)))
    return (
        f"Of {len(cells)} comparisons with all other methods on the same model, the market is clearly best in"
        f" {counts['best']}, not distinguishable from the best in {counts['tied']} and behind in {counts['behind']}."
        f" They are three metrics at losses of 5, 10, 20 and 40% of nDCG; {sets}; models {bases}; {seeds}"
        f" seed{'s' if seeds > 1 else ''}. The page of results says which model and method is made on which dataset."
    )


def page(folder: Path, images: Path) -> str:
    """The whole of it, but for the paper's experiments."""
    cells = list(standings(folder))
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("divmf", "irspack", "implicit"))
    parts = [introduction(), made(folder), same_model(cells), behind(cells)]
    parts += [levels.section(folder, images), strangers.section(folder.parent)]
    for name in DATASETS:
        parts += list(details(name, folder))
    return "\n\n".join([*parts, f"Made with {versions}."])


def introduction() -> str:
    """What is compared, and how."""
    fixed = ", ".join(
        f"{method} ({told(settings)})" for method, settings in FIXED.items() if settings and method != "divmf"
    )
    widths = " or ".join(map(str, WIDTHS[1:]))
    return INTRODUCTION.format(fixed=fixed, widths=widths)


def made(folder: Path) -> str:
    """Which datasets, models, lengths, seeds and methods the tables are of."""
    lines, none = (
        ["| dataset | model | k | seeds | methods not made |", "|---|---|---|---|---|"],
        dict[str, list[str]](),
    )
    for name, base, k in ((name, base, k) for name in DATASETS for base in COMPARED for k in KS):
        title = DATASETS[name][0]
        if (table := tables(folder).get((name, base, k))) is None:
            none.setdefault(title, []).append(f"{base} with k = {k}")
            continue
        left = ", ".join(method for method in methods_on(base) if method not in table) or "–"
        seeds = ", ".join(map(str, seeds_of(name, base, folder, k)))
        lines.append(f"| {title} | {base} | {k} | {seeds} | {left} |")
    missing = [f"- {title}: {', '.join(left)}" for title, left in none.items()]
    missing = ["No tables are made of:", "", *missing] if none else ["Everything is made."]
    return "\n".join(["## What is in the tables", "", MADE, "", *lines, "", *missing])


def same_model(cells: list[Cell]) -> str:
    """The market against all others on the same model, cell by cell."""
    lines = ["## On the same model", "", SAME, "", "| model | dataset | clearly best | not distinguishable | behind |",
             "|---|---|---|---|---|"]  # fmt: skip
    for base in [*COMPARED, "all"]:
        of_base = [cell for cell in cells if base in (cell.base, "all")]
        for name in [*dict.fromkeys(cell.dataset for cell in of_base if base != "all"), "all"]:
            counts = Counter(cell.standing for cell in of_base if name in (cell.dataset, "all"))
            if not (total := counts.total()):
                continue
            shown = " | ".join(f"{counts[how]} ({counts[how] / total:.0%})" for how in ("best", "tied", "behind"))
            title = "**all**" if name == "all" else DATASETS[name][0]
            lines.append(f"| {f'**{base}**' if base == 'all' else base} | {title} | {shown} |")
    by_metric = {metric: Counter(cell.standing for cell in cells if cell.metric == metric) for metric in METRICS}
    metrics = "; ".join(
        f"{metric} {n['best']} clearly best, {n['tied']} not distinguishable, {n['behind']} behind"
        for metric, n in by_metric.items()
    )
    full = [cell for cell in cells if cell.metric == "coverage" and min(cell.value, cell.rival_value) > FULL]
    ceiling = (
        f"In {len(full)} cells coverage is 1.000 for the market and for a rival, so that neither can be clearly best."
    )
    level = [cell for cell in cells if cell.standing == "tied" and cell not in full]
    said = [LEVEL, "", *cell_lines(level)] if level else []
    return "\n".join([*lines, "", f"By metric: {metrics}. {ceiling}", "", *said]).rstrip()


def behind(cells: list[Cell]) -> str:
    """Where the market is behind."""
    worse = [cell for cell in cells if cell.standing == "behind"]
    if not worse:
        return "The market is behind no rival in any of these cells."
    return "\n".join(["The cells in which the market is behind:", "", *cell_lines(worse)])


def cell_lines(cells: list[Cell]) -> list[str]:
    """Cells as a table: the market's value, and the strongest rival with its own."""
    return ["| dataset | model | k | loss | metric | market | strongest rival |", "|---" * 7 + "|"] + [
        f"| {DATASETS[cell.dataset][0]} | {cell.base} | {cell.k} | {cell.loss:.0%} | {cell.metric} | {cell.value:.4f} |"
        f" {cell.rival} {cell.rival_value:.4f} |"
        for cell in cells
    ]


def details(name: str, folder: Path) -> Iterator[str]:
    """All figures of a dataset."""
    of_name = {(base, k): table for (there, base, k), table in tables(folder).items() if there == name}
    if not of_name:
        return
    yield f"## {DATASETS[name][0]}"
    for base in dict.fromkeys(base for base, _ in of_name):
        by_k = {k: of_name[base, k] for k in KS if (base, k) in of_name}
        yield f"### {DATASETS[name][0]}, {base}"
        yield about(name, base, folder, list(by_k))
        yield from (metric_table(metric, by_k) for metric in METRICS)


def about(name: str, base: str, folder: Path, ks: list[int]) -> str:
    """The accuracy of the model, and the settings chosen."""
    starts = []
    for k in ks:
        files = [Place(name, base, seed, folder).file("market", k) for seed in seeds_of(name, base, folder, k)]
        starts.append(f"nDCG@{k} {np.mean([Points.load(file).ndcg[0].mean() for file in files]):.4f}")
    known = read_json(Place(name, base, 0, folder).settings)
    said = "; ".join(f"{method} {told(found)}" for method, found in known.items() if method not in FIXED)
    text = f"{BASES[base]}, on test: {', '.join(starts)}. Settings chosen on validation: {said}."
    if base in VECTORS and all("divmf" in tables(folder)[name, base, k] for k in ks):
        points = Points.load(Place(name, base, 0, folder).file("divmf", ks[0])).ndcg.mean(axis=1)
        text += f" DivMF's curve (k = {ks[0]}) ends where {1 - points[-1] / points[0]:.0%} of nDCG is lost."
    return text


def told(settings: Mapping[str, Any]) -> str:
    """Settings in words."""
    return ", ".join(f"{key} {value}" for key, value in settings.items())


def metric_table(metric: str, by_k: Mapping[int, Mapping[str, Cells]]) -> str:
    """One metric of all methods, for each k and loss, ± half the interval; the best in bold."""
    column, sign = list(METRICS).index(metric), METRICS[metric]
    heads = [f"k={k}, {loss:.0%}" for k in by_k for loss in LOSSES]
    lines = [f"**{metric.capitalize()}**", "", f"| | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    best = {k: np.max([sign * made.value[:, column] for made in table.values()], axis=0) for k, table in by_k.items()}
    for method in dict.fromkeys(method for table in by_k.values() for method in table):
        shown = []
        for k, table in by_k.items():
            if method not in table:
                shown += ["–"] * len(LOSSES)
                continue
            low, high = table[method].interval()
            for loss, value in enumerate(table[method].value[:, column]):
                text = f"{value:.3f}"
                bold = f"**{text}**" if sign * value >= best[k][loss] else text
                shown.append(f"{bold} ± {(high - low)[loss, column] / 2:.3f}")
        lines.append(f"| {'DivMF' if method == 'divmf' else method} | {' | '.join(shown)} |")
    return "\n".join(lines)


INTRODUCTION = """# Results

Two questions. **On the same model**: which method makes the lists of a given model most diverse at a given loss of
accuracy? **On the scale of accuracy itself**: which model and method together are most diverse at a given accuracy?
`market` is the exposure market, the default; `DivMF` is the paper's diversity phase, which trains vectors and so
exists for the models trained here by epochs; the others are rerankers, which choose from candidates. The models are
EASE with its λ chosen on validation, iALS of an independent library (irspack, 128 dimensions, alpha0 0.5, reg 0.005),
MF by softmax with 32 dimensions, and MF by BPR with the paper's settings.

A fifth of every user's interactions is held out for the test and a tenth for validation, drawn at random. A cell is
the value of the metric on test where the method's curve has lost so much **test nDCG** of its own model (the best
value up to there; the end of the curve if it never loses so much), averaged over seeds, ± half a 95% interval over
resampled users. The market goes on until 45% are lost; rerankers to the end of their grid; DivMF for 200 epochs at the
most, so that it may end earlier. The market has its default settings everywhere. Settings of a reranker other than its
knob are chosen on validation (seed 0, k = 5; the mean of coverage, entropy and 1 − Gini over losses of 0 to 40%): its
variants with 100 candidates a user, then the best of them with {widths} candidates (FairRec up to 3000).
Methods that take long have fixed settings, which may understate them: {fixed};
DivMF unmasks 500 items.

    make results                          # all curves: many hours on two cores
    python -m benchmarks.results --page   # the page of the curves that are there"""

MADE = f"""The market and its strongest rivals ({", ".join(STRONG)}) come first, then the other
methods. A model and length of lists is in the tables if all of the former are made; what is not made is in no table and
no count."""

LEVEL = """Not distinguishable, other than coverages of 1.000:"""

SAME = """Cells (dataset × k × metric × loss of 5, 10, 20 and 40%) in which the market is clearly better than every
other method on the same model (the interval of every paired difference is on its side), not distinguishable from the
best, or clearly behind some other. A coverage of 1.000 on both sides is not distinguishable."""


if __name__ == "__main__":
    main()
