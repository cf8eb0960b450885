"""Products of sparse interactions: between items, and with a dense table of weights between items.

Each function takes a range of rows from beginning to end on one thread (see `engine.threads`); a number is always added
up in the same order, so the result does not depend on how the rows are cut. Data is float32.
"""

import numpy as np
from numba import njit

from divmf.engine.arrays import Array
from divmf.kernels.best import VECTOR

COLUMNS = 256  # columns of the weights taken at a time: what the items of a user need of them stays in the cache
TILE = 64  # rows and columns that are turned over at a time


@njit(cache=True, nogil=True)
def gram_part(
    by_item: tuple[Array, Array, Array], by_user: tuple[Array, Array, Array], first: int, last: int, gram: Array
) -> None:
    """Rows first … last−1 of XᵀX, up to and including the diagonal: Σ_u x_ui · x_uj for j ≤ i, into zeros.

    by_item, by_user   Xᵀ and X as CSR: offsets, indices, values; the items of each user sorted
    """
    offsets, users, item_values = by_item
    begins, items, values = by_user
    for i in range(first, last):
        row = gram[i]
        for position in range(offsets[i], offsets[i + 1]):
            user, weight = users[position], item_values[position]
            for other in range(begins[user], begins[user + 1]):
                j = items[other]
                if j > i:
                    break
                row[j] += weight * values[other]


@njit(cache=True, nogil=True, fastmath={"contract"})  # nothing is added in another order than it stands here
def rows_times_weights(
    offsets: Array, items: Array, values: Array, users: Array, weights: Array, scores: Array
) -> None:
    """scores[r] ← Σ_j x_uj · weights[j] of user u = users[r]; weights (n_items, n_scored), scores (users, n_scored).

    Four items are added at a time, so that the row of scores is read and written a quarter as often.
    """
    n_scored = weights.shape[1]
    for start in range(0, n_scored, COLUMNS):
        end = min(start + COLUMNS, n_scored)
        for r in range(len(users)):
            row = scores[r, start:end]
            row[:] = 0
            begin, last = offsets[users[r]], offsets[users[r] + 1]
            fours = begin + (last - begin) // 4 * 4
            for p in range(begin, fours, 4):
                one, two = weights[items[p], start:end], weights[items[p + 1], start:end]
                three, four = weights[items[p + 2], start:end], weights[items[p + 3], start:end]
                v, w, x, y = values[p], values[p + 1], values[p + 2], values[p + 3]
                for column in range(len(row)):
                    added = row[column] + v * one[column]
                    added += w * two[column]
                    added += x * three[column]
                    row[column] = added + y * four[column]
            for p in range(fours, last):
                value, single = values[p], weights[items[p], start:end]
                for column in range(len(row)):
                    row[column] += value * single[column]


@njit(cache=True, nogil=True)
def mirror_part(table: Array, first: int, last: int) -> None:
    """Rows first … last−1 above the diagonal ← the columns below it, tile by tile; table (n, n)."""
    n = len(table)
    for top in range(first, last, TILE):
        bottom = min(top + TILE, last)
        for left in range(top, n, TILE):
            for i in range(top, bottom):
                for j in range(max(left, i + 1), min(left + TILE, n)):
                    table[i, j] = table[j, i]


@njit(cache=True, nogil=True, fastmath=VECTOR)
def regression_part(inverse: Array, scale: Array, first: int, last: int) -> None:
    """Rows first … last−1 of P_ij · scale_j, and 0 on the diagonal, in place; inverse (n, n), scale (n,)."""
    for i in range(first, last):
        row = inverse[i]
        for j in range(len(row)):
            row[j] *= scale[j]
        row[i] = np.float32(0)
