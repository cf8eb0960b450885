"""The softmax loss: its kernel against autograd, a dense formula, and numbers worked by hand."""

import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import sparse
from torch.testing import assert_close

from divmf.engine import threads
from divmf.kernels.rows import exp_row
from divmf.models import losses
from divmf.models.full_softmax import by_autograd, by_kernel, l2_of_rows, softmax_gradient
from divmf.models.mf import MF


def some_model(n_users: int, n_items: int, seed: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> MF:
    generator = torch.Generator().manual_seed(seed)
    tables = [scale * torch.randn(n, 6, generator=generator, dtype=torch.float64) for n in (n_users, n_items)]
    bias = torch.randn(n_items, generator=generator, dtype=torch.float64)
    return MF(*(tensor.float().to(dtype) for tensor in (*tables, bias)))


def some_met(n_users: int, n_items: int, seed: int, share: float = 0.3) -> sparse.csr_array:
    """Users 0, 7, 14, … met nothing."""
    met = np.random.default_rng(seed).random((n_users, n_items)) < share
    met[::7] = False
    return sparse.csr_array(met.astype(np.float32))


def doubled(model: MF) -> MF:
    return MF(*(tensor.detach().clone().double() for tensor in model.tensors().values()))


def dense(model: MF, met: sparse.csr_array, l2: float) -> tuple[float, torch.Tensor, torch.Tensor]:
    """L_soft and its gradients by ∂/∂R̂ = n_u S_u − Y_u on the whole matrix at once."""
    scores, truth = model.scores(slice(None)).detach(), torch.from_numpy(met.toarray()).to(model.users.dtype)
    log_s = scores.log_softmax(dim=1)
    gradient = truth.sum(dim=1, keepdim=True) * log_s.exp() - truth
    users, items = model.users.detach(), model.items.detach()
    return -float((truth * log_s).sum()), gradient @ items + l2 * users, gradient.T @ users + l2 * items


def test_the_loss_of_one_user_is_worked_by_hand() -> None:
    # scores 0, log 2, log 5 have shares 1/8, 2/8, 5/8; met were the second and the third
    scores = torch.tensor([[0.0, math.log(2), math.log(5)]], dtype=torch.float64)
    loss = losses.softmax(scores, torch.tensor([0, 0]), torch.tensor([1, 2]))
    assert float(loss) == pytest.approx(-math.log(2 / 8) - math.log(5 / 8))
    model = MF(torch.ones(1, 1), scores.T.float(), torch.zeros(3))
    found = softmax_gradient(model, sparse.csr_array([[0, 1, 1]]), 0.0)
    assert found == pytest.approx(-math.log(2 / 8) - math.log(5 / 8), rel=1e-6)
    assert_allclose(model.items.grad, [[2 / 8], [4 / 8 - 1], [10 / 8 - 1]], rtol=1e-5)


@given(st.integers(1, 40), st.integers(1, 90), st.integers(0, 999), st.floats(0.1, 3.0), st.sampled_from([0.0, 4.0]))
def test_the_kernel_has_the_loss_and_the_gradients_of_autograd(
    n_users: int, n_items: int, seed: int, scale: float, l2: float
) -> None:
    model, met = some_model(n_users, n_items, seed, scale=scale), some_met(n_users, n_items, seed)
    exact = doubled(model)
    loss, expected = softmax_gradient(model, met, l2), softmax_gradient(exact, met, l2)
    assert loss == pytest.approx(expected, rel=1e-5, abs=1e-4)
    for found, wanted in ((model.users.grad, exact.users.grad), (model.items.grad, exact.items.grad)):
        assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5 * max(1.0, float(wanted.abs().max())))


@pytest.mark.parametrize("n_items", [1, 2, 7, 63, 64, 65, 1031])
def test_float64_goes_the_readable_way_and_equals_the_dense_formula(n_items: int) -> None:
    model, met = some_model(23, n_items, 5, torch.float64), some_met(23, n_items, 5)
    loss, users, items = dense(model, met, 0.7)
    assert softmax_gradient(model, met, 0.7) == pytest.approx(loss, rel=1e-10, abs=1e-12)
    assert_close(model.users.grad, users, rtol=1e-10, atol=1e-10)
    assert_close(model.items.grad, items, rtol=1e-10, atol=1e-10)


