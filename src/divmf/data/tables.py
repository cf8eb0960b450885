"""Bytes on disk, or another library's frame → a polars frame, with its columns found by the usual names."""

import bz2
import glob
import gzip
import logging
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, Literal, overload

import polars as pl

from divmf.data.called import name_of, way_to_name
from divmf.data.ids import as_ids
from divmf.data.parquet import check_parquet, check_plan
from divmf.engine.files import naming, replacing
from divmf.engine.forked import check_not_forked

log = logging.getLogger(__name__)

USUAL_NAMES = {
    "user": ("user_id", "userid", "user", "uid", "customer_id", "customerid", "customer", "visitor_id", "visitorid",
             "account_id"),
    "item": ("item_id", "itemid", "item", "iid", "product_id", "productid", "movie_id", "movieid", "business_id",
             "article_id", "track_id", "book_id", "location_id", "sku", "asin"),
    "time": ("timestamp", "time", "ts", "unixreviewtime", "event_time", "datetime", "date", "created_at"),
    "rating": ("rating", "ratings", "stars", "overall", "score"),
    "weight": ("weight", "weights"),
    "score": ("score", "prediction", "rating", "relevance", "weight"),
    "rank": ("rank", "position"),
    "split": ("split",),
    "title": ("title", "name", "item_title", "item_name", "product_title", "product_name", "movie_title", "label"),
}  # fmt: skip

SMALL_ENOUGH, MOST_GROWTH = 1 << 26, 100  # bytes that any packed file may grow to, and how many times larger ones may

KINDS = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".parquet": "parquet", ".pq": "parquet",
         ".jsonl": "json", ".ndjson": "json", ".json": "json"}  # fmt: skip

TO_CHECK = {"json": "each line must be one JSON object", "parquet": "check the file and its ending"} | dict.fromkeys(
    ("csv", "tsv"), "check the file, its ending and its separator"
)


def to_polars(frame: Any) -> pl.DataFrame:
    """A polars, pandas or Arrow frame as a polars frame."""
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if isinstance(frame, pl.DataFrame):
        return frame
    if not hasattr(frame, "__arrow_c_stream__"):
        raise ValueError(f"a {type(frame).__name__} is not a frame; give a polars, pandas or Arrow table")
    try:
        return pl.DataFrame(frame)
    except ImportError as error:  # pandas itself hands its columns over through pyarrow
        raise ValueError("a pandas frame is read through pyarrow; install it with pip install pyarrow") from error
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise ValueError(
            f"{mixed_column(frame)} cannot be read: {first_line(error)};"
            " make its values all strings or all numbers, or leave it out"
        ) from error


def mixed_column(frame: Any) -> str:
    """The first column that cannot be read on its own; the frame, if none."""
    for name in getattr(frame, "columns", ()):
        try:
            pl.DataFrame(frame[[name]])
        except (TypeError, ValueError, pl.exceptions.PolarsError):
            return f"column {name!r}"
    return f"the {type(frame).__name__}"


@contextmanager
def no_panic() -> Iterator[None]:
    """What panics inside polars, on a file that somebody has made so, as an error of polars."""
    try:
        yield
    except BaseException as error:  # a panic is no Exception
        if type(error).__name__ != "PanicException":
            raise
        raise pl.exceptions.ComputeError(first_line(error)) from error


