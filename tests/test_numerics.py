"""Precision and extremes: float32 beside float64 within stated tolerances, and scores at the ends of what there is.

An extreme case: scores of ±1e4, or all equal; a user who met every item but the two held out, an item that every user
met, lists of all items (k = |I|).
"""

from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from scipy import sparse
from torch.testing import assert_close

import divmf
from divmf.data.interactions import Interactions
from divmf.data.split import Split
from divmf.models import losses
from divmf.models.ease import ease
from divmf.models.full_softmax import softmax_gradient
from divmf.models.ials import ials
from divmf.models.mf import MF
from divmf.ranking.lists import TopK
from divmf.ranking.metrics import coverage, entropy, gini
from divmf.ranking.retrieval import Vectors, recommend
from divmf.rerank import METHODS

N_USERS, N_ITEMS = 12, 9
SCORES = ["plus", "minus", "both", "equal", "zero"]


def scores_of(kind: str, n_users: int = N_USERS, n_items: int = N_ITEMS) -> np.ndarray:
    """Scores at the ends of what a model may give."""
    noise = np.random.default_rng(0).random((n_users, n_items))
    ends = np.where(noise < 0.5, -1e4, 1e4)
    made = {"plus": 1e4 + noise, "minus": -1e4 - noise, "both": ends, "equal": noise * 0 + 0.3, "zero": noise * 0}
    return made[kind].astype(np.float32)


@pytest.fixture(scope="module")
def extreme() -> Split:
    """User 0 met every item, item 0 was met by every user."""
    rng = np.random.default_rng(1)
    met = rng.random((N_USERS, N_ITEMS)) < 0.4
    met[0], met[:, 0], met[:, 1], met[:, 2] = True, True, True, True
    users, items = met.nonzero()
    log = pl.DataFrame({"user_id": users, "item_id": items, "timestamp": -items})  # item 0 is the last: held out
    return Interactions.from_frame(log).leave_one_out(0)


# ---- float32 beside float64


@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
def test_losses_in_float32_are_those_in_float64_to_a_hundred_thousandth(spread: float) -> None:
    rng = np.random.default_rng(2)
    whole = torch.tensor(rng.normal(size=(30, 50)) * spread)
    rows, met = torch.arange(30), torch.from_numpy(rng.integers(0, 50, 30))
    kept = whole.topk(10).indices
    for loss in (
        lambda scores: losses.bpr(scores[:, 0], scores[:, 1]),
        lambda scores: losses.mse(scores[:, 0], scores[:, 1]),
        lambda scores: losses.softmax(scores, rows, met),
        lambda scores: losses.diversity(scores, kept, 0.01, 5),
    ):
        assert_close(loss(whole.float()).double(), loss(whole), rtol=1e-5, atol=1e-5)


def test_the_gradient_of_softmax_in_float32_is_that_in_float64() -> None:
    # sums over 50 items of terms that cancel: right to 1e-4 of the largest entry
    rng = np.random.default_rng(3)
    met = sparse.csr_array((rng.random((30, 50)) < 0.2).astype(np.float32))
    tables = [rng.normal(size=(n, 6)) for n in (30, 50)]
    found = []
    for dtype in (torch.float32, torch.float64):
        users, items = (torch.tensor(table, dtype=dtype, requires_grad=True) for table in tables)
        model = MF(users, items, torch.zeros(50, dtype=dtype))
        loss = softmax_gradient(model, met, 0.1)
        assert users.grad is not None
        assert items.grad is not None
        found.append((loss, users.grad.double(), items.grad.double()))
    (loss, *gradients), (exact, *expected) = found
    assert loss == pytest.approx(exact, rel=1e-5)
    for one, other in zip(gradients, expected, strict=True):
        assert float((one - other).abs().max()) <= 1e-4 * float(other.abs().max())


