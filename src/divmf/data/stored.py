"""A split on disk, by number, with its id tables; of several processes, each writes and reads the rows of its users."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from divmf.data.fingerprint import fingerprint
from divmf.data.interactions import Interactions, Share
from divmf.data.parquet import check_parquet
from divmf.data.split import PARTS, Split
from divmf.data.tables import no_panic
from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.files import damaged, replacing
from divmf.engine.forked import check_not_forked
from divmf.engine.threads import range_of


def write_split(split: Split, folder: Path) -> None:
    """The id tables (the shorter one padded with nulls) and the parts, by number, as parquet.

    Of several processes, each writes the rows of its users to a file of its own, and the first puts them together.
    """
    span = comm.row_range(split.n_users)
    users = split.user_ids.to_frame("user_id").lazy()
    parts = [
        pl.LazyFrame(
            {"user": part.users + np.int32(span.first), "item": part.items, "time": times_of(part)}
            | ({} if part.weights is None else {"weight": part.weights})
        )
        .cast({"time": pl.Int64})
        .with_columns(part=pl.lit(number, pl.Int8), timed=pl.lit(part.times is not None))
        for number, part in enumerate((split.train, split.valid, split.test))
    ]
    users, *parts = together([users, *parts], folder)
    longer = max(span.whole, split.n_items)
    missing = pl.repeat(None, longer - span.whole, dtype=split.user_ids.dtype).alias("user_id")
    items = split.item_ids.alias("item_id").extend_constant(None, longer - split.n_items).to_frame().lazy()
    ids = pl.concat([pl.concat([users, pl.LazyFrame().select(missing)]), items], how="horizontal")
    for name, table in (("ids", ids), ("interactions", pl.concat(parts))):
        with replacing(folder / f"{name}.parquet") as temporary:
            if comm.first():
                table.sink_parquet(temporary)
    for path in folder.glob(f".*-{comm.rank()}.tmp"):
        path.unlink()


def times_of(part: Interactions) -> Array:
    """When the pairs of a part were met, 0 where that is not known."""
    return np.zeros(len(part), dtype=np.int64) if part.times is None else part.times


def together(tables: Sequence[pl.LazyFrame], folder: Path) -> list[pl.LazyFrame]:
    """Tables with the rows of all processes, one share behind the other, read from disk as they are needed."""
    if comm.size() == 1:
        return list(tables)
    for number, table in enumerate(tables):
        table.sink_parquet(folder / f".{number}-{comm.rank()}.tmp")
    comm.barrier()
    return [
        pl.concat([pl.scan_parquet(folder / f".{number}-{rank}.tmp", glob=False) for rank in range(comm.size())])
        for number in range(len(tables))
    ]


COLUMNS = {"user": pl.Int32, "item": pl.Int32, "time": pl.Int64, "part": pl.Int8, "timed": pl.Boolean}


def read_split(folder: Path, expected: str) -> Split:
    """What `write_split` wrote; of several processes, each reads its share. expected: its fingerprint."""
    users, items = read_ids(folder / "ids.parquet")
    first, last = range_of(len(users), comm.rank(), comm.size())
    own = pl.col("user").is_between(first, last, closed="left")
    path = folder / "interactions.parquet"
    rows = read_part(path, None if comm.size() == 1 else own)
    check_rows(path, rows, len(users), len(items))
    split = split_of(rows, users[first:last], items, first)
    if (found := fingerprint(split)) != expected:
        said = "model.json" if (folder / "model.json").exists() else "config.json"
        raise damaged(path, f"its data has the fingerprint {found} with ids.parquet, {said} says {expected}")
    return split


def read_ids(path: Path) -> tuple[pl.Series, pl.Series]:
    """The id tables of users and items; their order is part of the fingerprint."""
    ids = read_part(path)
    if missing := {"user_id", "item_id"} - set(ids.columns):
        raise damaged(path, f"it has no column {min(missing)}")
    users, items = ids["user_id"].drop_nulls(), ids["item_id"].drop_nulls()
    for table in (users, items):
        if table.dtype not in (pl.Int64, pl.String) or table.is_empty():
            raise damaged(path, f"{table.name} holds {len(table):,} {table.dtype}")
        if table.dtype == pl.String and (table == "").any():
            raise damaged(path, f"{table.name} holds an empty id")
    return users, items


def check_rows(path: Path, rows: pl.DataFrame, n_users: int, n_items: int) -> None:
    """Refuse interactions that are not pairs of known users and items."""
    if dict(rows.schema) not in (COLUMNS, COLUMNS | {"weight": pl.Float32}):
        raise damaged(path, f"its columns are {', '.join(f'{name} {kind}' for name, kind in rows.schema.items())}")
    known = (
        pl.col("user").is_between(0, n_users, closed="left")
        & pl.col("item").is_between(0, n_items, closed="left")
        & pl.col("part").is_between(0, len(PARTS), closed="left")
    )
    if wrong := len(rows) - rows.select(known.sum()).item():
        raise damaged(path, f"{wrong:,} rows are of users, items or parts that there are not")
    if rows.null_count().sum_horizontal().item():
        raise damaged(path, "it has empty places")
    if "weight" in rows.columns and not (rows["weight"].is_finite().all() and (rows["weight"] >= 0).all()):
        raise damaged(path, "it has a weight that is negative or no number")


def split_of(rows: pl.DataFrame, users: pl.Series, items: pl.Series, first: int) -> Split:
    """The parts of a table of numbered rows; first: the number of the first of these users."""
    parts = []
    for number in range(len(PARTS)):
        part = rows.filter(pl.col("part") == number)
        columns = [part[name].to_numpy().copy() for name in ("user", "item", "time")]
        times = columns[2] if rows["timed"].any() else None
        weights = part["weight"].to_numpy().copy() if "weight" in rows.columns else None
        parts.append(Interactions(columns[0] - np.int32(first), columns[1], times, users, items, weights=weights))
    return Split(*parts) if comm.size() == 1 else Split(*(with_share(part) for part in parts))


def with_share(part: Interactions) -> Interactions:
    """The same, with where its users stand among those of all processes."""
    users, pairs = comm.row_range(part.n_users), comm.row_range(len(part))
    return replace(part, share=Share(users.first, users.whole, pairs.first, pairs.whole))


def read_part(path: Path, only: pl.Expr | None = None) -> pl.DataFrame:
    """A parquet file of a run folder, or some rows of it."""
    check_not_forked()
    try:
        with no_panic():
            check_parquet(path)
            whole = pl.scan_parquet(path, glob=False)
            return (whole if only is None else whole.filter(only)).collect()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise damaged(path, error) from error
