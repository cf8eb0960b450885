"""Passes over rows of scores, a few rows at a time: multiply, look, forget. The scores never leave the cache.

Each function takes a range of users from beginning to end on one thread (see `engine.threads`); float32 throughout.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from divmf.engine.arrays import Array
from divmf.kernels.best import VECTOR, float_of, scratch_for, within_reach
from divmf.kernels.select import largest_of

ROWS_BYTES = 1 << 20  # rows of scores at a time: what a second-level cache holds
LEAST_ROWS, MOST_ROWS = 96, 256  # but with fewer rows at a time, multiplying takes longer than the cache saves
LONG = 8  # a row so many times as long as its list is first cut down to what may belong to it
LOG2_E = np.float32(1.4426950408889634)
LEAST_POWER = np.float32(-126.0)  # of two, in float32


class Weighted(NamedTuple):
    """Vectors and the weighted interactions that they are to explain.

    users, items           vectors, (n_users, dim) and (n_items, dim); items_t: those of the items transposed
    bias                   (n_items,)
    offsets, met, values   the items each user met and their weights, as a CSR matrix
    """

    users: Array
    items: Array
    items_t: Array
    bias: Array
    offsets: Array
    met: Array
    values: Array


def rows_at_once(n_rows: int, n_items: int) -> int:
    """How many of a part's rows of scores to hold at a time, so that the last time has as many as the others."""
    most = min(MOST_ROWS, max(LEAST_ROWS, ROWS_BYTES // (4 * n_items)))
    return -(-n_rows // -(-n_rows // most))


@njit(cache=True, nogil=True, fastmath=VECTOR, error_model="numpy")
def exp(x: Any) -> Any:
    """e^x for x ≤ 0, relative error 2e-7 near 0 and below 4e-6 everywhere; 0 for what is below 2^−126.

    2^y = 2^floor(y) · 2^frac(y): the first by its bits, the second by a polynomial. Plain arithmetic, so a loop over
    it becomes vector instructions; numba's own exp is a call for each number.
    """
    power = x * LOG2_E
    whole = np.floor(power if power > LEAST_POWER else LEAST_POWER)
    part = power - whole
    y = np.float32(1.8775767e-3)
    y = y * part + np.float32(8.9893397e-3)
    y = y * part + np.float32(5.5826318e-2)
    y = y * part + np.float32(2.4015361e-1)
    y = y * part + np.float32(6.9315308e-1)
    y = y * part + np.float32(9.9999994e-1)
    y *= float_of((np.int32(whole) + np.int32(127)) << np.int32(23))
    return y if power > LEAST_POWER else np.float32(0)


@njit(cache=True, nogil=True, fastmath=VECTOR, error_model="numpy")
def exp_row(row: Array, highest: Any) -> Any:
    """row ← exp(row − highest); its sum."""
    total = np.float32(0)
    for j in range(len(row)):
        row[j] = exp(row[j] - highest)
        total += row[j]
    return total


# Before anything that calls it: a caller that is compiled uses this code, one that is read from the cache would bring a
# copy of its own, whose sums are in another order, unless this is there.
exp_row.compile("float32(float32[::1], float32)")


@njit(cache=True, nogil=True, fastmath=VECTOR, error_model="numpy")
def _add_bias(row: Array, bias: Array) -> Any:
    """row ← row + bias; its maximum."""
    highest = np.float32(-np.inf)
    for j in range(len(row)):
        row[j] += bias[j]
        highest = max(highest, row[j])
    return highest


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def softmax_part(
    data: Weighted, first: int, last: int, at_once: int, user_gradient: Array, item_gradient_t: Array
) -> float:
    """The softmax loss of users first … last−1, its gradient for them, and added to item_gradient_t that for the items.

    at_once   rows of scores held at a time

    With n_u the sum of the weights Y_u,
    ∂/∂r̂_u = n_u·S_u − Y_u = (n_u/z)·(E_u − (z/n_u)·Y_u) with E = exp of the scores and z its sum: what is left of the
    scaling is done on the short vectors, not on the rows.
    """
    users, items, items_t, bias, offsets, met, values = data
    n_items, dim = items.shape
    block = np.empty((at_once, n_items), dtype=np.float32)
    weight = np.empty(at_once, dtype=np.float32)
    total = 0.0
    for start in range(first, last, at_once):
        size = min(at_once, last - start)
        rows, weighted_t = block[:size], np.empty((dim, size), dtype=np.float32)
        np.dot(users[start : start + size], items_t, rows)
        for r in range(size):
            user = start + r
            begin, end = offsets[user], offsets[user + 1]
            highest = _add_bias(rows[r], bias)
            positive, count = 0.0, 0.0
            for position in range(begin, end):
                positive += values[position] * rows[r, met[position]]
                count += values[position]
            z = exp_row(rows[r], highest)
            total += count * (highest + np.log(z)) - positive
            weight[r] = count / z
            if count > 0:
                share = np.float32(z / count)
                for position in range(begin, end):
                    rows[r, met[position]] -= share * values[position]
            for d in range(dim):
                weighted_t[d, r] = weight[r] * users[user, d]
        pulled = np.dot(rows, items)
        for r in range(size):
            for d in range(dim):
                user_gradient[start + r, d] = weight[r] * pulled[r, d]
        item_gradient_t += np.dot(weighted_t, rows)
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def top_part(
    users: Array, items_t: Array, bias: Array, offsets: tuple[Array, ...], seen: tuple[Array, ...], chosen: Array,
    first: int, last: int, at_once: int, best_items: tuple[Array, ...], best_scores: tuple[Array, ...],
) -> None:  # fmt: skip
    """The best unseen items of the users chosen[first … last−1] and their scores, into arrays (users, width).

    offsets, seen   the items each user has seen, as CSR matrices, each holding all of the one before: lists are made
                    for every one of them
    """
    n_items, width = items_t.shape[1], best_items[0].shape[1]
    block = np.empty((at_once, n_items), dtype=np.float32)
    vectors = np.empty((at_once, items_t.shape[0]), dtype=np.float32)
    scratch, every = scratch_for(n_items), np.arange(n_items, dtype=np.int32)
    for start in range(first, last, at_once):
        size = min(at_once, last - start)
        rows = block[:size]
        for r in range(size):
            vectors[r] = users[chosen[start + r]]
        np.dot(vectors[:size], items_t, rows)
        for r in range(size):
            row, user, out = rows[r], chosen[start + r], start + r
            _add_bias(row, bias)
            for matrix in range(len(offsets)):
                as_before = matrix > 0  # the list stays, if nothing of it is taken out
                lowest = best_scores[matrix - 1][out, width - 1] if as_before else np.float32(-np.inf)
                for position in range(offsets[matrix][user], offsets[matrix][user + 1]):
                    item = seen[matrix][position]
                    as_before &= row[item] < lowest
                    row[item] = -np.inf
                if as_before:
                    best_items[matrix][out] = best_items[matrix - 1][out]
                    best_scores[matrix][out] = best_scores[matrix - 1][out]
                    continue
                scores, items = row, every
                if width * LONG <= n_items:
                    count, _, _ = within_reach(row, width, scratch)
                    scores, items = scratch[1][:count], scratch[3][:count]
                largest_of(scores, items, best_items[matrix][out], best_scores[matrix][out])