def test_which_way_is_taken_depends_on_the_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    def spy(way: Any) -> Any:
        def watched(model: MF, met: sparse.csr_array) -> float:
            taken.append(way.__name__)
            return float(way(model, met))

        return watched

    for way in (by_kernel, by_autograd):
        monkeypatch.setattr(f"divmf.models.full_softmax.{way.__name__}", spy(way))
    for dtype in (torch.float32, torch.float64):
        softmax_gradient(some_model(5, 4, 0, dtype), some_met(5, 4, 0), 0.1)
    assert taken == ["by_kernel", "by_autograd"]


def test_users_who_met_nothing_feel_the_l2_alone() -> None:
    model, met = some_model(15, 20, 1), some_met(15, 20, 1)
    softmax_gradient(model, met, 0.5)
    assert_close(model.users.grad[::7], 0.5 * model.users[::7].detach(), rtol=1e-6, atol=0)
    empty = sparse.csr_array((15, 20), dtype=np.float32)
    assert softmax_gradient(model, empty, 0.5) == 0.0
    assert_close(model.items.grad, 0.5 * model.items.detach(), rtol=1e-6, atol=0)


def test_the_lambda_of_a_row_is_worked_by_hand() -> None:
    # users met 3, 0, 3 items, so n + 1 is 4, 1, 4 with the mean 3; items were met by 2, 1, 2, 1, mean 2.5
    met = sparse.csr_array(np.array([[1, 1, 1, 0], [0, 0, 0, 0], [1, 0, 1, 1]], dtype=np.float32))
    users, items = l2_of_rows(met, 6.0, 0.5)
    assert_allclose(users, 6 * np.sqrt([4 / 3, 1 / 3, 4 / 3]))
    assert_allclose(items, 6 * np.sqrt([3 / 2.5, 2 / 2.5, 3 / 2.5, 2 / 2.5]))
    for same in l2_of_rows(met, 6.0, 0.0):
        assert_allclose(same, 6.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_row_feels_its_own_lambda(dtype: torch.dtype) -> None:
    model, met = some_model(20, 15, 4, dtype), some_met(20, 15, 4)
    softmax_gradient(model, met, 0.0)
    alone = [model.users.grad.clone(), model.items.grad.clone()]
    softmax_gradient(model, met, 3.0, 0.5)
    for table, without, weights in zip((model.users, model.items), alone, l2_of_rows(met, 3.0, 0.5), strict=True):
        expected = without + torch.from_numpy(weights)[:, None] * table.detach()
        assert_close(table.grad.double(), expected.double(), rtol=1e-5, atol=1e-5)


def test_one_item_leaves_nothing_to_learn() -> None:
    model = some_model(9, 1, 3)
    assert softmax_gradient(model, sparse.csr_array(np.ones((9, 1), dtype=np.float32)), 0.0) == pytest.approx(
        0, abs=1e-5
    )
    assert_allclose(model.users.grad, 0, atol=1e-5)
    assert_allclose(model.items.grad, 0, atol=1e-5)


def test_scores_far_apart_give_no_nan() -> None:
    model = some_model(12, 30, 2, scale=20.0)  # scores of some thousands
    met = some_met(12, 30, 2)
    exact = doubled(model)
    assert softmax_gradient(model, met, 0.0) == pytest.approx(softmax_gradient(exact, met, 0.0), rel=1e-5)
    assert torch.isfinite(model.users.grad).all()
    assert_close(model.items.grad.double(), exact.items.grad, rtol=1e-3, atol=0.1)  # of vectors as long as 50


def test_the_gradient_is_what_the_loss_does() -> None:
    # central differences of the dense loss, in float64
    model, met = some_model(6, 8, 4, torch.float64), some_met(6, 8, 4)
    softmax_gradient(model, met, 0.0)
    gradient = model.items.grad.clone()
    for item, d in ((0, 0), (3, 2), (7, 5)):
        values = []
        for step in (1e-6, -1e-6):
            moved = doubled(model)
            moved.items[item, d] += step
            values.append(dense(moved, met, 0.0)[0])
        assert (values[0] - values[1]) / 2e-6 == pytest.approx(float(gradient[item, d]), rel=1e-6, abs=1e-7)


# ---- threads


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_sums_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch, n_threads: int) -> None:
    one, many, met = some_model(500, 130, 6), some_model(500, 130, 6), some_met(500, 130, 6)
    expected = softmax_gradient(one, met, 0.1)
    with ThreadPoolExecutor(n_threads) as pool:
        monkeypatch.setattr(threads, "workers", lambda: pool)
        assert softmax_gradient(many, met, 0.1) == expected
    assert torch.equal(one.users.grad, many.users.grad)
    assert torch.equal(one.items.grad, many.items.grad)


