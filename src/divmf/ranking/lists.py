"""TopK: recommendation lists. Where training-time and post-hoc methods meet."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from scipy import sparse

from divmf.data.display import html_table
from divmf.data.filters import Blocked, request_filter
from divmf.data.ids import as_ids, id_table, numbers_of, same_ids
from divmf.data.interactions import Interactions
from divmf.data.tables import find_column, read_table, to_polars
from divmf.engine.arrays import Array
from divmf.engine.files import naming
from divmf.kernels.counts import mark


@dataclass(frozen=True, eq=False, repr=False)
class TopK:
    """Lists of items by number, best first, for some users, over an explicit catalog.

    Attributes:
        items: (n_lists, width) int32, −1 where a list is shorter.
        scores: (n_lists, width) float32, −inf where a list is shorter.
        user_ids: (n_lists,) whose lists these are.
        item_ids: (n_items,) the whole catalog; the numbers in `items` are positions here.

    Examples:
        >>> frame = pl.DataFrame({"user_id": ["ann", "ann", "bob"], "item_id": ["x", "y", "x"], "rank": [1, 2, 1]})
        >>> lists = divmf.TopK.from_frame(frame, catalog=["x", "y", "z"])
        >>> lists.counts  # in how many lists each item stands
        array([2, 1, 0])
    """

    items: Array
    scores: Array
    user_ids: pl.Series
    item_ids: pl.Series

    def __post_init__(self) -> None:
        self.items.flags.writeable = False
        self.scores.flags.writeable = False

    @classmethod
    def from_frame(
        cls, frame: Any, catalog: Any = None, user: str | None = None, item: str | None = None,
        score: str | None = None, rank: str | None = None,
    ) -> Self:  # fmt: skip
        """From a frame `user_id, item_id` and `score` and/or `rank`, as any library writes it.

        Args:
            frame: A row an item of a list.
            catalog: The ids of all items there are (a sequence, a series, a frame with an item column, or its file);
                without it, the items that appear are taken for the catalog, so coverage looks better than it is.
            user: The column of the users, if it has no usual name.
            item: The column of the items, likewise.
            score: The column of the scores, likewise.
            rank: The column of the ranks, likewise; where there is one, it says the order.

        Returns:
            The lists, best first.
        """
        table = to_polars(frame)
        if table.is_empty():
            raise ValueError("there are no rows: lists need at least one")
        users = as_ids(table[find_column(table, "user", user)], "user_id")
        items = as_ids(table[find_column(table, "item", item)], "item_id")
        rank, score = (
            find_column(table, role, name, required=False) for role, name in (("rank", rank), ("score", score))
        )
        if rank is None and score is None:
            raise ValueError(f"lists need a column 'score' or 'rank' to order them; the columns are {table.columns}")
        user_ids, item_ids = id_table(users), catalog_of(catalog, items)
        scores = None if score is None else numbers_in(table[score])
        ranks = None if rank is None else numbers_in(table[rank])
        rows = pl.DataFrame(
            {
                "user": numbers_of(users, user_ids),
                "item": catalog_numbers(items, item_ids),
                "score": (-ranks if scores is None else scores).cast(pl.Float32),  # type: ignore[operator]
                "order": -scores if ranks is None else ranks,  # type: ignore[operator]
            }
        )
        return cls.from_rows(rows, user_ids, item_ids)

    @classmethod
    def from_rows(cls, rows: pl.DataFrame, user_ids: pl.Series, item_ids: pl.Series) -> Self:
        """From numbered rows `user, item, score, order`, the lowest order first, ties to the lowest item."""
        finite = rows.filter(pl.col("score").is_finite() & pl.col("order").is_finite())
        if bad := len(rows) - len(finite):
            raise ValueError(f"{bad:,} scores or ranks are missing, NaN or infinite; they must be finite numbers")
        rows = rows.sort("user", "order", "item")
        users = rows["user"].to_numpy()
        slot = np.arange(len(users)) - np.searchsorted(users, users)  # 0, 1, … within each user
        width = int(slot.max()) + 1
        if width > len(item_ids):  # items repeat: no matrix is made of such a list
            raise repeated_pairs(len(rows) - rows.select("user", "item").n_unique())
        items = np.full((len(user_ids), width), -1, dtype=np.int32)
        scores = np.full(items.shape, -np.inf, dtype=np.float32)
        items[users, slot] = rows["item"].to_numpy()
        scores[users, slot] = rows["score"].to_numpy()
        if twice := repeated(items):
            raise repeated_pairs(twice)
        return cls(items, scores, user_ids, item_ids)

    @classmethod
    def from_arrays(cls, items: Array, scores: Array, user_ids: Any, item_ids: Any) -> Self:
        """From implicit's `(ids, scores)`.

        Args:
            items: Item numbers (n_lists, width), −1 for none.
            scores: The scores beside them.
            user_ids: Whose lists these are.
            item_ids: The ids that the numbers stand for: the whole catalog.

        Returns:
            The lists, best first.
        """
        items, scores = np.asarray(items), np.array(scores, dtype=np.float32)
        if items.dtype.kind not in "iu" and items.size:
            raise ValueError(f"items holds {items.dtype}; give the numbers of items, which are integers")
        users, catalog = as_ids(pl.Series(user_ids), "user_id"), as_ids(pl.Series(item_ids), "item_id")
        if items.shape != scores.shape or items.ndim != 2 or len(items) != len(users):
            raise ValueError(
                f"items {items.shape}, scores {scores.shape} and {len(users)} users do not fit; all need one row a user"
            )
        for name, ids in (("user", users), ("item", catalog)):
            if twice := len(ids) - ids.n_unique():
                raise ValueError(f"{twice:,} of the {len(ids):,} {name}_ids are repeated; each may stand there once")
        if items.size and items.max() >= len(catalog):
            raise ValueError(f"item number {items.max()} is outside the catalog of {len(catalog)} items")
        listed = items >= 0
        if not np.isfinite(scores[listed]).all():
            raise ValueError("some scores are NaN or infinite; scores must be finite numbers")
        if repeated(items):
            raise ValueError("a list holds an item twice; each item may stand in a user's list once")
        items, scores = np.where(listed, items, -1).astype(np.int32), np.where(listed, scores, -np.inf)
        best_first = np.argsort(-scores, axis=1, kind="stable")
        items, scores = (np.take_along_axis(table, best_first, axis=1) for table in (items, scores))
        return cls(items, scores, users, catalog)

    @classmethod
    def from_factors(cls, user_factors: Any, item_factors: Any, seen: Interactions, width: int = 100) -> Self:
        """The best unseen items of factors trained elsewhere.

        Args:
            user_factors: A row a user, in the order of `seen.user_ids`.
            item_factors: A row an item, in the order of `seen.item_ids`.
            seen: What stays out of the lists.
            width: The length of a list.

        Returns:
            The lists, best first.
        """
        import torch

        from divmf.ranking.retrieval import Vectors, recommend

        users, items = (torch.tensor(np.ascontiguousarray(t, dtype=np.float32)) for t in (user_factors, item_factors))
        if users.shape != (seen.n_users, users.shape[-1]) or items.shape != (seen.n_items, users.shape[-1]):
            raise ValueError(
                f"factors of shapes {tuple(users.shape)} and {tuple(items.shape)} do not fit {seen.n_users:,} users and"
                f" {seen.n_items:,} items; give a row for each, all of one width"
            )
        for name, table in (("user_factors", users), ("item_factors", items)):
            if not bool(torch.isfinite(table).all()):
                raise ValueError(f"{name} holds NaN or infinite numbers; give finite ones")
        found = recommend(Vectors(users, items, torch.zeros(len(items))), seen.matrix, min(width, seen.n_items))
        return cls(*found, seen.user_ids, seen.item_ids)

    @classmethod
    def read(
        cls, path: str | Path, catalog: Any = None, user: str | None = None, item: str | None = None,
        score: str | None = None, rank: str | None = None,
    ) -> Self:  # fmt: skip
        """Read lists from a file.

        Args:
            path: CSV, TSV, parquet or JSON lines.
            catalog: As in `from_frame`, as are the next four.
            user: The column of the users.
            item: The column of the items.
            score: The column of the scores.
            rank: The column of the ranks.

        Returns:
            The lists, best first.
        """
        with naming(path):
            return cls.from_frame(read_table(path), catalog, user, item, score, rank)

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"TopK({len(self):,} lists of {self.width}, catalog of {self.n_items:,} items)"

    def _repr_html_(self) -> str:
        first = replace(self, items=self.items[:3].copy(), scores=self.scores[:3].copy(), user_ids=self.user_ids[:3])
        return html_table(repr(self), first.frame.columns, first.frame.head(10).cast(pl.String).rows())

    @property
    def width(self) -> int:
        """The length of the longest list."""
        return int(self.items.shape[1])

    @property
    def n_items(self) -> int:
        """|I|, the whole catalog."""
        return len(self.item_ids)

    @property
    def lengths(self) -> Array:
        """How many items each list holds.  (n_lists,)"""
        return np.asarray((self.items >= 0).sum(axis=1))

    @cached_property
    def counts(self) -> Array:
        """f(i): in how many lists each item stands.  (n_items,) int64"""
        return np.bincount(self.items[self.items >= 0], minlength=self.n_items)

    @property
    def frame(self) -> pl.DataFrame:
        """user_id, item_id, score, rank (from 1); a shorter list has fewer rows."""
        user, slot = np.nonzero(self.items >= 0)
        return pl.DataFrame(
            {
                "user_id": self.user_ids.gather(user),
                "item_id": self.item_ids.gather(self.items[user, slot]),
                "score": self.scores[user, slot],
                "rank": (slot + 1).astype(np.int32),
            }
        )

    def head(self, k: int) -> Self:
        """The first items of each list.

        Args:
            k: How many.

        Returns:
            The shorter lists.
        """
        return replace(self, items=self.items[:, :k].copy(), scores=self.scores[:, :k].copy())

    def filtered(self, exclude: Any = None, items: Any = None) -> Self:
        """The same lists without some items, or with some alone; what follows moves up.

        Args:
            exclude: Never these; in the forms of `Recommender.lists`.
            items: These alone.

        Returns:
            The lists that are left.
        """
        blocked = request_filter(self.item_ids, self.user_ids, exclude, items)
        return self if blocked is None else self.without(blocked)

    def without(self, blocked: Blocked) -> Self:
        """The same lists without what is blocked; what follows moves up."""
        if blocked.is_empty:
            return self
        out = blocked.items[np.maximum(self.items, 0)] | (self.items < 0)
        if blocked.pairs is not None:
            found = np.zeros(self.items.shape, dtype=np.bool_)
            mark(self.items, blocked.pairs.indptr, blocked.pairs.indices, found)
            out |= found
        order = np.argsort(out, axis=1, kind="stable")
        items, scores = np.where(out, -1, self.items), np.where(out, -np.inf, self.scores).astype(np.float32)
        return replace(self, items=np.take_along_axis(items, order, 1), scores=np.take_along_axis(scores, order, 1))

    def aligned(self, user_ids: pl.Series, item_ids: pl.Series) -> Self:
        """The same lists with rows and item numbers of other id tables; users without a list get an empty one."""
        if same_ids(self.user_ids, user_ids) and same_ids(self.item_ids, item_ids):
            return self
        to_item = numbers_of(self.item_ids, item_ids)
        if self.items.size and (outside := (self.counts > 0) & (to_item < 0)).any():
            example = self.item_ids[int(np.argmax(outside))]
            raise ValueError(
                f"{outside.sum():,} recommended items (such as {example!r}) are not in the catalog of"
                f" {len(item_ids):,} items; give the catalog they were made from, or remove them"
            )
        rows = numbers_of(self.user_ids, user_ids)
        if (rows < 0).any():
            example = self.user_ids[int(np.argmax(rows < 0))]
            raise ValueError(
                f"{(rows < 0).sum():,} lists belong to users (such as {example!r}) that the data does not know;"
                " remove them, or evaluate on data that has them"
            )
        items = np.full((len(user_ids), self.width), -1, dtype=np.int32)
        scores = np.full(items.shape, -np.inf, dtype=np.float32)
        items[rows] = np.where(self.items >= 0, to_item[self.items], -1)
        scores[rows] = self.scores
        return type(self)(items, scores, user_ids, item_ids)

    def for_users_of(self, part: Interactions) -> Self:
        """The same lists, and an empty one for each user of the part that has none."""
        numbers_of(part.user_ids, self.user_ids)  # refuses ids of another type
        return self.aligned(id_table(pl.concat([self.user_ids, part.user_ids])), self.item_ids)

    def matrix_of(self, part: Interactions) -> sparse.csr_array:
        """Interactions as 0/1 in the rows and item numbers of these lists; other users' are left out."""
        users = numbers_of(part.user_ids, self.user_ids)[part.users]
        items = catalog_numbers(part.item_ids, self.item_ids)[part.items]
        ones = np.ones(int((users >= 0).sum()), dtype=np.float32)
        return sparse.csr_array((ones, (users[users >= 0], items[users >= 0])), shape=(len(self), self.n_items))


