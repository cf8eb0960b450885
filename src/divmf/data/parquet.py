"""The plan of a parquet file, looked through before polars reads it.

polars asks for as much memory as the plan of a file says, and the process ends where there is not so much. So the
numbers of the plan are held against each other and against the size of the file: rows, values of each column, bytes of
each page. Only the footer and the heads of the pages are read (some microseconds each).

The plan is written in Thrift's compact protocol (https://parquet.apache.org/docs/file-format/).
"""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

MAGIC, TAIL = b"PAR1", 8  # what a file begins and ends with; the bytes behind the footer: its length and MAGIC
SMALL_ENOUGH, MOST_GROWTH = 1 << 26, 1000  # rows and bytes that any file may grow to; how many times its bytes others
DEEPEST = 16  # structures in structures
# fields by their numbers in parquet.thrift
ROWS, GROUPS = 3, 4  # of a file
COLUMNS, GROUP_ROWS = 1, 3  # of a group of rows
META = 3  # of a column
PATH, VALUES, PACKED, DATA_AT, DICTIONARY_AT = 3, 5, 7, 9, 11  # of the meta data of a column
PAGE_KIND, PAGE_UNPACKED, PAGE_PACKED = 1, 2, 3  # of the head of a page
HEADS = {0: 5, 2: 7, 3: 8}  # of the kinds of pages that hold values: data, dictionary, data of version 2
DICTIONARY = 2


class Unfit(pl.exceptions.ComputeError):
    """A plan that contradicts itself or its file."""


@dataclass
class Thrift:
    """Structures in the compact protocol, as dictionaries by the number of a field.

    position, end   the next byte, and where the bytes that may be read end
    """

    data: bytes | mmap.mmap
    position: int
    end: int

    def byte(self) -> int:
        """The next byte."""
        if self.position >= self.end:
            raise Unfit("it ends in the middle of its plan")
        self.position += 1
        return self.data[self.position - 1]

    def number(self) -> int:
        """A whole number of up to 64 bits, seven bits a byte."""
        found = shift = 0
        while (byte := self.byte()) & 0x80:
            found |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise Unfit("a number of its plan has no end")
        return found | byte << shift

    def signed(self) -> int:
        """A whole number with a sign."""
        found = self.number()
        return (found >> 1) ^ -(found & 1)

    def skip(self, size: int) -> None:
        """Pass over some bytes: text, or a fraction."""
        if size > self.end - self.position:
            raise Unfit("a text of its plan is longer than the plan")
        self.position += size

    def value(self, kind: int, depth: int) -> Any:
        """A value of a kind; text and fractions are passed over, nothing here needs them."""
        if kind in (1, 2, 3):
            return self.byte()
        if kind in (4, 5, 6):
            return self.signed()
        if kind in (7, 8):
            return self.skip(8 if kind == 7 else self.number())
        if kind in (9, 10):
            return self.values(depth)
        if kind == 12:
            return self.fields(depth)
        raise Unfit(f"its plan holds a value of no known kind ({kind})")

    def values(self, depth: int) -> list[Any]:
        """A list; each value takes at least a byte."""
        head = self.byte()
        size = head >> 4 if head >> 4 < 15 else self.number()
        if size > self.end - self.position:
            raise Unfit("a list of its plan is longer than the plan")
        return [self.value(head & 15, depth) for _ in range(size)]

    def fields(self, depth: int = 0) -> dict[int, Any]:
        """A structure."""
        if depth > DEEPEST:
            raise Unfit("its plan is nested too deeply")
        found: dict[int, Any] = {}
        last = 0
        while head := self.byte():
            last = last + (head >> 4) if head >> 4 else self.signed()
            found[last] = bool(head & 1) if head & 15 in (1, 2) else self.value(head & 15, depth + 1)
        return found


def check_parquet(path: Path) -> None:
    """Refuse a parquet file whose plan says what cannot be; files that are no parquet at all are left to polars."""
    if path.stat().st_size:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            check_plan(data)


def check_plan(data: bytes | mmap.mmap) -> None:
    """The same of the bytes of a file."""
    if len(data) < len(MAGIC) + TAIL or data[:4] != MAGIC or data[-4:] != MAGIC:
        return
    ends = len(data) - TAIL
    begins = ends - int.from_bytes(data[ends : ends + 4], "little")
    if begins < len(MAGIC):
        raise Unfit("its plan is longer than the file")
    plan = Thrift(data, begins, ends).fields()
    rows, groups = whole(plan, ROWS), records(plan, GROUPS)
    agree("rows", rows, sum(whole(group, GROUP_ROWS) for group in groups))
    if rows > max(SMALL_ENOUGH, MOST_GROWTH * len(data)):
        raise Unfit(f"its {len(data):,} bytes are said to hold {rows:,} rows, as no table does")
    for group in groups:
        for column in records(group, COLUMNS):
            check_column(data, begins, column.get(META), whole(group, GROUP_ROWS))


def check_column(data: bytes | mmap.mmap, ends: int, meta: Any, rows: int) -> None:
    """A column of a group of rows: where its pages are, and how many values they hold; ends: of all pages."""
    if not isinstance(meta, dict):
        raise Unfit("a column has no plan")
    values = whole(meta, VALUES)
    if len(texts(meta)) == 1:
        agree("values", values, rows)
    begins, packed = whole(meta, DATA_AT), whole(meta, PACKED)
    if meta.get(DICTIONARY_AT):
        begins = min(begins, whole(meta, DICTIONARY_AT))
    if not len(MAGIC) <= begins <= ends - packed:
        raise Unfit(f"a column of {packed:,} bytes is said to begin at byte {begins:,}")
    if values:
        agree("values", values, sum(pages(data, begins, begins + packed)))


def pages(data: bytes | mmap.mmap, begins: int, ends: int) -> Iterator[int]:
    """How many values each page of a column holds."""
    while begins < ends:
        heads = Thrift(data, begins, ends)
        head = heads.fields()
        kind, packed, unpacked = (whole(head, field) for field in (PAGE_KIND, PAGE_PACKED, PAGE_UNPACKED))
        begins = heads.position + packed
        if begins > ends:
            raise Unfit(f"a page of {packed:,} bytes is said to be where {ends - heads.position:,} are")
        if unpacked > max(SMALL_ENOUGH, MOST_GROWTH * packed):
            raise Unfit(f"a page of {packed:,} bytes is said to unpack to {unpacked:,}, as no table does")
        if kind in HEADS:
            about = head.get(HEADS[kind])
            held = whole(about, 1) if isinstance(about, dict) else 0
            if kind != DICTIONARY:
                yield held
            elif held > unpacked:
                raise Unfit(f"{held:,} different values are said to be in {unpacked:,} bytes")


def agree(what: str, said: int, found: int) -> None:
    """Refuse two counts of the same that differ."""
    if said != found:
        raise Unfit(f"its plan says {said:,} {what} in one place and {found:,} in another")


def whole(fields: dict[int, Any], number: int) -> int:
    """A field that must be a count."""
    found = fields.get(number)
    if type(found) is not int or found < 0:
        raise Unfit(f"its plan says {found} where a count must be")
    return found


def records(fields: dict[int, Any], number: int) -> list[dict[int, Any]]:
    """A field that must be a list of structures."""
    found = fields.get(number)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Unfit("its plan holds something else than a list where one must be")
    return found


def texts(meta: dict[int, Any]) -> list[Any]:
    """The name of a column, and of those that it is part of."""
    found = meta.get(PATH)
    if not isinstance(found, list):
        raise Unfit("a column has no name")
    return found
