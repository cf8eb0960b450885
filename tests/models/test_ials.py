"""iALS: each row solves its own least squares problem, and the whole goes down."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from divmf.models.ials import Side, gram_of, ials, user_vectors


def some_matrix(n_users: int, n_items: int, seed: int, weighted: bool = False) -> sparse.csr_array:
    rng = np.random.default_rng(seed)
    table = (rng.random((n_users, n_items)) < 0.3).astype(np.float32)
    return sparse.csr_array(table * rng.uniform(0.5, 3, table.shape).astype(np.float32) if weighted else table)


def solved_densely(items: np.ndarray, weights: np.ndarray, alpha: float, l2: float) -> np.ndarray:
    """The normal equations of one user, written out over all items."""
    v = items.astype(np.float64)
    left = alpha * v.T @ v + (v * weights[:, None]).T @ v + l2 * (weights.sum() + alpha * len(v)) * np.eye(v.shape[1])
    return np.linalg.solve(left, v.T @ weights)


def loss(users: np.ndarray, items: np.ndarray, weights: np.ndarray, alpha: float, l2: float) -> float:
    """The objective of the module's head, cell by cell."""
    users, items = users.astype(np.float64), items.astype(np.float64)
    scores = users @ items.T
    by_user, by_item = weights.sum(axis=1) + alpha * len(items), weights.sum(axis=0) + alpha * len(users)
    regularised = l2 * (by_user @ (users**2).sum(axis=1) + by_item @ (items**2).sum(axis=1))
    return float((weights * (1 - scores) ** 2).sum() + alpha * (scores**2).sum() + regularised)


def test_one_dimension_worked_by_hand() -> None:
    # one user met the first of two items, v = (2, 1): (α·5 + 4 + λ(1 + 2α)) u = 2 with α = 1, λ = 1 is 12 u = 2
    met = sparse.csr_array(np.array([[1, 0]], dtype=np.float32))
    items = np.array([[2], [1]], dtype=np.float32)
    np.testing.assert_allclose(user_vectors(items, met, 1.0, 1.0), [[1 / 6]], rtol=1e-6)


@settings(deadline=None, max_examples=25)
@given(
    n_users=st.integers(1, 40), n_items=st.integers(1, 40), dim=st.integers(1, 40), seed=st.integers(0, 99),
    weighted=st.booleans(),
)  # fmt: skip
def test_every_user_solves_the_normal_equations(
    n_users: int, n_items: int, dim: int, seed: int, weighted: bool
) -> None:
    met = some_matrix(n_users, n_items, seed, weighted)
    found = ials(met, dim, alpha=0.3, l2=0.02, epochs=2, seed=seed)
    wanted = [solved_densely(found.items_t.T, row, 0.3, 0.02) for row in met.toarray()]
    np.testing.assert_allclose(found.users, wanted, atol=2e-5)  # float32, and as many conjugate gradients as it takes


@pytest.mark.parametrize("weighted", [False, True])
def test_the_objective_falls_from_epoch_to_epoch_to_where_its_gradient_is_zero(weighted: bool) -> None:
    met = some_matrix(30, 20, seed=4, weighted=weighted)
    weights = met.toarray().astype(np.float64)
    losses = []
    for epochs in (1, 2, 4, 8, 400):
        found = ials(met, 5, alpha=0.4, l2=0.01, epochs=epochs)
        losses.append(loss(found.users, found.items_t.T, weights, 0.4, 0.01))
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > 1.01 * losses[-1]
    # in the end each item, too, solves its equations
    wanted = [solved_densely(found.users, column, 0.4, 0.01) for column in met.T.toarray()]
    np.testing.assert_allclose(found.items_t.T, wanted, atol=1e-3)


def test_a_user_who_met_nothing_has_a_zero_vector() -> None:
    met = sparse.csr_array(np.array([[1, 1, 0], [0, 0, 0]], dtype=np.float32))
    assert not ials(met, 4).users[1].any()


