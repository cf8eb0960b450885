"""A parquet file whose plan says what cannot be is refused before polars asks for memory by it."""

import io
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from divmf.data.parquet import Unfit, check_parquet, check_plan
from divmf.data.scans import read_rows
from divmf.data.stored import read_part
from divmf.data.tables import read_table

LOG = pl.DataFrame({"user_id": ["ann", "bob", "ann"], "item_id": [7, 8, 8], "timestamp": [1_600_000_000, 60, 5]})
MANY = pl.DataFrame(
    {"n": np.arange(3000) % 70, "text": [f"i{n % 90}" for n in range(3000)], "list": [[1, 2], []] * 1500,
     "record": [{"a": 1, "b": [1]}] * 3000, "none": [None] * 3000, "flag": [True, None] * 1500,
     "when": [datetime(2020, 1, 1)] * 3000}
)  # fmt: skip


def packed(table: pl.DataFrame, **how: Any) -> bytes:
    file = io.BytesIO()
    table.write_parquet(file, **how)
    return file.getvalue()


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed"])
def test_what_polars_writes_is_taken(compression: str) -> None:
    for table in (LOG, MANY, LOG.clear(), LOG.select([])):
        check_plan(packed(table, compression=compression))
    check_plan(packed(MANY, compression=compression, row_group_size=700, data_page_size=200))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_what_arrow_writes_is_taken(version: str, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow (pip install pyarrow)")
    for more in ({}, {"use_dictionary": False, "data_page_size": 100}, {"write_page_index": True}):
        parquet.write_table(MANY.to_arrow(), tmp_path / "x.parquet", data_page_version=version, **more)
        check_parquet(tmp_path / "x.parquet")


def test_whatever_bit_is_flipped_the_plan_is_read_or_refused() -> None:
    data, refused = packed(LOG), 0
    for place in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        try:
            check_plan(bytes(flipped))
        except Unfit:  # anything else fails
            refused += 1
    assert refused > 1000


# parts of a plan by hand: a field of type 5 or 6 (whole numbers), 8 (text), 9 (list), 12 (structure), in compact Thrift
def number(value: int) -> bytes:
    """A number with a sign, seven bits a byte."""
    found, left = bytearray(), value << 1 if value >= 0 else (-value << 1) - 1
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def field(last: int, own: int, kind: int, content: bytes) -> bytes:
    return bytes([(own - last) << 4 | kind]) + content


def file(rows: int = 3, group_rows: int = 3, values: int = 3, page_values: int = 3, packed: int = 2,
         unpacked: int = 2, total: int | None = None, begins: int = 4) -> bytes:  # fmt: skip
    """A file of one column with one page."""
    about = field(0, 1, 5, number(page_values)) + b"\x00"
    head = field(0, 1, 5, number(0)) + field(1, 2, 5, number(unpacked)) + field(2, 3, 5, number(packed))
    page = head + field(3, 5, 12, about) + b"\x00" + b"xy"
    meta = field(0, 3, 9, b"\x18\x01a") + field(3, 5, 6, number(values))
    meta += field(5, 7, 6, number(len(page) if total is None else total)) + field(7, 9, 6, number(begins)) + b"\x00"
    column = field(0, 3, 12, meta) + b"\x00"
    group = field(0, 1, 9, b"\x1c" + column) + field(1, 3, 6, number(group_rows)) + b"\x00"
    plan = field(0, 3, 6, number(rows)) + field(3, 4, 9, b"\x1c" + group) + b"\x00"
    return b"PAR1" + page + plan + len(plan).to_bytes(4, "little") + b"PAR1"


def test_numbers_that_contradict_each_other_are_refused() -> None:
    check_plan(file())
    wrong: list[tuple[dict[str, int], str]] = [
        ({"rows": 4}, "4 rows in one place and 3 in another"),
        ({"values": 4}, "4 values in one place and 3"),
        ({"page_values": 1 << 30}, "3 values in one place and 1,073,741,824"),
        ({"page_values": -1}, "-1 where a count must be"),
        ({"unpacked": 1 << 30}, "a page of 2 bytes is said to unpack to 1,073,741,824"),
        ({"packed": 9000}, "a page of 9,000 bytes is said to be where 2 are"),
        ({"total": 1 << 40}, "a column of 1,099,511,627,776 bytes is said to begin at byte 4"),
        ({"begins": 1 << 40}, "is said to begin at byte 1,099,511,627,776"),
        (dict.fromkeys(("rows", "group_rows", "values", "page_values"), 1 << 50), "as no table does"),
    ]
    for changed, match in wrong:
        with pytest.raises(Unfit, match=match):
            check_plan(file(**changed))


def test_every_reader_of_parquet_looks_first(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    path.write_bytes(file(page_values=1 << 30))
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "part.parquet").write_bytes(path.read_bytes())
    for read in (read_table, read_part, lambda path: read_rows([path], None, None, None)):
        with pytest.raises(ValueError, match=r"3 values in one place and 1,073,741,824"):
            read(path)
    with pytest.raises(ValueError, match="3 values in one place"):
        read_table(folder)
