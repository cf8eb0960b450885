"""Parquet files, one or many, read by ranges of users: a process never holds more rows than those of its own users.

polars passes over the files as a stream, a few times: once for what must be known of all rows, once for where the
ranges begin, once for the ids of the range, once for its rows, which become numbers on the way. Files in which users
stand together are passed over where they hold none of the range's.
"""

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from divmf.data.ids import check_ids, id_facts, id_table, id_values
from divmf.data.parquet import check_parquet
from divmf.data.tables import file_kind, find_column, first_line, no_panic
from divmf.data.times import as_times, time_facts
from divmf.data.values import PLAIN, Values, check_weights, weight_facts
from divmf.engine import comm
from divmf.engine.forked import check_not_forked

SMALL = 1 << 22  # rows up to which each process reads all of them
MANY = 1 << 18  # ids looked through together
MOST_NAMES = 100_000  # in a folder of parts
ENOUGH = 1000  # ids for each process in the sample by which ranges are cut


@dataclass(frozen=True)
class Rows:
    """Rows by number, in the order of the files.

    table   user, item (Int32) and, where known, time (Int64), weight (Float64)
    whole   whether these are all rows, not only those of this process' range of users
    """

    table: pl.DataFrame
    user_ids: pl.Series
    item_ids: pl.Series
    whole: bool = True


def parquet_parts(path: str | Path) -> list[Path] | None:
    """The files that a parquet file, a folder of parquet parts or a pattern stand for; None if it is something else."""
    check_not_forked()
    given = Path(path)
    if given.is_dir():
        found = sorted(parts_in(given))
        if not found:
            raise ValueError(f"{path} is a folder without parquet files; name a file, or a folder of parquet parts")
        return found
    if given.is_file():
        return [given] if file_kind(given) == ("parquet", None) else None
    if not glob.has_magic(str(path)):
        return None
    found = [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207  (the pattern may be absolute)
    if not found:
        raise ValueError(f"{path}: no file fits this pattern")
    if other := [part for part in found if not part.is_file() or file_kind(part) != ("parquet", None)]:
        raise ValueError(f"{path}: {other[0]} is not a parquet file; only those are read together by a pattern")
    return found


def parts_in(folder: Path) -> Iterator[Path]:
    """The parquet files of a folder and of those in it; a folder of very many other things is refused."""
    looked_at = 0
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not hidden(Path(name))]
        looked_at += len(folders) + len(names)
        if looked_at > MOST_NAMES:
            raise ValueError(f"{folder} holds more than {MOST_NAMES:,} files; name the folder of parquet parts itself")
        for name in names:
            path = Path(parent, name)
            if name.endswith(".parquet") and not hidden(Path(name)):
                if not path.is_file():
                    raise ValueError(f"{path} is not a file but a pipe, a device or a broken link; remove it")
                yield path


def hidden(path: Path) -> bool:
    """Whether a name says that this is not data: _temporary, .part-0.parquet.tmp and the like."""
    return any(name.startswith(("_", ".")) for name in path.parts)


def read_rows(
    parts: list[Path], user: str | None, item: str | None, time: str | None, whole: bool = True,
    values: Values = PLAIN,
) -> Rows:  # fmt: skip
    """The rows of parquet files with ids as numbers; not whole: if they are many, of this process' range of users."""
    try:
        with no_panic():
            return Scan.of(parts, user, item, time, values).rows(whole)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ValueError(
            f"could not be read as parquet: {first_line(error)};"
            " check the file, and that all parts have the same columns"
        ) from error


