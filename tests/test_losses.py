"""The equations of losses.py against plain loops, the paper's theorems, and numbers worked by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from divmf.models import losses
from divmf.ranking.metrics import coverage, entropy, gini
from divmf.ranking.select import top


def scores_of(seed: int, rows: int, n_items: int) -> torch.Tensor:
    return torch.randn(rows, n_items, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2


def dense_t(scores: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """T itself, built as the paper writes it: softmax, then everything but the kept entries set to zero."""
    mask = torch.zeros_like(scores).scatter(1, kept, 1.0)
    return scores.softmax(dim=1) * mask


def test_bpr_of_one_pair_is_worked_by_hand() -> None:
    loss = losses.bpr(torch.tensor([2.0], dtype=torch.float64), torch.tensor([0.5], dtype=torch.float64))
    assert_close(float(loss), -math.log(1 / (1 + math.exp(-1.5))))


def test_bpr_does_not_underflow_where_log_of_sigmoid_would() -> None:
    # the released code takes log(sigmoid(x)), which is log(0) from x = −104 on in float32
    assert float(losses.bpr(torch.tensor([0.0]), torch.tensor([500.0]))) == 500.0


def test_mse_of_two_scores_is_worked_by_hand() -> None:
    assert float(losses.mse(torch.tensor([[0.5]]), torch.tensor([[0.25, -1.0]]))) == pytest.approx(0.25 + 0.0625 + 1)


def test_softmax_of_two_pairs_is_worked_by_hand() -> None:
    scores = torch.tensor([[0.0, math.log(3)], [0.0, 0.0]], dtype=torch.float64)  # shares 1/4, 3/4 and 1/2, 1/2
    loss = losses.softmax(scores, torch.tensor([0, 1, 1]), torch.tensor([1, 0, 1]))
    assert float(loss) == pytest.approx(-math.log(3 / 4) - 2 * math.log(1 / 2), rel=1e-12)


@given(st.integers(0, 999), st.integers(1, 6), st.integers(2, 12), st.data())
def test_mass_and_regularizers_equal_plain_loops_over_the_dense_matrix(
    seed: int, rows: int, n_items: int, data: st.DataObject
) -> None:
    m = data.draw(st.integers(1, n_items))
    scores = scores_of(seed, rows, n_items)
    kept = top(scores, m)[0]
    t = dense_t(scores, kept)
    eps = 0.01
    cov = -sum(math.log(sum(float(t[u, i]) for u in range(rows)) + eps) for i in range(n_items))
    skew = 0.0
    for u in range(rows):
        total = float(t[u].sum())
        skew += sum(float(x) / total * math.log(float(x) / total) for x in t[u] if x > 0)
    log_t = losses.log_mass(scores, kept)
    mass = losses.column_mass(log_t.exp(), kept, n_items)
    assert_close(mass, t.sum(dim=0), rtol=1e-10, atol=1e-12)
    assert_close(float(losses.coverage(mass, eps)), cov, rtol=1e-10, atol=1e-10)
    assert_close(float(losses.skewness(log_t)), skew, rtol=1e-10, atol=1e-10)


@given(st.integers(0, 999), st.integers(1, 8), st.integers(2, 12), st.data())
def test_the_regularizers_respect_the_bounds_of_their_theorems(
    seed: int, rows: int, n_items: int, data: st.DataObject
) -> None:
    m = data.draw(st.integers(1, n_items))
    scores = scores_of(seed, rows, n_items)
    kept = top(scores, m)[0]
    log_t = losses.log_mass(scores, kept)
    mass = losses.column_mass(log_t.exp(), kept, n_items)
    assert float(losses.coverage(mass, 0.0)) >= -n_items * math.log(rows / n_items) - 1e-9
    assert -rows * math.log(m) - 1e-9 <= float(losses.skewness(log_t)) <= 1e-9


def test_the_optimum_of_figure_1_is_perfectly_diverse() -> None:
    # Figure 1 (III): four users, four items, lists of two, every item recommended twice (Theorem 2)
    liked = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]], dtype=torch.float64)
    scores = 50 * liked
    kept = top(scores, 2)[0]
    log_t = losses.log_mass(scores, kept)
    assert_close(float(losses.coverage(losses.column_mass(log_t.exp(), kept, 4), 0.0)), 0.0, atol=1e-10, rtol=0)
    assert_close(float(losses.skewness(log_t)), -4 * math.log(2), rtol=1e-10, atol=0)
    counts = np.bincount(kept.numpy().ravel(), minlength=4)
    assert (coverage(counts), gini(counts)) == (1.0, 0.0)
    assert entropy(counts) == pytest.approx(math.log(4), rel=1e-12)


def test_gradient_descent_on_the_loss_reaches_that_optimum_from_popularity() -> None:
    # all users start with the same two items on top; with everything unmasked, L_div spreads them evenly
    scores = (torch.tensor([3.0, 2.9, 2.0, 1.9]).repeat(4, 1) + 0.1 * scores_of(0, 4, 4).float()).requires_grad_()
    optimiser = torch.optim.Adam([scores], lr=0.05)
    for _ in range(1500):
        kept = top(scores.detach(), 4)[0]
        optimiser.zero_grad()
        losses.diversity(scores, kept, 0.01, 2).backward()
        optimiser.step()
    counts = np.bincount(top(scores.detach(), 2)[0].numpy().ravel(), minlength=4)
    assert counts.tolist() == [2, 2, 2, 2]


@given(st.integers(0, 999), st.integers(2, 6), st.integers(4, 12))
def test_masked_items_get_a_gradient_that_only_pushes_them_down(seed: int, rows: int, n_items: int) -> None:
    # Sec. 3.3.2: no gradient flows directly into masked items; through the softmax's denominator it does
    scores = scores_of(seed, rows, n_items).requires_grad_()
    kept = top(scores.detach(), 2)[0]
    log_t = losses.log_mass(scores, kept)
    losses.coverage(losses.column_mass(log_t.exp(), kept, n_items), 0.01).backward()
    masked = torch.ones(rows, n_items, dtype=torch.bool).scatter(1, kept, False)
    assert (scores.grad[masked] > 0).all()  # descent goes against the gradient


@given(st.integers(0, 999), st.integers(2, 9), st.integers(3, 12), st.booleans(), st.integers(0, 3))
def test_the_gradient_by_hand_is_that_of_autograd(
    seed: int, rows: int, n_items: int, covers: bool, skewed: int
) -> None:
    scores = scores_of(seed, rows, n_items).requires_grad_()
    kept = top(scores.detach(), 3)[0]
    log_t = losses.log_mass(scores, kept)
    mass = losses.column_mass(log_t.exp(), kept, n_items)
    loss = 0 * scores.sum()
    if covers:
        loss = loss + losses.coverage(mass, 0.01)
    if skewed:
        loss = loss + losses.skewness(log_t[:, :skewed])
    (expected,) = torch.autograd.grad(loss, scores)
    values = scores.detach().clone()
    known = mass.detach() if covers else None
    found = losses.score_gradient_(
        values, kept, kept[:, :skewed] if skewed else None, values.logsumexp(dim=1), known, 0.01
    )
    assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_skewness_has_a_finite_gradient_where_the_mass_underflows() -> None:
    # t / Σt would be 0/0 for the second entry in float32, and 0·log 0 a NaN gradient
    scores = torch.tensor([[400.0, -400.0, 0.0]], requires_grad=True)
    losses.skewness(losses.log_mass(scores, torch.tensor([[0, 1]]))).backward()
    assert torch.isfinite(scores.grad).all()


def test_softmax_with_weights_and_the_partial_gradients_worked_by_hand() -> None:
    scores = torch.tensor([[0.0, math.log(3)], [0.0, 0.0]], dtype=torch.float64)
    weights = torch.tensor([2.0, 0.5, 0.25], dtype=torch.float64)
    loss = losses.softmax(scores, torch.tensor([0, 1, 1]), torch.tensor([1, 0, 1]), weights)
    assert float(loss) == pytest.approx(-2 * math.log(3 / 4) - 0.75 * math.log(1 / 2), rel=1e-12)
    # a denominator that is known already is taken as it is
    kept = torch.tensor([[1], [0]])
    known = losses.log_mass(scores, kept, torch.tensor([math.log(8), math.log(2)], dtype=torch.float64))
    assert known.exp().flatten().tolist() == pytest.approx([3 / 8, 1 / 2])


def test_the_whole_loss_is_the_sum_of_its_parts_by_hand() -> None:
    scores = torch.tensor([[0.0, math.log(3)]], dtype=torch.float64)  # shares 1/4 and 3/4
    kept = torch.tensor([[1, 0]])
    cov = -math.log(0.75 + 0.1) - math.log(0.25 + 0.1)
    skew = 0.75 * math.log(0.75) + 0.25 * math.log(0.25)
    assert float(losses.diversity(scores, kept, 0.1)) == pytest.approx(cov + skew)
    assert float(losses.diversity(scores, kept, 0.1, 1)) == pytest.approx(cov)  # of one item the share is 1
