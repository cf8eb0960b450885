"""What rerankers share: candidates checked and in order, their scores on one scale, and columns → lists.

A method chooses *columns*: columns of the candidates, (n_lists, k), −1 for none. Candidates stand in order of
score, so of two columns the smaller one is what the model prefers, and a list in the model's order is one whose
columns ascend.
"""

import logging
from dataclasses import replace

import numpy as np

from divmf.engine.arrays import Array
from divmf.ranking.lists import TopK
from divmf.ranking.lists import popularity_of as popularity_of
from divmf.ranking.select import top_of

log = logging.getLogger(__name__)


def ready(candidates: TopK, k: int) -> TopK:
    """The candidates checked and in order of score, ties to the lowest item number; users short of k are counted."""
    if not isinstance(candidates, TopK):
        raise ValueError(
            f"candidates of type {type(candidates).__name__} are no lists; make a TopK of them (TopK.from_frame,"
            " TopK.read)"
        )
    if not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k={k!r} is not the length of a list; choose a whole number of at least 1")
    check(candidates)
    if k > candidates.n_items:
        n_items = f"{candidates.n_items:,}"
        raise ValueError(f"k={k} is longer than the {n_items} items there are; choose k <= {n_items}")
    candidates = in_order(candidates)
    if short := int((candidates.lengths < k).sum()):
        log.warning(
            "%s of %s users have fewer than k=%d candidates: their lists are shorter",
            f"{short:,}",
            f"{len(candidates):,}",
            k,
        )
    return candidates


def check(candidates: TopK) -> None:
    """Refuse candidates that no honest list can be made of, however they were built."""
    items, scores = candidates.items, candidates.scores
    if items.ndim != 2 or items.shape != scores.shape or len(items) != len(candidates.user_ids):
        raise ValueError(
            f"items {items.shape} and scores {scores.shape} of {len(candidates.user_ids):,} users do not fit;"
            " all need one row a user"
        )
    if not items.size:
        raise ValueError(f"there are no candidates: items have the shape {items.shape}; give at least one a user")
    if items.max() >= candidates.n_items or items.min() < -1:
        wrong = int(items.max()) if items.max() >= candidates.n_items else int(items.min())
        raise ValueError(f"item number {wrong} is outside the catalog of {candidates.n_items:,} items")
    if bad := int((~np.isfinite(scores[items >= 0])).sum()):
        raise ValueError(f"{bad:,} candidates have a NaN or infinite score; scores must be finite numbers")
    sorted_items = np.sort(items, axis=1)
    twice = (sorted_items[:, 1:] == sorted_items[:, :-1]) & (sorted_items[:, 1:] >= 0)
    if twice.any():
        raise ValueError(
            f"{int(twice.any(axis=1).sum()):,} users have an item among their candidates twice; keep one of each"
        )


def in_order(candidates: TopK) -> TopK:
    """Best score first, ties to the lowest item number, empty ones last; the same object if it is so already."""
    items, scores = candidates.items, np.where(candidates.items >= 0, candidates.scores, -np.inf)
    left, right = scores[:, :-1], scores[:, 1:]
    if ((left > right) | ((left == right) & ((items[:, :-1] < items[:, 1:]) | (items[:, 1:] < 0)))).all():
        return candidates
    order = np.lexsort((items, -scores), axis=1)
    return replace(candidates, items=np.take_along_axis(items, order, 1), scores=np.take_along_axis(scores, order, 1))


def in_given_order(candidates: TopK, k: int) -> TopK:
    """The candidates with scores that put them in the order they stand in: of equal ones, the later falls by a hair.

    Ranks stand for scores that are all alike, or that put others than the first k first.
    """
    listed = candidates.items >= 0
    scores = np.where(listed, candidates.scores, np.float32(-np.inf))
    falls = bool((scores[:, :-1] > scores[:, 1:])[listed[:, 1:]].any())
    if falls and in_order(candidates) is candidates:
        return candidates
    order = np.argsort(-scores, axis=1, kind="stable")
    if not falls or (order[:, :k] != np.arange(candidates.width)[:k]).any():
        ranks = -np.arange(candidates.width, dtype=np.float32)
        return replace(candidates, scores=np.where(listed, ranks, np.float32(-np.inf)))
    items, scores = (np.take_along_axis(table, order, 1) for table in (candidates.items, scores))
    for slot in range(1, candidates.width):
        below = np.nextafter(scores[:, slot - 1], np.float32(-np.inf))
        scores[:, slot] = np.minimum(scores[:, slot], below)  # −inf, where the list has ended, stays
    return replace(candidates, items=items, scores=scores)


