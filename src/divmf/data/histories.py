"""What people who were not in training have met, by the numbers of a catalog.

    people = Histories.of([["i7", "i9"], ["i1"]], item_ids)             # a sequence for each
    people = Histories.from_frame(frame, item_ids)                      # user_id, item_id
    people = Histories.from_frame(frame, item_ids, weight="plays", usual=train.mean_weight)

Items that the catalog does not have are left out and counted, as are items that stand there twice (of weights, the
sum counts).
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl
from scipy import sparse

from divmf.data.ids import as_ids, numbers_of
from divmf.data.tables import find_column, to_polars
from divmf.data.values import beside_usual
from divmf.engine.arrays import Array

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Histories:
    """People and what they met: at least one item of the catalog each.

    user_ids   what the outside calls them
    met        (n_people, n_items) 0/1, or weights beside the mean one of the training
    """

    user_ids: pl.Series
    met: sparse.csr_array

    @classmethod
    def of(cls, history: Sequence[Any], item_ids: pl.Series) -> Self:
        """Of one person, as a sequence of item ids, or of several, as a sequence of such; called 0, 1, 2, …"""
        if not hasattr(history, "__len__") or isinstance(history, str | bytes):
            raise ValueError(f"history={history!r} is one id; give a list of the items met, [{history!r}]")
        many = [history] if not len(history) or not is_nested(history[0]) else list(history)
        if empty := [number for number, items in enumerate(many) if not len(items)]:
            which = "history is empty" if len(many) == 1 else f"history {empty[0]} is empty"
            raise ValueError(f"{which}: give at least one item that the person has met")
        people = np.repeat(np.arange(len(many)), [len(items) for items in many])
        items = as_ids([item for items in many for item in items], "item_id")
        return cls.from_pairs(pl.Series("user_id", np.arange(len(many))), people, items, item_ids)

    @classmethod
    def from_frame(
        cls, frame: Any, item_ids: pl.Series, user: str | None = None, item: str | None = None,
        weight: str | None = None, usual: float | None = None,
    ) -> Self:  # fmt: skip
        """From a frame of user_id and item_id, a row for each item met.

        usual    the mean weight of the training; none where it had no weights
        weight   the column of weights; where none is named, `weight`, if there is one; without it, all count as usual
        """
        table = to_polars(frame)
        if usual is None and weight is not None:
            raise ValueError(f"weight={weight!r} is named, but the model learnt from no weights; leave it out")
        if table.is_empty():
            raise ValueError("there are no rows: a history needs at least one item")
        people = as_ids(table[find_column(table, "user", user)], "user_id")
        items = table[find_column(table, "item", item)]
        if items.dtype.is_integer() and item_ids.dtype == pl.String:  # text files do not say what type their ids are
            items = items.cast(pl.String)
        user_ids = people.unique(maintain_order=True)
        weights = beside_usual(table, usual, weight)
        return cls.from_pairs(user_ids, numbers_of(people, user_ids), as_ids(items, "item_id"), item_ids, weights)

    @classmethod
    def from_pairs(
        cls, user_ids: pl.Series, people: Array, items: pl.Series, item_ids: pl.Series, weights: Array | None = None
    ) -> Self:
        """From people's numbers, the ids of what they met and, where known, how much each counts."""
        numbers = numbers_of(items, item_ids)
        known = numbers >= 0
        if not known.any():
            raise ValueError(
                f"the catalog has no item of the histories, such as {items[0]!r}; give ids like {item_ids[0]!r}"
            )
        if unknown := int((~known).sum()):
            named = items.filter(pl.Series(~known))[0]
            log.warning("items met that the catalog does not have are left out: %s, such as %r", f"{unknown:,}", named)
        shape = (len(user_ids), len(item_ids))
        counts = np.ones(len(known)) if weights is None else weights
        met = sparse.csr_array((counts[known].astype(np.float32), (people[known], numbers[known])), shape=shape)
        met.sum_duplicates()
        if (repeated := int(known.sum()) - met.nnz) and weights is None:
            log.warning("items that stand in a history more than once count once: %s", f"{repeated:,}")
        if weights is None:
            met.data[:] = 1.0
        some = np.diff(met.indptr) > 0
        if nothing := int((~some).sum()):
            named = user_ids.filter(pl.Series(~some))[0]
            log.warning("people who met nothing of the catalog get no list: %s, such as %r", f"{nothing:,}", named)
        return cls(user_ids.filter(pl.Series(some)), met[some])

    def __len__(self) -> int:
        return len(self.user_ids)


def is_nested(first: Any) -> bool:
    """Whether the first of a sequence is a sequence of ids itself."""
    return not isinstance(first, str | bytes) and hasattr(first, "__len__")
