"""How far live pages are from the best there were, once all requests are known."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import sparse

from divmf.engine.arrays import Array
from divmf.kernels.market import ONE
from divmf.market.bonus import Bonus
from divmf.market.certificate import certify
from divmf.market.columns import Finder, Held
from divmf.market.ledger import Terms
from divmf.market.solve import Lists, Market, Solution, solve
from divmf.market.values import exposure_weights, slot_weights
from divmf.models.scorer import Blocks
from divmf.serve.people import People, Taste


class Hindsight(NamedTuple):
    """The objective of pages per slot, in units of ρ; of the best lists found for the same requests; and a bound.

    bound   no lists at all are better than this
    """

    live: float
    best: float
    bound: float

    @property
    def distance(self) -> float:
        """How far the pages are from the best lists found, per slot, in units of ρ."""
        return self.best - self.live


def hindsight(
    people: People, tastes: list[Taste], out: list[Array], ways: Sequence[Array], terms: Terms
) -> list[Hindsight]:
    """What pages were worth beside the batch optimum for the same requests.

    Every item is a candidate of every request: where one person asks often, the best few of that person would be the
    candidates of all those requests, and most of the catalog of none. Turns begin at the model's own lists and at the
    pages of each way; the best of what comes out counts.

    tastes, out   of each request: who asked, and what could not be shown
    ways          pages that were answered, in one way or another: (requests, k) int32, −1 where a page is shorter
    """
    n, n_items, k = len(tastes), people.n_items, ways[0].shape[1]
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in out])]).astype(np.int64)
    indices = np.concatenate(out).astype(np.int32) if offsets[-1] else np.zeros(0, dtype=np.int32)
    known = sparse.csr_array((np.ones(len(indices), dtype=np.float32), indices, offsets), shape=(n, n_items))

    def scores(rows: Array) -> Array:
        return np.vstack([people.scores(tastes[row]) for row in rows])

    weights = np.array([taste.weight for taste in tastes], dtype=np.float32)
    finder = Finder(Blocks(scores, n, n_items), Held.nothing(known), weights, n_items)
    exposure = exposure_weights(k, terms.exposure)
    level = terms.level * n * float(exposure.sum()) / ONE / n_items
    bonus = Bonus(terms.delta, level, terms.steepness, n)
    market = Market(finder, slot_weights(k), exposure, bonus, kinds=("all",))
    own_columns, own = market.own
    unit = n * k * terms.rho

    def worth(lists: Lists) -> float:
        return float(market.value(own_columns, terms.rho, lists) / unit)

    shown = [market.lists(pages) for pages in ways]
    tried = [solve(market, terms.rho, own["all"]).lists["all"], *(each.copy() for each in shown)]
    for lists in tried[1:]:
        market.settle(own_columns, 1, terms.rho, lists)
    best = max(tried, key=worth)
    gap = certify(market, Solution(terms.rho, {"all": best}, own_columns)).gap
    bound = worth(best) + gap * max(0.0, worth(best) - worth(own["all"]))
    return [Hindsight(worth(each), worth(best), bound) for each in shown]
