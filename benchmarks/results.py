"""`make results`: the comparison on real data, as docs/results.md and its pictures.

Trains and compares in results/ (what is there is not done again), then writes the page from what was measured.
"""

import importlib.metadata
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from divmf.curve import Curve, Point
from divmf.estimator import diversify
from divmf.experiments.compare import DIVERSITY, LOSSES, NAMES, markdown, one_line
from divmf.report.charts import curve_chart, save_chart
from divmf.runs import Run, read_json

ROOT = Path(__file__).parent.parent
DATASETS = {"ml-1m": ("MovieLens-1M", ["ml-1m"]), "epinions-15": ("Epinions-15", ["epinions", "--k-core", "15"])}


@dataclass(frozen=True)
class Base:
    """An accurate model that every method diversifies: the run that trains it, and the other method on top of it."""

    name: str
    title: str
    flags: tuple[str, ...]
    other: str


BASES = (
    Base("softmax", "MF by softmax, the default", (), "divmf"),
    Base("bpr", "MF by BPR, the paper's", ("--preset", "paper"), "prices"),
)


def main(names: Sequence[str] = (), folder: Path = ROOT / "results") -> None:
    """Train and compare on the datasets named; on all, if none is, and then write the page."""
    pages = [INTRODUCTION]
    for name in names or DATASETS:
        title, data = DATASETS[name]
        curves = {}
        for base in BASES:
            run, out = folder / f"{name}-{base.name}", folder / f"{name}-{base.name}-compare"
            divmf("train", *data, "-o", str(run), *base.flags)
            other = on_same_base(run, folder / f"{name}-{base.name}-{base.other}", base.other)
            if not (out / "matched.parquet").exists():
                divmf("compare", str(run), "-o", str(out), "--also", str(other))
            curves[base.name] = pl.read_parquet(out / "curves.parquet")
            image = ROOT / "docs" / "img" / f"curves-{name}-{base.name}.png"
            image.parent.mkdir(exist_ok=True)
            save_chart(curve_chart(drawn(curves[base.name]), k=5), image)
            table = pl.read_parquet(out / "matched.parquet")
            pages.append(section(name, title, data, base, Run.open(run), table, curves[base.name]))
        pages.append(against_bpr(title, curves))
    if names:
        return
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("divmf", "torch", "numba", "polars"))
    pages.append(f"Made with {versions}.\n")
    (ROOT / "docs" / "results.md").write_text("\n\n".join(pages))


def on_same_base(run: Path, folder: Path, method: str) -> Path:
    """A run that diversifies the model of another run with another method."""
    opened = Run.open(run)
    model, config = opened.model(opened.curve.base), opened.config
    diversify(
        model.users, model.items, opened.split, run=folder, method=method, accuracy=config.accuracy, k=config.k,
        seed=config.seed,
    )  # fmt: skip
    return folder


def against_bpr(title: str, curves: dict[str, pl.DataFrame]) -> str:
    """What every method on either base reaches at a loss from the BPR model's accuracy."""
    made = {base: {name: curve_of(rows) for (name,), rows in table.group_by("method", maintain_order=True)}
            for base, table in curves.items()}  # fmt: skip
    start = next(iter(made["bpr"].values())).base.valid["ndcg"]
    lines = [
        f"## {title}: loss counted from MF by BPR, on either base",
        "Both gains at once: a more accurate model, and a better way to diversify it. Coverage / entropy / Gini on test"
        " at the points chosen on validation.",
        "| base | method | 5% | 10% | 20% |",
        "|---|---|---|---|---|",
    ]
    for base, methods in made.items():
        for name, curve in methods.items():
            cells = []
            for loss in (0.05, 0.1, 0.2):
                found = [curve.best_within(loss, metric, start).test[metric] for metric in DIVERSITY]
                cells.append(" / ".join(f"{value:.3f}" for value in found))
            lines.append(f"| {base} | {name} | {' | '.join(cells)} |")
    return "\n".join([*lines[:1], "", lines[1], "", *lines[2:]])


