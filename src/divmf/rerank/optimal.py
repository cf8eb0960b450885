"""The optimum: the best total score that lists can have when items have capacities, and how far lists are from it."""

from dataclasses import dataclass

import numpy as np

from divmf.engine.arrays import Array
from divmf.ranking.lists import TopK
from divmf.rerank.candidates import lists as lists_of
from divmf.rerank.candidates import own, ready, unit_scores
from divmf.rerank.flow import best_flow


@dataclass(frozen=True)
class Gap:
    """Total scores of lists, of the best lists with the same item counts, and of the model's own.

    A score is the user's, scaled to [0, 1] over the candidates, so every user counts alike.
    """

    score: float
    optimum: float
    model: float

    @property
    def lost(self) -> float:
        """What the lists give away against the optimum with the same item counts."""
        return max(0.0, self.optimum - self.score)

    @property
    def share(self) -> float:
        """What the lists give away, as a share of the optimum."""
        return self.lost / self.optimum if self.optimum > 0 else 0.0


def optimal(candidates: TopK, capacity: int | Array, k: int = 5) -> TopK:
    """The lists of largest total scaled score in which no item stands more than `capacity` times (min-cost flow).

    capacity: one number, or one for each item of the catalog. Where capacities leave a user without a
    candidate, the list is shorter: as few slots as possible stay empty. Needs the extra `flow`.
    """
    candidates = ready(candidates, k)
    if np.ndim(capacity) and np.shape(capacity) != (candidates.n_items,):
        raise ValueError(
            f"capacity has shape {np.shape(capacity)}; give one number, or one for each of {candidates.n_items:,} items"
        )
    if np.min(capacity, initial=0) < 0:
        raise ValueError(f"capacity={np.min(capacity)} is negative; choose 0 or more")
    capacities = np.broadcast_to(np.asarray(capacity, dtype=np.int64), (candidates.n_items,))
    return lists_of(candidates, best_flow(candidates, np.minimum(candidates.lengths, k), [(capacities, 0)]))


def gap(lists: TopK, candidates: TopK) -> Gap:
    """How much total scaled score lists give away against the best lists with the same item counts and lengths.

    Args:
        lists: Lists made of the candidates.
        candidates: Longer lists of the same users.

    Returns:
        The totals of the lists, of the best ones, and of the candidates' own.
    """
    candidates = ready(candidates, 1)
    lists = lists.aligned(candidates.user_ids, candidates.item_ids)
    r = unit_scores(candidates)
    columns = best_flow(candidates, lists.lengths, [(lists.counts, 0)])
    longest = int(lists.lengths.max(initial=0))
    own_columns = np.where(np.arange(longest) < lists.lengths[:, None], own(candidates, longest), -1)
    return Gap(total(r, columns_in(lists, candidates)), total(r, columns), total(r, own_columns))


def columns_in(lists: TopK, candidates: TopK) -> Array:
    """Where the items of the lists stand among the candidates; one that is none is an error.  (n_lists, width)"""
    columns = np.full(lists.items.shape, -1)
    for slot in range(lists.width):
        same = candidates.items == lists.items[:, slot, None]
        column = np.where(same.any(axis=1), same.argmax(axis=1), -2)
        columns[:, slot] = np.where(lists.items[:, slot] >= 0, column, -1)
    if strange := int((columns == -2).sum()):
        raise ValueError(
            f"{strange:,} recommended items are no candidates of their user; give the candidates the lists came from"
        )
    return columns


def total(scores: Array, columns: Array) -> float:
    """The sum of the scores at these columns, −1 for none."""
    user, rank = np.nonzero(columns >= 0)
    return float(scores[user, columns[user, rank]].sum())
