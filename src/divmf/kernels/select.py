"""The largest scores of each row, ties to the lowest item number, whatever the number of threads."""

from typing import Any

import numpy as np
from numba import njit, prange

from divmf.ids import Array

WIDE, SAMPLED = 16, 8  # from which width a guess pays; it reads every eighth score


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
def _scan(row: Array, step: int, threshold: float, best_items: Array, best_scores: Array) -> int:
    """Fill a heap (its worst entry at the root) with the largest of every step-th score above a threshold; its size."""
    width = len(best_items)
    size = 0
    for item in range(0, len(row), step):
        score = row[item]
        if not score > threshold:  # also passes over NaN; an equal score with a higher number never enters
            continue
        if size < width:
            best_scores[size] = score
            best_items[size] = item
            size += 1
            if size == width:
                for start in range(width // 2 - 1, -1, -1):
                    _sift_down(best_scores, best_items, start, width)
                threshold = best_scores[0]
        else:
            best_scores[0] = score
            best_items[0] = item
            _sift_down(best_scores, best_items, 0, width)
            threshold = best_scores[0]
    if size < width:
        for start in range(size // 2 - 1, -1, -1):
            _sift_down(best_scores, best_items, start, size)
    return size


@njit(cache=True)
def _guess(row: Array, best_items: Array, best_scores: Array) -> Any:
    """A number that a little more than `width` scores of the row exceed, guessed from every eighth of them."""
    wanted = len(best_items) // SAMPLED + len(best_items) // (3 * SAMPLED) + 4
    if _scan(row, SAMPLED, -np.inf, best_items[:wanted], best_scores[:wanted]) < wanted:
        return -np.inf
    return np.nextafter(best_scores[0], row.dtype.type(-np.inf))


@njit(cache=True)
def largest_of_row(row: Array, best_items: Array, best_scores: Array) -> None:
    """Fill the two arrays with the row's largest scores, best first; −1 and −inf where the row has too few.

    Most of the work is moving entries in and out of the heap while its worst is still low, so the scan of a wide
    selection starts from a guess of the final threshold; where that was too high, it starts again without.
    """
    width = len(best_items)
    size = 0
    if WIDE <= width <= len(row) // SAMPLED:
        size = _scan(row, 1, _guess(row, best_items, best_scores), best_items, best_scores)
    if size < width:
        best_items[:] = -1
        best_scores[:] = -np.inf
        size = _scan(row, 1, -np.inf, best_items, best_scores)
    for end in range(size - 1, 0, -1):  # heap sort: the worst goes to the end
        best_scores[0], best_scores[end] = best_scores[end], best_scores[0]
        best_items[0], best_items[end] = best_items[end], best_items[0]
        _sift_down(best_scores, best_items, 0, end)


@njit(cache=True, parallel=True)
def largest(scores: Array, items: Array, kept_scores: Array) -> None:
    """For each row of scores (rows, n): the best `width` items and their scores, into arrays (rows, width)."""
    for row in prange(scores.shape[0]):
        largest_of_row(scores[row], items[row], kept_scores[row])


@njit(cache=True, parallel=True)
def fill_rows(scores: Array, rows: Array, offsets: Array, items: Array, value: float) -> None:
    """scores[r, i] = value for each item i of row rows[r] of a CSR matrix (offsets, items)."""
    for row in prange(scores.shape[0]):
        for place in range(offsets[rows[row]], offsets[rows[row] + 1]):
            scores[row, items[place]] = value
