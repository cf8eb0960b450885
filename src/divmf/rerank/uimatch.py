"""UImatch: the baseline that matches users and items under capacities, the best pairs first."""

import logging
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from divmf.data.interactions import Interactions
from divmf.engine.arrays import Array
from divmf.market.rules import Rules
from divmf.ranking.lists import TopK
from divmf.rerank.candidates import lists, log_softmax, lowest_of, popularity_of, unit_scores
from divmf.rerank.capped import capped
from divmf.rerank.settings import Order, Scale, reranker

log = logging.getLogger(__name__)


@reranker
def uimatch(
    candidates: TopK,
    k: int = 5,
    *,
    c: Annotated[
        float,
        Field(
            gt=0, allow_inf_nan=True, description="capacity as a multiple of the item's share; inf = the model's list"
        ),
    ] = 1.0,
    gamma: Annotated[
        float, Field(ge=0, description="exponent of popularity in that share; 0 = the same for all, no train needed")
    ] = 1.0,
    normalise: Annotated[
        Literal["minmax", "softmax", "zscore"], Field(description="how scores of different users are made comparable")
    ] = "minmax",
    scale: Scale = "auto",
    train: Interactions | None = None,
    lowest: Array | None = None,
    rules: Rules | None = None,
    order: Order = "method",
) -> TopK:
    """Greedy matching under item capacities (Dong, Xie & Li, IEEE Access 2021, UImatch).

    cap_i = max(1, round(c·mk·pop_i^γ / Σ pop^γ)). All pairs by the user's normalised score, best first: a pair is
    accepted while the user has fewer than k items and the item has capacity left.
    The original's: capacities that grow with popularity, and greedy acceptance by a normalised score. Open, and
    settings here: how scores are normalised (the DivMF paper says only that they are; `normalise`), over which items
    (`scale`, min–max alone), the power of popularity (`gamma`) and the multiple of the capacity (`c`), which makes the
    curve.
    Differs: no scores are known beyond a user's candidates. While users are left short, all capacities are doubled and
    the matching goes on; how many slots were given over their capacity is logged. With rules, capacities and filters
    hold: doubling ends there.
    """
    from divmf.kernels.rerank_fill import give_in_order

    candidates, most, _ = capped(rules, candidates, k, "uimatch", train)
    capacity = np.minimum(capacities(candidates, k, c, gamma, train), most)
    pairs = pairs_in_order(candidates, normalise, lowest_of(candidates, scale, lowest))
    columns = np.full((len(candidates), k), -1)
    size = np.zeros(len(candidates), dtype=np.int64)
    wanted, left = np.minimum(candidates.lengths, k), capacity.copy()
    give_in_order(pairs, candidates.items, left, columns, size)
    if over := int((wanted - size).sum()):
        log.info("uimatch: %s of %s slots are given over the items' capacity", f"{over:,}", f"{wanted.sum():,}")
    while (size < wanted).any() and (capacity < most).any():
        more = np.minimum(capacity, most - capacity)
        left, capacity = left + more, capacity + more
        give_in_order(pairs, candidates.items, left, columns, size)
    return lists(candidates, columns, order)


def capacities(candidates: TopK, k: int, c: float, gamma: float, train: Interactions | None) -> Array:
    """How many lists each item may stand in.  (n_items,) int64"""
    slots = len(candidates) * k
    if np.isinf(c):
        return np.full(candidates.n_items, slots)
    if gamma == 0:
        popularity = np.ones(candidates.n_items)
    elif train is None:
        raise ValueError(
            f"uimatch: gamma={gamma:g} needs the training interactions; give train=… (--train), or gamma=0"
        )
    else:
        popularity = popularity_of(candidates, train).astype(np.float64)
    weight = (popularity / max(popularity.max(), 1)) ** gamma
    shares = np.rint(c * slots * weight / max(weight.sum(), 1))
    return np.asarray(np.clip(shares, 1, slots), dtype=np.int64)


def pairs_in_order(candidates: TopK, normalise: str, lowest: Array | None = None) -> Array:
    """All candidate pairs as user · width + column: best normalised score first, then lowest item, then lowest user."""
    user, column = np.nonzero(candidates.items >= 0)
    scores = normalised(candidates, normalise, lowest)[user, column]
    order = np.lexsort((user, candidates.items[user, column], -scores))
    return (user * candidates.width + column)[order]


def normalised(candidates: TopK, how: str, lowest: Array | None = None) -> Array:
    """Scores that can be compared between users; softmax as its logarithm, which ranks alike and cannot underflow."""
    if how == "minmax":
        return unit_scores(candidates, lowest)
    if how == "softmax":
        return log_softmax(candidates)
    listed = candidates.items >= 0
    scores = np.where(listed, candidates.scores, 0).astype(np.float64)
    length = np.maximum(candidates.lengths[:, None], 1)
    centred = np.where(listed, scores - scores.sum(axis=1, keepdims=True) / length, 0)
    deviation = np.sqrt((centred**2).sum(axis=1, keepdims=True) / length)
    return np.where(listed, np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 0), -np.inf)
