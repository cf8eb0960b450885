"""A random order in which everything has its place without the others being looked at.

A Feistel network (Luby & Rackoff, 1988) on the numbers below a power of two, walked until it comes out below n, is a
permutation of 0 … n − 1 for every key. So each of several processes finds the places of what it holds, alone, and they
are the same however many processes there are.
"""

from typing import Any

import numpy as np
from numba import njit

from divmf.ids import Array
from divmf.kernels.draw import _mix

ROUNDS = 6


@njit(cache=True, inline="always")
def _place(number: int, n: int, low_bits: int, high_bits: int, key: np.uint64) -> Any:
    """Where a number of 0 … n − 1 comes in the order."""
    low_mask, high_mask = (
        (np.uint64(1) << np.uint64(low_bits)) - np.uint64(1),
        (np.uint64(1) << np.uint64(high_bits)) - np.uint64(1),
    )
    value = np.uint64(number)
    while True:
        low, high = value & low_mask, value >> np.uint64(low_bits)
        for turn in range(0, ROUNDS, 2):
            low ^= _mix(high + key + np.uint64(turn) * np.uint64(0x9E3779B97F4A7C15)) & low_mask
            high ^= _mix(low + key + np.uint64(turn + 1) * np.uint64(0x9E3779B97F4A7C15)) & high_mask
        value = (high << np.uint64(low_bits)) | low
        if value < np.uint64(n):
            return np.int64(value)


@njit(cache=True, nogil=True)
def _batches(first: int, whole: int, size: int, bits: int, key: int, batch_of: Array, counts: Array) -> None:
    """batch_of[i] = the batch that number first + i of `whole` falls into; counts[b + 1] = how many fall into b."""
    low_bits = bits // 2
    for number in range(len(batch_of)):
        place = _place(first + number, whole, low_bits, bits - low_bits, np.uint64(key))
        batch_of[number] = place // size
        counts[batch_of[number] + 1] += 1


@njit(cache=True, nogil=True)
def _sorted(batch_of: Array, starts: Array, order: Array) -> None:
    """order = the numbers by batch, those of one batch ascending; starts is left at the ends of the batches."""
    for number in range(len(batch_of)):
        batch = batch_of[number]
        order[starts[batch]] = number
        starts[batch] += 1


def shuffled_batches(first: int, n: int, whole: int, size: int, key: int) -> tuple[Array, Array]:
    """The numbers first … first + n − 1 of `whole` dealt into random batches of `size`: which are in each, from 0 on.

    order    (n,): the numbers, less `first`, batch by batch, those of one batch ascending
    bounds   (n_batches + 1,): where in `order` the batches begin; the batches are those of all numbers
    """
    bounds = np.zeros(-(-whole // size) + 1, dtype=np.int64)
    batch_of, order = np.empty((2, n), dtype=np.int32 if n < 1 << 31 else np.int64)
    _batches(first, whole, size, max(2, (whole - 1).bit_length()), key, batch_of, bounds)
    np.cumsum(bounds, out=bounds)
    _sorted(batch_of, bounds[:-1].copy(), order)
    return order, bounds