def test_parts_are_all_rows_in_order_and_fewer_where_sums_are_large() -> None:
    def parts(n_rows: int, sum_bytes: int = 0) -> list[tuple[int, int]]:
        return threads.in_parts(lambda first, last: (first, last), n_rows, sum_bytes)

    for n_rows in (1, 2, 15, 16, 17, 1000):
        found = parts(n_rows)
        assert [row for first, last in found for row in range(first, last)] == list(range(n_rows))
        assert len(found) == min(16, n_rows)
    assert parts(0) == []
    assert len(parts(100, threads.PART_BYTES // 4)) == 4
    assert len(parts(100, 10 * threads.PART_BYTES)) == 2


@pytest.mark.parametrize(("given", "says"), [("3", "3"), ("0", "not a number of threads"), ("two", "not a number of")])
def test_the_number_of_threads_can_be_set(given: str, says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from divmf.engine.threads import threads; print(threads())"],
        env=os.environ | {"DIVMF_THREADS": given}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert says in (done.stdout or done.stderr)


# ---- exp


def test_exp_is_exact_to_what_float32_tells_apart() -> None:
    values = np.linspace(-87, 0, 200_001).astype(np.float32)
    found = values.copy()
    total = exp_row(found, np.float32(0))
    exact = np.exp(values.astype(np.float64))
    error = np.abs(found / exact - 1)
    assert error[values > -1].max() < 3e-7
    # x·log2(e) in float32 is off by up to half of its last bit, which is the larger the larger x is
    assert (error < 3e-7 + np.spacing(1.45 * np.abs(values)) * np.log(2)).all()
    assert total == pytest.approx(exact.sum(), rel=1e-4)  # a float32 sum of 200,001 numbers


def test_exp_underflows_to_zero_without_nan() -> None:
    row = np.array([1000.0, 0.0, -1e30, 990.0, -3e38, 1000 - 87.3], dtype=np.float32)
    total = exp_row(row, np.float32(1000))
    assert row[0] == pytest.approx(1.0, rel=3e-7)
    assert row[[1, 2, 4]].tolist() == [0.0, 0.0, 0.0]
    assert row[3] == pytest.approx(math.exp(-10), rel=1e-6)
    assert row[5] == pytest.approx(math.exp(np.float32(1000 - 87.3) - 1000), rel=1e-5)
    assert total == pytest.approx(1 + math.exp(-10), rel=1e-6)


@given(st.lists(st.floats(-60, 60, width=32), min_size=1, max_size=70))
def test_a_row_of_exp_is_taken_from_its_maximum_and_summed(values: list[float]) -> None:
    row = np.array(values, dtype=np.float32)
    exact = np.exp(row.astype(np.float64) - row.max())
    total = exp_row(row, row.max())
    assert_allclose(row, exact, rtol=2e-5, atol=2e-38)
    assert total == pytest.approx(exact.sum(), rel=1e-5)
