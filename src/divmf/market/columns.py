"""The candidates of users: found on demand, since what is worth showing changes with what is shown.

A user's candidates are the best by value, the best by value plus discount, the items of the present lists, and what is
held out of training, which only some lists may hold. They are found by one pass over the scores of all users.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
from scipy import sparse

from divmf.data.split import Split
from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.threads import in_parts
from divmf.kernels.bound import BINS, demand_of_rows, demand_part
from divmf.kernels.join import join
from divmf.kernels.market import Columns, Terms, Wanted, close_rows, find_rows
from divmf.kernels.rows import rows_at_once
from divmf.models.scorer import Factors, Scorer

WIDTH, WIDER = 32, 4  # candidates by value, and as many by value plus discount; so many for each slot, if that is more
MOST_KEPT = 1 << 26  # scores: 256 MiB

# the kinds of lists that are made side by side: those to be measured on validation may hold what is held out for
# validation and for the test, those to be measured on the test no validation items, those for people neither
KINDS = ("valid", "test", "all")
FOR_VALID, FOR_TEST = 1, 2  # the bits of the kinds: 1 << the position in KINDS


@dataclass(frozen=True, eq=False)
class Held:
    """What users have met, all of it (known), and what of it was held out of training, with the lists it may stand in.

    offsets, items, opens: as a CSR matrix
    """

    known: sparse.csr_array
    offsets: Array
    items: Array
    opens: Array

    @classmethod
    def of(cls, split: Split) -> "Held":
        """What is held out for validation may stand in lists for validation; what is for the test, in those too."""
        parts = ((split.valid.matrix, FOR_VALID), (split.test.matrix, FOR_VALID | FOR_TEST))
        users = np.concatenate([np.repeat(np.arange(split.n_users), np.diff(part.indptr)) for part, _ in parts])
        items = np.concatenate([part.indices for part, _ in parts]).astype(np.int32)
        opens = np.concatenate([np.full(part.nnz, opens, dtype=np.int64) for part, opens in parts])
        order = np.argsort(users, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(users, minlength=split.n_users))])
        return cls(split.known, offsets, items[order], opens[order])

    @classmethod
    def nothing(cls, known: sparse.csr_array) -> "Held":
        """All that users have met stays out of every list."""
        none = np.zeros(0, dtype=np.int32)
        return cls(known, np.zeros(known.shape[0] + 1, dtype=np.int64), none, none.astype(np.int64))


class Demand(NamedTuple):
    """What the best lists of some users are worth at fixed discounts, and the exposure they give (`demand_of_rows`)."""

    worth: float
    counts: Array


def no_counts(n_items: int) -> Array:
    """Room for counts.  (n_items, 1 + BINS) int64"""
    return np.zeros((n_items, 1 + BINS), dtype=np.int64)


class Source(Protocol):
    """Where candidates come from; weights (n_users,) float32: how much the values of users count."""

    n_items: int
    weights: Array

    def find(self, discount: Array, kept: Array) -> Columns:
        """The candidates at these discounts.  discount (n_items,); kept (n_users, k) int32: the present lists"""

    def demand(self, columns: Columns, kind: int, terms: Terms, discount: Array, radius: Array) -> list[Demand]:
        """What the best lists of one kind, of whatever items, are worth at these discounts, for parts of the users."""


class Finder:
    """Finds candidates by the scores of a model.

    weights   (n_users,) float32: how much the values of users count
    """

    def __init__(self, scorer: Scorer, held: Held, weights: Array, width: int = WIDTH) -> None:
        self.scorer, self.held, self.weights, self.n_items = scorer, held, weights, scorer.n_items
        self.width = min(width, scorer.n_items)
        self.by_value = np.full((scorer.n_users, self.width), -2, dtype=np.int32)
        n_scores = scorer.n_users * scorer.n_items
        self.held_values = np.empty(len(held.items), dtype=np.float32)
        self.kept: Array | None = None  # all rows, closed, where they are not many and take longer to make than to keep
        if not isinstance(scorer, Factors) and n_scores <= MOST_KEPT:
            self.kept = np.empty((scorer.n_users, scorer.n_items), dtype=np.float32)
        self.found = False

    def wanted(self, discount: Array) -> Wanted:
        """What candidates are looked for by."""
        held = self.held
        return Wanted(
            self.weights, discount.astype(np.float32), held.known.indptr, held.known.indices,
            held.offsets, held.items, held.opens,
        )  # fmt: skip

    def find(self, discount: Array, kept: Array) -> Columns:
        """The candidates at these discounts, by one pass over all scores."""
        wanted, n_users = self.wanted(discount), self.scorer.n_users
        widest = 2 * self.width + kept.shape[1] + np.diff(self.held.offsets)
        starts = np.concatenate([[0], np.cumsum(widest)]).astype(np.int64)
        columns = Columns(
            starts[:-1], np.zeros(n_users, dtype=np.int64), np.empty(starts[-1], dtype=np.int32),
            np.empty(starts[-1], dtype=np.float32), np.empty(starts[-1], dtype=np.uint8),
        )  # fmt: skip

        def part(first: int, last: int) -> None:
            for start, end in self.ranges(first, last):
                block = self.block(start, end, wanted)
                find_rows(block, start, wanted, self.held_values, self.by_value, kept, columns)

        in_parts(part, n_users, span=comm.row_range(n_users))
        self.found = True
        return columns

    def demand(self, columns: Columns, kind: int, terms: Terms, discount: Array, radius: Array) -> list[Demand]:
        """What the best lists of these users are worth at these discounts, by one pass over all scores."""
        wanted, n_users = self.wanted(discount), self.scorer.n_users

        def part(first: int, last: int) -> Demand:
            counts, worth = no_counts(self.n_items), 0.0
            for start, end in self.ranges(first, last):
                block = self.block(start, end, wanted)
                worth += demand_of_rows(
                    block, start, kind, wanted, self.held_values, columns, terms, discount, radius, counts
                )
            return Demand(worth, counts)

        return in_parts(part, n_users, no_counts(self.n_items).nbytes, span=comm.row_range(n_users))

    def ranges(self, first: int, last: int) -> Iterable[tuple[int, int]]:
        """Users first … last−1, a few at a time."""
        return pairwise([*range(first, last, rows_at_once(last - first, self.scorer.n_items)), last])

    def block(self, first: int, last: int, wanted: Wanted) -> Array:
        """The scores of users first … last−1, −inf for what they have met (`close_rows`)."""
        if self.kept is not None and self.found:
            return self.kept[first:last]
        rows = self.scorer.scores(np.arange(first, last))
        close_rows(rows, first, wanted, self.held_values)
        if self.kept is not None:
            self.kept[first:last] = rows
        return rows


class GivenLists:
    """Candidates that are given: of items outside a user's list nothing is known.

    items, scores (n_lists, width): in order of score, −1 and −inf where a list is shorter
    """

    def __init__(self, items: Array, scores: Array, n_items: int) -> None:
        n_lists, width = items.shape
        self.n_items, self.weights = n_items, np.ones(n_lists, dtype=np.float32)
        starts = np.arange(n_lists, dtype=np.int64) * width
        lengths, opens = (items >= 0).sum(axis=1), np.ones(items.size, dtype=np.uint8)
        values = np.ascontiguousarray(scores, dtype=np.float32).ravel()
        self.columns = Columns(starts, starts + lengths, np.ascontiguousarray(items).ravel(), values, opens)

    def find(self, discount: Array, kept: Array) -> Columns:
        """The same candidates at any discounts."""
        return self.columns

    def demand(self, columns: Columns, kind: int, terms: Terms, discount: Array, radius: Array) -> list[Demand]:
        """What the best lists of the candidates are worth: there are no other items."""

        def part(first: int, last: int) -> Demand:
            counts = no_counts(self.n_items)
            return Demand(demand_part(columns, kind, first, last, terms, discount, radius, counts), counts)

        n_lists = len(self.weights)
        return in_parts(part, n_lists, no_counts(self.n_items).nbytes, span=comm.row_range(n_lists))


def joined(columns: Columns, others: Columns) -> Columns:
    """The candidates of both."""
    most = columns.ends - columns.starts + others.ends - others.starts
    ends = np.cumsum(most)
    tables = (np.empty(ends[-1], dtype=table.dtype) for table in (columns.items, columns.values, columns.opens))
    made = Columns(ends - most, ends, *tables)
    join(columns, others, made)
    return made
