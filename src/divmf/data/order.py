"""Rows of numbers in their order, user by user, in little more memory than they take themselves."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from scipy import sparse

from divmf.engine.arrays import Array

ROWS = 1 << 20  # rows looked at together, and then the rest of the last user's


def in_order(users: Array, items: Array, times: Array | None, shape: tuple[int, int]) -> tuple[Array, ...]:
    """Distinct (user, item) pairs by user, then time, then position in the file: users, items[, times].

    Of repeated pairs the last in that order is kept. Without times: by user, then item.
    """
    carried = np.zeros(len(users), dtype=np.int8) if times is None else times
    rows = sparse.coo_array((carried, (users, items)), shape=shape)
    rows.has_canonical_format = True  # else scipy would add up what is repeated; a counting sort is all we ask of it
    grouped = rows.tocsr()
    if times is None:
        grouped.sort_indices()
    ends, items, carried = grouped.indptr[1:], grouped.indices, grouped.data
    users = np.repeat(np.arange(shape[0], dtype=np.int32), np.diff(grouped.indptr))
    kept = np.ones(len(users), dtype=bool)
    for block in blocks_of_users(ends):
        if times is not None:
            order = np.lexsort((carried[block], users[block]))  # stable
            items[block], carried[block] = items[block][order], carried[block][order]
        kept[block] = last_of_each(users[block].astype(np.int64) * shape[1] + items[block])
    found = (users, items) if times is None else (users, items, carried)
    return found if kept.all() else tuple(column[kept] for column in found)


def blocks_of_users(ends: Array, rows: int = ROWS) -> Iterator[slice]:
    """Ranges of about so many rows with whole users in each; ends: where the rows of each user end."""
    n_rows = int(ends[-1]) if len(ends) else 0
    edges = ends[np.searchsorted(ends, np.arange(rows, n_rows, rows))]  # the user in whom a block is full is its last
    for first, last in pairwise(np.unique(np.concatenate([[0], edges, [n_rows]]))):
        yield slice(int(first), int(last))


def last_of_each(keys: Array) -> Array:
    """Where each key stands for the last time.  (len(keys),) bool"""
    order = np.argsort(keys, kind="stable")
    kept = np.zeros(len(keys), dtype=bool)
    kept[order[np.append(np.diff(keys[order]) > 0, True)]] = True
    return kept
