"""divmf recommend, evaluate."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from divmf.cli.app import app
from divmf.cli.console import Out
from divmf.cli.filters import Filtered, read_rules, say_given, wanted_items
from divmf.cli.groups import say_groups
from divmf.cli.inputs import Columns, read_histories, read_lists, read_users, take_names
from divmf.cli.options import command
from divmf.engine.files import naming

if TYPE_CHECKING:
    import polars as pl

    from divmf.estimator import Recommender
    from divmf.market.bound import Bound
    from divmf.market.rules import Rules

log = logging.getLogger(__name__)


@command(app, "recommend", shared=True)
def recommend(
    out: Out,
    run: Annotated[Path, typer.Argument(help="A run folder, or a saved model.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Where the lists go: .parquet, .csv, .tsv, .jsonl, or a folder of parts."),
    ],
    k: Annotated[int | None, typer.Option("--k", "-k", help="Items per list; the run's own k if not given.")] = None,
    users: Annotated[Path | None, typer.Option(help="A file of user ids; all users if not given.")] = None,
    histories: Annotated[
        Path | None,
        typer.Option(
            help="Make lists for new users instead, who were not in training: a file of their interactions, user_id"
                " and item_id."
        ),
    ] = None,
    weight: Annotated[
        str | None,
        typer.Option(
            help="The column of --histories that says how much a row counts, if the model was trained with weights;"
                " 'weight', if there is such a column."
        ),
    ] = None,
    new_items: Annotated[
        Path | None,
        typer.Option(
            help="New items, which were not in training, to list as well: a file of item_id and either like, a"
                " similar item of the catalog, or user_id, a user who has interacted with it."
        ),
    ] = None,
    epoch: Annotated[int | None, typer.Option(help="Use this point of the curve instead of the picked one; 0 is the"
        " model itself.")] = None,
    seen: Annotated[
        str, typer.Option(help="Interactions left out of a user's list: 'all', for lists that users will see;"
            " 'train+valid', so that test items can be recommended; or 'train'.")
    ] = "all",
    exclude: Filtered.exclude = None,
    items: Filtered.items = None,
    where: Filtered.where = None,
    catalog: Filtered.catalog = None,
    rules: Filtered.rules = None,
    user: Columns.user = None,
    item: Columns.item = None,
) -> None:  # fmt: skip
    """Write the lists of the picked operating point: user_id, item_id, score, rank.

    If the output is a folder, each process writes a parquet part with its share of the users; any tool reads them as
    one table.
    Examples:

      divmf recommend run -o lists.parquet

      divmf recommend run -o new.parquet --histories baskets.csv     (new users)

      divmf recommend run -o lists.parquet --new-items new.csv       (item_id and like, a row for each similar item)

      divmf recommend run -o lists.parquet --exclude sold-out.csv --where "category = 'Drama'" --catalog items.parquet

      torchrun --nproc-per-node 4 -m divmf recommend run -o lists/
    """
    from divmf.data.outputs import LISTS, protect
    from divmf.data.parts import check_folder, is_folder, write_part
    from divmf.data.tables import check_writable, read_table, write_table
    from divmf.engine import comm
    from divmf.estimator import DivMF, load

    take_names(run)
    as_parts = is_folder(output)
    if comm.size() > 1 and not as_parts:
        raise ValueError(f"{output} is one file, and there are {comm.size()} processes; name a folder, as lists/")
    (check_folder if as_parts else check_writable)(output)
    protect(output, [users, histories, new_items, exclude, items, catalog, rules], LISTS)
    if histories is not None and (users is not None or comm.size() > 1):
        raise ValueError("--histories is for people who were not in training, and for one process; leave --users out")
    if weight is not None and histories is None:
        raise ValueError("--weight names a column of --histories; the lists of users take the weights of the training")
    if new_items is not None and rules is not None:
        raise ValueError(
            "--new-items and --rules do not go together: rules do not know new items; leave one of them out"
        )
    chosen = load(run) if epoch is None else DivMF.load(run).at(epoch=epoch)
    given_rules = read_rules(rules, catalog)
    if epoch is None and given_rules is None and seen == "all" and (run / "final" / "model.json").exists():
        last = load(run / "final")
        if last.point == chosen.point:
            chosen = last
            out.note(f"{run}/final: learnt from everything")
        else:
            out.note(f"{run}/final is of {last.point.name}; these are of {chosen.point.name}, picked since")
    if new_items is not None:
        with naming(new_items):
            chosen = chosen.with_items(read_table(new_items))
    people = None if histories is None else read_histories(histories, chosen.split.train, weight, user, item)
    if people is not None:
        say_known(out, people.user_ids, chosen.split.user_ids, histories)
    about: dict[str, Any] = {}
    if given_rules is not None:
        with out.progress(f"the market with the rules of {rules}", None):
            chosen, bound, ndcg = under_rules(run, chosen, given_rules, k)
        assert chosen.chosen is not None  # the market keeps rules
        kind = {"train": "valid", "train+valid": "test"}.get(seen, "all")
        about = {"rules": say_given(out, bound, chosen.chosen.lists[kind], ndcg)}
    wanted = None if users is None else read_users(users, chosen.split.train, user)
    only = wanted_items(chosen.split.item_ids, items, where, catalog)
    lists = chosen.lists(wanted, k, histories=people, seen=seen, exclude=exclude, items=only)  # type: ignore[arg-type]
    (write_part if as_parts else write_table)(lists.frame, output)
    n_lists = int(comm.total(len(lists)))
    out.say(f"wrote {output}: {n_lists:,} lists of {lists.width} ({chosen.point.name})")
    out.result({"output": str(output), "users": n_lists, "k": lists.width, "epoch": chosen.point.epoch} | about)


def say_known(out: Out, given: "pl.Series", known: "pl.Series", histories: Path | None) -> None:
    """A note, where people of --histories were in training: their lists are from the file alone."""
    if given.dtype != known.dtype:
        return
    both = given.filter(given.is_in(known.implode()))
    if len(both):
        out.note(
            f"{len(both):,} of the {len(given):,} users of {histories} were in training (such as {both[0]!r}); these"
            " lists are from the histories in the file alone. Leave --histories out for what the run knows of them"
        )


def under_rules(
    folder: Path, chosen: "Recommender", rules: "Rules", k: int | None
) -> tuple["Recommender", "Bound", dict[str, float]]:
    """A point whose lists keep rules, the rules for its data, and nDCG without and with them."""
    from dataclasses import replace

    from divmf.train.ruling import lists_under
    from divmf.train.runs import Run

    if not (folder / "config.json").exists():
        raise ValueError(f"{folder} is a saved model; lists that keep --rules are made from the run folder it is of")
    run = Run.open(folder)
    if k is not None and k != run.read_config().k:
        raise ValueError(f"--k {k} and --rules do not go together: the run's lists are of {run.read_config().k}")
    made, bound, ndcg = lists_under(run, chosen.split, chosen.point, rules)
    return replace(chosen, chosen=made, scorer=chosen.scoring), bound, ndcg


@command(app, "evaluate")
def evaluate(
    out: Out,
    lists: Annotated[Path, typer.Argument(help="Lists of any recommender: user_id, item_id, score and/or rank.")],
    test: Annotated[Path, typer.Option(help="What users went on to choose: user_id, item_id.")],
    catalog: Annotated[Path, typer.Option(help="All items there are: a file with an item column.")],
    k: Annotated[
        int | None, typer.Option("--k", "-k", help="How many items of each list to measure; all, if not given.")
    ] = None,
    train: Annotated[Path | None, typer.Option(help="Training interactions, which add the popularity metrics.")] = None,
    resamples: Annotated[int, typer.Option(max=100_000, help="Bootstrap resamples for the 95% intervals.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
    groups: Annotated[
        str | None, typer.Option(help="A column of the catalog, such as seller: also measure what each group gets.")
    ] = None,
    user: Columns.user = None,
    item: Columns.item = None,
    score: Columns.score = None,
    rank: Columns.rank = None,
) -> None:
    """Measure lists: nDCG and hit rate, coverage, entropy and Gini over the whole catalog, with 95% intervals.

    --user and --item name the columns of every file that has them so. Example:

      divmf evaluate lists.csv --test later.csv --catalog items.csv -k 10
    """
    from divmf.data.catalogs import ids_of, read_items
    from divmf.data.interactions import Interactions
    from divmf.ranking.groups import GroupExposure, Groups
    from divmf.ranking.lists import popularity_of
    from divmf.ranking.metrics import METRICS, coverage_ceiling, estimate
    from divmf.ranking.slots import exposure_by_slots

    items = read_items(catalog)
    with naming(catalog):
        item_ids = ids_of(items)
    given, held_out = read_lists(lists, item_ids, user, item, score, rank), Interactions.read(test)
    with naming(catalog):
        grouped = None if groups is None else Groups.read(items, groups, given.item_ids)
    with naming(test):
        measured = given.for_users_of(held_out)
        truth = measured.matrix_of(held_out)
    if missing := len(measured) - len(given):
        log.warning("%s users of %s have no list; they count as misses", f"{missing:,}", test)
    with naming(train):
        popularity = None if train is None else popularity_of(given, Interactions.read(train))
    found = estimate(measured, truth, popularity, k, resamples, seed)
    if not found["ndcg"]:
        log.warning("no list holds anything of %s: were its items filtered out of the lists?", test)
    k = k or given.width
    rows: list[list[object]] = [
        [METRICS[name].label, value, f"{value.low:.4f} … {value.high:.4f}", METRICS[name].definition]
        for name, value in found.items()
    ]
    ceiling = coverage_ceiling(int(given.head(k).lengths.sum()), given.n_items)
    title = (
        f"{lists}: {len(given):,} lists, k = {k}, catalog of {given.n_items:,} items; coverage at most {ceiling:.4f}"
    )
    out.table(title, ["", "value", "95% interval", "definition"], rows)
    slots = exposure_by_slots(given, k)
    named = {"coverage": "coverage", "coverage_ceiling": "at most", "entropy": "entropy", "gini": "Gini"}
    shown = [[where, *(values[name] for name in named)] for where, values in slots.items()]
    out.table(
        "\nwhere in the lists (by attention, a showing in slot r counts 1/log2(r + 1))", ["", *named.values()], shown
    )
    by_group = {}
    if grouped is not None:
        exposure = GroupExposure(grouped, given.head(k).counts, popularity)
        say_groups(out, exposure)
        by_group = {"groups": exposure.document()}
    out.result({
        "k": k, "users": len(given), "catalog": given.n_items, **by_group,
        **{name: float(value) for name, value in found.items()}, "coverage_ceiling": ceiling,
        "slots": slots, "intervals": {name: [value.low, value.high] for name, value in found.items()},
    })  # fmt: skip
