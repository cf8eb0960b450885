"""New items in a market that was solved: the discount at which each is shown, and the lists that take it in.

A user takes a new item once its discount makes up for what the list loses by it. The more users take it, the less one
more showing earns, ρ·b(x); the discount is where both meet, as it is for every item of a market in balance. The
discounts of the others stay, and so do the lists that no new item enters.
"""

import numpy as np
from scipy import sparse

from divmf.engine.arrays import Array
from divmf.engine.threads import in_parts
from divmf.market.bonus import Bonus
from divmf.market.chosen import Chosen
from divmf.market.offer import Offer, respond
from divmf.models.scorer import Scorer
from divmf.ranking.retrieval import blocks


def entering(needed: Array, exposed: Array, rho: float, bonus: Bonus) -> float:
    """The discount of a new item.

    needed    (users,): the least discount at which each would take it; +inf for those who may not
    exposed   (users,): what its showing would count there, 1 for a full one
    """
    order = np.argsort(needed, kind="stable")
    needed, shown = needed[order], np.concatenate([[0.0], np.cumsum(exposed[order])])
    earned = rho * bonus.table[np.minimum(shown.astype(np.int64), len(bonus.table) - 1)]
    (beyond,) = np.nonzero(needed > earned[:-1])
    taken = int(beyond[0]) if len(beyond) else len(needed)
    if not taken:
        return float(earned[0])
    # so many take it from the least of these to the largest: the middle, so that no list hangs on the last digit
    least = max(earned[taken], needed[taken - 1])
    largest = min(earned[taken - 1], needed[taken] if taken < len(needed) else np.inf)
    return float((least + largest) / 2)


def least_discounts(values: Array, discounts: Array, new: Array, offer: Offer) -> tuple[Array, Array]:
    """The least discount at which each user's list takes a new item in place of one of its own, and what it counts.

    values, discounts   (users, k): of the lists, in order
    new                 (users,): what the new item is worth to each
    """
    k = values.shape[1]
    slots, exposure = offer.slots[:k], offer.exposure[:k]
    before = values @ slots + discounts @ exposure
    needed, exposed = np.full(len(values), np.inf), np.full(len(values), exposure[-1])
    for gone in range(k):
        left = np.delete(np.arange(k), gone)
        theirs, earned = (np.column_stack([table[:, left], more]) for table, more in (
            (values, new), (discounts, np.zeros(len(new)))))  # fmt: skip
        order = np.argsort(-theirs, axis=1, kind="stable")
        worth = np.take_along_axis(theirs, order, 1) @ slots + np.take_along_axis(earned, order, 1) @ exposure
        counted = exposure[np.argmax(order == k - 1, axis=1)]
        least = (before - worth) / counted
        better = least < needed
        needed, exposed = np.where(better, least, needed), np.where(better, counted, exposed)
    return needed, exposed


def with_new(
    chosen: Chosen, scorer: Scorer, met: dict[str, sparse.csr_array], new: Array, terms: tuple[float, Bonus],
    offer: Offer, weights: Array,
) -> Chosen:  # fmt: skip
    """The lists of a market with new items.

    chosen   over all items there are now, with 0 for the discounts of the new ones
    met      of each kind of lists, what may not be in it; new: the numbers of the new items
    terms    ρ, and the bonus; offer: its discounts are not read
    """
    rho, bonus = terms
    discount = chosen.discount.astype(np.float64)
    lists = chosen.lists["all"]
    everybody = np.arange(scorer.n_users)
    may = np.asarray(met["all"][:, new].toarray()) == 0  # (n_users, n_new)
    needed, exposed = (np.empty(may.shape) for _ in range(2))
    for rows in blocks(scorer.n_users, scorer.n_items):
        users = everybody[rows]
        worth, own = weights[users][:, None] * scorer.scores(users), lists[users]
        short = (own < 0).any(axis=1)
        own = np.maximum(own, 0)
        for position, item in enumerate(new):
            least, counted = least_discounts(np.take_along_axis(worth, own, 1), discount[own], worth[:, item], offer)
            needed[users, position] = np.where(may[users, position], np.where(short, 0.0, least), np.inf)
            exposed[users, position] = counted
    for position, item in enumerate(new):
        discount[item] = entering(needed[:, position], exposed[:, position], rho, bonus)
    settled = offer._replace(discount=discount)
    made = {kind: taken_in(items, scorer, met[kind], new, settled, weights) for kind, items in chosen.lists.items()}
    return Chosen(discount.astype(np.float32), made)


def taken_in(lists: Array, scorer: Scorer, met: sparse.csr_array, new: Array, offer: Offer, weights: Array) -> Array:
    """The best lists of their own items and the new ones.  (n_users, k) int32"""
    found = np.empty_like(lists)

    def part(first: int, last: int) -> None:
        for block in blocks(last - first, scorer.n_items):
            users = np.arange(first + block.start, first + block.stop)
            rows, slots = np.nonzero(lists[users] >= 0)
            may = np.zeros((len(users), scorer.n_items), dtype=np.bool_)
            may[:, new] = np.asarray(met[users][:, new].toarray()) == 0
            may[rows, lists[users][rows, slots]] = True
            scores = np.where(may, scorer.scores(users), np.float32(-np.inf))
            found[users] = respond(scores, offer, weights[users], lists.shape[1])

    in_parts(part, scorer.n_users)
    return found