def unit_scores(candidates: TopK, lowest: Array | None = None) -> Array:
    """r: each user's scores scaled to [0, 1] by min–max, −inf for none; all 1 where they are equal.

    lowest: each user's lowest score of all unseen items, (n_lists,); none: the lowest of the candidates
    (n_lists, width) float64
    """
    listed = candidates.items >= 0
    scores = candidates.scores.astype(np.float64)
    low = np.min(scores, axis=1, keepdims=True, where=listed, initial=np.inf)
    if lowest is not None:
        low = np.minimum(low, np.asarray(lowest, dtype=np.float64)[:, None])
    high = np.max(scores, axis=1, keepdims=True, where=listed, initial=-np.inf)
    span = high - low
    scaled = np.divide(scores - low, span, out=np.ones_like(scores), where=listed & (span > 0))
    return np.where(listed, scaled, -np.inf)


def lowest_of(candidates: TopK, scale: str, lowest: Array | None) -> Array | None:
    """What `unit_scores` takes for a setting `scale`, or an error that says what is missing."""
    if scale == "candidates":
        return None
    if scale == "unseen" and lowest is None:
        raise ValueError(
            "scale='unseen' needs each user's lowest score of all unseen items; give lowest=… (`lowest_scores` of a"
            " model), or choose scale='candidates'"
        )
    if lowest is not None and np.shape(lowest) != (len(candidates),):
        raise ValueError(
            f"lowest has the shape {np.shape(lowest)}; give one score for each of {len(candidates):,} users"
        )
    return lowest


def log_softmax(candidates: TopK) -> Array:
    """log s: the logarithm of each user's softmax over the candidates, −inf for none.  (n_lists, width)"""
    scores = np.where(candidates.items >= 0, candidates.scores, -np.inf).astype(np.float64)
    highest = np.where(candidates.lengths > 0, scores[:, 0], 0)[:, None]  # the candidates are in order
    mass = np.exp(scores - highest).sum(axis=1, keepdims=True)
    return np.asarray(scores - highest - np.log(np.maximum(mass, 1)))


def best(keys: Array, k: int) -> Array:
    """The columns of the k largest keys of each row, largest first, ties to the smaller column.  (n_lists, k)"""
    return top_of(keys, k)[0]


def own(candidates: TopK, k: int) -> Array:
    """The columns of the model's own lists: 0 … k−1, as far as there are candidates.  (n_lists, k)"""
    columns = np.arange(k)
    return np.where(columns < candidates.lengths[:, None], columns, -1)


def own_counts(candidates: TopK, k: int) -> Array:
    """f of the model's own lists: how often each item is in a top k.  (n_items,) int64"""
    return candidates.head(k).counts


def lists(candidates: TopK, columns: Array, order: str = "method") -> TopK:
    """The lists that hold these columns: in the model's order, or as the method ranked them."""
    if order == "score":
        columns = np.sort(np.where(columns >= 0, columns, candidates.width), axis=1)
        columns = np.where(columns < candidates.width, columns, -1)
    items = np.where(columns >= 0, np.take_along_axis(candidates.items, columns, axis=1), -1)
    scores = np.where(columns >= 0, np.take_along_axis(candidates.scores, columns, axis=1), -np.inf)
    return replace(candidates, items=items.astype(np.int32), scores=scores.astype(np.float32))


def replaced(own: Array, items: Array) -> float:
    """The fraction of the slots of lists in which others stand than in these.  own, items (n_lists, k), −1 for none"""
    stays = sum((own == slot[:, None]) & (slot[:, None] >= 0) for slot in items.T)
    return 1 - float(np.sum(stays)) / max(1, int((own >= 0).sum()))
