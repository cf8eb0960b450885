"""EASE: the closed form, in place, against the definition and against float64."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from divmf.models import ease as module
from divmf.models.ease import bytes_for, check_memory, ease, gram
from divmf.models.scorer import ItemItem


def some_matrix(n_users: int, n_items: int, seed: int, weighted: bool = False) -> sparse.csr_array:
    rng = np.random.default_rng(seed)
    table = (rng.random((n_users, n_items)) < 0.3).astype(np.float32)
    return sparse.csr_array(table * rng.uniform(0.5, 3, table.shape).astype(np.float32) if weighted else table)


def by_definition(met: np.ndarray, l2: float) -> np.ndarray:
    """Item by item: ridge regression of its column on all the others."""
    n_items = met.shape[1]
    weights = np.zeros((n_items, n_items))
    for item in range(n_items):
        others = [other for other in range(n_items) if other != item]
        x = met[:, others].astype(np.float64)
        weights[others, item] = np.linalg.solve(x.T @ x + l2 * np.eye(n_items - 1), x.T @ met[:, item])
    return weights


def test_two_items_worked_by_hand() -> None:
    # both users met both: XᵀX is all 2, so the regression of one item on the other is 2 / (2 + λ)
    met = sparse.csr_array(np.ones((2, 2), dtype=np.float32))
    np.testing.assert_allclose(ease(met, 3.0).weights, [[0, 0.4], [0.4, 0]], rtol=1e-6)


@settings(deadline=None, max_examples=25)
@given(
    n_users=st.integers(1, 30), n_items=st.integers(1, 80), seed=st.integers(0, 99), weighted=st.booleans(),
    l2=st.sampled_from([0.5, 5.0, 300.0]),
)  # fmt: skip
def test_every_column_is_a_ridge_regression_on_the_other_items(
    n_users: int, n_items: int, seed: int, weighted: bool, l2: float
) -> None:
    met = some_matrix(n_users, n_items, seed, weighted)
    found = ease(met, l2)
    # float32: the products are exact for 0/1 data, the inverse is not
    np.testing.assert_allclose(found.weights, by_definition(met.toarray(), l2), atol=2e-5)
    assert not np.diagonal(found.weights).any()


def test_a_lambda_far_below_the_products_is_solved_in_float64() -> None:
    met = some_matrix(400, 60, seed=1)
    met.data[:] = 30.0
    l2 = 0.01
    np.testing.assert_allclose(ease(met, l2).weights, by_definition(met.toarray(), l2), rtol=1e-4, atol=1e-6)


def test_one_gram_matrix_serves_several_lambdas_and_is_left_as_it_is() -> None:
    met = some_matrix(50, 20, seed=2)
    between = gram(met)
    before = between.copy()
    for l2 in (1.0, 10.0):
        np.testing.assert_array_equal(ease(met, l2, between).weights, ease(met, l2).weights)
    np.testing.assert_array_equal(between, before)
    np.testing.assert_array_equal(between, np.tril((met.T @ met).toarray()))


def test_scores_are_what_was_met_times_the_weights() -> None:
    met = some_matrix(40, 700, seed=3, weighted=True)  # more columns than are taken at a time
    found = ease(met, 20.0)
    assert isinstance(found, ItemItem)
    assert (found.n_users, found.n_items) == (40, 700)
    users = np.array([7, 0, 39, 7])
    np.testing.assert_allclose(found.scores(users), met.toarray()[users] @ found.weights, atol=1e-5)


def test_a_user_who_met_nothing_has_zeros() -> None:
    met = sparse.csr_array(np.array([[1, 1, 0], [0, 0, 0]], dtype=np.float32))
    np.testing.assert_array_equal(ease(met, 1.0).scores(np.array([1])), np.zeros((1, 3)))


@pytest.mark.parametrize("l2", [0.0, -1.0, float("nan"), float("inf")])
def test_a_lambda_that_cannot_be_is_refused(l2: float) -> None:
    with pytest.raises(ValueError, match=r"l2=.* choose a number above 0"):
        ease(some_matrix(3, 3, seed=0), l2)


def test_too_many_items_for_the_memory_left_is_said_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "memory_left", lambda: bytes_for(1000))
    check_memory(1000)
    with pytest.raises(MemoryError, match=r"1,001 items needs .* room for about 1,000 items; choose another model"):
        check_memory(1001)
    with pytest.raises(MemoryError, match="EASE of"):
        gram(sparse.csr_array((3, 5000), dtype=np.float32))


def test_what_memory_is_left_is_known_here_or_not_asked_for() -> None:
    left = module.memory_left()
    assert left is None or left > 2**20
