"""Items like others, and items that were not in training.

    numbers, likeness = similar_items(scorer, np.array([3]), k=10)
    more = with_items(chosen, [np.array([3, 7])])                 # a new item, like items 3 and 7
    more = with_items(chosen, [None], met=who_met_it)             # iALS: solved from a few interactions

A new item's number follows those of the catalogue.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import sparse

from divmf.engine.arrays import Array
from divmf.models.fold_in import Fitted
from divmf.models.ials import user_vectors
from divmf.models.scorer import Factors, ItemItem, Scorer


def similar_items(scorer: Scorer, items: Array, k: int) -> tuple[Array, Array]:
    """The k other items most like each of some, and how like they are, best first.  (items, k) both

    Vectors: by the cosine between them. Weights between items: by what meeting the one adds to the score of the other.
    """
    if not 1 <= k < scorer.n_items:
        raise ValueError(f"k={k} must be at least 1 and below the {scorer.n_items:,} items there are")
    items = np.asarray(items)
    if items.size and not (items.min() >= 0 and items.max() < scorer.n_items):
        raise ValueError(
            f"items must be numbers from 0 to {scorer.n_items - 1:,}; {items.min()} to {items.max()} given"
        )
    if isinstance(scorer, Factors):
        vectors = scorer.items_t.T
        lengths = np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)
        likeness = (vectors[items] @ scorer.items_t) / (lengths[items][:, None] * lengths)
    elif isinstance(scorer, ItemItem):
        rows = scorer.weights[items]
        likeness = np.array(rows if isinstance(rows, np.ndarray) else rows.toarray())
    else:
        raise ValueError(f"a {type(scorer).__name__} does not say how like items are; give vectors, or weights")
    likeness[np.arange(len(items)), items] = -np.inf
    best = np.argsort(-likeness, axis=1, kind="stable")[:, :k]
    return best, np.take_along_axis(likeness, best, axis=1)


def with_items(model: Fitted, similar: Sequence[Array | None], met: sparse.csr_array | None = None) -> Scorer:
    """The model with new items: each the mean of similar ones, or, by iALS, the solution for the users who met it.

    similar   for each new item the numbers of items that it is like: a group, or some that were named; None if its
              interactions are to say
    met       (n_new, n_users): who met each new item; read where similar has None
    """
    scorer, n_items = model.scorer, model.scorer.n_items
    for number, alike in enumerate(similar):
        if alike is not None and (not len(alike) or np.min(alike) < 0 or np.max(alike) >= n_items):
            raise ValueError(f"similar[{number}] must name items by numbers from 0 to {n_items - 1:,}; it is {alike}")
        if alike is None and (met is None or model.name != "ials" or met.indptr[number] == met.indptr[number + 1]):
            raise ValueError(
                f"similar[{number}] is not given, and there is nothing to solve the item from: only iALS takes in an"
                " item by its interactions; name items that it is like"
            )
    if isinstance(scorer, Factors):
        return with_vectors(model, scorer, similar, met)
    if isinstance(scorer, ItemItem):
        return with_weights(scorer, similar)
    raise ValueError(f"a {type(scorer).__name__} cannot take in new items; give vectors, or weights between items")


def with_vectors(
    model: Fitted, scorer: Factors, similar: Sequence[Array | None], met: sparse.csr_array | None
) -> Factors:
    """New items' vectors beside those there are."""
    items, bias = scorer.items_t.T, scorer.bias
    solved = np.zeros((len(similar), items.shape[1]), dtype=np.float32)
    if met is not None and model.name == "ials":
        solved = user_vectors(scorer.users, met, model.settings["alpha"], model.settings["l2"])  # the sides are alike
    vectors = [solved[number] if alike is None else items[alike].mean(axis=0) for number, alike in enumerate(similar)]
    offsets = [0.0 if alike is None else bias[alike].mean() for alike in similar]
    grown = np.vstack([items, *(vector[None] for vector in vectors)])
    return Factors.from_arrays(scorer.users, grown, np.append(bias, offsets))


def with_weights(scorer: ItemItem, similar: Sequence[Array | None]) -> ItemItem:
    """New items' weights beside those there are: the means of what leads to the similar ones and what they lead to."""
    weights = scorer.weights if isinstance(scorer.weights, np.ndarray) else scorer.weights.toarray()
    n_items = len(weights)
    grown = np.zeros((n_items + len(similar),) * 2, dtype=np.float32)
    grown[:n_items, :n_items] = weights
    for number, alike in enumerate(similar, start=n_items):
        grown[:n_items, number], grown[number, :n_items] = weights[:, alike].mean(axis=1), weights[alike].mean(axis=0)
    met = scorer.met
    wider = sparse.csr_array((met.data, met.indices, met.indptr), shape=(scorer.n_users, len(grown)))
    return replace(scorer, met=wider, weights=grown)