def first_line(error: BaseException) -> str:
    """What an error says, in one line, without what it advises to programmers of polars."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return re.sub(r", hint: .*?(?=\. |$)", "", line).rstrip(".")


@overload
def find_column(table: pl.DataFrame, role: str, name: str | None = None, required: Literal[True] = True) -> str: ...
@overload
def find_column(table: pl.DataFrame, role: str, name: str | None = None, *, required: bool) -> str | None: ...
def find_column(table: pl.DataFrame, role: str, name: str | None = None, required: bool = True) -> str | None:
    """The column that plays a role: the one named, else the one that the command calls so, if this table has it, else
    the first of the usual names (upper or lower case).
    """
    if name is not None:
        if name not in table.columns:
            hint = hint_at(table)
            raise ValueError(
                f"there is no column {name!r}; the columns are {', '.join(map(repr, table.columns))}{hint}"
            )
        return name
    if (of_command := name_of(role)) is not None and of_command in table.columns:
        return of_command
    by_lower = {column.lower().strip(): column for column in reversed(table.columns)}
    for usual in USUAL_NAMES[role]:
        if usual in by_lower:
            if len(same := [column for column in table.columns if column.lower().strip() == usual]) > 1:
                way = way_to_name(role, USUAL_NAMES[role][0])
                raise ValueError(
                    f"the columns {same[0]!r} and {same[1]!r} both look like the {role}; {way}, or leave one out"
                )
            return by_lower[usual]
    if not required:
        return None
    raise ValueError(
        f"no column looks like the {role} ({', '.join(USUAL_NAMES[role][:4])}, …) among"
        f" {', '.join(map(repr, table.columns))}; {way_to_name(role, USUAL_NAMES[role][0])}{hint_at(table)}"
    )


def hint_at(table: pl.DataFrame) -> str:
    """What may be wrong with a file whose columns have odd names."""
    if len(table.columns) == 1 and any(mark in table.columns[0] for mark in ",;|\t "):
        return "; there is only one: is the separator right (comma in .csv, tab in .tsv)?"
    if any("\x00" in column for column in table.columns):
        return "; this looks like UTF-16: save the file as UTF-8"
    if all(column.replace(".", "").isdigit() for column in table.columns):
        return "; these look like values: the first line must hold the names of the columns"
    return ""


def read_table(path: str | Path) -> pl.DataFrame:
    """A CSV, TSV, parquet or JSON-lines file, plain or .gz or .bz2, or a folder of parquet parts, as a frame."""
    check_not_forked()
    path = Path(path)
    if not path.exists():
        raise ValueError(f"{path}: there is no such file")
    if not path.is_file() and not path.is_dir():  # one waits for ever for what nobody writes
        raise ValueError(f"{path} is not a file but a pipe or a device; write what it gives to a file first")
    if path.is_dir() and not any(part.is_file() for part in path.glob("*.parquet")):
        raise ValueError(f"{path} is a folder without parquet files; name a file, or a folder of parquet parts")
    kind, packed = ("parquet", None) if path.is_dir() else file_kind(path)
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty; an interaction log needs a line of column names and at least one row")
    try:
        with no_panic():
            return read_as(path, kind, packed)
    except pl.exceptions.NoDataError as error:
        raise ValueError(f"{path} is empty; an interaction log needs a line of column names and rows") from error
    except (pl.exceptions.PolarsError, OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} could not be read as {kind}: {first_line(error)}; {TO_CHECK[kind]}") from error


def read_as(path: Path, kind: str, packed: str | None) -> pl.DataFrame:
    """A file of a kind, or a folder of parquet parts."""
    if path.is_dir():
        parts = sorted(part for part in path.glob("*.parquet") if part.is_file())
        for part in parts:
            check_parquet(part)
        return pl.read_parquet(parts, glob=False)
    data = unpack(path, packed) if packed else path
    if kind == "parquet":
        check_plan(data) if isinstance(data, bytes) else check_parquet(data)
        return pl.read_parquet(data, glob=False)
    if kind == "json":
        return read_json_lines(data)
    return read_text(data, "\t" if kind == "tsv" else ",")


def read_catalog(path: str | Path) -> tuple[pl.Series, dict[Any, str]]:
    """All items there are and, where there is a column for it, what people call them: ids, titles by id."""
    path = Path(path)
    is_dat = path.is_file() and path.suffix.lower() == ".dat"
    with naming(path):
        table = movielens_titles(path.read_bytes()) if is_dat else read_table(path)
        ids = as_ids(table[find_column(table, "item")], "item_id")
    title = find_column(table, "title", required=False)
    if title is not None and (table[title].dtype.is_nested() or table[title].dtype == pl.Binary):
        raise ValueError(f"{path}: column {title!r} holds {table[title].dtype}; titles must be text")
    named = {} if title is None else dict(zip(ids.to_list(), table[title].cast(pl.String).to_list(), strict=True))
    return ids, {item: str(name) for item, name in named.items() if name is not None}


def file_kind(path: Path, packing: str = ", also with .gz or .bz2") -> tuple[str, str | None]:
    """What the ending of a file's name says: (csv | tsv | parquet | json, gz | bz2 | None)."""
    endings = [ending.lower() for ending in path.suffixes]
    packed = endings.pop()[1:] if endings and endings[-1] in (".gz", ".bz2") else None
    if not endings or endings[-1] not in KINDS:
        raise ValueError(f"{path}: unknown kind of file; use one of {', '.join(KINDS)}{packing}")
    return KINDS[endings[-1]], packed