def test_a_weight_of_two_is_the_same_as_meeting_twice_as_much() -> None:
    met = some_matrix(20, 15, seed=5)
    items = np.random.default_rng(5).normal(size=(15, 3)).astype(np.float32)
    doubled = met.copy()
    doubled.data *= 2
    one, two = user_vectors(items, met, 0.25, 0.1), user_vectors(items, doubled, 0.5, 0.1)
    np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-6)


def test_it_goes_on_from_vectors_of_fewer_dimensions_users_and_items() -> None:
    met = some_matrix(40, 30, seed=6)
    small = ials(met[:30, :25], 3, epochs=5)
    grown = ials(met, 6, epochs=0, start=small)
    np.testing.assert_array_equal(grown.items_t[:3, :25], small.items_t)
    assert np.abs(grown.items_t[3:]).max() < 0.2
    warm, cold = (ials(met, 6, epochs=1, start=start) for start in (small, None))
    weights = met.toarray()
    reached = [loss(each.users, each.items_t.T, weights, 0.5, 0.005) for each in (warm, cold)]
    assert reached[0] < reached[1]
    with pytest.raises(ValueError, match="start has 3 dimensions for 30 users; it may have at most 2"):
        ials(met, 2, start=small)


def test_rows_do_not_depend_on_which_others_are_solved_beside_them() -> None:
    met = some_matrix(33, 20, seed=7)
    items = np.random.default_rng(7).normal(size=(20, 8)).astype(np.float32)
    whole = user_vectors(items, met, 0.5, 0.01)
    np.testing.assert_array_equal(user_vectors(items, met[[5, 30]], 0.5, 0.01), whole[[5, 30]])


def test_the_products_of_vectors_are_those_of_all_parts() -> None:
    vectors = np.random.default_rng(8).normal(size=(1000, 7)).astype(np.float32)
    np.testing.assert_allclose(gram_of(vectors), vectors.T.astype(np.float64) @ vectors, rtol=1e-4, atol=1e-3)


def test_the_vectors_are_the_same_for_any_number_of_threads() -> None:
    code = (
        "import numpy as np; from scipy import sparse; from divmf.models.ials import ials;"
        "met = sparse.csr_array((np.random.default_rng(0).random((300, 200)) < 0.1).astype(np.float32));"
        "import hashlib; found = ials(met, 16, epochs=3);"
        "print(hashlib.sha256(found.users.tobytes() + found.items_t.tobytes()).hexdigest())"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={**os.environ, "DIVMF_THREADS": str(threads)},
        ).stdout
        for threads in (1, 2)
    ]  # fmt: skip
    assert printed[0] == printed[1] != ""


def test_more_steps_bring_a_row_closer() -> None:
    met = some_matrix(10, 40, seed=9)
    items = np.random.default_rng(9).normal(size=(40, 12)).astype(np.float32)
    wanted = np.array([solved_densely(items, row, 0.5, 0.01) for row in met.toarray()])
    errors = []
    for steps in (1, 2, 4, 12):
        users = np.zeros((10, 12), dtype=np.float32)
        Side.of(met, 0.5, 0.01).solve(users, items, 0.5, steps)
        errors.append(np.abs(users - wanted).max())
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-4


@pytest.mark.parametrize(
    ("given", "said"),
    [({"alpha": 0.0}, "alpha=0.0 must be"), ({"l2": float("nan")}, "l2=nan must be"), ({"dim": 0}, "dim=0")],
)
def test_settings_without_meaning_are_refused(given: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ials(some_matrix(3, 3, seed=0), **given)  # type: ignore[arg-type]


def test_negative_weights_are_refused() -> None:
    met = sparse.csr_array(np.array([[1, -2]], dtype=np.float32))
    with pytest.raises(ValueError, match="not negative; the smallest is -2"):
        ials(met, 2)
