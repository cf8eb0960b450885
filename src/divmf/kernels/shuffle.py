"""A random order in which what stands at a position is found without the other positions being looked at.

A Feistel network (Luby & Rackoff, 1988) on the numbers below a power of two, walked until it comes out below n, is a
permutation of 0 … n − 1 for every key. So an epoch needs no table of its order, threads make what they need of it, and
several processes find the same in the same position.
"""

from typing import Any

import numpy as np
from numba import njit

from divmf.engine.arrays import Array
from divmf.kernels.draw import _mix

ROUNDS = 6


@njit(cache=True, inline="always")
def _walk(value: np.uint64, low_bits: np.uint64, high_bits: np.uint64, key: np.uint64) -> Any:
    """Where the network takes a number of low_bits + high_bits bits."""
    one = np.uint64(1)
    low_mask, high_mask = (one << low_bits) - one, (one << high_bits) - one
    low, high = value & low_mask, value >> low_bits
    for turn in range(0, ROUNDS, 2):
        low ^= _mix(high + key + np.uint64(turn) * np.uint64(0x9E3779B97F4A7C15)) & low_mask
        high ^= _mix(low + key + np.uint64(turn + 1) * np.uint64(0x9E3779B97F4A7C15)) & high_mask
    return (high << low_bits) | low


@njit(cache=True, nogil=True)
def _fill(first: int, n: int, bits: int, key: int, found: Array) -> None:
    """found[p] = the number at position first + p of the order of 0 … n − 1."""
    low_bits, high_bits = np.uint64(bits // 2), np.uint64(bits - bits // 2)
    for position in range(len(found)):  # without a branch, so that it is done in vectors
        found[position] = _walk(np.uint64(first + position), low_bits, high_bits, np.uint64(key))
    for position in range(len(found)):
        while found[position] >= n:
            found[position] = _walk(np.uint64(found[position]), low_bits, high_bits, np.uint64(key))


def shuffled(first: int, last: int, n: int, key: int) -> Array:
    """What stands at the positions first … last − 1 of a random order of 0 … n − 1.  (last − first,) int64"""
    found = np.empty(last - first, dtype=np.int64)
    _fill(first, n, max(2, (n - 1).bit_length()), key, found)
    return found
