"""divmf data list, fetch, describe, split."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from divmf.cli.app import app
from divmf.cli.console import Out
from divmf.cli.inputs import PICTURES, Columns, check_output, held_share, load_split
from divmf.cli.options import command
from divmf.engine.masking import masked

data = typer.Typer(
    no_args_is_help=True, help="List and download known datasets, describe data, and write its split as files."
)
app.add_typer(data, name="data")
DATA = Annotated[str, typer.Argument(help="Files, a known name, 'synthetic', or a database URI.")]
CORE = Annotated[int, typer.Option(help="Keep users and items with at least this many interactions.")]


@command(data, "list")
def show(out: Out) -> None:
    """List the datasets known by name, and whether they are on this machine."""
    from divmf.data.datasets import KNOWN, data_directory, find

    rows = [(known, find(known.name)) for known in KNOWN.values()]
    out.table(
        f"in {data_directory()}",
        ["name", "dataset", "here", "from"],
        [
            [known.name, known.title, "yes" if path else "no", known.url or f"ask at {known.page}"]
            for known, path in rows
        ],
    )
    out.result([
        {"name": known.name, "title": known.title, "path": str(path) if path else None, "url": known.url,
         "citation": known.citation, "licence": known.licence}
        for known, path in rows
    ])  # fmt: skip


@command(data, "fetch")
def fetch(out: Out, name: Annotated[str, typer.Argument(help="A name from `divmf data list`.")]) -> None:
    """Download a known dataset into the data directory, and check its hash."""
    from divmf.data.datasets import fetch as download

    path = download(name, progress=out.live)
    out.say(f"{name} is in {path}")
    out.result({"name": name, "path": str(path)})


@command(data, "describe")
def describe(
    out: Out,
    data: DATA,
    k_core: CORE = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also draw the skew (Figure 2): .html, .png, .svg or .json.")
    ] = None,
    user: Columns.user = None,
    item: Columns.item = None,
    time: Columns.time = None,
    query: Columns.query = None,
    min_rating: Columns.lowest = None,
    rating: Columns.rating = None,
) -> None:
    """Print users, items, interactions and density (the paper's Table 1), and the skew (its Figure 2)."""
    from divmf.data.datasets import describe as statistics
    from divmf.data.datasets import open_data, skew_chart

    if output:
        check_output(output, PICTURES, [data])
    read = open_data(data, user, item, time, query, min_rating, rating)
    read = read.k_core(k_core) if k_core else read
    found = statistics(read)
    out.table(
        masked(data),
        ["users", "items", "interactions", "density (%)", "held by top 10% of items"],
        [
            [
                f"{found.users:,}",
                found.items,
                found.interactions,
                f"{100 * found.density:.4f}",
                f"{found.head_share:.1%}",
            ]
        ],
    )
    span = f"from {found.first:%Y-%m-%d} to {found.last:%Y-%m-%d}" if found.first and found.last else (
        "no times" if read.times is None else "times that are not dates"
    )  # fmt: skip
    least, median, most = found.per_user
    out.say(
        f"{span} · per user {least:,} to {most:,}, median {median:g}; users with one: {found.users_with_one:,}"
        f" · repeated pairs merged: {found.merged:,}"
    )
    if output:
        from divmf.reports.chart_files import save_chart

        save_chart(skew_chart(read), output)
        out.note(f"wrote {output}")
    out.result({"data": masked(data), "k_core": k_core, "merged": read.merged} | asdict(found))


@command(data, "split")
def split(
    out: Out,
    data: DATA,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for train, valid, test and catalog .parquet.")],
    k_core: CORE = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random split, for data without times.")] = 0,
    user: Columns.user = None,
    item: Columns.item = None,
    time: Columns.time = None,
    query: Columns.query = None,
    split_column: Columns.split = None,
    hold_out: Columns.hold_out = None,
    by_time: Columns.by_time = None,
    min_rating: Columns.lowest = None,
    rating: Columns.rating = None,
    weight: Columns.weight = None,
) -> None:
    """Write the split that `divmf train` makes with the same options, with the original ids."""
    from divmf.data.outputs import protect

    columns = Columns(user, item, time, query, split_column, held_share(hold_out), min_rating, rating, by_time, weight)
    columns.check(k_core)
    for name in ("train", "valid", "test", "catalog"):
        protect(output / f"{name}.parquet", [data], ("item_id",) if name == "catalog" else ("user_id", "item_id"))
    made = load_split(out, data, k_core, seed, columns)
    made.write(output)
    sizes = {name: len(getattr(made, name)) for name in ("train", "valid", "test")} | {"catalog": made.n_items}
    out.say(f"wrote {output}: " + ", ".join(f"{name}.parquet {size:,}" for name, size in sizes.items()))
    out.result({"output": str(output), "users": made.n_users} | sizes)
