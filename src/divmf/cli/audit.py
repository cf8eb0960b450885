"""divmf audit."""

import logging
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from divmf.cli.app import app
from divmf.cli.console import Out, hushed, strict
from divmf.cli.groups import say_groups
from divmf.cli.inputs import Columns, check_output, positive_share, read_lists
from divmf.cli.options import command
from divmf.engine.files import naming

if TYPE_CHECKING:
    import polars as pl

    from divmf.reports.audit_numbers import LeftOut, Subject, Trial
    from divmf.reports.findings import Findings

log = logging.getLogger(__name__)


@command(app, "audit")
def audit(
    out: Out,
    lists: Annotated[
        Path, typer.Argument(help="Lists of any recommender: user_id, item_id, and score or rank if known; CSV,"
            " parquet, …")
    ],
    catalog: Annotated[
        Path, typer.Option(help="All items there are: a file with an item column and, if known, titles.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page, such as report.html.")],
    k: Annotated[
        int | None,
        typer.Option("--k", "-k", min=1, help="How many items of each list users see; the others are candidates for"
            " the rerankers. All, if not given."),
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="What users went on to choose; adds accuracy, and what reranking costs in it.")
    ] = None,
    train: Annotated[
        Path | None, typer.Option(help="What the recommender was trained on; popularity is counted in it.")
    ] = None,
    groups: Annotated[
        str | None, typer.Option(help="A column of the catalog, such as seller: also show what each group gets.")
    ] = None,
    rules: Annotated[
        Path | None, typer.Option(help="A file of rules such as rules.toml: also show which of them the lists break.")
    ] = None,
    replace: Annotated[str, typer.Option(help="Share of the shown slots that may get another item.")] = "20%",
    budget: Annotated[float, typer.Option(min=0, help="Seconds for all rerankers together; 0: none is tried.")] = 25,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap and of the methods that draw.")] = 0,
    user: Columns.user = None,
    item: Columns.item = None,
    score: Columns.score = None,
    rank: Columns.rank = None,
) -> None:  # fmt: skip
    """Show what any recommender's lists do to the catalog, and what each reranker would change, on one page.

    --user and --item name the columns of every file that has them so.

    The page has coverage, Gini, entropy and the items never shown, the same after each reranker and, with --test, what
    that costs in accuracy. A folder beside the page holds all numbers (CSV, parquet, JSON) and figures (PNG, SVG).

    Example: divmf audit lists.csv --catalog items.csv -k 10 --test later.csv -o report.html
    """
    from divmf.data.outputs import protect
    from divmf.data.tables import read_catalog
    from divmf.reports.examples import spread_users
    from divmf.reports.findings import Findings

    check_output(output, (".html",), [lists, catalog, train, test, rules])
    for name, known in (("exposure", ("item_id", "lists", "share", "tenth")), ("rerankers", ("method", "picked"))):
        for ending in ("csv", "parquet"):
            protect(output.with_suffix("") / f"{name}.{ending}", [lists, catalog, train, test, rules], known)
    replaced = positive_share(replace, "--replace")
    item_ids, titles = read_catalog(catalog)
    with out.progress(f"reading {lists}", None):
        subject = read_subject(lists, item_ids, k, train, test, (user, item, score, rank))
    wanted = read_wanted(catalog, subject.lists.item_ids, groups, rules)
    people = spread_users(subject.shown, subject.shown)
    tried, left_out = try_rerankers(out, subject, people, replaced, budget, seed)
    from divmf.reports.audit_numbers import accuracy

    levels, losses = accuracy(subject, tried, seed=seed)
    flags = {"user": user, "item": item, "score": score, "rank": rank, "seed": seed or None}
    named = "".join(f" --{flag} {shlex.quote(str(name))}" for flag, name in flags.items() if name is not None)
    source, items, learnt = (shlex.quote(str(path)) for path in (lists, catalog, train))
    found = Findings(subject, tried, left_out, levels, losses, replaced, titles, people, source, items, learnt, named)
    with out.progress(f"writing {output}", None):
        more, numbers = looked_at(found, *wanted)
        document = write_all(found, output, more, numbers)
    say(out, found, output)
    if (broken := numbers.get("rules")) is not None:
        out.say(
            f"rules: {broken['missing']:,} showings missing, {broken['over']:,} too many;"
            f" {broken['lists_broken']:,} of {len(subject.lists):,} lists hold what is left out, or too much of a group"
        )
    if wanted.groups is not None:
        say_groups(out, exposure_of(found, wanted.groups))
    out.result(document)


