"""People who were not in training get what training would have given them, the rest of the model as it is."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, sparse

from divmf.models.auto import Chosen
from divmf.models.ease import ease
from divmf.models.fold_in import decay, fold_in, pairwise_vector, softmax_vectors
from divmf.models.ials import ials
from divmf.models.scorer import Blocks, Factors, ItemItem
from divmf.models.stored import tensors

RNG = np.random.default_rng(0)
N_ITEMS, DIM = 40, 6


def some_histories(n_people: int, seed: int) -> sparse.csr_array:
    return sparse.csr_array((np.random.default_rng(seed).random((n_people, N_ITEMS)) < 0.2).astype(np.float32))


def some_factors(bias: bool = True) -> Factors:
    rng = np.random.default_rng(5)
    return Factors.from_arrays(
        rng.normal(size=(9, DIM)), rng.normal(size=(N_ITEMS, DIM)), rng.normal(size=N_ITEMS) if bias else None
    )


def minimised(loss: Callable[[np.ndarray], float], dim: int) -> np.ndarray:
    """By scipy, from zero, with numeric gradients: slow and independent."""
    found = optimize.minimize(loss, np.zeros(dim), method="BFGS", options={"gtol": 1e-7})
    return np.asarray(found.x)


def test_ease_of_the_people_of_the_training_is_what_they_had() -> None:
    met = some_histories(30, seed=1)
    trained = ease(met, 5.0)
    people = fold_in(Chosen(trained, "ease", {"l2": 5.0}, ()), met[[3, 7]])
    np.testing.assert_array_equal(people.scores(np.arange(2)), trained.scores(np.array([3, 7])))


def test_ials_of_the_people_of_the_training_is_what_they_had() -> None:
    met = some_histories(30, seed=2)
    trained = ials(met, 8, alpha=0.3, l2=0.01)
    people = fold_in(Chosen(trained, "ials", {"alpha": 0.3, "l2": 0.01}, ()), met[[3, 7]])
    assert isinstance(people, Factors)
    np.testing.assert_allclose(people.users, trained.users[[3, 7]], atol=1e-5)  # solved from zero, not from before


@pytest.mark.parametrize("l2", [0.05, 3.0, 100.0])
def test_softmax_finds_the_minimum_that_scipy_finds(l2: float) -> None:
    factors, met = some_factors(), some_histories(12, seed=3)
    items, bias = factors.items_t.T.astype(np.float64), factors.bias.astype(np.float64)
    people = fold_in(Chosen(factors, "softmax", {"l2": l2, "pairs": 7.0}, ()), met)
    assert isinstance(people, Factors)
    for row, user in zip(met.toarray(), people.users, strict=True):
        n = row.sum()
        own = l2 * ((n + 1) / 8.0) ** 0.5

        def loss(u: np.ndarray, row: np.ndarray = row, n: float = n, own: float = own) -> float:
            scores = items @ u + bias
            return float(n * np.logaddexp.reduce(scores) - row @ scores + 0.5 * own * u @ u)

        best = minimised(loss, DIM)
        assert loss(user) <= loss(best) + 1e-4 * abs(loss(best))
        if l2 >= 3:
            np.testing.assert_allclose(user, best, atol=5e-3)


def test_a_user_by_softmax_does_not_depend_on_the_others_beside() -> None:
    factors, met = some_factors(), some_histories(50, seed=4)
    l2 = np.full(50, 2.0)
    whole, alone = softmax_vectors(factors, met, l2), softmax_vectors(factors, met[[20]], l2[:1])
    np.testing.assert_allclose(alone[0], whole[20], atol=1e-3)


@pytest.mark.parametrize(
    ("name", "settings", "apart"),
    [("ials", {"alpha": 0.3, "l2": 0.01}, 0.0), ("softmax", {"l2": 2.0, "pairs": 7.0}, 1e-3)],
)
def test_people_one_by_one_from_many_threads_are_those_of_a_batch(
    name: str, settings: dict[str, float], apart: float
) -> None:
    met, model = some_histories(40, seed=4), Chosen(some_factors(), name, settings, ())
    with ThreadPoolExecutor(8) as pool:  # what is kept with the vectors is first made by several of them at once
        alone = list(pool.map(lambda person: fold_in(model, met[[person]]).scores(np.array([0]))[0], range(40)))
    whole = fold_in(Chosen(some_factors(), name, settings, ()), met)
    assert isinstance(whole, Factors)
    scores = np.vstack([whole.scores(np.array([person]))[0] for person in range(40)])
    np.testing.assert_allclose(alone, scores, rtol=0, atol=apart)


def test_what_is_kept_with_vectors_is_of_these_alone() -> None:
    factors = some_factors()
    items = factors.items_t.T.astype(np.float64)
    np.testing.assert_allclose(factors.gram, items.T @ items, rtol=1e-5)
    assert factors.gram is factors.gram
    assert factors.mean is factors.mean
    shares = np.exp(items @ factors.mean.vector + factors.bias)
    shares /= shares.sum()
    wanted = (items * shares[:, None]).T @ items - np.outer(shares @ items, shares @ items)
    _, axes, curvature = factors.mean
    np.testing.assert_allclose((axes * curvature) @ axes.T, wanted, atol=1e-5)
    longer = replace(factors, items_t=2 * factors.items_t)
    np.testing.assert_allclose(longer.gram, 4 * factors.gram)
    assert not np.allclose(longer.mean.curvature, curvature)
    assert set(tensors(factors)) == {"users", "items", "bias"}


def test_bpr_finds_the_minimum_that_scipy_finds() -> None:
    rng = np.random.default_rng(6)
    own, others = rng.normal(size=(3, 4)), rng.normal(size=(10, 4))
    own_bias, others_bias = rng.normal(size=3), rng.normal(size=10)

    def loss(u: np.ndarray) -> float:
        total = 0.0
        for v, b in zip(own, own_bias, strict=True):
            for w, c in zip(others, others_bias, strict=True):
                total += np.logaddexp(0, (u @ w + c) - (u @ v + b)) / 10
        return float(total + 0.5 * 0.7 * u @ u)

    found = pairwise_vector(own, own_bias, others, others_bias, 0.7)
    np.testing.assert_allclose(found, minimised(loss, 4), atol=1e-4)


def test_people_by_bpr_have_what_they_met_above_what_they_did_not() -> None:
    factors, met = some_factors(bias=False), some_histories(20, seed=7)
    people = fold_in(Chosen(factors, "bpr", {"l2": 0.1}, ()), met)
    scores, rows = people.scores(np.arange(20)), met.toarray() > 0
    above = np.mean([(row[own][:, None] > row[~own][None]).mean() for row, own in zip(scores, rows, strict=True)])
    assert above > 0.75


@pytest.mark.parametrize(
    ("name", "settings"),
    [("ials", {"alpha": 0.3, "l2": 0.01}), ("softmax", {"l2": 2.0, "pairs": 7.0}), ("bpr", {"l2": 1.0})],
)
def test_an_empty_history_leaves_nothing_but_the_bias(name: str, settings: dict[str, float]) -> None:
    factors = some_factors()
    people = fold_in(Chosen(factors, name, settings, ()), sparse.csr_array((2, N_ITEMS), dtype=np.float32))
    np.testing.assert_allclose(people.scores(np.arange(2)), np.tile(factors.bias, (2, 1)), atol=1e-3)


def test_an_item_met_twice_is_met() -> None:
    twice = sparse.csr_array((np.ones(3, np.float32), np.array([4, 4, 9]), np.array([0, 3])), shape=(1, N_ITEMS))
    once = sparse.csr_array((np.ones(2, np.float32), np.array([4, 9]), np.array([0, 2])), shape=(1, N_ITEMS))
    model = Chosen(some_factors(), "ials", {"alpha": 0.3, "l2": 0.01}, ())
    np.testing.assert_array_equal(*(fold_in(model, each).scores(np.array([0])) for each in (twice, once)))


def test_what_cannot_be_folded_in_is_refused() -> None:
    met = some_histories(2, seed=8)
    with pytest.raises(ValueError, match="histories have 39 columns; give one for each of 40 items"):
        fold_in(Chosen(some_factors(), "ials", {"alpha": 0.3, "l2": 0.01}, ()), met[:, :39])
    with pytest.raises(ValueError, match="not negative; the smallest is -1"):
        fold_in(Chosen(some_factors(), "ials", {"alpha": 0.3, "l2": 0.01}, ()), -met)
    with pytest.raises(ValueError, match="a model 'svd'; choose ease, ials, softmax, bpr or mse"):
        fold_in(Chosen(some_factors(), "svd", {}, ()), met)
    blocks = Blocks(lambda users: np.zeros((len(users), N_ITEMS)), 3, N_ITEMS)
    with pytest.raises(ValueError, match="a Blocks cannot take in new people"):
        fold_in(Chosen(blocks, "ials", {}, ()), met)


def test_weights_between_items_need_no_name() -> None:
    weights = RNG.random((N_ITEMS, N_ITEMS)).astype(np.float32)
    met = some_histories(3, seed=9)
    people = fold_in(Chosen(ItemItem(met, weights), "neighbours", {}, ()), met)
    np.testing.assert_allclose(people.scores(np.arange(3)), met.toarray() @ weights, rtol=1e-5)


def test_mse_finds_the_minimum_that_scipy_finds() -> None:
    factors, met = some_factors(), some_histories(6, seed=8)
    items, bias = factors.items_t.T.astype(np.float64), factors.bias.astype(np.float64)
    settings = {"l2": 0.3, "negatives": 4, "steps": 5, "each": 4}
    people = fold_in(Chosen(factors, "mse", settings, ()), met)
    assert isinstance(people, Factors)
    for row, user in zip(met.toarray(), people.users, strict=True):

        def loss(u: np.ndarray, own: np.ndarray = row > 0) -> float:
            scores = items @ u + bias
            unmet = 4 * own.sum() * (scores[~own] ** 2).mean()
            return float(((1 - scores[own]) ** 2).sum() + unmet + 0.5 * 0.3 * 5 * u @ u)

        np.testing.assert_allclose(user, minimised(loss, DIM), atol=1e-4)


def test_l2_of_a_step_counts_as_often_as_a_user_has_part_in_one() -> None:
    every = {"l2": 0.1, "negatives": 4, "steps": 30, "each": 4}
    np.testing.assert_allclose(decay(every, np.array([1, 7])), [3.0, 3.0])
    # where L2 comes with the rows of a batch: once for each item met, with all that is drawn for it, or for each sample
    np.testing.assert_allclose(decay(every | {"steps": 0}, np.array([1, 7])), [0.1, 0.7])
    np.testing.assert_allclose(decay(every | {"steps": 0, "each": 1}, np.array([1, 7])), [0.4, 2.8])
