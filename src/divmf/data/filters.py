"""Filters: what never stands in a list, what alone may, and what stays out of one user's list."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy import sparse

from divmf.data.catalogs import holds, named_items, same_type
from divmf.data.ids import as_ids, numbers_of
from divmf.data.tables import find_column, read_table, to_polars
from divmf.engine.arrays import Array

log = logging.getLogger(__name__)
LARGEST = 1 << 28  # pairs that an allow table may block, over all users
FILES = (".csv", ".tsv", ".tab", ".parquet", ".pq", ".jsonl", ".ndjson", ".json", ".gz", ".bz2", ".txt")


@dataclass(frozen=True, eq=False)
class Blocked:
    """What may not be recommended.

    items   (n_items,) bool: to nobody
    pairs   (n_users, n_items) or None: to one user
    """

    items: Array
    pairs: sparse.csr_array | None = None

    def __or__(self, other: "Blocked") -> "Blocked":
        """What either blocks."""
        parts = [each.pairs for each in (self, other) if each.pairs is not None]
        return Blocked(self.items | other.items, merged(parts) if parts else None)

    @property
    def is_empty(self) -> bool:
        """Whether everything may be recommended."""
        return not self.items.any() and (self.pairs is None or not self.pairs.nnz)

    def with_seen(self, seen: sparse.csr_array) -> sparse.csr_array:
        """What users have met, and what they may not be shown."""
        return seen if self.pairs is None else merged([seen, self.pairs])

    def penalty(self, discount: Array | None = None) -> Array:
        """What to add to the scores of items: −inf for those that nobody may be shown.  (n_items,) float32"""
        added = np.zeros(len(self.items), np.float32) if discount is None else discount.astype(np.float32)
        return np.where(self.items, np.float32(-np.inf), added)


def merged(parts: list[sparse.csr_array]) -> sparse.csr_array:
    """The pairs that any of some matrices has, as ones."""
    total = sparse.csr_array(sum(parts[1:], parts[0]))
    total.data[:] = 1
    total.sort_indices()
    return total


class Filters:
    """Makes `Blocked` of what people write.

    catalog   the rows of the items, in their order, where there is one
    folder    where files are looked for
    """

    def __init__(
        self, item_ids: pl.Series, user_ids: pl.Series, catalog: pl.DataFrame | None = None, folder: Path | None = None
    ) -> None:
        self.item_ids, self.user_ids, self.catalog, self.folder = item_ids, user_ids, catalog, folder or Path()

    def blocked(self, exclude: Any = None, allow: Any = None, names: tuple[str, str] = ("exclude", "items")) -> Blocked:
        """What an exclude and an allow block; names: what messages call the two."""
        both = [self.named(given, name) for given, name in zip((exclude, allow), names, strict=True)]
        (out, out_pairs), (kept, kept_pairs) = both
        blocked = np.zeros(len(self.item_ids), dtype=np.bool_) if out is None else out
        if kept is not None:
            listed = not isinstance(exclude, str | Path) and not isinstance(allow, str | Path)
            if listed and out is not None and (twice := out & kept).any():
                example = self.item_ids[int(np.argmax(twice))]
                raise ValueError(f"{names[0]} and {names[1]} both name {example!r}: they contradict each other")
            blocked = blocked | ~kept
        if blocked.all():
            raise ValueError(f"{names[0]} and {names[1]} leave none of {len(blocked):,} items to recommend")
        made = Blocked(blocked, out_pairs)
        return (
            made if kept_pairs is None else made | Blocked(np.zeros_like(blocked), self.all_but(kept_pairs, names[1]))
        )

    def named(self, given: Any, name: str) -> tuple[Array | None, sparse.csr_array | None]:
        """The items that are named for everybody, or the pairs."""
        if given is None:
            return None, None
        if isinstance(given, str | Path):
            path = self.folder / given
            if isinstance(given, str) and not path.exists() and path.suffix.lower() not in FILES:
                return holds(self.catalog, given, f"{name} ="), None
            try:
                return self.from_table(read_table(path), name, strict=False)
            except ValueError as error:
                raise ValueError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
        if hasattr(given, "columns"):
            return self.from_table(to_polars(given), name, strict=True)
        ids = [given] if isinstance(given, int) else list(given)
        if not ids:
            return np.zeros(len(self.item_ids), dtype=np.bool_), None
        return named_items(ids, self.item_ids, name), None

    def from_table(self, table: pl.DataFrame, name: str, strict: bool) -> tuple[Array | None, sparse.csr_array | None]:
        """The ids of a table, or its pairs where it has a user column; strict: none may be unknown."""
        items = same_type(as_ids(table[find_column(table, "item")], "item_id"), self.item_ids)
        user = find_column(table, "user", required=False)
        numbers = numbers_of(items, self.item_ids)
        known = numbers >= 0
        if len(known) and (not known.any() or (strict and not known.all())):
            example = items[int(np.argmin(known))]
            raise ValueError(
                f"{name}: {(~known).sum():,} of {len(known):,} items (such as {example!r}) are not in the data"
            )
        if user is None:
            found = np.zeros(len(self.item_ids), dtype=np.bool_)
            found[numbers[known]] = True
            rows = np.zeros(len(known), dtype=np.int32)
        else:
            users = same_type(as_ids(table[user], "user_id"), self.user_ids)
            rows = numbers_of(users, self.user_ids)
            known = known & (rows >= 0)
        if missing := int((~known).sum()):
            log.warning("%s: %s of %s rows name what is not in the data", name, f"{missing:,}", f"{len(known):,}")
        if user is None:
            return found, None
        shape = len(self.user_ids), len(self.item_ids)
        ones = np.ones(int(known.sum()), dtype=np.float32)
        return None, merged([sparse.csr_array((ones, (rows[known], numbers[known])), shape=shape)])

    def all_but(self, pairs: sparse.csr_array, name: str) -> sparse.csr_array:
        """What is blocked where some users may be shown some items alone; other users, everything."""
        n_users, n_items = pairs.shape
        who = np.flatnonzero(np.diff(pairs.indptr))
        if len(who) * n_items > LARGEST:
            raise ValueError(
                f"{name} names {len(who):,} users with items of their own, out of {n_items:,} items: that is more than"
                f" {LARGEST:,} pairs to leave out; name what is excluded instead"
            )
        open_ = np.ones((len(who), n_items), dtype=np.bool_)
        row = np.repeat(np.arange(len(who)), np.diff(pairs.indptr)[who])
        open_[row, pairs.indices] = False
        rows, items = np.nonzero(open_)
        ones = np.ones(len(rows), dtype=np.float32)
        return sparse.csr_array((ones, (who[rows], items)), shape=(n_users, n_items))


def request_filter(item_ids: pl.Series, user_ids: pl.Series, exclude: Any = None, items: Any = None) -> Blocked | None:
    """What a request leaves out; none where it asks for everything.

    exclude   ids, a frame of item_id or of user_id, item_id, a file of either: never these
    items     the same: these alone
    """
    if exclude is None and items is None:
        return None
    return Filters(item_ids, user_ids).blocked(exclude, items)
