"""Random walks over similar items, for the reranker `karakaya`."""

import numpy as np
from numba import njit

from divmf.engine.arrays import Array


@njit(cache=True)
def _step(item: int, similar: Array, mass: Array, draw: float) -> int:
    """The neighbour of an item that a uniform draw falls on, −1 if it has none."""
    for number in range(similar.shape[1]):
        if similar[item, number] < 0:
            return -1
        if draw < mass[item, number]:
            return int(similar[item, number])
    return -1


@njit(cache=True)
def replace_by_walks(
    users: Array,
    items: Array,
    r: Array,
    columns: Array,
    counts: Array,
    similar: Array,
    mass: Array,
    even_share: float,
    threshold: float,
    walks: int,
    steps: int,
    rng: np.random.Generator,
) -> None:
    """Replace over-recommended items of the lists `columns` (columns of `items`), in place, user after user."""
    k = columns.shape[1]
    column_of = np.full(len(counts), -1)  # where an item stands among the user's candidates
    listed = np.zeros(items.shape[1], dtype=np.bool_)
    for user in users:
        for column in range(items.shape[1]):
            if items[user, column] >= 0:
                column_of[items[user, column]] = column
        listed[:] = False
        frequency = np.zeros(k)
        for rank in range(k):
            if columns[user, rank] >= 0:
                listed[columns[user, rank]] = True
                frequency[rank] = counts[items[user, columns[user, rank]]]
        for rank in np.argsort(-frequency, kind="mergesort"):
            if columns[user, rank] < 0 or frequency[rank] <= even_share:
                continue
            start = items[user, columns[user, rank]]
            found = -1
            for _ in range(walks):
                item = start
                for _ in range(steps):
                    item = _step(item, similar, mass, rng.random())
                    if item < 0:
                        break
                    column = column_of[item]
                    if (
                        column >= 0
                        and not listed[column]
                        and counts[item] < even_share
                        and r[user, column] >= threshold
                    ):
                        found = column
                        break
                if found >= 0:
                    break
            if found >= 0:
                listed[columns[user, rank]] = False
                listed[found] = True
                counts[start] -= 1
                counts[items[user, found]] += 1
                columns[user, rank] = found
        for column in range(items.shape[1]):
            if items[user, column] >= 0:
                column_of[items[user, column]] = -1
