"""The compiled gradient of L_div against autograd of the equations and against the chunks of torch."""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from torch.testing import assert_close

from divmf.kernels.best import LANES, best_of_row
from divmf.kernels.diversity import rows_at_once
from divmf.models import diversity, losses
from divmf.models.config import TrainConfig, TrainingDiverged
from divmf.models.diversity import UNREACHABLE, Lengths, diversity_gradient, gradient_by_chunks
from divmf.models.mf import MF
from divmf.ranking.select import top


def some_block(seed: int, n_users: int = 40, n_items: int = 70, tied: bool = False) -> tuple[MF, sparse.csr_array]:
    """A float32 model and what its users have seen: the first all, the second all but one, the third nothing."""
    rng = np.random.default_rng(seed)
    tables = [rng.normal(size=(n, 5)) for n in (n_users, n_items)]
    bias = rng.normal(size=n_items)
    if tied:  # small whole numbers: scores are exact in any precision, and most of them tie
        tables, bias = [np.round(table) for table in tables], np.round(bias)
    seen = rng.random((n_users, n_items)) < 0.2
    seen[:3] = [[True], [True], [False]]
    seen[1, n_items // 2] = False
    users, items = (torch.tensor(table, dtype=torch.float32, requires_grad=True) for table in tables)
    return MF(users, items, torch.tensor(bias, dtype=torch.float32)), sparse.csr_array(seen.astype(np.float32))


def dense(
    model: MF, seen: sparse.csr_array, config: TrainConfig, users: Any = slice(None), items: Any = slice(None)
) -> tuple[float, torch.Tensor, torch.Tensor]:
    """L_div of a submatrix and its gradient, by autograd in float64; nothing of the kernel's or of its passes."""
    tables = [table.detach().double().requires_grad_() for table in (model.users, model.items)]
    scores = (tables[0] @ tables[1].T + model.bias)[users][:, items]
    if config.mask_seen:
        scores = scores.masked_fill(torch.from_numpy(seen.toarray()[users][:, items] > 0), UNREACHABLE)
    lengths = Lengths.of(config, model.n_items, scores.shape[1])
    kept = top(scores, lengths.listed + lengths.extra)[0]
    log_t = losses.log_mass(scores, kept)
    loss = torch.zeros((), dtype=torch.float64)
    if config.reg_cov:
        loss = loss + losses.coverage(losses.column_mass(log_t.exp(), kept, scores.shape[1]), config.eps)
    if config.reg_skew:
        loss = loss + losses.skewness(losses.log_mass(scores, top(scores, lengths.skewed)[0]))
    return float(loss.detach()), *torch.autograd.grad(loss, tables)


def assert_near(found: torch.Tensor | None, expected: torch.Tensor) -> None:
    """float32 sums of terms that cancel: right to a few roundings of the largest entries."""
    assert found is not None
    assert_close(found.double(), expected.double(), rtol=1e-4, atol=3e-6 * float(expected.abs().max()) + 1e-9)


SETTINGS: list[dict[str, Any]] = [
    {},
    {"reg_skew": False},
    {"reg_cov": False},
    {"skew_rows": "list"},
    {"mask_seen": False},
    {"unmask_policy": "none"},
    {"eps": 1e-6},
    {"eps": 50.0},
    {"unmask": 500},
    {"k": 1, "unmask": 0},
    {"k": 500},
    {"preset": "release", "diversity_k": 4},
    {"preset": "release", "unmask": 0},
    {"preset": "paper"},
]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("given", SETTINGS, ids=str)
def test_the_kernel_gives_the_gradient_of_autograd(given: dict[str, Any], tied: bool) -> None:
    config = TrainConfig(**({"k": 3, "unmask": 8, "method": "divmf"} | given))
    for seed in range(4):
        model, seen = some_block(seed, tied=tied)
        everyone = np.arange(model.n_users)
        loss = diversity_gradient(model, everyone, None, seen, config, 0)
        expected = dense(model, seen, config)
        assert loss == pytest.approx(expected[0], rel=1e-5, abs=1e-4)
        assert_near(model.users.grad, expected[1])
        assert_near(model.items.grad, expected[2])


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("given", SETTINGS, ids=str)
def test_the_kernel_gives_the_gradient_of_the_chunks(given: dict[str, Any], tied: bool) -> None:
    config = TrainConfig(**({"k": 3, "unmask": 8, "method": "divmf"} | given))
    for seed in range(4):
        model, seen = some_block(seed, tied=tied)
        # not the user who has seen everything: beside scores of −1e9, the chunks' log z is lost to float32
        users = np.arange(1, model.n_users)
        loss = diversity_gradient(model, users, None, seen, config, 0)
        found = model.users.grad, model.items.grad
        lengths = Lengths.of(config, model.n_items, model.n_items)
        with torch.no_grad():
            chunked = gradient_by_chunks(model, users, None, seen, config, lengths, 0, 1000)
        assert loss == pytest.approx(chunked, rel=1e-5, abs=1e-4)
        for gradient, expected in zip(found, (model.users.grad, model.items.grad), strict=True):
            assert expected is not None
            assert_near(gradient, expected)


@pytest.mark.parametrize(
    "given",
    [{}, {"mask_seen": False}, {"skew_rows": "list"}, {"preset": "release"}, {"unmask_policy": "none"}],
    ids=str,
)
def test_a_block_has_the_gradient_of_its_submatrix(given: dict[str, Any]) -> None:
    config = TrainConfig(**({"k": 6, "unmask": 9, "columns": 30, "method": "divmf"} | given))
    model, seen = some_block(5)
    users, items = np.array([0, 1, 2, 7, 8, 30]), np.sort(np.random.default_rng(1).permutation(model.n_items)[:30])
    loss = diversity_gradient(model, users, items, seen, config, 0)
    expected = dense(model, seen, config, users, items)
    assert loss == pytest.approx(expected[0], rel=1e-5)
    assert_near(model.users.grad, expected[1])
    assert_near(model.items.grad, expected[2])


def test_some_users_and_all_items_have_their_gradient() -> None:
    model, seen = some_block(6)
    users = np.array([1, 4, 5, 9, 39])
    loss = diversity_gradient(model, users, None, seen, TrainConfig(k=4, unmask=9), 0)
    expected = dense(model, seen, TrainConfig(k=4, unmask=9), users)
    assert loss == pytest.approx(expected[0], rel=1e-5)
    assert_near(model.users.grad, expected[1])
    assert_near(model.items.grad, expected[2])


@given(st.integers(0, 9999), st.integers(1, 700), st.sampled_from([0.02, 1.0, 1e6]), st.data())
@settings(max_examples=150)
def test_the_best_of_a_row_are_those_of_top(seed: int, n_items: int, fineness: float, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    wanted = data.draw(st.integers(1, n_items))
    n_first = data.draw(st.integers(0, wanted))
    row = np.round(rng.normal(size=n_items) * fineness).astype(np.float32) * np.float32(rng.choice([-1.0, 1e-30, 1e5]))
    row[rng.random(n_items) < data.draw(st.sampled_from([0.0, 0.3, 1.0]))] = UNREACHABLE
    types = (np.float32, np.float32, np.int32, np.int32)
    scratch = tuple(np.empty(n_items + LANES, dtype=kind) for kind in types)
    kept = np.full(wanted, -7, dtype=np.int32)
    assert best_of_row(row, n_first, kept, scratch) == row.max()
    best = top(torch.from_numpy(row)[None], wanted)[0][0].numpy()
    assert sorted(kept[:n_first]) == sorted(best[:n_first])
    assert sorted(kept) == sorted(best)


def test_zero_and_minus_zero_tie() -> None:
    row = np.array([-0.0, 0.0, -0.0, -1.0, 0.0], dtype=np.float32)
    scratch = tuple(np.empty(5 + LANES, dtype=kind) for kind in (np.float32, np.float32, np.int32, np.int32))
    kept = np.empty(3, dtype=np.int32)
    best_of_row(row, 1, kept, scratch)
    assert (kept[0], sorted(kept)) == (0, [0, 1, 2])


def test_rows_are_held_in_equal_helpings() -> None:
    assert rows_at_once(377, 3706) == 95  # 96 at the most, because it is 1 MB or more: four times 95 hold 377
    assert rows_at_once(40, 3706) == 40
    assert rows_at_once(1000, 100) == 250
    assert rows_at_once(1000, 10**6) == 91


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 3e38])
def test_scores_that_are_no_numbers_stop_training(wrong: float) -> None:
    model, seen = some_block(0)
    with torch.no_grad():
        model.items[-1] = wrong
    with pytest.raises(TrainingDiverged, match="diversity loss"):
        diversity_gradient(model, np.arange(model.n_users), None, seen, TrainConfig(k=3, unmask=5), 0)


