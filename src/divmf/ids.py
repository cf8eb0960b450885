"""What the outside calls a user or an item, and the number it has in here.

An id table is a sorted polars series of distinct ids (integers or strings); the number of an id is its place
in the table. Sorted, so that the numbering does not depend on the order of the rows in a file.
"""

from typing import Any

import numpy as np
import polars as pl

Array = np.ndarray[Any, np.dtype[Any]]


def as_ids(values: pl.Series, name: str) -> pl.Series:
    """The ids of a column as Int64 or String, under this name; refuses empty ones and other types."""
    column = values.name or name
    if values.dtype in (pl.String, pl.Categorical, pl.Enum, pl.Null):
        ids = values.cast(pl.String)
        ids = ids.set(ids == "", None)
    elif values.dtype.is_integer() and fits_64_bits(values):
        ids = values.cast(pl.Int64)
    else:
        example = "".join(f" (such as {value!r})" for value in values.drop_nulls().head(1))
        raise ValueError(
            f"column {column!r} holds {values.dtype}{example}; ids must be strings or 64-bit integers:"
            " write them so, or name another column"
        )
    if nulls := ids.null_count():
        raise ValueError(
            f"column {column!r} has {nulls:,} empty ids of {len(ids):,}; drop those rows or give them an id"
        )
    return ids.alias(name)


def fits_64_bits(values: pl.Series) -> bool:
    """Whether whole numbers keep their value as Int64."""
    return values.cast(pl.Int64, strict=False).null_count() == values.null_count()


def id_table(ids: pl.Series) -> pl.Series:
    """The distinct ids, sorted: the number of an id is its place here."""
    return ids.unique().sort()


def numbers_of(ids: pl.Series, table: pl.Series) -> Array:
    """The number of each id, −1 for an id that is not in the table.  (len(ids),) int32."""
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
