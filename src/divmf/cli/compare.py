"""divmf compare."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from divmf.cli.app import app
from divmf.cli.console import Out, hushed
from divmf.cli.filters import read_rules
from divmf.cli.inputs import positive_share
from divmf.cli.options import command

if TYPE_CHECKING:
    from divmf.data.split import Split
    from divmf.market.bound import Bound
    from divmf.market.rules import Rules
    from divmf.ranking.lists import TopK
    from divmf.reports.experiments.compare import Rival
    from divmf.reports.rules import RulesCompared
    from divmf.train.runs import Run


@command(app, "compare")
def compare(
    out: Out,
    run: Annotated[Path, typer.Argument(help="A run folder made by `divmf train`.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the report, the tables and the pictures.")],
    candidates: Annotated[int, typer.Option(help="Items per user that the rerankers may choose from.")] = 100,
    methods: Annotated[str | None, typer.Option(help="Only these rerankers, separated by commas.")] = None,
    losses: Annotated[str, typer.Option(help="Losses of nDCG to compare at, separated by commas.")] = "1%,5%,10%,20%",
    also: Annotated[
        list[Path] | None,
        typer.Option(
            help="Another run on the same model to compare with, such as one of the paper's method; may be repeated."
        ),
    ] = None,
    catalog: Annotated[
        Path | None,
        typer.Option(
            help="The items: item_id and title for the examples, columns for --groups and --rules; or MovieLens'"
            " movies.dat."
        ),
    ] = None,
    groups: Annotated[
        str | None, typer.Option(help="A column of the catalog, such as seller: also show what each group gets.")
    ] = None,
    rules: Annotated[
        Path | None,
        typer.Option(help="Also who can keep these rules, and what they cost each method; a file such as rules.toml."),
    ] = None,
) -> None:
    """Compare a run with every reranker on the same model, at the same loss of nDCG, with 95% intervals.

    Knobs are chosen on validation; the numbers are those of the test. DIR/report.html says what to choose and why.
    """
    from divmf.data.catalogs import read_items
    from divmf.data.outputs import protect
    from divmf.data.tables import read_catalog
    from divmf.ranking.groups import Groups
    from divmf.reports.compared import USUAL_LOSS
    from divmf.reports.experiments.compare import matched, names_of, reranked, rivals
    from divmf.rerank import METHODS, find_method
    from divmf.train.ruling import bound_to
    from divmf.train.runs import Run

    shares = [positive_share(text.strip(), "--losses") for text in losses.split(",")]
    names = list(METHODS) if methods is None else [find_method(name.strip()).name for name in methods.split(",")]
    missing = {name: METHODS[name].missing for name in names if METHODS[name].missing}
    if missing and methods is not None:
        raise ValueError(f"--methods {methods}: {next(iter(missing))} cannot run here; {next(iter(missing.values()))}")
    opened = Run.open(run)
    opened.read_curve().choose(ndcg_drop=0.0)  # a run without points has nothing to compare
    titles = {} if catalog is None else read_catalog(catalog)[1]
    tables = {"matched.csv": ("method", "loss"), "matched.parquet": ("method", "loss"), "curves.parquet": ("method",)}
    for name in ("report.html", "curves.html", *tables):
        protect(output / name, [catalog, rules], tables.get(name, ()))
    if groups is not None and catalog is None:
        raise ValueError(f"--groups {groups} names a column of a catalog; give the file with --catalog")
    split, others = opened.read_split(), [Run.open(other) for other in also or []]
    grouped = None
    if groups is not None and catalog is not None:
        grouped = Groups.read(read_items(catalog), groups, split.item_ids)
    given = read_rules(rules, catalog)
    bound = None if given is None else bound_to(given, split, opened.read_config())
    for other in others:
        opened.check_same_data(other)
    names_of([opened, *others])  # refuses one given twice before anything is made
    output.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    found: list[Rival] = []
    base = None
    names = [name for name in reranked(names, [opened, *others]) if name not in missing]
    for name, why in missing.items():
        out.note(f"{name} is left out: {why}")
    n_rivals = len(names) + 1 + len(others)
    with hushed("divmf.rerank"), out.progress("comparing", n_rivals) as bar:
        for number, rival in enumerate(rivals(opened, candidates, names, also=others), 1):
            base = rival.lists(rival.curve.base) if base is None else base
            rows += matched(rival, base, split, shares)
            found.append(rival)
            bar.update(rival.name, number, n_rivals, {"seconds": rival.seconds})
    ruled = None
    if given is not None and bound is not None:
        with hushed("divmf"), out.progress("the rules", None):
            ruled = compared(found, given, bound, split, min(shares, key=lambda share: abs(share - USUAL_LOSS)))
    with hushed("divmf.rerank"), out.progress(f"writing {output}", None):
        write_tables(rows, found, output)
        assert base is not None  # the run itself comes first
        write_report(rows, found, opened, base, output / "report.html", candidates, titles, grouped, ruled)
    print_tables(out, rows, shares)
    if ruled is not None:
        say_compared(out, ruled)
    out.say(f"report: {(output / 'report.html').resolve()}\ntables and pictures: {output}")
    numbers = {} if ruled is None else {"rules": [each.numbers(ruled.bound) for each in ruled.found]}
    out.result({"output": str(output), "report": str(output / "report.html"), "rows": rows} | numbers)


def compared(found: Sequence["Rival"], rules: "Rules", bound: "Bound", split: "Split", loss: float) -> "RulesCompared":
    """What the rules make of each method's point at a loss."""
    from divmf.reports.experiments.compare import under_rules
    from divmf.reports.rules import RulesCompared

    points = [rival.curve.best_within(loss, "gini") for rival in found]
    made = [under_rules(rival, point, rules, split) for rival, point in zip(found, points, strict=True)]
    return RulesCompared(bound, made, loss)


