"""What the outside calls a user or an item, and the number it has in here.

An id table is a sorted polars series of distinct ids (integers or strings); the number of an id is its position
in the table. Sorted, so that the numbering does not depend on the order of the rows in a file.
"""

from typing import Any

import numpy as np
import polars as pl

from divmf.engine.arrays import Array
from divmf.engine.forked import check_not_forked

TEXT = (pl.String, pl.Categorical, pl.Enum, pl.Null)


def as_ids(given: Any, name: str) -> pl.Series:
    """The ids of a column or a sequence as Int64 or String, under this name; refuses empty ones and other types."""
    check_not_forked()
    values = given if isinstance(given, pl.Series) else series_of(given, name)
    column = values.name or name
    table = values.alias(column).to_frame()
    check_ids(column, values.dtype, table.select(**id_facts(column, values.dtype)).row(0, named=True))
    return table.select(id_values(column, values.dtype).alias(name)).to_series()


def series_of(given: Any, name: str) -> pl.Series:
    """A sequence of ids as a column of this name; refuses those that are not of one type."""
    try:
        return pl.Series(name, given)
    except TypeError:
        types = ", ".join(sorted({type(each).__name__ for each in given}))
        raise ValueError(f"{name} holds ids of several types ({types}); use one type, strings or integers") from None


def id_values(column: str, dtype: pl.DataType) -> pl.Expr:
    """The ids of a column of a table as Int64 or String; what is none becomes null."""
    if dtype in TEXT:
        text = pl.col(column).cast(pl.String)
        return pl.when(text != "").then(text)
    return pl.col(column).cast(pl.Int64, strict=False)


def id_facts(column: str, dtype: pl.DataType) -> dict[str, pl.Expr]:
    """What must be known of a whole column before its values are taken for ids."""
    given = pl.col(column)
    example, empty = given.drop_nulls().first(), given.null_count()
    if dtype not in TEXT and not dtype.is_integer():
        return {"rows": pl.len(), "empty": empty, "unfit": pl.lit(1), "example": example}
    nulls = id_values(column, dtype).null_count()
    if dtype in TEXT:
        return {"rows": pl.len(), "empty": nulls, "unfit": pl.lit(0), "example": example}
    return {"rows": pl.len(), "empty": empty, "unfit": nulls - empty, "example": example}


def check_ids(column: str, dtype: pl.DataType, facts: dict[str, Any]) -> None:
    """Refuse a column whose values are not ids, by its facts."""
    if facts["unfit"]:
        example = "" if facts["example"] is None else f" (such as {facts['example']!r})"
        raise ValueError(
            f"column {column!r} holds {dtype}{example}; ids must be strings or 64-bit integers:"
            " write them so, or name another column"
        )
    if facts["empty"]:
        raise ValueError(
            f"column {column!r} has {facts['empty']:,} empty ids of {facts['rows']:,};"
            " drop those rows or give them an id"
        )


def id_table(ids: pl.Series) -> pl.Series:
    """The distinct ids, sorted: the number of an id is its position here."""
    return ids.unique().sort()


def numbers_of(ids: pl.Series, table: pl.Series) -> Array:
    """The number of each id, −1 for an id that is not in the table.  (len(ids),) int32."""
    check_not_forked()
    if ids.is_empty() or table.is_empty():
        return np.full(len(ids), -1, dtype=np.int32)
    if ids.dtype != table.dtype:
        given, known = ("strings" if series.dtype == pl.String else "integers" for series in (ids, table))
        raise ValueError(
            f"the given ids are {given} (such as {ids[0]!r}), the known ones {known} (such as {table[0]!r}):"
            " use one type"
        )
    numbered = pl.DataFrame({"id": table, "number": np.arange(len(table), dtype=np.int32)})
    found = pl.DataFrame({"id": ids}).join(numbered, on="id", how="left", maintain_order="left")
    return found["number"].fill_null(-1).to_numpy()


def same_ids(one: pl.Series, other: pl.Series) -> bool:
    """Whether two id tables are the same, cheaply when they are one object."""
    return one is other or (one.dtype == other.dtype and one.equals(other))
