"""Split: what is learnt from, what choices are made on, what is reported.

`leave_one_out` holds out the last interactions of each user, `hold_out` a share drawn at random, `by_time` everything
from a moment on. The first two let a model learn from what others did after the held-out interaction: an item that
became popular since is known to be, which no model in use could know. Figures by them compare models; those of
`by_time` say what to expect of one in use.
"""

import logging
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from scipy import sparse

from divmf.data.display import html_table
from divmf.data.interactions import Interactions
from divmf.data.order import blocks_of_users
from divmf.data.tables import find_column, read_table, to_polars, write_table
from divmf.data.times import as_moment
from divmf.engine.arrays import Array
from divmf.engine.files import naming
from divmf.engine.threads import range_of

log = logging.getLogger(__name__)

PARTS = ("train", "valid", "test")


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """Three parts of one dataset, over the same users and the same catalog.

    Attributes:
        train: What a model learns from.
        valid: What choices are made on.
        test: What is reported.
    """

    train: Interactions
    valid: Interactions
    test: Interactions

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {len(getattr(self, name)):,}" for name in PARTS)
        return f"Split({self.n_users:,} users, {self.n_items:,} items: {sizes})"

    def _repr_html_(self) -> str:
        parts = zip(PARTS, (self.train, self.valid, self.test), strict=True)
        rows = [(name, len(np.unique(part.users)), len(np.unique(part.items)), len(part)) for name, part in parts]
        return html_table(repr(self), ["part", "users", "items", "interactions"], rows)

    @property
    def n_users(self) -> int:
        """|U|."""
        return self.train.n_users

    @property
    def n_items(self) -> int:
        """|I|, the whole catalog."""
        return self.train.n_items

    @property
    def user_ids(self) -> pl.Series:
        """The id table of the users."""
        return self.train.user_ids

    @property
    def item_ids(self) -> pl.Series:
        """The id table of the catalog."""
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
    def from_frame(cls, frame: Any, column: str = "split", seed: int = 0, weight: str | None = None) -> Self:
        """From a frame whose `column` says train, valid(ation) or test; missing validation is drawn from train.

        Args:
            frame: Users, items and their part, a row an interaction.
            column: The column that names the part.
            seed: Of the draw of a missing validation part.
            weight: The column that says how much a row counts.

        Returns:
            The split as it was given.
        """
        table = to_polars(frame)
        find_column(table, "split", column)
        labels = table[column].cast(pl.String).str.to_lowercase().replace("validation", "valid")
        if unknown := set(labels.unique().to_list()) - set(PARTS):
            raise ValueError(
                f"column {column!r} holds {sorted(map(str, unknown))[0]!r}; it may hold train, valid and test only"
            )
        data = Interactions.from_frame(table, weight=weight)
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
            drawn = leave_one_out(parts["train"], seed, held_out=1)
            parts["train"], parts["valid"] = drawn.train, drawn.test
        return cls(**parts)

    @classmethod
    def read(cls, path: str | Path, column: str = "split", seed: int = 0, weight: str | None = None) -> Self:
        """Read a file that already carries its split in a column.

        Args:
            path: CSV, TSV, parquet or JSON lines.
            column: The column that names the part; the other arguments as in `from_frame`.
            seed: Of the draw of a missing validation part.
            weight: The column that says how much a row counts.

        Returns:
            The split as it was given.
        """
        with naming(path):
            return cls.from_frame(read_table(path), column, seed, weight)

    def write(self, folder: str | Path) -> None:
        """Write train, valid, test and catalog as parquet files with the original ids.

        Args:
            folder: Made if it is not there.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name in PARTS:
            write_table(getattr(self, name).frame, folder / f"{name}.parquet")
        popularity = pl.Series("interactions", self.train.popularity)
        write_table(pl.DataFrame([self.item_ids, popularity]), folder / "catalog.parquet")


def leave_one_out(data: Interactions, seed: int | np.random.Generator = 0, held_out: int = 2) -> Split:
    """The latest interaction of each user for the test, the one before it for validation.

    Without times both are drawn at random. Users with fewer than held_out + 1 interactions stay in train only.

    Args:
        data: All interactions.
        seed: Of the draw, where there are no times.
        held_out: 1 makes a test part and no validation.

    Returns:
        The split.

    Examples:
        >>> data = divmf.datasets.marketplace(users=100, items=50, interactions=1000)
        >>> split = divmf.leave_one_out(data)  # or data.leave_one_out()
        >>> len(split.valid), len(split.test)
        (100, 100)
    """
    counts = counts_per_user(data)  # (n_users,)
    ends = np.cumsum(counts)
    last = ends[counts > held_out]  # one behind the rows of each user who has enough
    # the rows of each user, the ones to hold out last
    order = drawn_order(data, seed) if data.times is None else None
    part = np.zeros(len(data), dtype=np.int8)
    for back, number in ((1, 2), (2, 1))[:held_out]:
        part[last - back if order is None else order[last - back]] = number
    return Split(*(data.where(part == number) for number in range(3)))


def drawn_order(data: Interactions, seed: int | np.random.Generator) -> Array:
    """The row numbers, user by user, each user's in random order: a draw belongs to a row's position among all."""
    rng = np.random.default_rng(seed)
    if data.share is not None:
        rng.bit_generator.advance(data.share.first_pair)  # type: ignore[attr-defined]  # numpy's default has it
    order = np.empty(len(data), dtype=np.int64)
    for rows in blocks_of_users(np.cumsum(counts_per_user(data))):
        order[rows] = rows.start + np.lexsort((rng.random(rows.stop - rows.start), data.users[rows]))
    return order


def hold_out(data: Interactions, seed: int | np.random.Generator = 0, valid: float = 0.1, test: float = 0.2) -> Split:
    """A share of each user's interactions at random for validation and for the test; train keeps at least one.

    Args:
        data: All interactions.
        seed: Of the draw.
        valid: The share for validation.
        test: The share for the test.

    Returns:
        The split.

    Examples:
        >>> data = divmf.datasets.marketplace(users=100, items=50, interactions=1000)
        >>> split = divmf.hold_out(data, test=0.2)
        >>> 0.15 < len(split.test) / len(data) < 0.25
        True
    """
    if not (0 < test < 1 and 0 <= valid < 1 and valid + test < 1):
        raise ValueError(
            f"valid={valid} and test={test} must be shares that leave something to learn from; choose a sum below 1"
        )
    counts = counts_per_user(data)  # (n_users,)
    starts = np.cumsum(counts) - counts
    order = drawn_order(data, seed)
    position = np.arange(len(data)) - starts[data.users[order]]  # 0, 1, 2, … within each user
    size = counts[data.users[order]]
    n_test = np.minimum(np.round(test * size), size - 1)
    n_valid = np.minimum(np.round(valid * size), size - 1 - n_test)
    part = np.empty(len(data), dtype=np.int8)
    part[order] = np.where(position < n_test, 2, np.where(position < n_test + n_valid, 1, 0))
    return Split(*(data.where(part == number) for number in range(3)))


def by_time(
    data: Interactions,
    when: str | int | date | None = None,
    test: float | None = None,
    valid: float = 0.1,
    cold: bool = False,
) -> Split:
    """What happened from a moment on for the test, the last share before it for validation, all before for training.

    when    the moment: a date, a text such as 2024-01-01, or a number in the unit of the times
    test    instead of it, the share of all interactions, the latest, that is held out; 0.2 if neither is given
    valid   the share of the interactions before the test, the latest of them, that is for validation
    cold    keep what is held out of users and items that train does not have; no model can find it
    """
    times = times_of(data)
    if when is not None and test is not None:
        raise ValueError(f"when={when!r} and test={test} both say where the test begins; give one of them")
    if not 0 <= valid < 1:
        raise ValueError(f"valid={valid} must be a share that leaves something to learn from; choose 0 to 0.9")
    if when is None:
        test = 0.2 if test is None else test
        if not 0 < test < 1:
            raise ValueError(
                f"test={test} must be a share that leaves something to learn from; choose above 0, below 1"
            )
        begins = latest(data, times, test)
    else:
        begins = as_moment(when, int(times.max(initial=0)))
    before = times < begins
    part = np.where(before, 0, 2).astype(np.int8)
    if valid:
        earlier = data.where(before)
        part[before & (times >= latest(earlier, times[before], valid))] = 1
    n_train, n_test = (int(data.total(np.array((part == number).sum()))) for number in (0, 2))
    if not n_train or not n_test:
        raise ValueError(
            f"the test would begin at {begins}, which leaves {n_train:,} interactions to learn from and {n_test:,} to"
            f" test: times run from {min(times, default=0)} to {max(times, default=0)}; choose a moment between them"
        )
    return Split(*(data.where(part == number) for number in range(3))) if cold else warm(data, part)


def rolling(data: Interactions, folds: int = 3, test: float = 0.1, valid: float = 0.1) -> list[Split]:
    """Several splits by time, the earliest first: each tests on the share of all interactions after its training.

    The test of a fold ends where that of the next begins; what comes after it is in no part of the fold.
    """
    if folds < 1 or not 0 < test * folds < 1:
        raise ValueError(f"{folds} folds of test={test} leave nothing to learn from; choose fewer, or a smaller share")
    times, found = times_of(data), []
    for back in range(folds - 1, -1, -1):
        kept = times < latest(data, times, test * back) if back else np.ones(len(data), dtype=bool)
        found.append(by_time(data.where(kept), latest(data, times, test * (back + 1)), valid=valid))
    return found


def times_of(data: Interactions) -> Array:
    """The times, or an error that says they are needed."""
    if data.times is None:
        raise ValueError("the data has no times to split by; name the time column (time=…, --time), or use hold_out")
    return data.times


def latest(data: Interactions, times: Array, share: float) -> int:
    """The earliest moment from which on at most such a share of all interactions happened; of equal times, all."""
    ordered, whole = np.sort(times), float(data.total(np.array(len(times))))
    low, high = np.iinfo(np.int64).min // 2, np.iinfo(np.int64).max // 2
    while low < high:
        middle = (low + high) // 2
        after = len(ordered) - np.searchsorted(ordered, middle)
        low, high = (low, middle) if int(data.total(np.array(after))) <= share * whole else (middle + 1, high)
    return low


def warm(data: Interactions, part: Array) -> Split:
    """The split without what is held out of users and items that train does not have; counted in the log."""
    train = part == 0
    users = np.bincount(data.users[train], minlength=data.n_users) > 0
    items = data.total(np.bincount(data.items[train], minlength=data.n_items)) > 0
    known = train | (users[data.users] & items[data.items])
    if dropped := int(data.total(np.array((~known).sum()))):
        log.info("%s held-out interactions are of users or items not in train; they are left out", f"{dropped:,}")
    return Split(*(data.where(known & (part == number)) for number in range(3)))


def users_in_train_only(split: Split) -> int:
    """How many users, of all processes, have nothing held out for the test."""
    return int(split.test.total(np.array(split.n_users - len(np.unique(split.test.users)))))


def counts_per_user(part: Interactions) -> Array:
    """How many interactions each user has in this part.  (n_users,)"""
    return np.bincount(part.users, minlength=part.n_users)