def say_compared(out: Out, ruled: "RulesCompared") -> None:
    """Who keeps the rules and at what cost, on the terminal."""
    rows: list[list[object]] = []
    for each in ruled.found:
        told = each.numbers(ruled.bound)
        amounts = [told[f"{key}_{name}"] for name in ("without", "with") for key in ("missing", "over")]
        change = "" if each.cost is None else f"{each.cost:+.1%}"
        rows.append([each.method, *("" if amount is None else amount for amount in amounts), change])
    out.table(
        f"rules, at {ruled.loss:.0%} validation nDCG loss: showings of the test lists, without and with them",
        ["", "missing", "too many", "with: missing", "too many", "nDCG change"], rows,
    )  # fmt: skip
    for each in ruled.found:
        if each.why:
            out.note(each.why)


def write_tables(rows: Sequence[dict[str, Any]], found: Sequence["Rival"], output: Path) -> None:
    """What each method gives at each loss, and every point of every curve."""
    import polars as pl

    from divmf.data.tables import write_table
    from divmf.reports.experiments.compare import table_of

    for ending in ("parquet", "csv"):
        write_table(table_of(rows), output / f"matched.{ending}")
    points = [rival.curve.frame.with_columns(method=pl.lit(rival.name)) for rival in found]
    write_table(pl.concat(points, how="diagonal"), output / "curves.parquet")


def write_report(
    rows: Sequence[dict[str, Any]],
    found: Sequence["Rival"],
    run: "Run",
    base: "TopK",
    path: Path,
    candidates: int,
    titles: Mapping[Any, str],
    groups: Any = None,
    ruled: "RulesCompared | None" = None,
) -> None:
    """The page, and its figure as files beside it."""
    from divmf.reports.chart_files import save_chart
    from divmf.reports.charts import curve_chart
    from divmf.reports.compared import USUAL_LOSS, Comparison
    from divmf.reports.comparison import sections
    from divmf.reports.examples import example_tables
    from divmf.reports.groups import groups_section
    from divmf.reports.page import made_by, write_page
    from divmf.reports.rules import compared_section

    split, k = run.read_split(), run.read_config().k
    own, *others = found
    found = [own, *sorted(others, key=lambda rival: rival.curve.best_within(USUAL_LOSS, "gini").valid["gini"])]
    curves = {rival.name: rival.curve for rival in found}
    losses = sorted({row["loss"] for row in rows})
    settings = {
        (rival.name, loss): rival.settings(rival.curve.best_within(loss, "gini")) for rival in found for loss in losses
    }
    story = Comparison(rows, curves, settings, split, k, str(run.folder), candidates)
    chosen = next(rival for rival in found if rival.name == story.choice(story.usual))
    after = chosen.lists(story.point(chosen.name, story.usual))
    examples = example_tables(base, after, split, titles, ("the model", chosen.name))
    story = Comparison(rows, curves, settings, split, k, str(run.folder), candidates, examples)
    chart = curve_chart({rival.name: rival.drawn for rival in found}, k=k, ceiling=story.ceiling)
    for ending in ("html", "png", "svg"):
        save_chart(chart, path.with_name(f"curves.{ending}"))
    counts = {"the model": base, own.name: own.lists(story.point(own.name, story.usual)), chosen.name: after}
    more = [] if groups is None else [
        groups_section(groups, {name: each.head(k).counts for name, each in counts.items()}, split.train.popularity)
    ]  # fmt: skip
    if ruled is not None:
        more.append(compared_section(ruled))
    size = f"{len(found)} methods on one model: {split.n_users:,} users, {split.n_items:,} items, lists of {k}."
    command_line = shlex.join(["divmf", *sys.argv[1:]])
    write_page(path, "Which way to a fairer catalog?", sections(story, chart, more), made_by(command_line), size)


def print_tables(out: Out, rows: Sequence[dict[str, Any]], shares: Sequence[float]) -> None:
    """A table a loss."""
    for share in shares:
        shown = [row for row in rows if row["loss"] == share]
        out.table(
            f"at {share:.0%} validation nDCG loss, on test",
            ["method", "coverage", "entropy", "gini", "nDCG change", "seconds"],
            [[row["method"], *(row[name] for name in ("coverage", "entropy", "gini")), f"{row['ndcg_change']:+.1%}",
              row["seconds"]] for row in shown],
        )  # fmt: skip
        out.say("")
