"""Random draws that belong to a position, not to an order: the same whatever the chunk or the thread.

A draw is a hash of (key, position, attempt); the key comes from the caller's generator.
"""

from typing import Any

import numpy as np
from numba import njit, prange

from divmf.engine.arrays import Array
from divmf.kernels.prefetch import AHEAD, prefetch

ATTEMPTS = 64


@njit(cache=True, inline="always")
def _mix(value: np.uint64) -> np.uint64:
    """The finalizer of SplitMix64 (Steele, Lea & Flood, 2014): every bit in changes every bit out."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@njit(cache=True, inline="always")
def _draw(key: np.uint64, position: int, attempt: int, n: int) -> Any:
    """A number in 0 … n − 1, uniform: the high half of a 32 × 32 bit product."""
    mixed = _mix(key + np.uint64(0x9E3779B97F4A7C15) * np.uint64(position * ATTEMPTS + attempt + 1))
    return np.int64(((mixed >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@njit(cache=True, inline="always")
def _holds(items: Array, start: int, end: int, item: int) -> bool:
    """Whether the sorted items[start:end] hold the item."""
    if start == end:
        return False
    while end - start > 1:  # both halves cost the same, so that nothing has to be guessed
        middle = (start + end) >> 1
        below = items[middle] <= item
        start, end = (middle if below else start), (end if below else middle)
    return bool(items[start] == item)


@njit(cache=True, nogil=True)
def mark(offsets: Array, items: Array, met: Array) -> None:
    """Set the bits of the items that each user has met (CSR rows offsets, items)."""
    for user in range(len(met)):
        for position in range(offsets[user], offsets[user + 1]):
            item = items[position]
            met[user, item >> 3] |= np.uint8(1 << (item & 7))


@njit(cache=True, nogil=True)
def negatives(
    users: Array, positives: Array, positions: Array, offsets: Array, items: Array, met: Array, n_items: int, key: int,
    drawn: Array,
) -> None:  # fmt: skip
    """drawn[p, :] = uniform items that users[p] has not met (CSR rows offsets, items); positions[p] is its position.

    met: what `mark` made of the rows, or empty where that would be too large; then the rows are searched
    A user who has met nearly everything gets the positive itself back: its BPR gradient is zero.
    """
    each = drawn.shape[1]
    for position in range(len(users)):
        if not met.size and position + 2 * AHEAD < len(users):
            prefetch(offsets, users[position + 2 * AHEAD])
            prefetch(items, offsets[users[position + AHEAD]])
        user = users[position]
        start, end = offsets[user], offsets[user + 1]
        for number in range(each):
            drawn[position, number] = positives[position]
            for attempt in range(ATTEMPTS):
                item = _draw(np.uint64(key), positions[position] * each + number, attempt, n_items)
                marked = (met[user, item >> 3] >> (item & 7)) & 1 if met.size else _holds(items, start, end, item)
                if not marked:
                    drawn[position, number] = item
                    break


@njit(cache=True, parallel=True)
def others(rows: Array, listed: Array, n_items: int, key: int, kept: Array) -> None:
    """kept[r] = listed[r], then distinct uniform items that are not listed (Floyd's sampling over the rest)."""
    k, width = listed.shape[1], kept.shape[1]
    for row in prange(len(rows)):
        taken = np.sort(listed[row])
        kept[row, :k] = listed[row]
        rest = n_items - k
        for number in range(width - k):
            last = rest - (width - k) + number
            # the draw-th of the items that are not listed
            chosen = _unlisted(taken, _draw(np.uint64(key), rows[row] * width + number, 0, last + 1))
            for earlier in range(k, k + number):
                if kept[row, earlier] == chosen:
                    chosen = _unlisted(taken, last)
                    break
            kept[row, k + number] = chosen


@njit(cache=True)
def _unlisted(taken: Array, position: int) -> int:
    """The item at a position among the items that are not in the sorted `taken`."""
    item = position
    for listed in taken:
        if listed > item:
            break
        item += 1
    return item
