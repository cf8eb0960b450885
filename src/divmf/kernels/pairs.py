"""Steps of the accuracy phase, whole: scores, loss, gradient and Adam for one batch after the other, in one call.

The same mathematics as `losses.bpr` and `losses.mse` with `torch.optim.Adam`, proven equal by a test. One thread: a
batch is too small to share, and threads that meet several times a batch wait for each other on a busy machine. The
other threads draw what comes next (`threads.ahead`).
"""

from typing import Any

import numpy as np
from numba import njit

from divmf.engine.arrays import Array
from divmf.kernels.batches import Batch, Chunk, Gradients, Moments, Rates, Tables
from divmf.kernels.best import VECTOR, float_of

LOG_2, LOG2_E, ROOT_2 = np.log(2), 1 / np.log(2), np.sqrt(2)
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # Adam's, as the paper and torch set them
HELD = 128  # scores made before the first of their gradients is added: enough for vectors, few enough for the cache


@njit(cache=True, fastmath=VECTOR)
def _dot(ones: Array, one: int, others: Array, other: int) -> Any:
    """ones[one] · others[other]; the order of the sum is left to the compiler, so that it can use vectors."""
    total = ones.dtype.type(0)
    for d in range(ones.shape[1]):
        total += ones[one, d] * others[other, d]
    return total


@njit(cache=True, fastmath=VECTOR)
def _gap(users: Array, user: int, items: Array, good: int, bad: int) -> Any:
    """users[user] · (items[good] − items[bad]), in one pass."""
    total = users.dtype.type(0)
    for d in range(users.shape[1]):
        total += users[user, d] * (items[good, d] - items[bad, d])
    return total


@njit(cache=True)
def _exp(x: float) -> Any:
    """e^x for x ≤ 0, relative error 3e-10, 0 for what is below 2^−126: plain arithmetic, so that loops become vectors.

    In double precision and without liberties for the compiler, so that a slope in single precision is the same number
    in every kernel: Adam makes whole steps of gradients next to nothing, and what differs in the last position grows.
    """
    power = x * LOG2_E
    whole = np.floor(max(power, -126.0))
    part = (power - whole - 0.5) * LOG_2  # e^part = 2^(frac − ½), by its series
    y = 1 / 40320
    for factor in (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0):
        y = y * part + factor
    y *= ROOT_2 * np.float64(float_of((np.int32(whole) + np.int32(127)) << np.int32(23)))
    return y if power > -126.0 else 0.0


@njit(cache=True, fastmath=VECTOR, error_model="numpy")
def _bpr_slopes(gaps: Array) -> float:
    """gaps ← σ(−gap), the slope of −log σ(gap), turned round; the sum of −log σ(gap) over at most HELD of them.

    −log σ(gap) = max(−gap, 0) + log(1 + exp(−|gap|)), one logarithm for all: a product of so many factors of at most 2
    is a number.
    """
    total, product = 0.0, 1.0
    for position in range(len(gaps)):
        gap = np.float64(gaps[position])
        decay = _exp(-abs(gap)) if gaps.itemsize == 4 else np.exp(-abs(gap))
        gaps[position] = (decay if gap > 0 else 1.0) / (1.0 + decay)
        total += max(-gap, 0.0)
        product *= 1.0 + decay
    return float(total + np.log(product))


@njit(cache=True, fastmath=VECTOR)
def _mse_slopes(scores: Array) -> float:
    """scores ← 2·score, the slope of its square; the sum of the squares."""
    total = 0.0
    for position in range(len(scores)):
        total += scores[position] ** 2
        scores[position] *= 2
    return total


