"""The items of a service: what they are called, their titles, and what they are filtered by."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from divmf.data.tables import find_column, movielens_titles, read_table
from divmf.engine.arrays import Array

LONGEST = 200  # characters of an id
MOST_COLUMNS = 40


class Names:
    """The ids of users or items, as the run has them: all integers, or all strings. A number is a position in `ids`."""

    def __init__(self, ids: pl.Series) -> None:
        self.integers = ids.dtype != pl.String
        self.ids: list[int | str] = ids.to_list()
        self._numbers = {name: number for number, name in enumerate(self.ids)}

    def __len__(self) -> int:
        return len(self.ids)

    def key(self, value: int | str, what: str) -> int | str:
        """An id as the run writes it: 7 for "7" where ids are integers; refuses what cannot be one."""
        if not self.integers:
            text = str(value)
            if not 0 < len(text) <= LONGEST:
                raise ValueError(f"{what} must have 1 to {LONGEST} characters; this one has {len(text):,}")
            if isinstance(value, int) and text not in self._numbers:
                raise ValueError(f"{what}={text} is a number, and ids are text here, such as {self.ids[0]!r}: quote it")
            return text
        try:
            number = int(value)
        except ValueError:
            number = 1 << 63
        if not -(1 << 63) <= number < 1 << 63:
            raise ValueError(f"{what}={str(value)[:LONGEST]!r} is not an id here: they are 64-bit integers, such as 7")
        return number

    def number(self, value: int | str, what: str) -> int | None:
        """The number of an id; None if there is no such one."""
        return self._numbers.get(self.key(value, what))

    def of_text(self, text: str) -> int | None:
        """The number of an id as the store writes it; None if there is no such one."""
        try:
            return self._numbers.get(self.from_text(text))
        except ValueError:  # of a run with other ids
            return None

    def from_text(self, text: str) -> int | str:
        """An id as the store writes it, in its own type."""
        return int(text) if self.integers else text

    def can_be(self, text: str) -> bool:
        """Whether there could be an item with such an id."""
        return not self.integers or text.removeprefix("-").isdecimal()

    def add(self, key: int | str) -> int:
        """A new id; its number."""
        self._numbers[key] = len(self.ids)
        self.ids.append(key)
        return len(self.ids) - 1


class Catalog:
    """Titles and attributes of items, by number.

    titles    text or None
    columns   for each attribute, the code of each item's value, and the code that each value has
    """

    def __init__(self, names: Names, frame: pl.DataFrame | None = None) -> None:
        self.names = names
        self.titles: list[str | None] = [None] * len(names)
        self.columns: dict[str, tuple[Array, dict[str, int]]] = {}
        self._table = pl.DataFrame({"item_id": self._ids()})
        self._changed: dict[int, dict[str, str]] = {}
        if frame is not None:
            self._take(frame)

    @classmethod
    def read(cls, names: Names, path: str | Path | pl.DataFrame | None) -> "Catalog":
        """From a file with an item column, a title and attributes; without one, items have no titles."""
        if path is None or isinstance(path, pl.DataFrame):
            return cls(names, path)
        path = Path(path)
        try:
            dat = path.is_file() and path.suffix.lower() == ".dat"
            return cls(names, movielens_titles(path.read_bytes()) if dat else read_table(path))
        except ValueError as error:
            raise ValueError(error if str(path) in str(error) else f"{path}: {error}") from error

    def _take(self, frame: pl.DataFrame) -> None:
        column = find_column(frame, "item")
        dtype = pl.Int64 if self.names.integers else pl.String
        frame = frame.with_columns(pl.col(column).cast(dtype, strict=False)).unique(column, keep="first")
        ids = pl.DataFrame({column: pl.Series(self.names.ids, dtype=dtype)})
        found = ids.join(frame, on=column, how="left", maintain_order="left")
        self._table = found.rename({column: "item_id"})
        title = find_column(frame, "title", required=False)
        if title is not None:
            self.titles = found[title].cast(pl.String).to_list()
        scalar = [name for name in found.columns if name not in (column, title) and not found[name].dtype.is_nested()]
        for name in scalar[:MOST_COLUMNS]:
            self._add_column(name, found[name].cast(pl.String).to_list())

    def _add_column(self, name: str, values: Sequence[str | None]) -> None:
        codes: dict[str, int] = {}
        numbers = [-1 if value is None else codes.setdefault(value, len(codes)) for value in values]
        self.columns[name] = np.array(numbers, dtype=np.int32), codes

    def _ids(self) -> pl.Series:
        return pl.Series("item_id", self.names.ids, dtype=pl.Int64 if self.names.integers else pl.String)

    def frame(self) -> pl.DataFrame:
        """What is known of all items as a table, for rules: the catalog as it was read, and what was told since."""
        table = pl.DataFrame({"item_id": self._ids()}).join(
            self._table, on="item_id", how="left", maintain_order="left"
        )  # fmt: skip
        told: dict[str, dict[int, str]] = {}
        for number, attributes in self._changed.items():
            for name, value in attributes.items():
                told.setdefault(name, {})[number] = value
        for name, values in told.items():
            old = table[name] if name in table.columns else pl.Series(name, [None] * len(table), dtype=pl.String)
            if not old.dtype.is_nested():
                new = pl.Series(name, list(values.values()), dtype=pl.String).cast(old.dtype, strict=False)
                table = table.with_columns(old.scatter(list(values), new))
        return table

    def title(self, number: int) -> str | None:
        """What an item is called."""
        return self.titles[number]

    def attributes(self, number: int) -> dict[str, str]:
        """What is known of an item beside its title."""
        found = {}
        for name, (codes, values) in self.columns.items():
            if codes[number] >= 0:
                found[name] = list(values)[codes[number]]
        return found

    def add(self, key: int | str, title: str | None, attributes: Mapping[str, str]) -> int:
        """A new item; its number."""
        number = self.names.add(key)
        self.titles.append(None)
        self.columns = {
            name: (np.append(codes, np.int32(-1)), values) for name, (codes, values) in self.columns.items()
        }
        self.describe(number, title, attributes)
        return number

    def check_columns(self, names: Iterable[str]) -> None:
        """Refuse attributes that would be more than there may be."""
        if len(self.columns.keys() | names) > MOST_COLUMNS:
            fresh = sorted(set(names) - self.columns.keys())
            raise ValueError(f"attributes: there may be {MOST_COLUMNS}, and {fresh[0][:LONGEST]!r} would be one more")

    def describe(self, number: int, title: str | None, attributes: Mapping[str, str]) -> None:
        """Set what an item is called, if it is given, and these of its attributes."""
        if title is not None:
            self.titles[number] = title
        if attributes:
            self._changed[number] = self._changed.get(number, {}) | dict(attributes)
        for name, value in attributes.items():
            if name not in self.columns:
                if len(self.columns) >= MOST_COLUMNS:
                    continue  # workers may have added the last one at once
                self.columns[name] = np.full(len(self.titles), -1, dtype=np.int32), {}
            codes, values = self.columns[name]
            codes[number] = values.setdefault(value, len(values))

    def left_out(self, where: Mapping[str, Sequence[str]]) -> Array:
        """The items that do not have one of the values asked for in every column."""
        kept = np.ones(len(self.titles), dtype=bool)
        for name, wanted in where.items():
            if name not in self.columns:
                known = ", ".join(sorted(self.columns)) or "none: start with a catalog"
                raise ValueError(f"where: there is no attribute {name[:LONGEST]!r}; the catalog has {known}")
            codes, values = self.columns[name]
            kept &= np.isin(codes, [values[value] for value in wanted if value in values])
        return np.flatnonzero(~kept)

    def search(self, text: str, limit: int) -> list[int]:
        """Items whose id is the text, then those whose title or id holds it."""
        wanted = text.casefold()
        found: list[int] = []
        for number, (name, title) in enumerate(zip(self.names.ids, self.titles, strict=True)):
            if wanted == str(name).casefold():
                found.insert(0, number)
            elif wanted in str(name).casefold() or (title is not None and wanted in title.casefold()):
                found.append(number)
            if len(found) > limit + 1:
                break
        return found[:limit]

    def groups(self, column: str, counts: Array) -> dict[str, Any]:
        """How the values of a column share showings: all there are, those without any, and the smallest shares."""
        codes, values = self.columns[column]
        names = list(values)
        shown = np.bincount(codes[codes >= 0], weights=counts[codes >= 0], minlength=len(names))
        order = np.argsort(shown, kind="stable")
        least, most = (
            [{"name": names[code], "shown": int(shown[code])} for code in some.tolist()]
            for some in (order[:10], order[::-1][:8])
        )
        return {
            "column": column, "groups": len(names), "starved": int((shown == 0).sum()), "least": least, "most": most,
        }  # fmt: skip
