"""The catalog as a table: what is known of items beside their ids, and which of them an expression holds for."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from divmf.data.ids import as_ids, numbers_of
from divmf.data.tables import find_column, first_line, read_table, to_polars
from divmf.engine.arrays import Array


def read_items(path: str | Path) -> pl.DataFrame:
    """A catalog from a file of any kind, also `movies.dat` of MovieLens with its genres."""
    path = Path(path)
    if path.is_file() and path.suffix.lower() == ".dat":
        return movielens_items(path.read_bytes())
    return with_truth_values(read_table(path))


def with_truth_values(table: pl.DataFrame) -> pl.DataFrame:
    """A table whose columns of nothing but true and false, however capitalized, are truth values: in CSV they are text.

    Ids stay what they are.
    """
    ids = find_column(table, "item", required=False)
    words = [name for name, kind in table.schema.items() if kind == pl.String and name != ids]
    spelled = {name: table[name].str.to_lowercase() for name in words}
    found = [name for name, values in spelled.items() if values.drop_nulls().is_in(["true", "false"]).all()]
    found = [name for name in found if spelled[name].null_count() < len(table)]
    return table.with_columns((spelled[name] == "true").alias(name) for name in found)


def movielens_items(data: bytes) -> pl.DataFrame:
    """`movies.dat` of MovieLens-1M and -10M, `movie::title::genres` in ISO-8859-1: item_id, title, genres (a list)."""
    fields = [line.split("::") for line in data.decode("latin-1").splitlines()]
    rows = [(int(row[0]), row[1], row[2].split("|")) for row in fields if len(row) == 3 and row[0].isdigit()]
    if not rows:
        raise ValueError("no line reads movie::title::genres, as in MovieLens' movies.dat; use a CSV with a header")
    kinds: dict[str, Any] = {"item_id": pl.Int64, "title": pl.String, "genres": pl.List(pl.String)}
    return pl.DataFrame(rows, kinds, orient="row")


def ids_of(catalog: pl.DataFrame) -> pl.Series:
    """The ids of a catalog's items, row by row."""
    return as_ids(catalog[find_column(catalog, "item")], "item_id")


def of_items(catalog: Any, item_ids: pl.Series) -> pl.DataFrame:
    """The rows of a catalog for these items, in their order; one that it lacks, or has twice, is an error."""
    table = to_polars(catalog)
    ids = same_type(as_ids(table[find_column(table, "item")], "item_id"), item_ids)
    if twice := len(ids) - ids.n_unique():
        raise ValueError(f"the catalog has {twice:,} items twice (such as {ids.filter(ids.is_duplicated())[0]!r})")
    rows = numbers_of(item_ids, ids)
    if (missing := rows < 0).any():
        example = item_ids[int(np.argmax(missing))]
        raise ValueError(
            f"{missing.sum():,} of {len(item_ids):,} items (such as {example!r}) are not in the catalog; add them to it"
        )
    return table[rows]


def same_type(ids: pl.Series, like: pl.Series) -> pl.Series:
    """Ids as the type of others, where that loses nothing: text does not say whether 17 is a number."""
    if ids.dtype == like.dtype or ids.is_empty():
        return ids if ids.dtype == like.dtype else ids.cast(like.dtype)
    cast = ids.cast(like.dtype, strict=False)
    return cast if not cast.null_count() and cast.cast(ids.dtype).equals(ids) else ids


def column_of(catalog: pl.DataFrame | None, name: str, rule: str) -> pl.Series:
    """A column of the catalog that a rule names."""
    if catalog is None:
        raise ValueError(f"{rule} = {name!r} is a column of the catalog, and there is none; give --catalog (catalog=…)")
    if name not in catalog.columns:
        raise ValueError(
            f"{rule} = {name!r}: the catalog has no such column; it has {', '.join(map(repr, catalog.columns))}"
        )
    return catalog[name]


def holds(catalog: pl.DataFrame | None, expression: str, rule: str) -> Array:
    """For which items an SQL expression holds, such as `category = 'Drama'`; a missing value does not.  (n_items,) bool

    The name of a column of truth values, or of 0 and 1, is an expression, too.
    """
    if catalog is None:
        raise ValueError(f"{rule} {expression!r} looks into the catalog, and there is none; give --catalog (catalog=…)")
    try:
        found = catalog.select(pl.sql_expr(expression).alias("holds"))["holds"]
    except Exception as error:  # polars raises its own errors, and panics at some expressions
        why = first_line(error)
        if (unknown := unknown_column(error)) is not None:
            why = f"the catalog has no column {unknown!r}; it has {', '.join(map(repr, catalog.columns))}"
        raise ValueError(f"{rule} {expression!r} cannot be read: {why}") from None
    if found.dtype != pl.Boolean:
        values = set(found.drop_nulls().unique().to_list()) if found.dtype.is_integer() else None
        if values is None or not values <= {0, 1}:
            text = found.dtype == pl.String and found.drop_nulls().len() > 0
            condition = f"{expression.strip()} = '{found.drop_nulls()[0]}'" if text else "year > 2000"
            raise ValueError(
                f"{rule} {expression!r} holds {'text' if text else found.dtype}, not true or false; write a condition,"
                f" such as {condition}"
            )
    if len(found) != len(catalog):
        raise ValueError(
            f"{rule} {expression!r} gives {len(found)} values for {len(catalog):,} items; write a condition"
        )
    return np.asarray(found.cast(pl.Boolean).fill_null(False).to_numpy(), dtype=np.bool_)


def unknown_column(error: Exception) -> str | None:
    """The column that polars did not find."""
    if not isinstance(error, pl.exceptions.ColumnNotFoundError):
        return None
    return str(error).split('"')[1] if '"' in str(error) else first_line(error).split()[-1]


def named_items(ids: Any, item_ids: pl.Series, rule: str) -> Array:
    """Which items are named by their ids; one that there is not is an error.  (n_items,) bool"""
    given = same_type(as_ids(pl.Series("item_id", ids), "item_id"), item_ids)
    try:
        numbers = numbers_of(given, item_ids)
    except ValueError as error:
        raise ValueError(f"{rule}: {error}") from None
    if (unknown := numbers < 0).any():
        example = given[int(np.argmax(unknown))]
        raise ValueError(f"{rule}: {unknown.sum():,} of {len(given):,} items (such as {example!r}) are not in the data")
    found = np.zeros(len(item_ids), dtype=np.bool_)
    found[numbers] = True
    return found


def groups_of(column: pl.Series, rule: str) -> tuple[list[Any], Array, Array]:
    """The values of a column, and each item with the number of its value; a missing one has no group."""
    table = pl.DataFrame({"value": column, "item": np.arange(len(column))})
    if isinstance(column.dtype, pl.List):
        table = table.explode("value").unique(maintain_order=True)
    elif column.dtype.is_nested() or column.dtype.is_float():
        raise ValueError(f"{rule} = {column.name!r} holds {column.dtype}; groups are text or whole numbers")
    table = table.drop_nulls("value")
    values = table["value"].unique().sort()
    numbered = pl.DataFrame({"value": values, "of": np.arange(len(values))})
    found = table.join(numbered, on="value", how="left", maintain_order="left")
    return values.to_list(), found["item"].to_numpy().astype(np.int64), found["of"].to_numpy().astype(np.int64)
