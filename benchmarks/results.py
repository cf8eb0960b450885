"""`make results`: every method on five datasets, three seeds, two lengths of lists, as docs/results.md and pictures.

With `--held one`, one item of every user is held out instead of a fifth: docs/results-one.md.

Curves are made in results/ (what is there is not made again), then the paper's experiments on four datasets, then the
page is written.
"""

import argparse
import importlib.metadata
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import paper
from benchmarks.frontier import (
    BASES,
    DATASETS,
    HELD_OUT,
    KS,
    MOST,
    SEEDS,
    WIDEST,
    WIDTHS,
    Place,
    Points,
    make_curves,
    methods_on,
    places,
)
from benchmarks.matched import LOSSES, METRICS, Cells, Key, start_of, table_of, verdict
from benchmarks.readme import write_table
from divmf.engine.files import read_json
from divmf.models.config import SOFTMAX_RATE
from divmf.ranking.curve import Curve, Point
from divmf.reports.chart_files import save_chart
from divmf.reports.charts import curve_chart
from divmf.train.runs import Run

ROOT = Path(__file__).parent.parent
NAMES = {"divmf": "DivMF", "market": "market"}
DEFAULT = ("softmax", "market")
PAGES = {"fifth": "results.md", "one": "results-one.md"}


def main() -> None:
    """Make the curves of the datasets named (of all, if none is), then the page of what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*DATASETS, []], help="datasets; all if none is named")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many")
    parser.add_argument("--held", action="append", choices=list(HELD_OUT), help="what is held out; a fifth if not said")
    parser.add_argument("--folder", type=Path, default=ROOT / "results", help="where curves are kept")
    asked = parser.parse_args()
    names, seeds = asked.names or list(DATASETS), SEEDS[: asked.seeds]
    # a part must not take the place of the whole
    whole = not asked.names and len(seeds) == len(SEEDS)
    for held in asked.held or ["fifth"]:
        folder = asked.folder / held
        make_curves(places(folder, names, seeds), lambda line: print(line, flush=True))
        file = (ROOT / "docs" if whole else asked.folder) / PAGES[held]
        text = page(folder, names, seeds, file.parent / "img")
        if whole and held == "fifth":
            write_table(ROOT / "README.md", folder, seeds)
            paper.reproduce(asked.folder / "reproduce")
            text += "\n" + paper.section(asked.folder / "reproduce", file.parent / "img") + "\n"
        file.write_text(text)
        print(file)


def page(folder: Path, names: Sequence[str], seeds: Sequence[int], images: Path) -> str:
    """The whole of it, for what is held out in this folder."""
    sections, standing = [], {frame: Counter[tuple[str, str]]() for frame in FRAMES}
    for name in names:
        found = [seed for seed in seeds if (Place(name, "bpr", seed, folder).run / "done").exists()]
        sections.append(about(name, folder, found))
        image = f"curves-{name}{'' if folder.name == 'fifth' else '-one'}.png"
        draw(name, folder, images / image)
        sections.append(f"![{DATASETS[name][0]}: accuracy against diversity](img/{image})")
        for frame, text in FRAMES.items():
            tables = {k: table_of(name, folder, found, k, frame) for k in KS}
            for made in tables.values():
                count(name, made, standing[frame])
            sections += [f"### {DATASETS[name][0]}: {text}", *(metric_table(metric, tables) for metric in METRICS)]
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("divmf", "torch", "numba", "polars"))
    few, many = min(WIDEST.values()), max(WIDEST.values())
    fewer, more = (", ".join(name for name, most in WIDEST.items() if most == width) for width in (few, many))
    introduction = INTRODUCTION.format(
        held=HELD_OUT[folder.name],
        names=len(names), seeds=len(seeds), widths=", ".join(str(width) for width in WIDTHS if width <= MOST),
        fewer=fewer, few=few, more=more, many=many,
    )  # fmt: skip
    return "\n\n".join([introduction, summary(standing, names), *sections, f"Made with {versions}.\n"])


FRAMES = {
    "shared": "loss from the shared model, MF by softmax",
    "bpr": "loss from MF by BPR, on either model",
}


DRAWN = ("market", "divmf", "kwon", "karakaya", "fairmatch", "uimatch", "bayes_rule", "sinkhorn", "fairrec")


def draw(name: str, folder: Path, file: Path) -> None:
    """The curves of seed 0 on the softmax model, k = 5: the paper's four, and the strongest of the others."""
    place = Place(name, "softmax", 0, folder)
    loaded = {method: Points.load(place.file(method, 5)) for method in DRAWN if place.file(method, 5).exists()}
    file.parent.mkdir(exist_ok=True)
    save_chart(curve_chart({NAMES.get(method, method): curve_of(made) for method, made in loaded.items()}, k=5), file)


def curve_of(points: Points) -> Curve:
    """The test metrics of the points as a curve."""
    rows = zip(points.knob, points.coverage, points.entropy, points.gini, points.ndcg.mean(axis=1), strict=True)
    made = []
    for number, (knob, *values) in enumerate(rows):
        test = dict(zip((*METRICS, "ndcg"), map(float, values), strict=True))
        made.append(Point("setting" if number else "accuracy", number, test, test, knob=float(knob)))
    return Curve(tuple(made))


def count(name: str, table: Mapping[Key, Cells], standing: Counter[tuple[str, str]]) -> None:
    """How the default stands in the cells of 5, 10 and 20%."""
    others = {" on ".join(key): made for key, made in table.items() if key != DEFAULT and key[1] != "market"}
    for loss in range(1, len(LOSSES)):
        for metric in range(len(METRICS)):
            standing[name, verdict(table[DEFAULT], others, loss, metric)[0]] += 1