def test_scores_far_apart_give_no_nan() -> None:
    model, seen = some_block(0)
    with torch.no_grad():
        model.users.mul_(300)
    loss = diversity_gradient(model, np.arange(model.n_users), None, seen, TrainConfig(k=3, unmask=5), 0)
    expected = dense(model, seen, TrainConfig(k=3, unmask=5))
    assert loss == pytest.approx(expected[0], rel=1e-3)
    assert torch.isfinite(model.users.grad).all()  # type: ignore[arg-type]
    assert torch.isfinite(model.items.grad).all()  # type: ignore[arg-type]


def test_what_is_too_much_to_remember_is_left_to_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    (one, seen), (other, _) = some_block(3), some_block(3)
    config = TrainConfig(k=3, unmask=5)
    users = np.arange(1, one.n_users)
    loss = diversity_gradient(one, users, None, seen, config, 0)
    monkeypatch.setattr(diversity, "REMEMBERED", 0)
    monkeypatch.delattr(diversity, "gradient_by_kernel")
    assert diversity_gradient(other, users, None, seen, config, 0) == pytest.approx(loss, rel=1e-5)
    assert other.users.grad is not None
    assert_near(one.users.grad, other.users.grad)


THREADS = """
import hashlib, numpy as np, torch
from scipy import sparse
from divmf.models.mf import MF
from divmf.models.config import TrainConfig
from divmf.models.diversity import diversity_gradient
rng = np.random.default_rng(0)
users, items = (torch.tensor(rng.normal(size=(n, 8)), dtype=torch.float32) for n in (700, 300))
model = MF(users, items, torch.zeros(300))
seen = sparse.csr_array((rng.random((700, 300)) < 0.1).astype(np.float32))
loss = diversity_gradient(model, np.arange(700), None, seen, TrainConfig(k=5, unmask=20), 0)
print(loss.hex(), *(hashlib.sha256(t.grad.numpy().tobytes()).hexdigest() for t in (model.users, model.items)))
"""


def test_the_number_of_threads_changes_no_bit() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", THREADS], env=os.environ | {"DIVMF_THREADS": str(threads)},
            capture_output=True, text=True, check=True,
        ).stdout
        for threads in (1, 3)
    }  # fmt: skip
    assert len(found) == 1
