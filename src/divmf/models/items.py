"""Items like others, and items that were not in training.

    numbers, likeness = similar_items(scorer, np.array([3]), k=10)
    more = with_items(chosen, [np.array([3, 7])])                 # a new item, like items 3 and 7
    more = with_items(chosen, [None], met=who_met_it, known=train.matrix)     # from a few interactions

A new item's number follows those of the catalog. From its interactions it gets

    ials        the least squares problem of the item, one solve
    ease        the weights that training would have given it: with P = (XᵀX + λI)⁻¹, to it b = P·Xᵀx, and from it
                b_j / (s·P_jj + b_j²), s = xᵀx + λ − xᵀX·b; P is found from the weights themselves
    softmax     Σ_u n_u log(Z_u + exp u·v) − Σ_met u·v + ½ λ_i ‖v‖²: convex, by Newton's method
    bpr, mse    the mean of the NEAREST items most like it by the cosine of who met them, each counted by it

The model of all other items stays as it is.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import sparse

from divmf.engine.arrays import Array
from divmf.models.fold_in import Fitted
from divmf.models.ials import user_vectors
from divmf.models.newton import TOLERANCE, minimum
from divmf.models.scorer import Factors, ItemItem, Scorer
from divmf.ranking.retrieval import blocks

NEAREST = 20  # items that a new one is the mean of, where its interactions are all that is known


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


def with_items(
    model: Fitted,
    similar: Sequence[Array | None],
    met: sparse.csr_array | None = None,
    known: sparse.csr_array | None = None,
) -> Scorer:
    """The model with new items: each the mean of similar ones, or what the users who met it say.

    similar   for each new item the numbers of items that it is like: a group, or some that were named; None if its
              interactions are to say
    met       (n_new, n_users): who met each new item, 0/1 or by weight; read where similar has None
    known     (n_users, n_items): what the model was trained on; read where similar has None
    """
    scorer, n_items = model.scorer, model.scorer.n_items
    for number, alike in enumerate(similar):
        if alike is not None and (not len(alike) or np.min(alike) < 0 or np.max(alike) >= n_items):
            raise ValueError(f"similar[{number}] must name items by numbers from 0 to {n_items - 1:,}; it is {alike}")
        if alike is None and (met is None or known is None or met.indptr[number] == met.indptr[number + 1]):
            raise ValueError(
                f"similar[{number}] is not given, and nobody has met the item; name items that it is like, or give met"
                " and known, its interactions and those of the training"
            )
    if isinstance(scorer, Factors):
        return with_vectors(model, scorer, similar, met, known)
    if isinstance(scorer, ItemItem):
        return with_weights(model, scorer, similar, met)
    raise ValueError(f"a {type(scorer).__name__} cannot take in new items; give vectors, or weights between items")


def with_vectors(
    model: Fitted, scorer: Factors, similar: Sequence[Array | None], met: sparse.csr_array | None,
    known: sparse.csr_array | None,
) -> Factors:  # fmt: skip
    """New items' vectors beside those there are."""
    items, bias = scorer.items_t.T, scorer.bias
    vectors, offsets = np.zeros((len(similar), items.shape[1]), dtype=np.float32), np.zeros(len(similar))
    for number, alike in enumerate(similar):
        if alike is not None:
            vectors[number], offsets[number] = items[alike].mean(axis=0), bias[alike].mean()
    if solved := [number for number, alike in enumerate(similar) if alike is None]:
        assert met is not None
        assert known is not None
        theirs = met[solved].tocsr()
        if model.name == "ials":
            found = user_vectors(scorer.users, theirs, model.settings["alpha"], model.settings["l2"])  # the sides alike
        elif model.name == "softmax":
            found = softmax_items(model, scorer, theirs, known)
        else:
            shares = nearest(theirs, known)
            found, offsets[solved] = shares @ items, shares @ bias
        vectors[solved] = found
    return Factors.from_arrays(scorer.users, np.vstack([items, vectors]), np.append(bias, offsets))


def softmax_items(model: Fitted, scorer: Factors, met: sparse.csr_array, known: sparse.csr_array) -> Array:
    """The vectors of items met by such users under the softmax loss, given the users' and the other items'."""
    users, others = scorer.users.astype(np.float64), np.empty(scorer.n_users)  # log Σ_i exp(u·v_i + b_i)
    for rows in blocks(scorer.n_users, scorer.n_items):
        scores = scorer.scores(np.arange(rows.start, rows.stop))
        highest = scores.max(axis=1)
        others[rows] = highest + np.log(np.exp(scores - highest[:, None]).sum(axis=1))
    counts = known.sum(axis=1, dtype=np.float64)
    mean = float(counts.sum()) / known.shape[1]
    power = model.settings.get("l2_power", 0.5)
    found = np.empty((met.shape[0], users.shape[1]), dtype=np.float32)
    for number in range(met.shape[0]):
        own = met[[number]].toarray().astype(np.float64)[0]
        l2 = model.settings["l2"] * ((own.sum() + 1) / (mean + 1)) ** power
        found[number] = softmax_item(users, others, own, counts + own, l2)
    return found


