"""Rows of iALS: for each, the least squares problem of its interactions, by conjugate gradients from where it is.

A function takes a range of rows from beginning to end on one thread (see `engine.threads`); float32 throughout. A row
depends on nothing but its own interactions and the other side's vectors.
"""

from typing import Any

import numpy as np
from numba import njit

from divmf.engine.arrays import Array
from divmf.kernels.best import VECTOR


@njit(cache=True, nogil=True, fastmath=VECTOR)
def _dot(a: Array, b: Array) -> Any:
    """a · b."""
    total = np.float32(0)
    for d in range(len(a)):
        total += a[d] * b[d]
    return total


@njit(cache=True, nogil=True, fastmath=VECTOR)
def _add(factor: Any, a: Array, b: Array) -> None:
    """b ← b + factor · a."""
    for d in range(len(a)):
        b[d] += factor * a[d]


@njit(cache=True, nogil=True, fastmath=VECTOR)
def _times(gram: Array, l2: Any, met: Array, values: Array, x: Array, result: Array) -> None:
    """result ← (gram + λI + Σ_j w_j v_j v_jᵀ) x."""
    dim = len(x)
    for d in range(dim):
        result[d] = l2 * x[d]
    for row in range(dim):
        factor = x[row]
        for d in range(dim):
            result[d] += factor * gram[row, d]
    for j in range(len(values)):
        along = np.float32(0)
        for d in range(dim):
            along += met[j, d] * x[d]
        along *= values[j]
        for d in range(dim):
            result[d] += along * met[j, d]


@njit(cache=True, nogil=True)
def solve_part(
    others: Array, gram: Array, offsets: Array, met: Array, values: Array, l2: Array, first: int, last: int, steps: int,
    tolerance: float, solved: Array,
) -> None:  # fmt: skip
    """Rows first … last−1 of `solved`: (gram + λ_r I + Σ_j w_j v_j v_jᵀ) x = Σ_j w_j v_j, from what stands there.

    others (n, dim): the vectors v; gram (dim, dim); offsets, met, values: the row's items and their weights w, as CSR
    steps, tolerance   conjugate gradients end after so many, or where the residual is so small beside the right side
    """
    dim = others.shape[1]
    longest = 0
    for row in range(first, last):
        longest = max(longest, offsets[row + 1] - offsets[row])
    vectors = np.empty((longest, dim), dtype=np.float32)
    residual, direction = np.empty(dim, dtype=np.float32), np.empty(dim, dtype=np.float32)
    image = np.empty(dim, dtype=np.float32)
    for row in range(first, last):
        begin, end = offsets[row], offsets[row + 1]
        here, weights, x = vectors[: end - begin], values[begin:end], solved[row]
        if begin == end:
            x[:] = 0
            continue
        for j in range(end - begin):  # rows as slices would take longer than all the rest
            item = met[begin + j]
            for d in range(dim):
                here[j, d] = others[item, d]
        _times(gram, l2[row], here, weights, x, image)
        direction[:] = 0
        for j in range(len(weights)):
            for d in range(dim):
                direction[d] += weights[j] * here[j, d]
        least = tolerance * tolerance * _dot(direction, direction)
        for d in range(dim):
            residual[d] = direction[d] - image[d]
        direction[:] = residual
        size = _dot(residual, residual)
        for _ in range(steps):
            if size <= least:
                break
            _times(gram, l2[row], here, weights, direction, image)
            length = np.float32(size / _dot(direction, image))
            _add(length, direction, x)
            _add(-length, image, residual)
            before, size = size, _dot(residual, residual)
            turn = np.float32(size / before)
            for d in range(dim):
                direction[d] = residual[d] + turn * direction[d]