@njit(cache=True, fastmath={"contract"}, error_model="numpy")  # where division may raise, it is done one by one
def _adam(values: Array, gradient: Array, mean: Array, square: Array, step: int, rates: Rates) -> None:
    """One step of Adam with L2 added to the gradient, over all values; the gradient is left at zero."""
    one = values.dtype.type(1)
    beta_1, beta_2 = values.dtype.type(BETA_1), values.dtype.type(BETA_2)
    scale = values.dtype.type(rates.rate / (1 - BETA_1**step))
    correction = values.dtype.type(1 / np.sqrt(1 - BETA_2**step))
    epsilon, decay = values.dtype.type(EPSILON), values.dtype.type(rates.l2)
    for position in range(len(values)):
        slope = gradient[position] + decay * values[position]
        gradient[position] = 0
        mean[position] = beta_1 * mean[position] + (one - beta_1) * slope
        square[position] = beta_2 * square[position] + (one - beta_2) * slope * slope
        values[position] -= scale * mean[position] / (np.sqrt(square[position]) * correction + epsilon)


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def _add_triples(tables: Tables, gradients: Gradients, batch: Batch) -> float:
    """`add_gradients` for BPR with one item not met in a row: the gap of two scores is one dot product."""
    users, items, bias = tables
    user_gradient, item_gradient = gradients
    user_of, met, unmet = batch.users, batch.met, batch.unmet.ravel()
    total, slopes = 0.0, np.empty(HELD, users.dtype)
    for first in range(0, len(met), HELD):
        size = min(HELD, len(met) - first)
        for position in range(size):
            good, bad = met[first + position], unmet[first + position]
            slopes[position] = _gap(users, user_of[first + position], items, good, bad) + (bias[good] - bias[bad])
        total += _bpr_slopes(slopes[:size])
        for position in range(size):
            user, good, bad = user_of[first + position], met[first + position], unmet[first + position]
            if good == bad:  # a user who met everything has no negative
                continue
            slope = slopes[position]
            for d in range(users.shape[1]):
                user_gradient[user, d] += slope * (items[bad, d] - items[good, d])
            for d in range(users.shape[1]):
                item_gradient[bad, d] += slope * users[user, d]
            for d in range(users.shape[1]):
                item_gradient[good, d] -= slope * users[user, d]
    return total


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def add_gradients(is_bpr: bool, tables: Tables, gradients: Gradients, batch: Batch) -> float:
    """Add the gradients of some pairs (an item met, its items not met); the sum of their losses.

    A few pairs at a time, three loops: scores, slopes (made in vectors), gradients. The last one is written out, not
    two calls: arrays that might overlap for all a called function knows cost it three times as much.
    """
    if is_bpr and batch.unmet.shape[1] == 1:
        return _add_triples(tables, gradients, batch)
    users, items, bias = tables
    user_of, met, unmet = batch
    user_gradient, item_gradient = gradients
    each, total = unmet.shape[1], 0.0
    at_once = max(1, HELD // each)
    positives, slopes = np.empty(at_once, users.dtype), np.empty((at_once, each), users.dtype)
    for first in range(0, len(met), at_once):
        size = min(at_once, len(met) - first)
        for position in range(size):
            user, good = user_of[first + position], met[first + position]
            positives[position] = _dot(users, user, items, good) + bias[good]
            for column in range(each):
                item = unmet[first + position, column]
                score = _dot(users, user, items, item) + bias[item]
                slopes[position, column] = positives[position] - score if is_bpr else score
                if item == good:  # a user who met everything has no negative
                    slopes[position, column] = 0
        made = slopes[:size].ravel()
        total += _bpr_slopes(made) if is_bpr else _mse_slopes(made)
        for position in range(size):
            user, good = user_of[first + position], met[first + position]
            slope_met = users.dtype.type(0)
            if not is_bpr:
                total, slope_met = total + (1 - positives[position]) ** 2, -2 * (1 - positives[position])
            for column in range(each):
                item, slope = unmet[first + position, column], slopes[position, column]
                if item == good:
                    continue
                if is_bpr:
                    slope_met -= slope
                for d in range(users.shape[1]):
                    user_gradient[user, d] += slope * items[item, d]
                    item_gradient[item, d] += slope * users[user, d]
            for d in range(users.shape[1]):
                user_gradient[user, d] += slope_met * items[good, d]
                item_gradient[good, d] += slope_met * users[user, d]
    return total


@njit(cache=True, nogil=True)
def adam_step(tables: Tables, moments: Moments, gradients: Gradients, step: int, rates: Rates) -> None:
    """One step of Adam, the step-th of all, on all rows."""
    users, items = gradients.users.ravel(), gradients.items.ravel()
    _adam(tables.users.ravel(), users, moments.users_mean.ravel(), moments.users_square.ravel(), step, rates)
    _adam(tables.items.ravel(), items, moments.items_mean.ravel(), moments.items_square.ravel(), step, rates)


@njit(cache=True, nogil=True)
def train_pairs(
    is_bpr: bool, tables: Tables, moments: Moments, gradients: Gradients, step: int, rates: Rates, chunk: Chunk
) -> float:
    """A step of Adam for each batch of a chunk, from step + 1 on; the sum of their losses.

    All tables must lie row after row in memory: Adam runs over them flat. Gradients are zero before and after.
    """
    total = 0.0
    for number in range(len(chunk.bounds) - 1):
        pairs = slice(chunk.bounds[number], chunk.bounds[number + 1])
        batch = Batch(chunk.users[pairs], chunk.met[pairs], chunk.unmet[pairs])
        total += add_gradients(is_bpr, tables, gradients, batch)
        adam_step(tables, moments, gradients, step + number + 1, rates)
    return total
