"""How a command line says what may be recommended: --exclude, --items, --where with --catalog."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import polars as pl

    from divmf.cli.console import Out
    from divmf.engine.arrays import Array
    from divmf.market.bound import Bound
    from divmf.market.rules import Rules


class Filtered:
    """The options of commands that make lists."""

    exclude = Annotated[
        Path | None,
        typer.Option(help="A file of items to leave out; with a user column, for these users only."),
    ]
    items = Annotated[
        Path | None,
        typer.Option(help="A file of the only items to recommend; with a user column, for these users only."),
    ]
    where = Annotated[
        str | None,
        typer.Option(
            help="Only items for which an SQL expression over --catalog holds, such as \"category = 'Drama'\"."
        ),
    ]
    catalog = Annotated[Path | None, typer.Option(help="The catalog whose columns --where, --groups and --rules use.")]
    rules = Annotated[
        Path | None,
        typer.Option(help="Rules that lists keep: capacities, floors, groups, filters; a file such as rules.toml."),
    ]


def wanted_items(
    item_ids: "pl.Series", items: Path | None, where: str | None, catalog: Path | None
) -> "Path | pl.Series | None":
    """What `Recommender.lists` takes as `items`: the file, or the ids for which --where holds (those of the file)."""
    if where is None:
        return items
    if catalog is None:
        raise ValueError(f"--where {where!r} looks into the catalog; name its file with --catalog")
    from divmf.data.catalogs import holds, of_items, read_items
    from divmf.data.filters import Filters
    from divmf.engine.files import naming

    with naming(catalog):
        table = of_items(read_items(catalog), item_ids)
    kept = holds(table, where, "--where")
    if items is not None:
        listed, _ = Filters(item_ids, item_ids[:0]).named(items, "--items")
        if listed is None:
            raise ValueError(f"--where and a file of pairs ({items}) do not go together; give --items without users")
        kept = kept & listed
    if not kept.any():
        raise ValueError(f"--where {where!r} leaves none of {len(kept):,} items; check the values in {catalog}")
    return item_ids.filter(kept)


def read_rules(rules: Path | None, catalog: Path | None) -> "Rules | None":
    """The rules of --rules with --catalog; none where none are named."""
    if rules is None:
        return None
    from divmf.market.rules import Rules

    return Rules.read(rules, catalog)


MOST = 12  # totals shown


def say_given(out: "Out", bound: "Bound", items: "Array", ndcg: dict[str, float] | None = None) -> dict[str, Any]:
    """What rules require, what lists give and what that costs, on the terminal; the same for JSON."""
    import polars as pl

    from divmf.market.given import given_table, summary
    from divmf.market.repair import empty

    table, numbers = given_table(bound, items), summary(bound, items)
    bounded = table.filter((pl.col("at_least") > 0) | pl.col("at_most").is_not_null())
    rows: list[list[object]] = [
        [f"{row['rule']} {row['name']}".strip(), row["at_least"] or "",
         "" if row["at_most"] is None else row["at_most"], row["given"], row["missing"] or row["over"] or ""]
        for row in bounded.head(MOST).iter_rows(named=True)
    ]  # fmt: skip
    if rows:
        floors, unmet, over = (numbers[name] for name in ("floors", "unmet", "over"))
        parts = [f"{floors:,} floor{'s' * (floors != 1)}, {unmet:,} not met"] if floors else []
        parts += [f"{over:,} showing{'s' * (over != 1)} too many"] if over else []
        title = f"\nrules: {'; '.join(parts) or 'all kept'}"
        more = f" (the first {MOST} of {len(bounded):,})" if len(bounded) > MOST else ""
        out.table(title + more, ["", "at least", "at most", "given", "missing"], rows)
    if short := empty(items):
        out.note(f"{short:,} slots are empty: too few items are left to show, or what could be shown is full")
    for line in bound.impossible[:MOST]:
        out.note(f"cannot be met: {line}")
    made: dict[str, Any] = numbers | {"empty": short}
    if ndcg is not None:
        change = ndcg["with"] / ndcg["without"] - 1 if ndcg["without"] else 0.0
        out.say(f"the rules' cost: test nDCG {ndcg['without']:.4f} without, {ndcg['with']:.4f} with ({change:+.1%})")
        made = made | {"ndcg_without": ndcg["without"], "ndcg_with": ndcg["with"]}
    return made