class Wanted(NamedTuple):
    """What else the page shows: groups of items, rules of a shop."""

    groups: Any
    rules: Any


def read_wanted(catalog: Path, item_ids: "pl.Series", groups: str | None, rules: Path | None) -> Wanted:
    """Groups by a column of the catalog, and the rules of a file; refused before anything is computed."""
    from divmf.data.catalogs import read_items
    from divmf.market.rules import Rules
    from divmf.ranking.groups import Groups

    grouped = None if groups is None else Groups.read(read_items(catalog), groups, item_ids)
    return Wanted(grouped, None if rules is None else Rules.read(rules, catalog))


def exposure_of(found: Any, groups: Any) -> Any:
    """What the lists shown give to groups."""
    from divmf.ranking.groups import GroupExposure

    subject = found.subject
    return GroupExposure(groups, subject.shown.counts, None if subject.train is None else subject.popularity)


def looked_at(found: Any, groups: Any, rules: Any) -> tuple[list[Any], dict[str, Any]]:
    """The sections of groups and of rules, and their numbers."""
    from divmf.market.given import summary
    from divmf.reports.findings import NOW
    from divmf.reports.groups import groups_section
    from divmf.reports.rules import broken_section

    subject, sections, numbers = found.subject, [], {}
    if groups is not None:
        counts = {NOW: subject.shown.counts} | ({found.best.method: found.best.counts} if found.best else {})
        known = None if subject.train is None else subject.popularity
        sections.append(groups_section(groups, counts, known))
        numbers["groups"] = exposure_of(found, groups).document()
    if rules is not None:
        bound = bound_to_shown(rules, subject)
        sections.append(broken_section(bound, subject.shown.items))
        numbers["rules"] = summary(bound, subject.shown.items)
    return sections, numbers


def bound_to_shown(rules: Any, subject: Any) -> Any:
    """Rules for the lists that were shown: anybody might have been shown anything."""
    import numpy as np
    from scipy import sparse

    from divmf.market.binding import bind
    from divmf.market.bound import Shop

    shown = subject.shown
    nothing = sparse.csr_array((len(shown), shown.n_items), dtype=np.float32)
    known = None if subject.train is None else subject.popularity
    return bind(rules, Shop(shown.item_ids, shown.user_ids, nothing, False, subject.k, known), count_all=True)


def read_subject(
    lists: Path, item_ids: "pl.Series", k: int | None, train: Path | None, test: Path | None,
    columns: tuple[str | None, str | None, str | None, str | None],
) -> "Subject":  # fmt: skip
    """What is audited, read from its files; what looks wrong is said. columns: of user, item, score, rank, if named."""
    from divmf.data.interactions import Interactions
    from divmf.reports.audit_numbers import Subject

    given = read_lists(lists, item_ids, *columns)
    if k is not None and k > given.width:
        raise ValueError(f"-k {k}: no list of {lists} holds more than {given.width}; choose -k {given.width} or less")
    read = {
        name: None if path is None else Interactions.read(path) for name, path in (("train", train), ("test", test))
    }
    subject = Subject(given, k or given.width, **read)
    with naming(train):
        _ = subject.popularity
    with naming(test):
        _ = subject.truth
    if subject.without_list:
        log.warning("%s users of %s have no list; they count as misses", f"{subject.without_list:,}", test)
    return subject