@dataclass(frozen=True)
class Scan:
    """Files not read yet: user_id, item_id, time as expressions on them."""

    files: pl.LazyFrame
    names: dict[str, str]
    types: pl.Schema

    @classmethod
    def of(
        cls, parts: list[Path], user: str | None, item: str | None, time: str | None,
        values: Values = PLAIN,
    ) -> "Scan":  # fmt: skip
        """The columns found by their usual names if not named."""
        for part in parts:
            check_parquet(part)
        files = pl.scan_parquet(parts, glob=False, hive_partitioning=False)
        types = files.collect_schema()
        table = pl.DataFrame(schema=types)
        names = {"user": find_column(table, "user", user), "item": find_column(table, "item", item)}
        if found := find_column(table, "time", time, required=False):
            names["time"] = found
        if values.weight is not None:
            names["weight"] = find_column(table, "weight", values.weight)
        return cls(values.kept(files, table), names, types)

    def facts(self) -> dict[str, dict[str, Any]]:
        """What must be known of all rows, by role; columns that cannot be used are refused."""
        of_role = {"user": id_facts, "item": id_facts, "time": time_facts, "weight": weight_facts}
        expressions = {
            f"{role} {fact}": value
            for role, name in self.names.items()
            for fact, value in of_role[role](name, self.types[name]).items()
        }
        row = self.files.select(**expressions).collect(engine="streaming").row(0, named=True)
        facts: dict[str, dict[str, Any]] = {role: {} for role in self.names}
        for name, value in row.items():
            role, fact = name.split(" ")
            facts[role][fact] = value
        if not facts["user"]["rows"]:
            raise ValueError("there are no rows: an interaction log needs at least one")
        for role in ("user", "item"):
            check_ids(self.names[role], self.types[self.names[role]], facts[role])
        if "weight" in self.names:
            check_weights(self.names["weight"], facts["weight"])
        return facts

    def ids(self, role: str) -> pl.Expr:
        """The ids of a column that was checked; as they are where that is enough, so that files can be passed over."""
        name = self.names[role]
        plain = self.types[name] in (pl.Int64, pl.String)
        return pl.col(name) if plain else id_values(name, self.types[name])

    def rows(self, whole: bool) -> Rows:
        """The rows of all users, or, if they are many, of this process' range of them."""
        facts = self.facts()
        whole = whole or facts["user"]["rows"] <= SMALL
        files = self.files if whole else self.files.filter(self.in_range(facts["user"]["rows"]))
        # one after the other: polars keeps what two queries at once have in common
        user_ids, item_ids = (self.distinct(files, role) for role in ("user", "item"))
        if not whole:
            item_ids = id_table(pl.concat(comm.all_gather(item_ids)))
        further = [pl.col(self.names[role]).alias(role) for role in ("time", "weight") if role in self.names]
        rows = files.select(self.ids("user").alias("user_id"), self.ids("item").alias("item_id"), *further)
        for role, ids in (("user", user_ids), ("item", item_ids)):
            numbered = pl.LazyFrame({f"{role}_id": ids, role: np.arange(len(ids), dtype=np.int32)})
            rows = rows.join(numbered, on=f"{role}_id", how="left", maintain_order="left").drop(f"{role}_id")
        table = rows.collect(engine="streaming")
        if "time" in self.names:
            times = as_times(table["time"].alias(self.names["time"]), facts["time"])
            table = table.with_columns(time=times)
        if "weight" in self.names:
            table = table.with_columns(pl.col("weight").cast(pl.Float64))
        return Rows(table, user_ids, item_ids, whole)

    def distinct(self, files: pl.LazyFrame, role: str) -> pl.Series:
        """The ids of a role in some rows, sorted; polars' own `unique` holds far more rows when the machine is busy."""
        column = files.select(self.ids(role).alias(f"{role}_id"))
        found, rows = [pl.Series(f"{role}_id", dtype=column.collect_schema().dtypes()[0])], 0
        for batch in column.collect_batches(engine="streaming"):
            found.append(batch.to_series().unique())
            rows += len(found[-1])
            if rows > max(MANY, len(found[0])):  # so each id is looked at a few times at most
                found, rows = [pl.concat(found).unique()], 0
        return id_table(pl.concat(found))

    def in_range(self, n_rows: int) -> pl.Expr:
        """Whether a row is of this process' range of users."""
        begins = comm.shared(self.first_ids(n_rows))  # a hash may differ from one version of polars to another
        first, last = comm.rank(), comm.rank() + 1
        user, here = self.ids("user"), pl.lit(True)
        if first:
            here = user >= begins[first]
        return here & (user < begins[last]) if last < comm.size() else here

    def first_ids(self, n_rows: int) -> list[Any]:
        """The user ids with which the ranges begin: nearly as many users in each."""
        sample = self.files.filter(self.ids("user").hash(0) % max(1, n_rows // SMALL) == 0)
        ids = self.distinct(sample, "user")
        if len(ids) < ENOUGH * comm.size():
            ids = self.distinct(self.files, "user")
        if len(ids) < comm.size():
            raise ValueError(f"{len(ids)} users cannot be shared by {comm.size()} processes; start fewer")
        return [ids[len(ids) * rank // comm.size()] for rank in range(comm.size())]
