"""Items that were not in training, in an operating point: in the model, and in the lists of its market."""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from divmf.data.new_items import NewItems
from divmf.data.split import Split
from divmf.engine.arrays import Array
from divmf.market.bonus import Bonus
from divmf.market.chosen import Chosen
from divmf.market.entering import with_new
from divmf.market.offer import Offer
from divmf.market.stakes import stakes_of
from divmf.models.fold_in import Known
from divmf.models.items import with_items
from divmf.models.scorer import Factors, ItemItem, Scorer
from divmf.train.people import Learnt


class Grown(NamedTuple):
    """An operating point with new items."""

    scorer: Scorer
    split: Split
    chosen: Chosen | None


def grown(
    new: NewItems, scorer: Scorer, split: Split, learnt: Learnt, chosen: Chosen | None, slots: int, rho: float
) -> Grown:
    """An operating point with new items, numbered by their ids among the others.

    slots   of the lists that the market was solved with; rho: of the point
    """
    name = learnt.name or ("ease" if isinstance(scorer, ItemItem) else "bpr")
    more = with_items(Known(scorer, name, learnt.settings), new.similar, new.met, split.train.weighted)
    whole, numbers = new.joined(split)
    scorer = renumbered(more, numbers, whole)
    if chosen is None:
        return Grown(scorer, whole, None)
    discount = np.zeros(whole.n_items, dtype=np.float32)
    discount[numbers[: split.n_items]] = chosen.discount
    lists = {kind: np.where(items >= 0, numbers[items], -1).astype(np.int32) for kind, items in chosen.lists.items()}
    offer = Offer.of(discount, slots, learnt.exposure)
    met = {"valid": whole.train.matrix, "test": whole.seen, "all": whole.known}
    level = learnt.level * whole.n_users * float(offer.exposure.sum()) / whole.n_items
    bonus = Bonus(learnt.delta, level, learnt.steepness, whole.n_users)
    weights = stakes_of(split.train.matrix, learnt.stake)
    added = numbers[split.n_items :]
    return Grown(scorer, whole, with_new(Chosen(discount, lists), scorer, met, added, (rho, bonus), offer, weights))


def renumbered(scorer: Scorer, numbers: Array, split: Split) -> Scorer:
    """The model with its items in another order; numbers: the new number of each."""
    order = np.argsort(numbers)
    if isinstance(scorer, Factors):
        return Factors(scorer.users, np.ascontiguousarray(scorer.items_t[:, order]), scorer.bias[order])
    assert isinstance(scorer, ItemItem)
    met: sparse.csr_array = split.train.weighted
    return ItemItem(met, np.ascontiguousarray(scorer.weights[np.ix_(order, order)]))