DRAWN = ("prices", "DivMF", "kwon", "karakaya", "fairmatch", "uimatch", "bayes_rule", "sinkhorn", "fairrec")


def drawn(points: pl.DataFrame) -> dict[str, Curve]:
    """The paper's four, and the strongest of the others: all fifteen do not fit one picture."""
    curves = {name: curve_of(points.filter(pl.col("method") == name)) for name in DRAWN}
    return {name: made if name in NAMES.values() else one_line(made) for name, made in curves.items()}


def curve_of(points: pl.DataFrame) -> Curve:
    """A method's rows of the table of points as its curve."""
    return Curve(tuple(
        Point(row["phase"], row["epoch"], *(parts(row, part) for part in ("valid", "test")), knob=row["knob"])
        for row in points.iter_rows(named=True)
    ))  # fmt: skip


def parts(row: dict[str, float], part: str) -> dict[str, float]:
    """The metrics of one part of a row of the table of points."""
    return {name.removeprefix(f"{part}_"): value for name, value in row.items() if name.startswith(f"{part}_")}


def divmf(*words: str) -> None:
    """Run a command of ours."""
    subprocess.run([sys.executable, "-m", "divmf", *words], check=True)


INTRODUCTION = """# Results

Every method on the lists of the same MF model (32 dimensions), k = 5, seed 0: first on the default model (softmax),
then on the paper's (BPR), so that the gain of a better model and of a better way to diversify it are not mixed.
`prices` are exposure prices (the default), `DivMF` is the paper's diversity phase. Rerankers choose from 100 candidates
a user; prices and DivMF from all items. For each metric and loss, the knob (and the variant of the method) is the one
with the best value **on validation** among those that lose at most so much validation nDCG; what stands here is the
**test**, ± half a 95% interval over resampled users. "nDCG change" is the paired change on test at the point chosen for
Gini; "seconds" is one list-making at the slowest setting (prices and DivMF: their whole curve). Differences of a few
hundredths at one loss are within the noise of the choice: a point is chosen by a validation nDCG that is itself known
to a few per cent. One command makes it all:

    make results"""


def section(
    name: str, title: str, data: list[str], about_base: Base, run: Run, table: pl.DataFrame, curves: pl.DataFrame
) -> str:
    """What one data set showed."""
    base, about = run.curve.base, read_json(run.config_file)["data"]
    text = [
        f"## {title}, {about_base.title}",
        f"{about['users']:,} users, {about['items']:,} items;"
        f" `divmf train {' '.join([*data, *about_base.flags])} -o RUN`, then `divmf compare RUN -o OUT`."
        f" MF on test: nDCG {base.test['ndcg']:.4f}, coverage {base.test['coverage']:.3f},"
        f" entropy {base.test['entropy']:.3f}, Gini {base.test['gini']:.3f}.",
        f"![{title}: accuracy against diversity](img/curves-{name}-{about_base.name}.png)",
    ]
    for loss in LOSSES:
        text += [f"### {title}, {about_base.name}: {loss:.0%} validation nDCG loss", markdown(table, loss)]
    text += [f"### {title}, {about_base.name}: the strongest end of each knob", ends(curves)]
    return "\n\n".join(text)


def ends(curves: pl.DataFrame) -> str:
    """Where each method's most even setting leads, whatever it costs."""
    lines = ["| method | knob | nDCG on test | coverage | entropy | Gini |", "|---|---|---|---|---|---|"]
    for (name,), points in curves.group_by("method", maintain_order=True):
        last = points.sort("valid_gini").row(0, named=True)
        knob = f"epoch {last['epoch']}" if last["knob"] is None else f"{last['knob']:.3g}"
        found = " | ".join(f"{last[f'test_{metric}']:.4f}" for metric in ("ndcg", "coverage", "entropy", "gini"))
        lines.append(f"| {name} | {knob} | {found} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
