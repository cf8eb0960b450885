"""Greedy giving of items, for the rerankers with capacities or guarantees."""

import numpy as np
from numba import njit

from divmf.engine.arrays import Array


@njit(cache=True)
def give_in_order(pairs: Array, items: Array, capacity: Array, columns: Array, size: Array) -> None:
    """Go through the pairs (user · width + column); give while the user has room and the item has capacity, in place.

    columns   (n_lists, k): the lists, filled up to `size` (n_lists,)
    """
    width, k = items.shape[1], columns.shape[1]
    for pair in pairs:
        user, column = pair // width, pair % width
        item = items[user, column]
        if size[user] < k and capacity[item] > 0 and not (columns[user, : size[user]] == column).any():
            columns[user, size[user]] = column
            size[user] += 1
            capacity[item] -= 1


@njit(cache=True)
def give_in_turns(items: Array, capacity: Array, columns: Array) -> None:
    """In each of k rounds every user in turn takes the best candidate of which a copy is left, in place."""
    n_lists, width = items.shape
    taken = np.zeros((n_lists, width), dtype=np.bool_)
    for rank in range(columns.shape[1]):
        for user in range(n_lists):
            for column in range(width):
                item = items[user, column]
                if item < 0:
                    break
                if capacity[item] > 0 and not taken[user, column]:
                    columns[user, rank] = column
                    taken[user, column] = True
                    capacity[item] -= 1
                    break


@njit(cache=True)
def fill_up(items: Array, lengths: Array, left: Array, columns: Array) -> None:
    """Fill the empty ends (−1) of the lists with the best columns not yet in them whose item has capacity, in place."""
    for user in range(columns.shape[0]):
        column = 0
        for rank in range(columns.shape[1]):
            if columns[user, rank] >= 0:
                continue
            while column < lengths[user] and (left[items[user, column]] <= 0 or (columns[user] == column).any()):
                column += 1
            if column < lengths[user]:
                columns[user, rank] = column
                left[items[user, column]] -= 1
