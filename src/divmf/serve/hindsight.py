"""How far live pages are from the best there were, once all requests are known."""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from divmf.engine.arrays import Array
from divmf.kernels.market import ONE
from divmf.market.bonus import Bonus
from divmf.market.certificate import certify
from divmf.market.columns import WIDTH, Finder, Held
from divmf.market.ledger import Terms
from divmf.market.solve import Market, solve
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


def hindsight(people: People, tastes: list[Taste], out: list[Array], pages: Array, terms: Terms) -> Hindsight:
    """What pages were worth beside the batch optimum for the same requests.

    tastes, out   of each request: who asked, and what could not be shown
    pages         (requests, k) int32, −1 where a page is shorter
    """
    n, n_items, k = len(tastes), people.n_items, pages.shape[1]
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in out])]).astype(np.int64)
    indices = np.concatenate(out).astype(np.int32) if offsets[-1] else np.zeros(0, dtype=np.int32)
    known = sparse.csr_array((np.ones(len(indices), dtype=np.float32), indices, offsets), shape=(n, n_items))

    def scores(rows: Array) -> Array:
        return np.vstack([people.scores(tastes[row]) for row in rows])

    weights = np.array([taste.weight for taste in tastes], dtype=np.float32)
    finder = Finder(Blocks(scores, n, n_items), Held.nothing(known), weights, max(WIDTH, 2 * k))
    exposure = exposure_weights(k, terms.exposure)
    level = terms.level * n * float(exposure.sum()) / ONE / n_items
    bonus = Bonus(terms.delta, level, terms.steepness, n)
    market = Market(finder, slot_weights(k), exposure, bonus, kinds=("all",))
    own_columns, own = market.own
    found = solve(market, terms.rho, own["all"])
    certificate, shown = certify(market, found), market.lists(pages)
    live = market.value(finder.find(certificate.discount, shown.items), terms.rho, shown)
    best = market.value(found.columns, terms.rho, found.lists["all"])
    own_value = market.value(own_columns, terms.rho, own["all"])
    unit = n * k * terms.rho
    return Hindsight(live / unit, best / unit, (best + certificate.gap * max(0.0, best - own_value)) / unit)
