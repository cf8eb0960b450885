"""What a row of a log says beside user, item and time: a rating, by which it counts or not, and a weight.

values = Values.checked(min_rating=4, rating=None, weight="plays")
rows = values.kept(table, table)             # those rated at least so high; also of a LazyFrame
weights = values.weights(rows)               # float32, none where no column was named
"""

from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import polars as pl

from divmf.data.tables import find_column
from divmf.engine.arrays import Array

LARGEST = 1e30  # weight: its sums are numbers of float32
Table = TypeVar("Table", pl.DataFrame, pl.LazyFrame)


class Values(NamedTuple):
    """Which columns are read, and what for.

    lowest   rows that are rated lower, or not at all, are no interactions
    rating   the rating column, if not one of a usual name
    weight   the column that says how much a row counts
    """

    lowest: float | None = None
    rating: str | None = None
    weight: str | None = None

    @classmethod
    def checked(cls, min_rating: float | None, rating: str | None, weight: str | None) -> Self:
        """As named by a user; a rating column alone says nothing."""
        if rating is not None and min_rating is None:
            raise ValueError(
                f"rating={rating!r} is named, but not from which on a row counts; give min_rating, such as 4"
            )
        return cls(min_rating, rating, weight)

    def kept(self, rows: Table, table: pl.DataFrame) -> Table:
        """The rows that are rated high enough; table: one with their columns."""
        if self.lowest is None:
            return rows
        name = find_column(table, "rating", self.rating)
        return rows.filter(at_least(name, self.lowest, table.schema[name]))

    def weights(self, table: pl.DataFrame) -> pl.Series | None:
        """The weights of some rows; none where no column is named."""
        if self.weight is None:
            return None
        name = find_column(table, "weight", self.weight)
        check_weights(name, table.select(**weight_facts(name, table.schema[name])).row(0, named=True))
        return table[name].cast(pl.Float64)

    def refuse(self, data: str) -> None:
        """Say so where there are no ratings to choose rows by, and no weights."""
        if not self.is_plain:
            what, name = ("weights", "weight") if self.lowest is None else ("ratings", "min_rating")
            raise ValueError(
                f"{data} is read without {what}; give a file with a {what[:-1]} column, or leave {name} out"
            )

    @property
    def is_plain(self) -> bool:
        """Whether every row counts, and all alike."""
        return self == PLAIN


PLAIN = Values()


def beside_usual(table: pl.DataFrame, usual: float | None, weight: str | None = None) -> Array | None:
    """The weights of rows as shares of the mean one of a training; none where that had no weights, or these have none.

    weight   the column; where none is named, one of a usual name, if there is one
    """
    name = None if usual is None else find_column(table, "weight", weight, required=False)
    given = Values(weight=name).weights(table)
    return None if given is None or usual is None else given.to_numpy() / usual


def at_least(rating: str, lowest: float, dtype: pl.DataType) -> pl.Expr:
    """Whether a row's rating is high enough; a column that holds no numbers is refused. A missing rating is not."""
    if not dtype.is_numeric():
        raise ValueError(f"column {rating!r} holds {dtype}, not ratings; say which column holds them (rating=…)")
    return (pl.col(rating) >= lowest).fill_null(False)


def weight_facts(column: str, dtype: pl.DataType) -> dict[str, pl.Expr]:
    """What must be known of a whole column before its values are taken for weights."""
    if not dtype.is_numeric():
        raise ValueError(f"column {column!r} holds {dtype}, not weights; say which column holds them (weight=…)")
    finite = pl.col(column).cast(pl.Float64).is_finite().fill_null(False)
    known = pl.col(column).cast(pl.Float64).filter(finite)
    return {"rows": pl.len(), "missing": (~finite).sum(), "least": known.min(), "most": known.max()}


def check_weights(column: str, facts: dict[str, Any]) -> None:
    """Refuse weights that mean nothing, by the facts of their column."""
    if facts["missing"]:
        raise ValueError(
            f"column {column!r} has {facts['missing']:,} rows of {facts['rows']:,} without a weight; fill them in, or"
            " leave those rows out"
        )
    if facts["rows"] and facts["least"] < 0:
        raise ValueError(
            f"column {column!r} holds the weight {facts['least']:g}; weights are 0 or more: leave such rows out, or"
            " write what they mean as a weight"
        )
    if facts["rows"] and not 0 < facts["most"] <= LARGEST:
        raise ValueError(
            f"the largest weight of column {column!r} is {facts['most']:g}; one must be above 0, and none above"
            f" {LARGEST:g}: only their ratios count, so write them in other units"
        )


def added_up(users: Array, items: Array, weights: Array, kept: tuple[Array, Array], n_items: int) -> Array:
    """The weights of distinct pairs: of a pair that stood there more than once, the sum.  (len(kept[0]),) float32

    users, items, weights   the rows as they were given
    kept                    the users and items of the distinct pairs, in any order
    """
    rows, pairs = (first.astype(np.int64) * n_items + second for first, second in ((users, items), kept))
    order = np.argsort(pairs, kind="stable")
    places = np.searchsorted(pairs[order], rows)
    sums = np.bincount(places, weights=weights, minlength=len(pairs))
    found = np.empty(len(pairs), dtype=np.float32)
    found[order] = sums
    return found
