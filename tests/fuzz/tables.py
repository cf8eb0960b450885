"""Tables of any columns and types, by hypothesis: what a column may hold, under names that are looked for."""

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
from hypothesis import strategies as st

NAMES = [
    "user_id",
    "item_id",
    "timestamp",
    "score",
    "rank",
    "rating",
    "title",
    "split",
    "User_ID",
    " item ",
    "x",
    "",
    "ρ",
]
CELLS: dict[str, st.SearchStrategy[Any]] = {
    "text": st.text(max_size=6),
    "word": st.sampled_from(["a", "b", "1", "+1", "007", "", "train", "test", "2020-01-01"]),
    "number": st.integers(-3, 3), "long": st.integers(-(2**63), 2**63 - 1), "float": st.floats(width=64),
    "flag": st.booleans(), "bytes": st.binary(max_size=4), "day": st.dates(date(1, 1, 1), date(9999, 12, 31)),
    "moment": st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)),
    "decimal": st.decimals(-100, 100, places=2, allow_nan=False).map(Decimal),
    "list": st.lists(st.integers(0, 3), max_size=3), "record": st.fixed_dictionaries({"a": st.integers(0, 3)}),
}  # fmt: skip


@st.composite
def tables(draw: st.DrawFn) -> pl.DataFrame:
    """A frame of a few columns and rows, each column of one kind, with gaps or without."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True))
    n_rows = draw(st.integers(0, 6))
    columns = {}
    for name in names:
        cell = CELLS[draw(st.sampled_from(list(CELLS)))]
        cell = st.none() | cell if draw(st.integers(0, 3)) == 0 else cell
        columns[name] = draw(st.lists(cell, min_size=n_rows, max_size=n_rows))
    return pl.DataFrame(columns, strict=False)


def written(table: pl.DataFrame, path: Path) -> bool:
    """Write a table by the ending of the name; whether that kind of file can hold it."""
    try:
        if path.suffix == ".parquet":
            table.write_parquet(path)
        elif path.suffix == ".jsonl":
            table.write_ndjson(path)
        else:
            table.write_csv(path)
    except (pl.exceptions.PolarsError, ValueError):
        return False
    return True
