"""Candidates to rerank, and what a slow loop needs: plain lists of (item, score), best first."""

import numpy as np
import polars as pl
from hypothesis import settings
from hypothesis import strategies as st

from divmf.data.interactions import Interactions
from divmf.ranking.lists import TopK
from divmf.rerank import METHODS

some = settings(max_examples=50, deadline=None)  # the first example may compile a kernel


def make_candidates(seed, n_lists=5, n_items=9, width=6, ties=False, short=False) -> TopK:
    """Random candidates; with ties, scores are from a few values; with short, users have fewer, down to none."""
    rng = np.random.default_rng(seed)
    width = min(width, n_items)
    items = np.array([rng.permutation(n_items)[:width] for _ in range(n_lists)], dtype=np.int32)
    scores = rng.integers(0, 3, items.shape) / 2 if ties else rng.normal(size=items.shape)
    lengths = rng.integers(0, width + 1, n_lists) if short else np.full(n_lists, width)
    listed = np.arange(width) < lengths[:, None]
    order = np.lexsort((items, -scores, ~listed), axis=1)
    items = np.take_along_axis(np.where(listed, items, -1), order, axis=1).astype(np.int32)
    scores = np.take_along_axis(np.where(listed, scores, -np.inf), order, axis=1).astype(np.float32)
    return TopK(items, scores, pl.Series("user_id", range(n_lists)), pl.Series("item_id", range(n_items)))


EITHER, ONE_TO_SEVEN = st.booleans(), st.integers(1, 7)


def candidates(ties=EITHER, short=EITHER, n_lists=ONE_TO_SEVEN):
    """Small candidates for hypothesis."""
    return st.builds(
        make_candidates,
        seed=st.integers(0, 10**6),
        n_lists=n_lists,
        n_items=st.integers(4, 10),
        width=st.integers(1, 8),
        ties=ties,
        short=short,
    )


def make_train(wide: TopK, seed: int = 0) -> Interactions:
    """Training interactions over the users and items of the candidates, some items far more popular."""
    rng = np.random.default_rng(seed)
    chance = 1 / np.arange(1, wide.n_items + 1)
    users, items = np.nonzero(rng.random((len(wide), wide.n_items)) < chance[rng.permutation(wide.n_items)])
    return Interactions(users.astype(np.int32), items.astype(np.int32), None, wide.user_ids, wide.item_ids)


def rows_of(wide: TopK) -> list[list[tuple[int, float]]]:
    """The candidates of each user as (item, score), best first."""
    return [
        [(int(item), float(score)) for item, score in zip(items, scores, strict=True) if item >= 0]
        for items, scores in zip(wide.items, wide.scores, strict=True)
    ]


def unit(row: list[tuple[int, float]]) -> dict[int, float]:
    """The scores of one user scaled to [0, 1], by item."""
    low, high = min(score for _, score in row), max(score for _, score in row)
    return {item: (score - low) / (high - low) if high > low else 1.0 for item, score in row}


def units_of(wide: TopK) -> list[dict[int, float]]:
    return [unit(row) if row else {} for row in rows_of(wide)]


def items_of(lists: TopK) -> list[list[int]]:
    """The items of each list, without the empty slots."""
    return [[int(item) for item in items if item >= 0] for items in lists.items]


def by_score(wide: TopK, chosen: list[list[int]]) -> list[list[int]]:
    """The chosen items of each user in the order of the candidates."""
    return [[item for item, _ in row if item in set(kept)] for row, kept in zip(rows_of(wide), chosen, strict=True)]


def filled_up(row: list[tuple[int, float]], chosen: list[int], k: int) -> list[int]:
    """A list with the best other candidates appended."""
    return chosen + [item for item, _ in row if item not in chosen][: max(0, k - len(chosen))]


def needs(name: str) -> bool:
    """Whether what a method needs beyond the package's own requirements is there."""
    if METHODS[name].extra != "flow":
        return True
    try:
        import ortools.graph.python.min_cost_flow  # noqa: F401
    except ImportError:
        return False
    return True
