"""What a time column holds, as integers; only their order is used."""

from datetime import UTC, date, datetime
from typing import Any

import polars as pl

# no time in seconds is so large before the year 5138; one in milliseconds is since 1973
SECONDS_BELOW = 1e11
SECONDS_SINCE_1973 = (1e8, 1e10)


def time_facts(column: str, dtype: pl.DataType) -> dict[str, pl.Expr]:
    """What must be known of a whole time column before a part of it is read."""
    given = pl.col(column)
    facts = {"rows": pl.len(), "empty": given.null_count(), "largest": pl.lit(None), "words": pl.lit(0)}
    facts |= {"seconds": pl.lit(0), "finer": pl.lit(0)}
    if dtype.is_integer() or dtype.is_float():
        seconds, finer = given.is_between(*SECONDS_SINCE_1973, closed="left"), given >= SECONDS_BELOW
        facts |= {"seconds": seconds.sum(), "finer": finer.sum()}
    if dtype.is_float():
        finite = given.cast(pl.Float64).is_finite()
        return facts | {
            "empty": pl.len() - finite.fill_null(False).sum(),
            "largest": given.cast(pl.Float64).filter(finite).abs().max(),
        }
    if dtype == pl.String:
        return facts | {"words": given.cast(pl.Int64, strict=False).null_count() - given.null_count()}
    return facts


def as_times(values: pl.Series, facts: dict[str, Any] | None = None) -> pl.Series:
    """A time column as integers in its own order: whole numbers as they are, dates and seconds in microseconds.

    Decimals are taken for seconds where all are below 10¹¹; larger ones are in a finer unit and are rounded.
    facts: those of the whole column (see `time_facts`), where the values are a part of it.
    """
    name, times = values.name, values
    if facts is None:
        facts = values.to_frame().select(**time_facts(name, values.dtype)).row(0, named=True)
    if values.dtype == pl.String:
        times = times_of_text(values, facts["words"] > 0)
    elif isinstance(values.dtype, pl.Date | pl.Datetime):
        times = values.cast(pl.Datetime("us"), strict=False).cast(pl.Int64)
    elif values.dtype.is_float():
        finite = values.cast(pl.Float64).set(~values.is_finite(), None)
        in_seconds = facts["largest"] is None or facts["largest"] < SECONDS_BELOW
        times = (finite * 1_000_000 if in_seconds else finite).round().cast(pl.Int64, strict=False)
    elif values.dtype.is_integer():
        times = values.cast(pl.Int64, strict=False)
    elif values.dtype != pl.Null:
        raise ValueError(f"column {name!r} holds {values.dtype}, not times; name the time column")
    # what does not fit into 64 bits is found only now
    if empty := max(facts["empty"], times.null_count()):
        raise ValueError(
            f"column {name!r} has {empty:,} {'empty' if facts['empty'] else 'impossible'} times of {facts['rows']:,};"
            " drop those rows or fill them"
        )
    if facts["seconds"] and facts["finer"]:
        raise ValueError(
            f"column {name!r} holds {facts['seconds']:,} times in seconds and {facts['finer']:,} in milliseconds or"
            " finer; write all of them in one unit"
        )
    return times.cast(pl.Int64)


def times_of_text(values: pl.Series, words: bool) -> pl.Series:
    """Written times as integers: numbers as they are, dates in microseconds; words: whether not all are numbers."""
    if not words:
        return values.cast(pl.Int64, strict=False)
    try:
        times = values.str.to_datetime(time_unit="us", time_zone="UTC", strict=False).cast(pl.Int64)
    except pl.exceptions.PolarsError:  # not one value looks like a date
        times = pl.Series(values.name, [None] * len(values), pl.Int64)
    wrong = values.filter(times.is_null() & values.is_not_null())
    if len(wrong):
        raise ValueError(
            f"column {values.name!r} has {len(wrong):,} values that are not times (such as {wrong[0]!r});"
            " write them as 2024-12-31 23:59:59 or as seconds, or name another time column"
        )
    return times


# the largest time, and how many there are in a second, for the units in which times are usually counted
UNITS = ((SECONDS_BELOW, 1), (1e14, 10**3), (1e17, 10**6), (float("inf"), 10**9))


def as_moment(when: str | int | date, largest: int) -> int:
    """A moment in the unit of a column of times: a number as it is, a date or a text such as 2024-12-31 as a date.

    largest: the largest time of the column, by which its unit is known: seconds, or thousandths, millionths, …
    """
    if isinstance(when, int):
        return when
    if isinstance(when, str):
        try:
            when = datetime.fromisoformat(when)
        except ValueError:
            raise ValueError(
                f"{when!r} is not a time; write it as 2024-12-31 or 2024-12-31T23:59:59, or give a number"
            ) from None
    if not isinstance(when, datetime):
        when = datetime(when.year, when.month, when.day)
    seconds = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    return round(seconds * next(per_second for most, per_second in UNITS if abs(largest) < most))
