"""Similar items, and items that were not in training."""

import numpy as np
import pytest
from scipy import sparse

from divmf.models.auto import Chosen
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


def test_ials_gives_an_item_met_like_another_that_others_vector() -> None:
    rng = np.random.default_rng(0)
    met = sparse.csr_array((rng.random((60, 30)) < 0.3).astype(np.float32))
    trained = ials(met, 5, alpha=0.3, l2=0.02, epochs=500)
    grown = with_items(Chosen(trained, "ials", {"alpha": 0.3, "l2": 0.02}, ()), [None], met.T.tocsr()[[4]])
    assert isinstance(grown, Factors)
    np.testing.assert_allclose(grown.items_t[:, 30], trained.items_t[:, 4], atol=2e-3)  # where training has converged


def test_what_cannot_be_is_refused() -> None:
    model = Chosen(FACTORS, "softmax", {}, ())
    with pytest.raises(ValueError, match="only iALS takes in an item by its interactions"):
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
