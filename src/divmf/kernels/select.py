"""The largest scores of each row, ties to the lowest item number, whatever the number of threads."""

import numpy as np
from numba import njit, prange

from divmf.engine.arrays import Array


@njit(cache=True, inline="always")
def _worse(score: float, item: int, other_score: float, other_item: int) -> bool:
    """Whether (score, item) ranks below the other: a lower score, or the same score and a higher number."""
    return score < other_score or (score == other_score and item > other_item)


@njit(cache=True)
def _sift_down(scores: Array, items: Array, start: int, end: int) -> None:
    """Restore the heap (its worst entry at the root) below `start`."""
    root = start
    while True:
        child = 2 * root + 1
        if child >= end:
            return
        if child + 1 < end and _worse(scores[child + 1], items[child + 1], scores[child], items[child]):
            child += 1
        if not _worse(scores[child], items[child], scores[root], items[root]):
            return
        scores[root], scores[child] = scores[child], scores[root]
        items[root], items[child] = items[child], items[root]
        root = child


@njit(cache=True)
def _make_heap(scores: Array, items: Array, size: int) -> None:
    """Put the first entries in the order of a heap, its worst at the root."""
    for start in range(size // 2 - 1, -1, -1):
        _sift_down(scores, items, start, size)


@njit(cache=True)
def _sort_heap(scores: Array, items: Array, size: int) -> None:
    """Put the entries of a heap in order, best first: the worst goes to the end."""
    for end in range(size - 1, 0, -1):
        scores[0], scores[end] = scores[end], scores[0]
        items[0], items[end] = items[end], items[0]
        _sift_down(scores, items, 0, end)


@njit(cache=True)
def largest_of(scores: Array, items: Array, best_items: Array, best_scores: Array) -> None:
    """Fill the last two arrays with the items of the largest scores, best first; −1 and −inf where there are too few.

    The items may come in any order; those whose score is no number are passed over.
    """
    best_items[:] = -1
    best_scores[:] = -np.inf
    width, size = len(best_items), 0
    for position in range(len(scores)):
        score, item = scores[position], items[position]
        if not score > -np.inf:
            continue
        if size < width:
            best_scores[size], best_items[size] = score, item
            size += 1
            if size == width:
                _make_heap(best_scores, best_items, size)
        elif _worse(best_scores[0], best_items[0], score, item):
            best_scores[0], best_items[0] = score, item
            _sift_down(best_scores, best_items, 0, width)
    if size < width:
        _make_heap(best_scores, best_items, size)
    _sort_heap(best_scores, best_items, size)


@njit(cache=True, parallel=True)
def largest(scores: Array, items: Array, kept_scores: Array) -> None:
    """For each row of scores (rows, n): the best `width` items and their scores, into arrays (rows, width)."""
    numbers = np.arange(scores.shape[1])
    for row in prange(scores.shape[0]):
        largest_of(scores[row], numbers, items[row], kept_scores[row])


@njit(cache=True, parallel=True)
def fill_rows(scores: Array, rows: Array, offsets: Array, items: Array, value: float) -> None:
    """scores[r, i] = value for each item i of row rows[r] of a CSR matrix (offsets, items)."""
    for row in prange(scores.shape[0]):
        for position in range(offsets[rows[row]], offsets[rows[row] + 1]):
            scores[row, items[position]] = value