def try_rerankers(
    out: Out, subject: "Subject", people: list[int], replaced: float, budget: float, seed: int
) -> tuple[list["Trial"], list["LeftOut"]]:
    """The rerankers tried, and those left out."""
    from divmf.reports.audit_numbers import NOT_TRIED, LeftOut, Trial, trials
    from divmf.rerank import METHODS

    if not subject.spare or not budget:
        out.note(f"no reranker is tried: {'--budget 0' if subject.spare else 'no list holds more than what was shown'}")
        return [], [LeftOut("all of them", "--budget 0 tries none")] if subject.spare else []
    total = len(METHODS) - len(NOT_TRIED)
    found: list[Trial | LeftOut] = []
    with hushed("divmf.rerank"), out.progress("rerankers", total) as bar:
        for number, each in enumerate(trials(subject, people, replaced, budget, seed), 1):
            found.append(each)
            bar.update(f"reranker {each.method}", number, total, {})
    tried = [each for each in found if isinstance(each, Trial)]
    return tried, [each for each in found if isinstance(each, LeftOut)]


def write_all(found: "Findings", output: Path, more: list[Any], numbers: dict[str, Any]) -> dict[str, Any]:
    """The page, and beside it a folder of its name with the numbers and the figures; the numbers as one document.

    more, numbers: of groups and rules, sections and what else the document says
    """
    from divmf.data.tables import write_table
    from divmf.engine.files import write_json
    from divmf.reports.audit import figures, sections
    from divmf.reports.audit_files import document_of, exposure_table, reranker_table
    from divmf.reports.chart_files import save_chart
    from divmf.reports.page import made_by, write_page

    folder = output.with_suffix("")
    folder.mkdir(exist_ok=True)
    document = {"report": str(output), "files": str(folder)} | document_of(found) | numbers
    tables = {"exposure": exposure_table(found)} | ({"rerankers": reranker_table(found)} if found.trials else {})
    for name, table in tables.items():
        for ending in ("csv", "parquet"):
            write_table(table, folder / f"{name}.{ending}")
    write_json(folder / "numbers.json", strict(document))
    charts = figures(found)
    for name, chart in charts.items():
        for ending in ("png", "svg"):
            save_chart(chart, folder / f"{name}.{ending}")
    subject = found.subject
    size = f"{len(subject.lists):,} lists, of which the first {subject.k} were shown, {subject.lists.n_items:,} items."
    command_line = shlex.join(["divmf", *sys.argv[1:]])
    write_page(
        output, "What the recommendations do to the catalog", sections(found, charts, more), made_by(command_line), size
    )
    return document


def say(out: Out, found: "Findings", output: Path) -> None:
    """The main numbers on the terminal."""
    subject, names = found.subject, ("coverage", "entropy", "gini", "head_share", "kept")
    rows = [["shown now", *(subject.own[name] for name in names)]]
    rows += [[trial.method, *(trial.picked.test[name] for name in names)] for trial in found.by_evenness]
    columns = ["", "coverage", "entropy", "gini", "head share", "slots kept"]
    if found.losses:
        columns.append("nDCG change")
        rows[0].append("")
        for row, trial in zip(rows[1:], found.by_evenness, strict=True):
            loss = found.losses[trial.method]
            row.append(f"{float(loss):+.4f} ({loss.low:+.4f} … {loss.high:+.4f})")
    size = f"{len(subject.lists):,} lists, k = {subject.k}, {subject.lists.n_items:,} items"
    out.table(f"{size}; coverage at most {subject.ceiling:.4f}", columns, rows)
    out.say(f"never shown: {len(found.never):,} items")
    for each in found.left_out if found.trials else []:
        out.note(f"{each.method} is left out: {each.why}")
    out.say(f"report: {output.resolve()}\nnumbers and figures: {output.with_suffix('').resolve()}")