def unpack(path: Path, packed: str) -> bytes:
    """The unpacked bytes of a .gz or .bz2 file."""
    with gzip.open(path) if packed == "gz" else bz2.open(path) as file:
        return inflated(file, path.stat().st_size)


def inflated(file: IO[bytes] | gzip.GzipFile | bz2.BZ2File, packed_size: int) -> bytes:
    """All that a packed file holds, unless it grows as no table does: a small one may be made to fill the memory."""
    limit, pieces, size = max(SMALL_ENOUGH, MOST_GROWTH * packed_size), [], 0
    while piece := file.read(1 << 22):
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise ValueError(
                f"it grows to more than {MOST_GROWTH} times its {packed_size:,} bytes when unpacked, as no table does;"
                " unpack it yourself if you trust it"
            )
    return b"".join(pieces)


def read_json_lines(data: Path | bytes) -> pl.DataFrame:
    """One JSON object a line; a field may come late."""
    return pl.read_ndjson(literal(data), infer_schema_length=None)


def literal(data: Path | bytes) -> str | bytes:
    """A path for the polars functions that take every path for a pattern: its [, * and ? mean themselves."""
    return data if isinstance(data, bytes) else glob.escape(str(data))


def read_text(data: Path | bytes, separator: str) -> pl.DataFrame:
    """Separated text with a header; a column holds numbers where that loses nothing, else the text as it stands.

    polars' own guess reads the ids 007 and 7 as one, and fails when the first letter comes after the rows it looked at.
    """
    table = pl.read_csv(data, separator=separator, infer_schema=False, glob=False)
    if twice := [
        name for name in table.columns if name.partition("_duplicated_")[0] in table.columns and "_duplicated_" in name
    ]:
        raise ValueError(
            f"column {twice[0].partition('_duplicated_')[0]!r} stands there twice; give each a name of its own"
        )
    return table.select(as_numbers(column) for column in table)


def as_numbers(text: pl.Series) -> pl.Series:
    """A column of text as integers, else decimals, else as it is: 007, +1, -0 and 20-digit numbers stay text."""
    for dtype, unfit in ((pl.Int64, r"^(\+|-0+$|-?0\d)"), (pl.Float64, r"^(\+|-0+$|-?(0\d|\d{19}))")):
        number = text.cast(dtype, strict=False)
        if number.null_count() == text.null_count() < len(text) and not text.str.contains(unfit).any():
            return number
    return text


# The raw formats of the public datasets. Each parser gives user_id, item_id and, where known, timestamp
# (Unix seconds), in the order of the file. (The later MovieLens releases are CSV files with usual names.)


def movielens_dat(data: bytes | Path) -> pl.DataFrame:
    """MovieLens-1M and -10M: `user::movie::rating::timestamp`."""
    return columns_at(
        data, ":", {"user_id": 0, "item_id": 2, "timestamp": 6}
    )  # every second field lies between two colons


def movielens_titles(data: bytes) -> pl.DataFrame:
    """`movies.dat` of MovieLens-1M and -10M: `movie::title::genres`, in ISO-8859-1; item_id, title."""
    fields = [line.split("::") for line in data.decode("latin-1").splitlines()]
    rows = [(int(row[0]), row[1]) for row in fields if len(row) == 3 and re.fullmatch("[0-9]{1,18}", row[0])]
    if not rows:
        raise ValueError("no line reads movie::title::genres, as in MovieLens' movies.dat; use a CSV with a header")
    return pl.DataFrame(rows, {"item_id": pl.Int64, "title": pl.String}, orient="row")


