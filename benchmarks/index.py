"""Lists from an index of vectors: two searches, then the best response to what they found; how many are the same.

The gain is what the best lists are worth at the discounts beyond the model's own.

iALS with 64 dimensions on MovieLens-1M, a fifth held out, k = 5, at the discounts of the point where a tenth of the
validation nDCG is lost. `python -m benchmarks index` prints the table.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.side_by_side import table
from divmf.engine.arrays import Array

WIDTHS = (5, 10, 20, 32)
ENOUGH = 1000  # candidates of each kind that the best list is found among
MISSED = 0.05  # the fraction of its answers that an approximate index leaves out, drawn at random
K = 5


def searched(queries: Array, vectors: Array, width: int, out: sparse.csr_array, missed: float) -> Array:
    """The items with the largest inner products, as an index with a filter gives them.  (queries, width)"""
    products = queries @ vectors.T
    products[out.nonzero()] = -np.inf
    products[np.random.default_rng(0).random(products.shape) < missed] = -np.inf
    return np.argpartition(-products, width, axis=1)[:, :width]


def same(lists: Array, others: Array) -> list[str]:
    """The fraction of lists that hold the same items, and of slots whose item the other list holds too."""
    shared = np.array([len(np.intersect1d(one, other)) for one, other in zip(lists, others, strict=True)])
    return [f"{(shared == K).mean():.1%}", f"{shared.mean() / K:.1%}"]


def worth(lists: Array, scores: Array, weights: Array, offer: Any) -> float:
    """What lists are worth at the discounts."""
    values = np.take_along_axis(scores, lists, 1)
    ordered = np.take_along_axis(lists, np.argsort(-values, axis=1, kind="stable"), 1)
    values = weights[:, None] * np.take_along_axis(scores, ordered, 1)
    return float((offer.slots * values + offer.exposure * offer.discount[ordered]).sum())


def main() -> None:
    """Measure and print a Markdown table."""
    import divmf.market.offer as market_offer
    from divmf import diversify
    from divmf.data.datasets import load
    from divmf.market.offer import Offer, respond
    from divmf.market.stakes import stake_of, stakes_of
    from divmf.models.ials import ials
    from divmf.train.runs import Run

    split = load("ml-1m").hold_out(seed=0)
    model, weights = ials(split.train.matrix, dim=64), stakes_of(split.train.matrix, stake_of(split))
    with tempfile.TemporaryDirectory() as name:
        point = diversify(model, split, deepest=0.15, run=Path(name) / "run").curve.choose(ndcg_drop=0.1)
        chosen = Run(Path(name) / "run").read_chosen(point)
    assert chosen is not None
    offer, scores = Offer.of(chosen.discount, K), model.scores(np.arange(split.n_users))
    scores[split.known.nonzero()] = -np.inf
    with_width, market_offer.WIDTH = market_offer.WIDTH, ENOUGH
    best = respond(scores, offer, weights)
    market_offer.WIDTH = with_width
    # a discount is one more dimension of an item: queries have 0 there to search by score, 1 by score plus discount
    vectors = np.column_stack([model.items_t.T, model.bias, chosen.discount])
    users = np.column_stack([weights[:, None] * model.users, weights])
    queries = [np.column_stack([users, np.full(len(users), each)]) for each in (0.0, 1.0)]
    own = searched(queries[0], vectors, K, split.known, 0.0)
    least, most = (worth(lists, scores, weights, offer) for lists in (own, best))

    def told(lists: Array) -> list[str]:
        gained = (worth(lists, scores, weights, offer) - least) / (most - least)
        return [*same(lists, best), f"{gained:.2%}"]

    rows = []
    for missed in (0.0, MISSED):
        for width in WIDTHS:
            found = np.hstack([searched(query, vectors, width, split.known, missed) for query in queries])
            kept = np.full(scores.shape, -np.inf, dtype=np.float32)
            np.put_along_axis(kept, found, np.take_along_axis(scores, found, 1), 1)
            rows.append(
                [f"{width} + {width}, then the best list", f"{missed:.0%}", *told(respond(kept, offer, weights))]
            )
        naive = searched(queries[1], vectors, K, split.known, missed)
        rows.append([f"the {K} best by score plus discount", f"{missed:.0%}", *told(naive)])
    table(["retrieved", "missed by the index", "same lists", "same slots", "of the gain"], rows)
