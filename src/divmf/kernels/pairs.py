"""Steps of the accuracy phase, whole: scores, loss, gradient and Adam for one batch after the other, in one call.

The same mathematics as `losses.bpr` and `losses.mse` with `torch.optim.Adam`, proven equal by a test. One thread: a
batch is too small to share, and threads that meet several times a batch wait for each other on a busy machine. The
other threads draw what comes next (`threads.ahead`).
"""

from typing import Any

import numpy as np
from numba import njit

from divmf.ids import Array

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # Adam's, as the paper and torch set them
Moments = tuple[Array, Array, Array, Array]
HELD = 512  # factors of at most 2 whose product is a number


@njit(cache=True, fastmath={"reassoc", "contract", "nsz"})
def _dot(ones: Array, one: int, others: Array, other: int) -> Any:
    """ones[one] · others[other]; the order of the sum is left to the compiler, so that it can use vectors."""
    total = ones.dtype.type(0)
    for d in range(ones.shape[1]):
        total += ones[one, d] * others[other, d]
    return total


@njit(cache=True)
def _add(table: Array, row: int, factor: float, others: Array, other: int) -> None:
    """table[row] += factor · others[other]."""
    for d in range(table.shape[1]):
        table[row, d] += factor * others[other, d]


@njit(cache=True, fastmath={"contract"}, error_model="numpy")  # where division may raise, it is done one by one
def _adam(values: Array, gradient: Array, mean: Array, square: Array, step: int, rate: float, l2: float) -> None:
    """One step of Adam with L2 added to the gradient, over all values; the gradient is left at zero."""
    one = values.dtype.type(1)
    beta_1, beta_2 = values.dtype.type(BETA_1), values.dtype.type(BETA_2)
    scale = values.dtype.type(rate / (1 - BETA_1**step))
    correction = values.dtype.type(1 / np.sqrt(1 - BETA_2**step))
    epsilon, decay = values.dtype.type(EPSILON), values.dtype.type(l2)
    for place in range(len(values)):
        slope = gradient[place] + decay * values[place]
        gradient[place] = 0
        mean[place] = beta_1 * mean[place] + (one - beta_1) * slope
        square[place] = beta_2 * square[place] + (one - beta_2) * slope * slope
        values[place] -= scale * mean[place] / (np.sqrt(square[place]) * correction + epsilon)


@njit(cache=True, nogil=True, error_model="numpy")
def add_gradients(
    is_bpr: bool, users: Array, items: Array, bias: Array, gradients: tuple[Array, Array],
    user_of: Array, met: Array, unmet: Array, first: int, last: int,
) -> float:  # fmt: skip
    """Add the gradients of the pairs first … last − 1 (an item met, its items not met); the sum of their losses."""
    user_gradient, item_gradient = gradients
    number = bias.dtype.type
    total, product, factors = 0.0, 1.0, 0
    for place in range(first, last):
        user, good = user_of[place], met[place]
        positive = _dot(users, user, items, good) + bias[good]
        slope_met = 0.0
        if not is_bpr:
            total, slope_met = total + (1 - positive) ** 2, -2 * (1 - positive)
        for column in range(unmet.shape[1]):
            item = unmet[place, column]
            if item == good:  # a user who met everything has no negative
                total += np.log(2.0) if is_bpr else 0.0
                continue
            negative = _dot(users, user, items, item) + bias[item]
            if is_bpr:  # −log σ(gap) = max(−gap, 0) + log(1 + exp(−|gap|)); one logarithm for many of them
                gap = positive - negative
                decay = np.exp(-abs(gap))
                total, product, factors = total + max(-gap, 0.0), product * (1 + decay), factors + 1
                if factors == HELD:
                    total, product, factors = total + np.log(product), 1.0, 0
                slope = (decay if gap > 0 else 1.0) / (1 + decay)  # σ(−gap)
                slope_met -= slope
            else:
                total += negative**2
                slope = 2 * negative
            _add(user_gradient, user, number(slope), items, item)
            _add(item_gradient, item, number(slope), users, user)
        _add(user_gradient, user, number(slope_met), items, good)
        _add(item_gradient, good, number(slope_met), users, user)
    return float(total + np.log(product))


@njit(cache=True, nogil=True)
def adam_step(
    users: Array, items: Array, moments: Moments, gradients: tuple[Array, Array], step: int, rate: float, l2: float
) -> None:
    """One step of Adam, the step-th of all, on all rows."""
    _adam(users.ravel(), gradients[0].ravel(), moments[0].ravel(), moments[1].ravel(), step, rate, l2)
    _adam(items.ravel(), gradients[1].ravel(), moments[2].ravel(), moments[3].ravel(), step, rate, l2)


@njit(cache=True, nogil=True)
def train_pairs(
    is_bpr: bool, users: Array, items: Array, bias: Array, moments: Moments, gradients: tuple[Array, Array], step: int,
    rate: float, l2: float, user_of: Array, met: Array, unmet: Array, bounds: Array,
) -> float:  # fmt: skip
    """A step of Adam for each batch of the pairs (user_of, met, unmet), from step + 1 on; the sum of their losses.

    users, items and the arrays below must lie row after row in memory: Adam runs over them flat.

    moments     mean and square of the users' gradients, then of the items', each (n, dim)
    gradients   scratch for the users' and the items', zero before and after
    bounds      where the batches begin, and where the last one ends
    """
    total = 0.0
    for batch in range(len(bounds) - 1):
        first, last = bounds[batch], bounds[batch + 1]
        total += add_gradients(is_bpr, users, items, bias, gradients, user_of, met, unmet, first, last)
        adam_step(users, items, moments, gradients, step + batch + 1, rate, l2)
    return total