def movielens_tab(data: bytes | Path) -> pl.DataFrame:
    """MovieLens-100K: `user, movie, rating, timestamp`, separated by tabs."""
    return columns_at(data, "\t", {"user_id": 0, "item_id": 1, "timestamp": 3})


def gowalla_checkins(data: bytes | Path) -> pl.DataFrame:
    """Gowalla: `user, ISO time, latitude, longitude, location`, separated by tabs, the newest first."""
    table = columns_at(data, "\t", {"user_id": 0, "timestamp": 1, "item_id": 4})
    return table.with_columns(pl.col("timestamp").str.to_datetime("%Y-%m-%dT%H:%M:%SZ").dt.epoch("s"))


def epinions_ratings(data: bytes | Path) -> pl.DataFrame:
    """Epinions: `user item rating`, separated by spaces; other lines are dropped and counted."""
    lines = pl.read_csv(data, has_header=False, separator="\x01", quote_char=None, infer_schema=False,
                        truncate_ragged_lines=True, encoding="utf8-lossy", glob=False).to_series()  # fmt: skip
    fields = lines.str.extract_groups(r"^\s*(\d+)\s+(\d+)\s+[\d.]+\s*$").struct.unnest()
    fields.columns = ["user_id", "item_id"]
    kept = fields.drop_nulls().cast(pl.Int64)
    if dropped := len(lines) - len(kept):
        log.warning("dropped %s of %s lines that are not `user item rating`", f"{dropped:,}", f"{len(lines):,}")
    return kept


def yelp_reviews(data: bytes | Path) -> pl.DataFrame:
    """Yelp: JSON lines, of which `user_id, business_id, date` are read."""
    fields = {"user_id": pl.String, "business_id": pl.String, "date": pl.String}
    table = pl.scan_ndjson(literal(data), schema=fields).collect()
    return table.select(
        user_id="user_id",
        item_id="business_id",
        timestamp=pl.col("date").str.to_datetime("%Y-%m-%d %H:%M:%S").dt.epoch("s"),
    )


def columns_at(data: bytes | Path, separator: str, positions: dict[str, int]) -> pl.DataFrame:
    """Some columns, by their position from 0, of separated text without a header."""
    columns = list(positions.values())
    with data.open("rb") if isinstance(data, Path) else nullcontext(data) as source:  # a name may look like a pattern
        table = pl.read_csv(source, separator=separator, has_header=False, columns=columns, quote_char=None)
    table.columns = list(positions)
    return table


def without_formulas(column: pl.Series) -> pl.Series:
    """Text as a spreadsheet shall show it: what it would take for a formula begins with '. Ids stay as they are."""
    if column.dtype != pl.String or column.name.endswith("_id"):
        return column
    formula = column.str.contains(r"^[=+\-@\t\r]")
    return column.zip_with(~formula.fill_null(False), "'" + column)


def check_writable(path: Path) -> None:
    """Refuse, before any work is done, an output that could not be written."""
    kind, packed = file_kind(path, packing="")
    if packed:
        raise ValueError(f"{path}: lists are written plain; use {', '.join(KINDS)}")
    folder = path.parent
    if not folder.is_dir():
        raise ValueError(f"{path}: there is no folder {folder}; make it first")
    if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise ValueError(f"{path} cannot be written (a {kind} file was asked for); choose another place")


def write_table(table: pl.DataFrame, path: Path) -> None:
    """Write a frame as CSV, TSV, parquet or JSON lines, by the ending of the name; whole or not at all."""
    kind, _ = file_kind(path)
    with replacing(path) as temporary:
        if kind == "parquet":
            table.write_parquet(temporary)
        elif kind == "json":
            table.write_ndjson(temporary)
        else:
            table.select(without_formulas(column) for column in table).write_csv(
                temporary, separator="\t" if kind == "tsv" else ","
            )
