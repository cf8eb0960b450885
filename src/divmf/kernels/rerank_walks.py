"""Random walks over similar items, for the reranker `karakaya`."""

from typing import NamedTuple

import numpy as np
from numba import njit

from divmf.engine.arrays import Array


class Graph(NamedTuple):
    """The similar items of each item, −1 for none, and the cumulated probability of a step to them.  (n_items, n)"""

    similar: Array
    mass: Array


class Walks(NamedTuple):
    """How walks go: for items shown more often than `often`, `walks` of `steps` each, to items predicted `least`."""

    often: float
    least: float
    walks: int
    steps: int


@njit(cache=True)
def _step(item: int, graph: Graph, draw: float) -> int:
    """The neighbour of an item that a uniform draw falls on, −1 if it has none."""
    for number in range(graph.similar.shape[1]):
        if graph.similar[item, number] < 0:
            return -1
        if draw < graph.mass[item, number]:
            return int(graph.similar[item, number])
    return -1


@njit(cache=True)
def replace_by_walks(
    users: Array, items: Array, predicted: Array, columns: Array, counts: Array, graph: Graph, how: Walks,
    rng: np.random.Generator,
) -> None:  # fmt: skip
    """Replace over-recommended items of the lists `columns` (columns of `items`), in place, user after user.

    items, predicted   (n_users, width): the candidates and their predicted ratings; counts (n_items,): in how many
                       lists each item stands
    """
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
            if columns[user, rank] < 0 or frequency[rank] <= how.often:
                continue
            start = items[user, columns[user, rank]]
            found = -1
            for _ in range(how.walks):
                item = start
                for _ in range(how.steps):
                    item = _step(item, graph, rng.random())
                    if item < 0:
                        break
                    column = column_of[item]
                    if (
                        column >= 0
                        and not listed[column]
                        and counts[item] < how.often
                        and predicted[user, column] >= how.least
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
