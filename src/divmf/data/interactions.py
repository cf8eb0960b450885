"""Interactions: who met what, and when; the one form in which data enters the project."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl
from scipy import sparse

from divmf.data.display import html_table
from divmf.data.ids import as_ids, id_table, numbers_of
from divmf.data.order import in_order
from divmf.data.scans import Rows, parquet_parts, read_rows
from divmf.data.tables import find_column, read_table, to_polars
from divmf.data.times import as_times
from divmf.data.values import Values, added_up
from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.files import naming

if TYPE_CHECKING:
    from divmf.data.split import Split

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Share:
    """Where the users of one process stand among all (see `engine.comm`): numbers count from here, ids are its own.

    Users are numbered by their sorted ids over all processes, and each has a range of them; so has it of the pairs.
    """

    first_user: int
    all_users: int
    first_pair: int
    all_pairs: int


@dataclass(frozen=True, eq=False, repr=False)
class Interactions:
    """Distinct (user, item) pairs by number, with their id tables.

    Attributes:
        users: (n,) int32. Pairs are sorted by user, then time, then position in the file, so the last row of a user is
            the user's latest interaction; without times by user, then item: the order of the file has no meaning then.
        items: (n,) int32.
        times: (n,) int64 or None; only their order is used.
        user_ids: What the outside calls user number 0, 1, 2, …
        item_ids: What the outside calls item number 0, 1, 2, …
        merged: How many repeated pairs were merged away while reading.
        share: Where these users stand among all, if other processes hold the rest; the catalog is always whole.
        weights: (n,) float32 or None: how much each counts, as it was read; only their ratios are used.

    Examples:
        >>> frame = pl.DataFrame({"user_id": ["ann", "ann", "bob"], "item_id": ["x", "y", "x"]})
        >>> data = divmf.Interactions.from_frame(frame)  # or .read("events.parquet")
        >>> data.n_users, data.n_items, len(data)
        (2, 2, 3)
    """

    users: Array
    items: Array
    times: Array | None
    user_ids: pl.Series
    item_ids: pl.Series
    merged: int = 0
    share: Share | None = None
    weights: Array | None = None

    def __post_init__(self) -> None:
        for column in (self.users, self.items, self.times, self.weights):
            if column is not None:
                column.flags.writeable = False

    @classmethod
    def read(
        cls, path: str | Path, user: str | None = None, item: str | None = None, time: str | None = None,
        min_rating: float | None = None, rating: str | None = None, weight: str | None = None,
    ) -> Self:  # fmt: skip
        """Read a log of interactions; columns are found by the usual names if not named.

        Args:
            path: CSV, TSV, parquet or JSON lines, also .gz and .bz2. A folder of parquet files, or a pattern such as
                parts/*.parquet, is read as one log.
            user: The column of the users.
            item: The column of the items.
            time: The column of the times; logs without one are fine.
            min_rating: Only rows rated at least so high are interactions.
            rating: The column of the ratings.
            weight: The column that says how much a row counts (0 or more); of a repeated pair, the sum.

        Returns:
            The distinct pairs, with the latest time of each.
        """
        return cls._read(path, (user, item, time), Values.checked(min_rating, rating, weight), whole=True)

    @classmethod
    def read_share(
        cls, path: str | Path, user: str | None = None, item: str | None = None, time: str | None = None,
        min_rating: float | None = None, rating: str | None = None, weight: str | None = None,
    ) -> Self:  # fmt: skip
        """As `read`, but where parquet files hold many rows, those of this process' range of users alone.

        All processes of a run (see `engine.comm`) must call it. Any other file, and a small one, is read whole by each:
        `share` is None then, and `Split.of_process` cuts the share when all that concerns everybody is done.
        """
        values = Values.checked(min_rating, rating, weight)
        return cls._read(path, (user, item, time), values, whole=comm.size() == 1)

    @classmethod
    def _read(
        cls, path: str | Path, columns: tuple[str | None, str | None, str | None],
        values: Values, whole: bool,
    ) -> Self:  # fmt: skip
        with naming(path):
            parts = parquet_parts(path)
            if parts is None:
                return cls.from_frame(read_table(path), *columns, *values)
            rows = read_rows(parts, *columns, whole, values)
            return cls.from_rows(rows) if rows.whole else cls.from_rows(rows).with_share()

    @classmethod
    def from_frame(
        cls, frame: Any, user: str | None = None, item: str | None = None, time: str | None = None,
        min_rating: float | None = None, rating: str | None = None, weight: str | None = None,
    ) -> Self:  # fmt: skip
        """From a polars, pandas or Arrow frame; repeated pairs become one interaction with the latest time.

        Args:
            frame: A row an interaction.
            user: The column of the users; this and the other columns as in `read`.
            item: The column of the items.
            time: The column of the times.
            min_rating: Only rows rated at least so high are interactions.
            rating: The column of the ratings.
            weight: The column of the weights.

        Returns:
            The distinct pairs.
        """
        table, values = to_polars(frame), Values.checked(min_rating, rating, weight)
        table = values.kept(table, table)
        if table.is_empty():
            raise ValueError("there are no rows: an interaction log needs at least one")
        user_column = as_ids(table[find_column(table, "user", user)], "user_id")
        item_column = as_ids(table[find_column(table, "item", item)], "item_id")
        time_name = find_column(table, "time", time, required=False)
        times = None if time_name is None else as_times(table[time_name])
        return cls.from_ids(user_column, item_column, times, values.weights(table))

    @classmethod
    def from_ids(
        cls, user_column: pl.Series, item_column: pl.Series, times: pl.Series | None, weights: pl.Series | None = None
    ) -> Self:
        """From columns of ids (see `as_ids`) and, where known, times and weights, in the order of the file."""
        user_ids, item_ids = id_table(user_column), id_table(item_column)
        table = pl.DataFrame({"user": numbers_of(user_column, user_ids), "item": numbers_of(item_column, item_ids)})
        table = table if times is None else table.with_columns(time=times.cast(pl.Int64))
        table = table if weights is None else table.with_columns(weight=weights)
        return cls.from_rows(Rows(table, user_ids, item_ids))

    @classmethod
    def from_rows(cls, rows: Rows) -> Self:
        """From rows by number, in the order of the file."""
        table, shape = rows.table, (len(rows.user_ids), len(rows.item_ids))
        times = table["time"].to_numpy() if "time" in table.columns else None
        given = table["user"].to_numpy(), table["item"].to_numpy()
        users, items, *timed = in_order(*given, times, shape)
        if merged := len(table) - len(users):
            log.debug("merged %s repeated pairs, the latest time kept", f"{merged:,}")
        weights = None
        if "weight" in table.columns:
            weights = added_up(*given, table["weight"].to_numpy(), (users, items), shape[1])
        ids = rows.user_ids.alias("user_id"), rows.item_ids.alias("item_id")
        return cls(users, items, timed[0] if timed else None, *ids, merged, weights=weights)

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        told = ("with times" if self.times is not None else "no times") + ", with weights" * (self.weights is not None)
        return f"Interactions({self.n_users:,} users, {self.n_items:,} items, {len(self):,} interactions, {told})"

    def _repr_html_(self) -> str:
        return html_table(repr(self), self.frame.columns, self.frame.head(5).cast(pl.String).rows())

    @property
    def n_users(self) -> int:
        """|U|, also users without an interaction in this part."""
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """|I|, the whole catalog."""
        return len(self.item_ids)

    @property
    def density(self) -> float:
        """The share of all user–item pairs that were observed."""
        return len(self) / (self.n_users * self.n_items)

    @cached_property
    def matrix(self) -> sparse.csr_array:
        """R as 0/1: (n_users, n_items), the items of each row sorted."""
        ones = np.ones(len(self), dtype=np.float32)
        return sparse.csr_array((ones, (self.users, self.items)), shape=(self.n_users, self.n_items))

    @cached_property
    def weighted(self) -> sparse.csr_array:
        """What a model that uses weights learns from: as `matrix`, each pair by its weight beside the mean one."""
        if self.weights is None or (usual := self.mean_weight) is None:
            return self.matrix
        values = self.weights / np.float32(usual)
        return sparse.csr_array((values, (self.users, self.items)), shape=(self.n_users, self.n_items))

    @property
    def mean_weight(self) -> float | None:
        """The mean weight of an interaction, of all processes that share these; none without weights."""
        if self.weights is None:
            return None
        total, count = self.total(np.array([self.weights.sum(dtype=np.float64), float(len(self))]))
        return float(total / count) if total else 1.0

    @cached_property
    def popularity(self) -> Array:
        """How many users met each item.  (n_items,) int64."""
        return np.bincount(self.items, minlength=self.n_items)

    @property
    def frame(self) -> pl.DataFrame:
        """The interactions as a table with the original ids: user_id, item_id; where known, timestamp and weight."""
        columns = {"user_id": self.user_ids.gather(self.users), "item_id": self.item_ids.gather(self.items)}
        known = {"timestamp": self.times, "weight": self.weights}
        return pl.DataFrame(columns | {name: column for name, column in known.items() if column is not None})

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of numbers that there are: users, items and, where known, times and weights."""
        named = {"users": self.users, "items": self.items, "times": self.times, "weights": self.weights}
        return {name: column for name, column in named.items() if column is not None}

    def where(self, kept: Array) -> Self:
        """The rows where `kept` holds, with the same id tables."""
        left = replace(self, **{name: column[kept] for name, column in self.columns.items()}, merged=0)
        return left if self.share is None else left.with_share()

    def with_share(self) -> Self:
        """The same share, with its position among those of all processes counted again; all of them must call it."""
        sizes = np.array(comm.all_gather((self.n_users, len(self))))  # (processes, 2)
        (users, pairs), (all_users, all_pairs) = sizes[: comm.rank()].sum(axis=0), sizes.sum(axis=0)
        return replace(self, share=Share(int(users), int(all_users), int(pairs), int(all_pairs)))

    def users_between(self, first: int, last: int) -> Self:
        """The share of users number first … last−1, for one of several processes."""
        low, high = np.searchsorted(self.users, [first, last])
        columns = {name: column[low:high] for name, column in self.columns.items()}
        columns["users"] = columns["users"] - np.int32(first)
        share = Share(first, self.n_users, int(low), len(self))
        return replace(self, **columns, user_ids=self.user_ids[first:last], merged=0, share=share)

    def total(self, counts: Array) -> Array:
        """The sum over the processes that share these interactions; what was given, if they are whole."""
        return counts if self.share is None else comm.total(counts)

    def k_core(self, k: int) -> Self:
        """The largest part in which every user and every item has at least k interactions (iterative).

        Args:
            k: 0 keeps everything.

        Returns:
            That part, with id tables of its own.
        """
        if k < 0:
            raise ValueError(f"k_core={k} is negative; choose 0 (everything) or more")
        kept, before = np.ones(len(self), dtype=bool), -1
        while (left := int(self.total(kept.sum()))) != before:
            by_user = np.bincount(self.users[kept], minlength=self.n_users)
            by_item = self.total(np.bincount(self.items[kept], minlength=self.n_items))
            kept &= (by_user[self.users] >= k) & (by_item[self.items] >= k)
            before = left
        if not left:
            raise ValueError(
                f"k_core={k} leaves no user: no part of the data has {k} interactions for each user and item;"
                " choose a smaller one"
            )
        return self.where(kept).compact()

    def compact(self) -> Self:
        """The same interactions, with the users and items that have none taken out of the id tables."""
        by_user = np.bincount(self.users, minlength=self.n_users) > 0
        by_item = self.total(np.bincount(self.items, minlength=self.n_items)) > 0
        left = replace(
            self,
            users=(np.cumsum(by_user, dtype=np.int32) - 1)[self.users].astype(np.int32),
            items=(np.cumsum(by_item, dtype=np.int32) - 1)[self.items].astype(np.int32),
            user_ids=self.user_ids.filter(pl.Series(by_user)),
            item_ids=self.item_ids.filter(pl.Series(by_item)),
        )
        return left if self.share is None else left.with_share()

    def leave_one_out(self, seed: int = 0) -> "Split":
        """One interaction of each user for the test, one for validation.

        Args:
            seed: Of the draw, where there are no times.

        Returns:
            The split; see `divmf.leave_one_out`.
        """
        from divmf.data.split import leave_one_out  # the fluent face of a function one step up the ladder

        return leave_one_out(self, seed)

    def hold_out(self, seed: int = 0, valid: float = 0.1, test: float = 0.2) -> "Split":
        """A share of each user's interactions for the test, one for validation.

        Args:
            seed: Of the draw.
            valid: The share for validation.
            test: The share for the test.

        Returns:
            The split; see `divmf.hold_out`.
        """
        from divmf.data.split import hold_out

        return hold_out(self, seed, valid, test)

    def by_time(
        self, when: str | int | date | None = None, test: float | None = None, valid: float = 0.1, cold: bool = False
    ) -> "Split":
        """Everything from a moment on, or the latest share, for the test.

        Args:
            when: The moment: a date, a text such as 2024-01-01, or a number in the unit of the times.
            test: Instead of it, the share of all interactions that is held out; 0.2 if neither is given.
            valid: The share of those before the test, the latest of them, for validation.
            cold: Keep what is held out of users and items that train does not have; no model can find it.

        Returns:
            The split.
        """
        from divmf.data.split import by_time

        return by_time(self, when, test, valid, cold)

    def rolling(self, folds: int = 3, test: float = 0.1, valid: float = 0.1) -> "list[Split]":
        """Several splits by time, each tested on what came after its training.

        Args:
            folds: How many.
            test: The share of all interactions that one fold is tested on.
            valid: The share of those before the test for validation.

        Returns:
            The splits, the earliest first.
        """
        from divmf.data.split import rolling

        return rolling(self, folds, test, valid)

    def item_numbers(self, item_ids: Sequence[Any] | pl.Series) -> Array:
        """The numbers of these items; an unknown one is an error that names it."""
        if isinstance(item_ids, str | bytes | int):
            raise ValueError(f"items={item_ids!r} is one id; give a list of them, [{item_ids!r}]")
        given = as_ids(item_ids, "item_id")
        numbers = numbers_of(given, self.item_ids)
        if (numbers < 0).any():
            unknown = given.filter(pl.Series(numbers < 0))
            raise ValueError(f"item {unknown[0]!r} is not in the catalog; {len(unknown):,} of {len(given):,} are not")
        return numbers

    def user_numbers(self, user_ids: Sequence[Any] | pl.Series) -> Array:
        """The row numbers of these users; an unknown one is an error that names it."""
        if isinstance(user_ids, str | bytes | int):
            raise ValueError(f"users={user_ids!r} is one id; give a list of them, [{user_ids!r}]")
        given = as_ids(user_ids, "user_id")
        numbers = numbers_of(given, self.user_ids)
        check_known(given, numbers >= 0)
        return numbers


def check_known(users: pl.Series, known: Array) -> None:
    """Refuse users who are not known, by the name of one."""
    if not known.all():
        unknown = users.filter(pl.Series(~known))
        raise ValueError(
            f"{len(unknown):,} of the {len(users):,} users were not in the training data (such as {unknown[0]!r});"
            " leave them out, train again with their interactions, or give what they met as --histories (histories=…)"
        )
