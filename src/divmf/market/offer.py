"""The best lists of many people at discounts that are there, for people whom no market was solved with.

    terms = Offer.of(chosen.discount, k=10, exposure="count")
    items = respond(scores, terms)                     # scores (people, n_items), −inf for what may not be listed

With the discounts of a market that was solved, a list is one dynamic programme over the best candidates by score and by
score plus discount: nothing is solved again. `divmf.market.response` answers one request at discounts that move.
"""

from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse

from divmf.engine.arrays import Array
from divmf.engine.threads import in_parts
from divmf.kernels.market import ONE
from divmf.kernels.response import response_rows
from divmf.market.columns import WIDTH
from divmf.market.stakes import spreads_of, steadied
from divmf.market.values import exposure_weights, slot_weights
from divmf.models.scorer import Scorer
from divmf.ranking.retrieval import blocks
from divmf.ranking.select import fill_seen, top


class Offer(NamedTuple):
    """What a showing earns.

    discount   (n_items,): of a full showing of each item
    slots      (k,): what a value counts in each slot
    exposure   (k,): what a showing counts in each slot, 1 for a full one
    """

    discount: Array
    slots: Array
    exposure: Array

    @classmethod
    def of(cls, discount: Array, k: int, exposure: str = "count") -> "Offer":
        """The discounts of a market whose lists have so many slots."""
        return cls(np.asarray(discount, dtype=np.float64), slot_weights(k), exposure_weights(k, exposure) / ONE)


def respond(scores: Array, offer: Offer, weights: Array | None = None, k: int | None = None) -> Array:
    """The best lists at these discounts, and after their slots the best by score plus discount.  (people, k) int32

    scores    (people, n_items) float32: −inf for what may not be listed
    weights   (people,): how much the scores of each count (`divmf.market.stakes`); 1 if not given
    k         how long the lists are; as many slots as there are, if not given. A longer list begins with the shorter
    """
    n_people, n_items = scores.shape
    weights = np.ones(n_people) if weights is None else np.asarray(weights, dtype=np.float64)
    slots = min(len(offer.slots), n_items)
    width = min(max(WIDTH, 2 * slots), n_items)
    last = offer.exposure[slots - 1]
    both = (weights[:, None] * scores + last * offer.discount).astype(np.float32)
    lists = np.empty((n_people, slots), dtype=np.int32)
    by_value, by_both = (top(torch.from_numpy(table), width)[0].numpy() for table in (scores, both))
    in_slots = (offer.slots[:slots], offer.exposure[:slots])
    response_rows(scores, by_value, by_both, weights, offer.discount, *in_slots, lists)
    k = slots if k is None else k
    if k <= slots:
        return lists[:, :k]
    rows, positions = np.nonzero(lists >= 0)
    both[rows, lists[rows, positions]] = -np.inf
    return np.hstack([lists, top(torch.from_numpy(both), k - slots)[0].numpy().astype(np.int32)])


def respond_to(
    scorer: Scorer, seen: sparse.csr_array, offer: Offer, stakes: Array, usual: float, k: int, out: Array | None = None
) -> tuple[Array, Array]:
    """`respond` for everybody whom a scorer knows, without what they have seen, and the scores: both (n_users, k).

    stakes   (n_users,): how much the scores of each count, where their spread is usual or more
    usual    the spread of the scores of people of the training, by their stakes (`divmf.market.stakes.steadied`)
    out      (n_items,) bool: items that nobody may be shown
    """
    items, listed = np.empty((scorer.n_users, k), dtype=np.int32), np.empty((scorer.n_users, k), dtype=np.float32)

    def part(first: int, last: int) -> None:
        for block in blocks(last - first, scorer.n_items):
            users = np.arange(first + block.start, first + block.stop)
            scores = fill_seen(torch.from_numpy(scorer.scores(users)), users, seen, -np.inf).numpy()
            weights = steadied(stakes[users], spreads_of(scores), usual)
            if out is not None:
                scores[:, out] = -np.inf
            items[users] = found = respond(scores, offer, weights, k)
            theirs = np.take_along_axis(scores, np.maximum(found, 0), axis=1)
            listed[users] = np.where(found >= 0, theirs, -np.inf)

    in_parts(part, scorer.n_users)
    return items, listed