def popularity_of(lists: TopK, train: Interactions) -> Array:
    """How many users met each item of the lists' catalog in the training data.  (n_items,) int64"""
    if same_ids(lists.item_ids, train.item_ids):
        return train.popularity
    number = numbers_of(lists.item_ids, train.item_ids)
    if not (number >= 0).any():
        raise ValueError(
            f"train knows none of the catalog's {lists.n_items:,} items (such as {lists.item_ids[0]!r});"
            " give the interactions the model was trained on"
        )
    return np.where(number >= 0, train.popularity[number], 0)


def catalog_of(catalog: Any, items: pl.Series) -> pl.Series:
    """The id table of a catalog given as ids or as a frame; of the items that appear, if none is given."""
    if catalog is None:
        return id_table(items)
    if isinstance(catalog, str | Path):
        with naming(catalog):
            catalog = read_table(catalog)
    if hasattr(catalog, "columns"):
        table = to_polars(catalog)
        catalog = table[find_column(table, "item")]
    return id_table(as_ids(pl.Series(catalog), "item_id"))


def repeated(items: Array) -> int:
    """How many slots hold an item that their list holds already; sorted rows take a tenth of a hash table's room."""
    in_order = np.sort(items, axis=1)
    return int(((in_order[:, 1:] == in_order[:, :-1]) & (in_order[:, 1:] >= 0)).sum())


def repeated_pairs(rows: int) -> ValueError:
    """What is wrong with lists that hold an item twice."""
    return ValueError(f"{rows:,} rows repeat a (user, item) pair; each item may stand in a user's list once")


def numbers_in(column: pl.Series) -> pl.Series:
    """A column of scores or ranks as numbers; text that is not a number is an error that names the column."""
    kind = column.dtype
    if kind.is_temporal() or kind.is_nested() or kind == pl.Binary:
        raise ValueError(f"column {column.name!r} must hold numbers; it holds {kind}")
    try:
        return column.cast(pl.Float64)
    except pl.exceptions.PolarsError as error:
        raise ValueError(f"column {column.name!r} must hold numbers; it holds {column.dtype}") from error


def catalog_numbers(items: pl.Series, item_ids: pl.Series) -> Array:
    """The numbers of the items; one outside the catalog is an error that names it."""
    numbers = numbers_of(items, item_ids)
    if (numbers < 0).any():
        outside = items.filter(pl.Series(numbers < 0))
        raise ValueError(
            f"{outside.n_unique():,} items (such as {outside[0]!r}) are not in the catalog of {len(item_ids):,}"
            " items; give the whole catalog, or remove those rows"
        )
    return numbers
