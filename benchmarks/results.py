"""`make results`: the comparison on real data, as docs/results.md and its pictures.

Trains and compares in results/ (what is there is not done again), then writes the page from what was measured.
"""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import polars as pl

from divmf.curve import Curve, Point
from divmf.experiments.compare import LOSSES, markdown, one_line
from divmf.report.charts import curve_chart, save_chart
from divmf.runs import Run, read_json

ROOT = Path(__file__).parent.parent
DATASETS = {"ml-1m": ("MovieLens-1M", ["ml-1m"]), "epinions-15": ("Epinions-15", ["epinions", "--k-core", "15"])}


def main(folder: Path = ROOT / "results") -> None:
    """Train, compare, write."""
    pages = [INTRODUCTION]
    for name, (title, data) in DATASETS.items():
        run, out = folder / name, folder / f"{name}-compare"
        divmf("train", *data, "-o", str(run))
        if not (out / "matched.parquet").exists():
            divmf("compare", str(run), "-o", str(out))
        image = ROOT / "docs" / "img" / f"curves-{name}.png"
        image.parent.mkdir(exist_ok=True)
        save_chart(curve_chart(drawn(pl.read_parquet(out / "curves.parquet")), k=5), image)
        tables = pl.read_parquet(out / "matched.parquet"), pl.read_parquet(out / "curves.parquet")
        pages.append(section(name, title, data, Run.open(run), *tables))
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("divmf", "torch", "numba", "polars"))
    pages.append(f"Made with {versions}.\n")
    (ROOT / "docs" / "results.md").write_text("\n\n".join(pages))


DRAWN = ("DivMF", "kwon", "karakaya", "fairmatch", "uimatch", "bayes_rule", "sinkhorn", "fairrec")


def drawn(points: pl.DataFrame) -> dict[str, Curve]:
    """The paper's four, and the strongest of the others: all fifteen do not fit one picture."""
    curves = {}
    for name in DRAWN:
        rows = points.filter(pl.col("method") == name).to_dicts()
        made = Curve(tuple(
            Point(row["phase"], row["epoch"], *(parts(row, part) for part in ("valid", "test")), knob=row["knob"])
            for row in rows
        ))  # fmt: skip
        curves[name] = made if name == "DivMF" else one_line(made)
    return curves


def parts(row: dict[str, float], part: str) -> dict[str, float]:
    """The metrics of one part of a row of the table of points."""
    return {name.removeprefix(f"{part}_"): value for name, value in row.items() if name.startswith(f"{part}_")}


def divmf(*words: str) -> None:
    """Run a command of ours."""
    subprocess.run([sys.executable, "-m", "divmf", *words], check=True)


INTRODUCTION = """# Results

Every reranker beside DivMF, on the lists of the same MF model (BPR, 32 dimensions), k = 5, seed 0. Rerankers choose
from 100 candidates a user. For each metric and loss, the knob (and the variant of the method) is the one with the best
value **on validation** among those that lose at most so much validation nDCG; what stands here is the **test**,
± half a 95% interval over resampled users. "nDCG change" is the paired change on test at the point chosen for Gini;
"seconds" is one list-making at the slowest setting (for DivMF: all 200 diversity epochs). One command makes it all:

    make results"""


def section(name: str, title: str, data: list[str], run: Run, table: pl.DataFrame, curves: pl.DataFrame) -> str:
    """What one data set showed."""
    base, about = run.curve.base, read_json(run.config_file)["data"]
    text = [
        f"## {title}",
        f"{about['users']:,} users, {about['items']:,} items; `divmf train {' '.join(data)} -o {name}`, then"
        f" `divmf compare {name} -o {name}-compare`. MF on test: nDCG {base.test['ndcg']:.4f}, coverage"
        f" {base.test['coverage']:.3f}, entropy {base.test['entropy']:.3f}, Gini {base.test['gini']:.3f}.",
        f"![{title}: accuracy against diversity](img/curves-{name}.png)",
    ]
    for loss in LOSSES:
        text += [f"### {title}, {loss:.0%} validation nDCG loss", markdown(table, loss)]
    text += [f"### {title}, the strongest end of each knob", ends(curves)]
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
    main()
