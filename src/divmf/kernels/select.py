"""The largest scores of each row, ties to the lowest item number, whatever the number of threads."""

import numpy as np
from numba import njit, prange

from divmf.ids import Array


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
def _largest_of_row(row: Array, best_items: Array, best_scores: Array) -> None:
    """Fill the two arrays with the row's largest scores, best first; −1 and −inf where the row has too few."""
    width = len(best_items)
    best_items[:] = -1
    best_scores[:] = -np.inf
    size = 0
    threshold = row.dtype.type(-np.inf)
    for item in range(len(row)):
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
    for end in range(size - 1, 0, -1):  # heap sort: the worst goes to the end
        best_scores[0], best_scores[end] = best_scores[end], best_scores[0]
        best_items[0], best_items[end] = best_items[end], best_items[0]
        _sift_down(best_scores, best_items, 0, end)


@njit(cache=True, parallel=True)
def largest(scores: Array, items: Array, kept_scores: Array) -> None:
    """For each row of scores (rows, n): the best `width` items and their scores, into arrays (rows, width)."""
    for row in prange(scores.shape[0]):
        _largest_of_row(scores[row], items[row], kept_scores[row])


@njit(cache=True, parallel=True)
def fill_rows(scores: Array, rows: Array, offsets: Array, items: Array, value: float) -> None:
    """scores[r, i] = value for each item i of row rows[r] of a CSR matrix (offsets, items)."""
    for row in prange(scores.shape[0]):
        for place in range(offsets[rows[row]], offsets[rows[row] + 1]):
            scores[row, items[place]] = value
