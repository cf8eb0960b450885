"""The best items of a row, ties to the lowest number, in no order: several times as fast as with one (`select`)."""

from typing import Any

import numpy as np
from numba import float32, int32, njit
from numba.extending import intrinsic

from divmf.engine.arrays import Array

LANES = 64  # numbers that a compiled loop takes at a time; what is left over it takes one by one
LOOSE = 16  # a first threshold may let through a sixteenth more than is wanted
Scratch = tuple[Array, Array, Array, Array]  # two of float32, two of int32, each longer than a row by LANES
VECTOR = {"reassoc", "contract", "nsz"}  # lets the compiler use vectors; NaN and infinity stay what they are


def _read_as(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Code that reads the bits of one type as those of another."""
    return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))


def _float_of(_: Any, bits: Any) -> Any:
    """The float32 with these 32 bits."""
    return float32(int32), _read_as


def _bits_of(_: Any, value: Any) -> Any:
    """The bits of a float32."""
    return int32(float32), _read_as


float_of: Any = intrinsic(_float_of)
bits_of: Any = intrinsic(_bits_of)


@njit(cache=True, nogil=True)
def _padded(values: Array, size: int) -> Array:
    """The first `size` values, and −inf up to a multiple of LANES: these must fit."""
    end = -(-size // LANES) * LANES
    values[size:end] = -np.inf
    return values[:end]


@njit(cache=True, nogil=True, fastmath=VECTOR)
def _at_least(values: Array, threshold: Any) -> Any:
    """How many values reach the threshold; counted in float32, of which vectors hold as many as of the values."""
    count = np.float32(0)
    for j in range(len(values)):
        count += np.float32(1) if values[j] >= threshold else np.float32(0)
    return np.int64(count)


@njit(cache=True, nogil=True)
def _rank(value: Any) -> Any:
    """A whole number for each float32, in the same order."""
    bits = np.int64(bits_of(value))
    return bits if bits >= 0 else -(bits & 0x7FFFFFFF) - 1


@njit(cache=True, nogil=True)
def _of_rank(rank: int) -> Any:
    """The float32 with this rank."""
    return float_of(np.int32(rank if rank >= 0 else (-1 - rank) - 0x80000000))


@njit(cache=True, nogil=True)
def _threshold(values: Array, wanted: int, most: int, lowest: Any, highest: Any) -> Any:
    """A number that at least `wanted` values reach, and at most `most` or only with ties; by halving the range.

    lowest, highest   between which it lies: `wanted` values reach the one, none exceeds the other
    """
    low, high = _rank(lowest), _rank(highest) + 1
    while high - low > 1:
        middle = (low + high) >> 1
        count = _at_least(values, _of_rank(middle))
        if count < wanted:
            high = middle
        else:
            low = middle
            if count <= most:
                break
    return _of_rank(low)


@njit(cache=True, nogil=True)
def _last_tie(row: Array, values: Array, wanted: int, threshold: Any) -> int:
    """The highest item number that, with the threshold as its score, is among the `wanted` best of the row."""
    if _at_least(values, threshold) == wanted:
        return len(row)
    for value in values:
        wanted -= value > threshold
    for item in range(len(row)):
        if row[item] == threshold:
            wanted -= 1
            if wanted == 0:
                return item
    return len(row)


@njit(cache=True, nogil=True, fastmath=VECTOR)
def _fold(row: Array, maxima: Array) -> None:
    """maxima[j] = the largest of the row's positions j, j + n, j + 2n, … with n maxima."""
    n = len(maxima)
    for j in range(n):
        maxima[j] = row[j] if row[j] > -np.inf else np.float32(-np.inf)  # what is not a number hides nothing
    for start in range(n, len(row), n):
        size = min(n, len(row) - start)
        fold = row[start : start + size]
        for j in range(size):
            maxima[j] = fold[j] if fold[j] > maxima[j] else maxima[j]


@njit(cache=True, nogil=True, fastmath=VECTOR)
def _range(values: Array) -> tuple[Any, Any]:
    """The lowest and the highest value."""
    low, high = values[0], values[0]
    for j in range(len(values)):
        low = values[j] if values[j] < low else low
        high = values[j] if values[j] > high else high
    return low, high


@njit(cache=True, nogil=True)
def _collect(row: Array, maxima: Array, threshold: Any, chosen: Array, positions: Array, scores: Array) -> int:
    """The positions and the scores that reach the threshold, at the beginning of two arrays; how many they are.

    Every number is written, and the end moved or not: a branch that is guessed wrong costs more.
    """
    n_groups, n_chosen, size = len(maxima), 0, 0
    for group in range(n_groups):
        chosen[n_chosen] = group
        n_chosen += maxima[group] >= threshold
    for number in range(n_chosen):
        for position in range(chosen[number], len(row), n_groups):
            positions[size] = position
            scores[size] = row[position]
            size += row[position] >= threshold
    return size


@njit(cache=True, nogil=True)
def scratch_for(n_items: int) -> Scratch:
    """Room to work in for rows of so many items."""
    values = np.empty((2, n_items + LANES), dtype=np.float32)
    numbers = np.empty((2, n_items + LANES), dtype=np.int32)
    return values[0], values[1], numbers[0], numbers[1]


@njit(cache=True, nogil=True)
def within_reach(row: Array, wanted: int, scratch: Scratch) -> tuple[int, Any, Any]:
    """The `wanted` largest scores of the row and few more: how many, the lowest they may be, and the largest of them.

    The scores are then at the beginning of scratch[1], in no order, and their positions in scratch[3].

    Of the maxima of groups of items, as many as are wanted reach the threshold, and so do as many scores; few more do,
    and only in these groups.
    """
    maxima, scores, chosen, positions = scratch
    n_groups = -(-len(row) // max(1, int(np.sqrt(len(row) / wanted))))
    _fold(row, maxima[:n_groups])
    lowest, highest = _range(maxima[:n_groups])
    threshold = _threshold(_padded(maxima, n_groups), wanted, wanted + wanted // LOOSE, lowest, highest)
    return _collect(row, maxima[:n_groups], threshold, chosen, positions, scores), threshold, highest


@njit(cache=True, nogil=True)
def best_of_row(row: Array, n_first: int, kept: Array, scratch: Scratch) -> Any:
    """Fill `kept` with the items of the row's largest scores, ties to the lowest number; the largest score.

    The n_first best stand first, otherwise in no order: sorting would take longer than the rest.

    Among those within reach the exact threshold is found.
    """
    wanted = len(kept)
    size, threshold, highest = within_reach(row, wanted, scratch)
    scores, positions = _padded(scratch[1], size), scratch[3]
    last = _threshold(scores, wanted, wanted, threshold, highest)
    last_tie = _last_tie(row, scores, wanted, last)
    first, first_tie = last, last_tie
    if 0 < n_first < wanted:
        first = _threshold(scores, n_first, n_first, last, highest)
        first_tie = _last_tie(row, scores, n_first, first)
    elif n_first == 0:
        first, first_tie = highest, -1
    front, back = 0, n_first
    for number in range(size):
        if scores[number] > first or (scores[number] == first and positions[number] <= first_tie):
            kept[front] = positions[number]
            front += 1
        elif scores[number] > last or (scores[number] == last and positions[number] <= last_tie):
            kept[back] = positions[number]
            back += 1
    return highest
