"""Similar items, and items that were not in training."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import logsumexp

from divmf.models.auto import Chosen
from divmf.models.ease import ease
from divmf.models.ials import ials
from divmf.models.items import similar_items, with_items
from divmf.models.scorer import Blocks, Factors, ItemItem

FACTORS = Factors.from_arrays([[1.0, 0.0]], [[1, 0], [0, 2], [3, 3], [-1, 0]], [0.0, 1.0, 2.0, 3.0])
MET = sparse.csr_array(np.array([[1, 0, 1], [0, 1, 0]], dtype=np.float32))
WEIGHTS = np.array([[0, 1, 2], [3, 0, 4], [5, 6, 0]], dtype=np.float32)


def test_likeness_of_vectors_is_their_cosine_whatever_their_length_and_bias() -> None:
    numbers, likeness = similar_items(FACTORS, np.array([0, 1]), k=3)
    np.testing.assert_array_equal(numbers, [[2, 1, 3], [2, 0, 3]])
    np.testing.assert_allclose(likeness, [[0.5**0.5, 0, -1], [0.5**0.5, 0, 0]], atol=1e-6)


@pytest.mark.parametrize("weights", [WEIGHTS, sparse.csr_array(WEIGHTS)])
def test_likeness_by_weights_is_what_meeting_the_item_adds(weights: object) -> None:
    numbers, likeness = similar_items(ItemItem(MET, weights), np.array([1]), k=2)
    np.testing.assert_array_equal(numbers, [[2, 0]])
    np.testing.assert_array_equal(likeness, [[4, 3]])
    assert WEIGHTS[1, 1] == 0  # the table itself is not written to


def test_a_new_item_like_two_others_scores_between_them() -> None:
    grown = with_items(Chosen(FACTORS, "softmax", {}, ()), [np.array([0, 1])])
    assert grown.n_items == 5
    scores = grown.scores(np.array([0]))[0]
    np.testing.assert_allclose(scores[:4], FACTORS.scores(np.array([0]))[0])
    assert scores[4] == pytest.approx((scores[0] + scores[1]) / 2)


def test_a_new_item_by_weights_is_reached_as_the_similar_ones_are() -> None:
    grown = with_items(Chosen(ItemItem(MET, WEIGHTS), "ease", {}, ()), [np.array([0, 1])])
    scores, before = grown.scores(np.arange(2)), ItemItem(MET, WEIGHTS).scores(np.arange(2))
    np.testing.assert_allclose(scores[:, :3], before)
    np.testing.assert_allclose(scores[:, 3], before[:, :2].mean(axis=1))


def data(weighted: bool) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Interactions of 60 users with 30 items, and with one more: 0/1, or of weights that differ tenfold."""
    rng = np.random.default_rng(0)
    whole = (rng.random((60, 31)) < 0.3).astype(np.float32)
    if weighted:
        whole *= rng.uniform(0.2, 2, whole.shape).astype(np.float32)
    return sparse.csr_array(whole[:, :30]), sparse.csr_array(whole[:, 30:].T)


@pytest.mark.parametrize("weighted", [False, True])
def test_ials_gives_an_item_met_like_another_that_others_vector(weighted: bool) -> None:
    met, _ = data(weighted)
    trained = ials(met, 5, alpha=0.3, l2=0.02, epochs=500)
    grown = with_items(Chosen(trained, "ials", {"alpha": 0.3, "l2": 0.02}, ()), [None], met.T.tocsr()[[4]], met)
    assert isinstance(grown, Factors)
    np.testing.assert_allclose(grown.items_t[:, 30], trained.items_t[:, 4], atol=2e-3)  # where training has converged


@pytest.mark.parametrize("weighted", [False, True])
def test_ease_gives_a_new_item_the_weights_that_training_with_it_would(weighted: bool) -> None:
    met, new = data(weighted)
    grown = with_items(Chosen(ease(met, 7.0), "ease", {"l2": 7.0}, ()), [None], new, met)
    wanted = ease(sparse.csr_array(sparse.hstack([met, new.T])), 7.0).weights
    assert isinstance(grown, ItemItem)
    np.testing.assert_allclose(grown.weights[:, 30], wanted[:, 30], atol=2e-5)
    np.testing.assert_allclose(grown.weights[30], wanted[30], atol=2e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_softmax_gives_a_new_item_the_vector_with_the_least_loss(weighted: bool) -> None:
    (met, new), rng = data(weighted), np.random.default_rng(1)
    users, items = rng.normal(size=(60, 3)), rng.normal(size=(30, 3))
    model = Chosen(Factors.from_arrays(users, items), "softmax", {"l2": 2.0, "l2_power": 0.5}, ())
    grown = with_items(model, [None], new, met)
    own = new.toarray()[0]
    l2 = 2.0 * ((own.sum() + 1) / (met.sum() / 30 + 1)) ** 0.5

    def loss(vector: np.ndarray) -> float:
        scores = np.column_stack([users @ items.T, users @ vector])
        counts = met.toarray().sum(axis=1) + own
        return float(counts @ logsumexp(scores, axis=1) - own @ scores[:, -1] + 0.5 * l2 * vector @ vector)

    assert isinstance(grown, Factors)
    np.testing.assert_allclose(grown.items_t[:, 30], minimize(loss, np.zeros(3)).x, atol=2e-3)


@pytest.mark.parametrize("name", ["bpr", "mse"])
def test_by_bpr_a_new_item_is_the_mean_of_those_that_the_same_users_met_by_cosine(name: str) -> None:
    known = sparse.csr_array(np.array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1]], dtype=np.float32))
    model = Chosen(Factors.from_arrays(np.ones((4, 2)), FACTORS.items_t.T, FACTORS.bias), name, {}, ())
    new = sparse.csr_array(np.array([[0.5, 0, 0, 2]], dtype=np.float32))  # users 0 and 3, whatever the weight
    grown = with_items(model, [None], new, known)
    assert isinstance(grown, Factors)
    likeness = np.array([2 / 3**0.5, 1, 0, 1])
    np.testing.assert_allclose(grown.items_t[:, 4], likeness @ FACTORS.items_t.T / likeness.sum(), rtol=1e-6)
    assert grown.bias[4] == pytest.approx((1.0 + 3.0) / likeness.sum())


def test_what_cannot_be_is_refused() -> None:
    model = Chosen(FACTORS, "softmax", {}, ())
    with pytest.raises(ValueError, match="nobody has met the item"):
        with_items(model, [None])
    with pytest.raises(ValueError, match=r"similar\[0\] must name items by numbers from 0 to 3"):
        with_items(model, [np.array([4])])
    with pytest.raises(ValueError, match="k=4 must be at least 1 and below the 4 items"):
        similar_items(FACTORS, np.array([0]), 4)
    with pytest.raises(ValueError, match="items must be numbers from 0 to 3"):
        similar_items(FACTORS, np.array([9]), 1)
    blocks = Blocks(lambda users: np.zeros((len(users), 3)), 2, 3)
    with pytest.raises(ValueError, match="a Blocks does not say how like items are"):
        similar_items(blocks, np.array([0]), 1)
    with pytest.raises(ValueError, match="a Blocks cannot take in new items"):
        with_items(Chosen(blocks, "ease", {}, ()), [np.array([0])])