def test_weights_of_ease_are_those_of_an_inverse_in_float64(extreme: Split) -> None:
    met = extreme.train.matrix.toarray().astype(np.float64)
    inverse = np.linalg.inv(met.T @ met + 5.0 * np.eye(N_ITEMS))
    expected = -inverse / np.diag(inverse)
    np.fill_diagonal(expected, 0)
    found = ease(extreme.train.matrix, 5.0).scores(np.arange(N_USERS))
    np.testing.assert_allclose(found, met @ expected, rtol=1e-4, atol=1e-5)


# ---- extremes


@pytest.mark.parametrize("k", [1, N_ITEMS])
@pytest.mark.parametrize("kind", SCORES)
def test_lists_of_extreme_scores_are_those_of_a_plain_sort(kind: str, k: int) -> None:
    scores = scores_of(kind)
    # a vector a user that picks its own scores: the products are exact
    model = Vectors(torch.eye(N_USERS), torch.from_numpy(scores.T.copy()), torch.zeros(N_ITEMS))
    seen = np.zeros(scores.shape, dtype=np.float32)
    seen[0], seen[1:, 0] = 1, 1
    items, found = recommend(model, sparse.csr_array(seen), k)
    for user in range(N_USERS):
        left = [item for item in np.argsort(-scores[user], kind="stable") if not seen[user, item]][:k]
        assert [item for item in items[user].tolist() if item >= 0] == left
        np.testing.assert_array_equal(found[user][items[user] >= 0], scores[user, left])


@pytest.mark.parametrize("k", [1, N_ITEMS])
@pytest.mark.parametrize("kind", SCORES)
def test_the_market_takes_extreme_scores(kind: str, k: int, extreme: Split, tmp_path: Any) -> None:
    scores = scores_of(kind)
    model = divmf.diversify(lambda users: scores[users], extreme, run=tmp_path / "run", k=k, diversity_epochs=3)
    for point in model.curve.points:
        assert all(np.isfinite(value) for value in (*point.valid.values(), *point.test.values()))
    items = model.at(epoch=0).lists(k=k, seen="train+valid").items
    met = extreme.seen.toarray() > 0
    for user, row in enumerate(items):
        listed = row[row >= 0]
        assert len(set(listed.tolist())) == len(listed) == min(k, int((~met[user]).sum()))
        assert not met[user, listed].any()


@pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))
@pytest.mark.parametrize("kind", SCORES)
def test_rerankers_take_extreme_scores(kind: str, method: Any, extreme: Split) -> None:
    if method.extra == "flow":
        pytest.importorskip("ortools")
    scores = scores_of(kind)
    items = np.tile(np.arange(N_ITEMS, dtype=np.int32), (N_USERS, 1))
    lists = TopK.from_arrays(items, scores, extreme.user_ids.to_list(), extreme.item_ids.to_list())
    for k in (1, N_ITEMS):
        made = method.run(lists, k, {method.knob: method.grid[-1]}, extreme.train, 0)
        assert ((made.items >= 0).sum(axis=1) == k).all()
        assert all(len(set(row)) == k for row in made.items.tolist())
        assert np.isfinite(made.scores).all()


@pytest.mark.parametrize("kind", ["ease", "ials"])
def test_models_take_a_user_of_every_item_and_an_item_of_every_user(kind: str) -> None:
    met = np.zeros((N_USERS, N_ITEMS), dtype=np.float32)
    met[0], met[:, 0] = 1, 1
    matrix = sparse.csr_array(met)
    scorer = ease(matrix, 1.0) if kind == "ease" else ials(matrix, dim=3, alpha=1.0, l2=0.1, epochs=3)
    assert np.isfinite(scorer.scores(np.arange(N_USERS))).all()


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([5] * 4, (1.0, np.log(4), 0.0)),
        ([20, 0, 0, 0], (0.25, 0.0, 1.0)),
        ([2**40, 2**40, 0, 0], (0.5, np.log(2), 2 / 3)),
    ],
)
def test_metrics_of_extreme_counts_are_those_worked_by_hand(counts: list[int], expected: tuple[float, ...]) -> None:
    found = [function(np.array(counts)) for function in (coverage, entropy, gini)]
    assert found == pytest.approx(expected, abs=1e-12)