def softmax_item(users: Array, others: Array, own: Array, counts: Array, l2: float) -> Array:
    """min Σ_u n_u log(Z_u + exp u·v) − Σ_u own_u u·v + ½ λ ‖v‖², by Newton's method.  (dim,)

    others (n_users,): log Z_u; own (n_users,): who met the item, by weight; counts (n_users,): n_u, by weight, too
    """

    def loss(vector: Array) -> float:
        scores = users @ vector
        return float(counts @ np.logaddexp(others, scores) - own @ scores + 0.5 * l2 * vector @ vector)

    def step_from(vector: Array) -> Array | None:
        scores = users @ vector
        shares = np.exp(scores - np.logaddexp(others, scores))
        gradient = users.T @ (counts * shares - own) + l2 * vector
        if np.linalg.norm(gradient) <= TOLERANCE * (np.linalg.norm(users.T @ own) + 1e-12):
            return None
        curvature = (users * (counts * shares * (1 - shares))[:, None]).T @ users + l2 * np.eye(len(vector))
        return np.asarray(np.linalg.lstsq(curvature, -gradient, rcond=None)[0])

    return minimum(np.zeros(users.shape[1]), loss, step_from)


def nearest(met: sparse.csr_array, known: sparse.csr_array) -> Array:
    """How much each item counts in the mean that a new one is: by cosine, the nearest alone.  (n_new, n_items)

    What was met counts alike, whatever its weight, as in the training of such models.
    """
    theirs, every = (
        sparse.csr_array(((each.data > 0).astype(np.float64), each.indices, each.indptr), shape=each.shape)
        for each in (met, known)
    )
    both = np.asarray((theirs @ every).toarray())
    likeness = both / np.sqrt(np.maximum(np.bincount(known.indices, minlength=known.shape[1]), 1))
    if both.shape[1] > NEAREST:
        least = -np.partition(-likeness, NEAREST - 1, axis=1)[:, NEAREST - 1 : NEAREST]
        likeness[likeness < least] = 0
    total = likeness.sum(axis=1, keepdims=True)
    return np.asarray(np.where(total > 0, likeness / np.maximum(total, 1e-30), 1 / likeness.shape[1]))


def with_weights(
    model: Fitted, scorer: ItemItem, similar: Sequence[Array | None], met: sparse.csr_array | None
) -> ItemItem:
    """New items' weights beside those there are: the means of what leads to the similar ones and what they lead to."""
    weights = scorer.weights if isinstance(scorer.weights, np.ndarray) else scorer.weights.toarray()
    n_items = len(weights)
    grown = np.zeros((n_items + len(similar),) * 2, dtype=np.float32)
    grown[:n_items, :n_items] = weights
    solved = [number for number, alike in enumerate(similar) if alike is None]
    if solved and "l2" not in model.settings:
        raise ValueError("weights between items take in a new one from its interactions where λ (l2) is known; name"
                         " items that it is like")  # fmt: skip
    inverse = inverse_diagonal(scorer, model.settings["l2"]) if solved else np.zeros(0)
    for number, alike in enumerate(similar):
        if alike is None:
            assert met is not None
            to, back = ease_item(scorer, weights, inverse, met[[number]], model.settings["l2"])
        else:
            to, back = weights[:, alike].mean(axis=1), weights[alike].mean(axis=0)
        grown[:n_items, n_items + number], grown[n_items + number, :n_items] = to, back
    whole = sparse.csr_array(
        (scorer.met.data, scorer.met.indices, scorer.met.indptr), shape=(scorer.n_users, len(grown))
    )
    return replace(scorer, met=whole, weights=grown)


def inverse_diagonal(scorer: ItemItem, l2: float) -> Array:
    """P_jj of P = (XᵀX + λI)⁻¹, from the weights: 1 / (λ + Σ_(u met j) x_uj·(x_uj − score_uj)).  (n_items,) float64"""
    left = np.zeros(scorer.n_items)
    for rows in blocks(scorer.n_users, scorer.n_items):
        users = np.arange(rows.start, rows.stop)
        own, scores = scorer.met[users].tocoo(), scorer.scores(users)
        people, items = own.coords
        np.add.at(left, items, own.data * (own.data - scores[people, items]))
    return np.asarray(1 / (l2 + np.maximum(left, 0)))


def ease_item(
    scorer: ItemItem, weights: Array, inverse: Array, met: sparse.csr_array, l2: float
) -> tuple[Array, Array]:
    """The weights to a new item and from it that EASE of all items together would have.  (n_items,) both"""
    between = np.asarray((met @ scorer.met).toarray(), dtype=np.float64)[0]  # Xᵀx
    scaled = inverse * between
    to = scaled - weights @ scaled  # P = (I − B)·diag P
    left = float(met.data @ met.data) + l2 - float(between @ to)
    return to, to / (left * inverse + to**2)