def summary(standing: Mapping[str, Counter[tuple[str, str]]], names: Sequence[str]) -> str:
    """The default against all others, cell by cell."""
    lines = [
        "## Where the default stands",
        "",
        "Cells (dataset × k × metric × loss of 5, 10, 20%) in which softmax + market is clearly better than every other"
        " method (the interval of every paired difference on its side), not distinguishable from the best, or clearly"
        " behind some other:",
        "",
        "| | dataset | clearly best | not distinguishable | behind |",
        "|---|---|---|---|---|",
    ]
    for frame, counts in standing.items():
        for name in [*names, "all"]:
            found = [sum(n for (where, how), n in counts.items() if how == kind and name in (where, "all"))
                     for kind in ("best", "tied", "behind")]  # fmt: skip
            shown = " | ".join(f"{n} ({n / max(1, sum(found)):.0%})" for n in found)
            title = f"**{name}**" if name == "all" else DATASETS[name][0]
            lines.append(f"| {FRAMES[frame]} | {title} | {shown} |")
    return "\n".join(lines)


def metric_table(metric: str, tables: Mapping[int, Mapping[Key, Cells]]) -> str:
    """One metric of all methods, for each k and loss, ± half the interval; the best in bold."""
    column, sign = list(METRICS).index(metric), METRICS[metric]
    heads = [f"k={k}, {loss:.0%}" for k in tables for loss in LOSSES]
    lines = [f"**{metric.capitalize()}**", "", f"| | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    keys = list(dict.fromkeys(key for table in tables.values() for key in table))
    several = len({base for base, _ in keys}) > 1
    best = {k: np.max([sign * made.value[:, column] for made in table.values()], axis=0) for k, table in tables.items()}
    for key in keys:
        shown = []
        for k, table in tables.items():
            if key not in table:  # not made yet
                shown += ["–"] * len(LOSSES)
                continue
            low, high = table[key].interval()
            for loss, value in enumerate(table[key].value[:, column]):
                text = f"{value:.3f}"
                bold = f"**{text}**" if sign * value >= best[k][loss] else text
                shown.append(f"{bold} ± {(high - low)[loss, column] / 2:.3f}")
        method = NAMES.get(key[1], key[1])
        lines.append(f"| {method}{f' on {key[0]}' if several else ''} | {' | '.join(shown)} |")
    return "\n".join(lines)


def about(name: str, folder: Path, seeds: Sequence[int]) -> str:
    """The data, and the models that every method starts from."""
    lines = [f"## {DATASETS[name][0]}", ""]
    for base in BASES:
        runs = [Run.open(Place(name, base, seed, folder).run) for seed in seeds]
        data = read_json(runs[0].config_file)["data"]
        ndcg = [np.mean([start_of(name, base, seed, folder, k) for seed in seeds]) for k in KS]
        if base == "softmax":
            l2 = ", ".join(f"{run.tuned['l2']:.3g}" for run in runs)
            rates = ", ".join(f"{run.tuned.get('learning_rate', SOFTMAX_RATE):.3g}" for run in runs)
            lines.append(
                f"{data['users']:,} users, {data['items']:,} items, {len(seeds)} seeds. λ chosen: {l2}; learning rates:"
                f" {rates}."
            )
        at = ", ".join(f"nDCG@{k} {value:.4f}" for k, value in zip(KS, ndcg, strict=True))
        lines.append(f"MF by {base} on test: {at}.")
        chosen = Place(name, base, 0, folder).settings
        if chosen.exists():
            lines.append(f"Settings chosen on validation: {in_words(read_json(chosen)) or 'the defaults'}.")
        every = [Place(name, base, seed, folder) for seed in seeds]
        if left := [method for method in methods_on(base)
                    if not all(place.file(method, k).exists() for place in every for k in KS)]:  # fmt: skip
            lines.append(f"**Not made yet on this model: {', '.join(NAMES.get(method, method) for method in left)}.**")
    return "\n".join(lines)


def in_words(settings: Mapping[str, Mapping[str, Any]]) -> str:
    """The settings of each method that are not the usual ones."""
    usual = {"candidates": WIDTHS[0]}
    said = {
        method: ", ".join(f"{key} {value}" for key, value in found.items() if usual.get(key) != value)
        for method, found in settings.items()
    }
    return "; ".join(f"{method} {words}" for method, words in said.items() if words)


INTRODUCTION = """# Results

Every method on the lists of the same MF model (32 dimensions): {names} datasets, {seeds} seed(s) (each with its own
models and, where it is drawn, its own split), lists of 5 and 10. `market` is the exposure market, the default;
`DivMF` is the paper's diversity phase; the others are rerankers, which choose from candidates. Two frames, so that
the gain of a better model and of a better way to diversify it are not mixed: first all methods on the softmax model,
the loss counted from it; then methods on either model, the loss counted from MF by BPR.

Here {held}. What a curve reaches at a loss depends on how well the loss is known: one item a
user, as in the paper, tells it badly; a fifth of all holds three to thirty times as many to hit.

What stands in a cell is the value of the metric on test where the method's curve has lost so much **test nDCG** (the
best value up to there; the end of the curve if it never loses so much: those of the market and DivMF go on until a
quarter is lost from both models, unless they end before), averaged over seeds, ± half a 95% interval over resampled
users: how well accuracy is known decides how well the place on the curve is. A method's settings other than its knob
are chosen on validation (seed 0, k = 5; the mean of coverage, entropy and 1 − Gini over losses of 0 to 20%) and used
for all seeds and k. One of a reranker's is how many candidates a user it chooses from, the best of {widths}
({fewer} to {few}: they take too long; {more} to {many}). Prices, too, are solved for the lists that are measured,
with the stakes of users as validation has them. At 1% little can be told from noise. One command makes it all:

    make results"""


if __name__ == "__main__":
    main()
