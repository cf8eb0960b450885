"""Items that were not in training: what they are like, or who has met them.

    new = NewItems.of({"n1": ["i3", "i7"]}, split)        # like two items of the catalog
    new = NewItems.of(frame, split)                       # item_id, and like (an item of the catalog) or user_id

An item that somebody of the training has met is known by that, any other by the items that it is like. Where the
training has weights, a column `weight` says how much each such interaction counts; without it, as the mean one.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import polars as pl
from scipy import sparse

from divmf.data.ids import as_ids, id_table, numbers_of
from divmf.data.interactions import Interactions
from divmf.data.split import Split
from divmf.data.tables import find_column, to_polars
from divmf.data.values import beside_usual
from divmf.engine.arrays import Array

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class NewItems:
    """New items by number, sorted by id.

    item_ids   what the outside calls them
    similar    the numbers of the items that each is like; None where its interactions say
    met        (n_new, n_users): who met each, as 1 or by weight beside the mean one of the training
    """

    item_ids: pl.Series
    similar: list[Array | None]
    met: sparse.csr_array

    @classmethod
    def of(cls, given: Any, split: Split) -> Self:
        """From a mapping of ids to the ids of similar items, or from a frame of item_id with like, user_id or both."""
        if isinstance(given, Mapping):
            if text := [alike for alike in given.values() if isinstance(alike, str | bytes | int)]:
                raise ValueError(f"{text[0]!r} is one id; give a list of the items that it is like, [{text[0]!r}]")
            if not given or not all(len(alike) for alike in given.values()):
                raise ValueError("each new item needs at least one item that it is like: {'new': ['i3', 'i7']}")
            new = [key for key, alike in given.items() for _ in alike]
            given = pl.DataFrame({"item_id": new, "like": [item for alike in given.values() for item in alike]})
        table = to_polars(given)
        user = find_column(table, "user", required=False)
        if table.is_empty() or (user is None and "like" not in table.columns):
            raise ValueError(
                "new items need rows of item_id and like (an item of the catalog) or user_id (who has met it);"
                f" there are {len(table)} rows of {', '.join(map(repr, table.columns))}"
            )
        rows = as_ids(as_known(table[find_column(table, "item")], split.item_ids), "item_id")
        item_ids = id_table(rows)
        if (old := item_ids.filter(pl.Series(numbers_of(item_ids, split.item_ids) >= 0))).len():
            raise ValueError(f"{old[0]!r} is in the catalog already; new items have ids of their own")
        numbers = numbers_of(rows, item_ids)
        weights = beside_usual(table, split.train.mean_weight)
        met = met_by(table, user, numbers, len(item_ids), split, weights)
        return cls(item_ids, likes_of(table, numbers, item_ids, split, np.diff(met.indptr) > 0), met)

    def __len__(self) -> int:
        return len(self.item_ids)

    def joined(self, split: Split) -> tuple[Split, Array]:
        """The split with these items and who met them, and the number of each item there: the old ones, then these."""
        whole = id_table(pl.concat([split.item_ids, self.item_ids])).alias("item_id")
        numbers = np.concatenate([numbers_of(ids, whole) for ids in (split.item_ids, self.item_ids)])
        train, valid, test = (
            replace(part, items=numbers[part.items], item_ids=whole) for part in (split.train, split.valid, split.test)
        )
        pairs = self.met.tocoo()
        new, users = pairs.coords
        return Split(with_pairs(train, users, numbers[split.n_items + new], pairs.data), valid, test), numbers


def with_pairs(train: Interactions, users: Array, items: Array, counts: Array) -> Interactions:
    """Interactions with some more, the latest of all; counts: what each of these has of the mean weight."""
    users, items = (
        np.concatenate([mine, more]).astype(np.int32) for mine, more in ((train.users, users), (train.items, items))
    )
    times = train.times
    if times is not None:
        times = np.append(times, np.full(len(users) - len(times), times.max(initial=0)))
    weights, usual = train.weights, train.mean_weight
    if weights is not None and usual is not None:
        weights = np.append(weights, (usual * counts).astype(np.float32))
    order = np.lexsort((items, users) if times is None else (times, users))
    named: dict[str, Any] = {"users": users, "items": items, "times": times, "weights": weights}
    return replace(train, **{name: column[order] for name, column in named.items() if column is not None})


def as_known(ids: pl.Series, known: pl.Series) -> pl.Series:
    """Ids of a text file, which does not say of what type they are, as the known ones."""
    return ids.cast(pl.String) if ids.dtype.is_integer() and known.dtype == pl.String else ids


def met_by(
    table: pl.DataFrame, user: str | None, numbers: Array, n_new: int, split: Split, weights: Array | None
) -> sparse.csr_array:
    """Who met each new item, of the users of the training, as 1 or by weight.  (n_new, n_users)"""
    users = np.full(len(table), -1)
    if user is not None:
        named = np.flatnonzero(table[user].is_not_null().to_numpy())
        if len(named):
            ids = as_ids(as_known(table[user].gather(named), split.user_ids), "user_id")
            users[named] = numbers_of(ids, split.user_ids)
            if unknown := int((users[named] < 0).sum()):
                log.warning("%s interactions with new items are of people who were not in training and left out",
                            f"{unknown:,}")  # fmt: skip
    rows, counts = users >= 0, np.ones(len(users)) if weights is None else weights
    pairs = counts[rows].astype(np.float32), (numbers[rows], users[rows])
    met = sparse.csr_array(pairs, shape=(n_new, split.n_users))
    met.sum_duplicates()
    if weights is None:
        met.data[:] = 1
    return met


def likes_of(
    table: pl.DataFrame, numbers: Array, item_ids: pl.Series, split: Split, is_met: Array
) -> list[Array | None]:
    """The items that each new one is like; None for those that somebody has met."""
    found = np.full(len(table), -1)
    if "like" in table.columns and table["like"].null_count() < len(table):
        named = np.flatnonzero(table["like"].is_not_null().to_numpy())
        ids = as_ids(as_known(table["like"].gather(named), split.item_ids), "like")
        found[named] = numbers_of(ids, split.item_ids)
        if (unknown := ids.filter(pl.Series(found[named] < 0))).len():
            raise ValueError(f"like names {unknown[0]!r}, which is not in the catalog; name items of the training")
    similar = [np.unique(found[(numbers == number) & (found >= 0)]) for number in range(len(item_ids))]
    if lost := [number for number, alike in enumerate(similar) if not len(alike) and not is_met[number]]:
        raise ValueError(
            f"nothing is known of {item_ids[lost[0]]!r}: nobody of the training has met it; name an item that it is"
            " like"
        )
    return [None if met else alike for met, alike in zip(is_met, similar, strict=True)]
