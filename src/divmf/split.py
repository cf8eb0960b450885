"""Split: what is learnt from, what choices are made on, what is reported."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from scipy import sparse

from divmf.ids import Array
from divmf.interactions import Interactions
from divmf.order import blocks_of_users
from divmf.tables import find_column, read_table, to_polars, write_table
from divmf.threads import range_of

PARTS = ("train", "valid", "test")


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """Three parts of one data set, over the same users and the same catalogue."""

    train: Interactions
    valid: Interactions
    test: Interactions

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {len(getattr(self, name)):,}" for name in PARTS)
        return f"Split({self.n_users:,} users, {self.n_items:,} items: {sizes})"

    @property
    def n_users(self) -> int:
        """|U|."""
        return self.train.n_users

    @property
    def n_items(self) -> int:
        """|I|, the whole catalogue."""
        return self.train.n_items

    @property
    def user_ids(self) -> pl.Series:
        """The id table of the users."""
        return self.train.user_ids

    @property
    def item_ids(self) -> pl.Series:
        """The id table of the catalogue."""
        return self.train.item_ids

    @cached_property
    def seen(self) -> sparse.csr_array:
        """What a user has met before the test: train and validation.  (n_users, n_items)"""
        seen: sparse.csr_array = self.train.matrix + self.valid.matrix
        return seen

    @cached_property
    def known(self) -> sparse.csr_array:
        """Everything a user has met, the test item too: what a live list must not repeat."""
        known: sparse.csr_array = self.seen + self.test.matrix
        return known

    @property
    def frame(self) -> pl.DataFrame:
        """All interactions with the original ids and a column `split`."""
        parts: list[pl.DataFrame] = [getattr(self, name).frame.with_columns(split=pl.lit(name)) for name in PARTS]
        return pl.concat(parts)

    def of_process(self, rank: int, size: int) -> Self:
        """The share of one process of several: a range of the users, with nearly as many of them in each."""
        first, last = range_of(self.n_users, rank, size)
        return replace(self, **{name: getattr(self, name).users_between(first, last) for name in PARTS})

    @classmethod
    def from_frame(cls, frame: Any, column: str = "split", seed: int = 0) -> Self:
        """From a frame whose `column` says train, valid(ation) or test; missing validation is drawn from train."""
        table = to_polars(frame)
        find_column(table, "split", column)
        labels = table[column].cast(pl.String).str.to_lowercase().replace("validation", "valid")
        if unknown := set(labels.unique().to_list()) - set(PARTS):
            raise ValueError(
                f"column {column!r} holds {sorted(map(str, unknown))[0]!r}; it may hold train, valid and test only"
            )
        data = Interactions.from_frame(table)
        if data.merged:
            raise ValueError(
                f"{data.merged:,} pairs stand in the data more than once, so a pair may be in two parts;"
                " remove the copies"
            )
        return cls.by_label(data, table, labels, seed)

    @classmethod
    def by_label(cls, data: Interactions, table: pl.DataFrame, labels: pl.Series, seed: int) -> Self:
        """The parts of `data`, each pair where its label says."""
        pairs = table.select(
            user_id=pl.col(find_column(table, "user")).cast(data.user_ids.dtype),
            item_id=pl.col(find_column(table, "item")).cast(data.item_ids.dtype),
            label=labels,
        )
        label = data.frame.join(pairs, on=["user_id", "item_id"], how="left", maintain_order="left")["label"].to_numpy()
        parts = {name: data.where(label == name) for name in PARTS}
        for name in ("train", "test"):
            if not len(parts[name]):
                raise ValueError(f"no row is marked {name!r}; a split needs at least train and test")
        if not len(parts["valid"]):
            drawn = leave_one_out(parts["train"], np.random.default_rng(seed), held_out=1)
            parts["train"], parts["valid"] = drawn.train, drawn.test
        return cls(**parts)

    @classmethod
    def read(cls, path: str | Path, column: str = "split", seed: int = 0) -> Self:
        """Read a file that already carries its split in a column."""
        try:
            return cls.from_frame(read_table(path), column, seed)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def write(self, folder: str | Path) -> None:
        """Write train, valid, test and catalog as parquet files with the original ids."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name in PARTS:
            write_table(getattr(self, name).frame, folder / f"{name}.parquet")
        popularity = pl.Series("interactions", self.train.popularity)
        write_table(pl.DataFrame([self.item_ids, popularity]), folder / "catalog.parquet")


def leave_one_out(data: Interactions, rng: np.random.Generator, held_out: int = 2) -> Split:
    """The latest interaction of each user for the test, the one before it for validation.

    Without times both are drawn at random. Users with fewer than held_out + 1 interactions stay in train only.
    With held_out = 1 there is a test part and no validation.
    """
    counts = counts_per_user(data)  # (n_users,)
    ends = np.cumsum(counts)
    last = ends[counts > held_out]  # one behind the rows of each user who has enough
    # the rows of each user, the ones to hold out last
    order = drawn_order(data, rng) if data.times is None else None
    part = np.zeros(len(data), dtype=np.int8)
    for back, number in ((1, 2), (2, 1))[:held_out]:
        part[last - back if order is None else order[last - back]] = number
    return Split(*(data.where(part == number) for number in range(3)))


def drawn_order(data: Interactions, rng: np.random.Generator) -> Array:
    """The places of the rows, user by user, each user's in random order: a draw belongs to a row's place among all."""
    if data.share is not None:
        rng.bit_generator.advance(data.share.first_pair)  # type: ignore[attr-defined]  # numpy's default has it
    order = np.empty(len(data), dtype=np.int64)
    for rows in blocks_of_users(np.cumsum(counts_per_user(data))):
        order[rows] = rows.start + np.lexsort((rng.random(rows.stop - rows.start), data.users[rows]))
    return order


def hold_out(data: Interactions, rng: np.random.Generator, valid: float = 0.1, test: float = 0.2) -> Split:
    """A share of each user's interactions at random for validation and for the test; train keeps at least one."""
    if not (0 < test < 1 and 0 <= valid < 1 and valid + test < 1):
        raise ValueError(
            f"valid={valid} and test={test} must be shares that leave something to learn from; choose a sum below 1"
        )
    counts = counts_per_user(data)  # (n_users,)
    starts = np.cumsum(counts) - counts
    order = drawn_order(data, rng)
    place = np.arange(len(data)) - starts[data.users[order]]  # 0, 1, 2, … within each user
    size = counts[data.users[order]]
    n_test = np.minimum(np.round(test * size), size - 1)
    n_valid = np.minimum(np.round(valid * size), size - 1 - n_test)
    part = np.empty(len(data), dtype=np.int8)
    part[order] = np.where(place < n_test, 2, np.where(place < n_test + n_valid, 1, 0))
    return Split(*(data.where(part == number) for number in range(3)))


def users_in_train_only(split: Split) -> int:
    """How many users, of all processes, have nothing held out for the test."""
    return int(split.test.total(np.array(split.n_users - len(np.unique(split.test.users)))))


def counts_per_user(part: Interactions) -> Array:
    """How many interactions each user has in this part.  (n_users,)"""
    return np.bincount(part.users, minlength=part.n_users)
