"""Steps of the accuracy phase, whole: scores, loss, gradient and Adam for one batch after the other, in one call.

The same mathematics as `losses.bpr` and `losses.mse` with `torch.optim.Adam`, proven equal by a test. One thread: a
batch is too small to share, and threads that meet several times a batch wait for each other on a busy machine.
"""

from typing import Any

import numpy as np
from numba import njit

from divmf.ids import Array

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # Adam's, as the paper and torch set them


@njit(cache=True, fastmath={"reassoc", "contract", "nsz"})
def _dot(one: Array, other: Array) -> Any:
    """The dot product; the order of the sum is left to the compiler, so that it can use vectors."""
    total = one.dtype.type(0)
    for d in range(len(one)):
        total += one[d] * other[d]
    return total


@njit(cache=True)
def _add(vector: Array, factor: float, other: Array) -> None:
    """vector += factor · other."""
    for d in range(len(vector)):
        vector[d] += factor * other[d]


@njit(cache=True, fastmath={"contract"})
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


@njit(cache=True)
def _pair_gradients(
    is_bpr: bool, users: Array, items: Array, bias: Array, user: int, met: int, unmet: Array,
    user_gradient: Array, item_gradient: Array,
) -> float:  # fmt: skip
    """Add the gradient of one item met and its items not met; their loss."""
    vector, slope_of_user = users[user], user_gradient[user]
    positive = _dot(vector, items[met]) + bias[met]
    loss, slope_met = 0.0, 0.0
    if not is_bpr:
        loss, slope_met = (1 - positive) ** 2, -2 * (1 - positive)
    for item in unmet:
        if item == met:  # a user who met everything has no negative
            loss += np.log(2.0) if is_bpr else 0.0
            continue
        negative = _dot(vector, items[item]) + bias[item]
        if is_bpr:
            gap = positive - negative
            decay = np.exp(-abs(gap))
            loss += np.log1p(decay) + max(-gap, 0.0)  # −log σ(gap), without overflow
            slope = (decay if gap > 0 else 1.0) / (1 + decay)  # σ(−gap)
            slope_met -= slope
        else:
            loss += negative**2
            slope = 2 * negative
        slope = bias.dtype.type(slope)
        _add(slope_of_user, slope, items[item])
        _add(item_gradient[item], slope, vector)
    slope_met = bias.dtype.type(slope_met)
    _add(slope_of_user, slope_met, items[met])
    _add(item_gradient[met], slope_met, vector)
    return loss


@njit(cache=True, nogil=True)
def train_pairs(
    is_bpr: bool, users: Array, items: Array, bias: Array, moments: tuple[Array, Array, Array, Array],
    gradients: tuple[Array, Array], step: int, rate: float, l2: float, size: int,
    user_of: Array, met: Array, unmet: Array,
) -> float:  # fmt: skip
    """A step of Adam for each `size` of the pairs (user_of, met, unmet), from step + 1 on; the sum of their losses.

    users, items and the arrays below must lie row after row in memory: Adam runs over them flat.

    moments     mean and square of the users' gradients, then of the items', each (n, dim)
    gradients   scratch for the users' and the items', zero before and after
    """
    total = 0.0
    for first in range(0, len(user_of), size):
        for place in range(first, min(first + size, len(user_of))):
            total += _pair_gradients(
                is_bpr, users, items, bias, user_of[place], met[place], unmet[place], gradients[0], gradients[1]
            )
        step += 1
        _adam(users.ravel(), gradients[0].ravel(), moments[0].ravel(), moments[1].ravel(), step, rate, l2)
        _adam(items.ravel(), gradients[1].ravel(), moments[2].ravel(), moments[3].ravel(), step, rate, l2)
    return total
