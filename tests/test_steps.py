"""The compiled steps on sampled pairs against autograd and torch's optimisers."""

from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_expit
from torch.testing import assert_close

from divmf.data.interactions import Interactions
from divmf.kernels.pair_rows import LazyAdam, catch_up, lazy_decay, side_of
from divmf.kernels.pairs import HELD, _bpr_slopes
from divmf.models.config import TrainConfig
from divmf.models.epochs import accuracy_epoch, epoch_rng, optimisers_of
from divmf.models.mf import MF
from divmf.models.sampling import sample_chunks
from divmf.models.steps import batch_loss, by_autograd, on_all_rows, on_touched_rows, steps_for
from divmf.train.moments import optimiser_tensors, restore_optimiser


def some_data(n_users: int, n_items: int, share: float = 0.3, seed: int = 0) -> Interactions:
    rng = np.random.default_rng(seed)
    met = rng.random((n_users, n_items)) < share
    met[np.arange(n_users), rng.integers(0, n_items, n_users)] = True
    met[rng.integers(0, n_users, n_items), np.arange(n_items)] = True
    users, items = np.nonzero(met)
    return Interactions.from_frame(pl.DataFrame({"user_id": users, "item_id": items}))


def some_model(data: Interactions, seed: int = 0) -> MF:
    generator = torch.Generator().manual_seed(seed)
    tables = [0.5 * torch.randn(n, 5, generator=generator, dtype=torch.float64) for n in (data.n_users, data.n_items)]
    bias = torch.randn(data.n_items, generator=generator, dtype=torch.float64)
    return MF(tables[0].requires_grad_(), tables[1].requires_grad_(), bias)


@pytest.mark.parametrize(("accuracy", "shuffle"), [("bpr", "triples"), ("bpr", "pairs"), ("mse", "triples")])
@pytest.mark.parametrize("adam", ["dense", "rows"])
def test_the_compiled_steps_are_those_of_autograd_and_torchs_adam(accuracy: Any, shuffle: Any, adam: Any) -> None:
    # batches of 40 triples or 20 pairs: most rows are not in most batches
    data = some_data(90, 70, share=0.05)
    config = TrainConfig(model=accuracy, negatives=2, batch=40, l2=0.01, learning_rate=0.02, adam=adam, shuffle=shuffle)
    compiled, plain = some_model(data), some_model(data)
    found = []
    for model, steps in ((compiled, steps_for(compiled, config)), (plain, by_autograd)):
        optimiser = optimisers_of(model, config)["accuracy"]
        rng = np.random.default_rng(3)
        found.append([steps(model, data, config, optimiser, rng) for _ in range(3)])
        assert int(optimiser.state[model.items]["step"]) == 3 * -(-2 * len(data) // 40)
    # ε = 1e-8 is left out of the steps that do not touch a row: it is that small beside the root of its squares
    close = {"rtol": 1e-8, "atol": 1e-10} if adam == "dense" else {"rtol": 1e-6, "atol": 1e-7}
    assert found[0] == pytest.approx(found[1], rel=1e-9 if adam == "dense" else 1e-6)
    assert_close(compiled.users, plain.users, **close)
    assert_close(compiled.items, plain.items, **close)


@pytest.mark.parametrize(("dtype", "close"), [(np.float32, 1e-7), (np.float64, 1e-13)])
@given(st.lists(st.floats(-80, 80, width=32), min_size=1, max_size=HELD))
def test_slopes_of_gaps_are_those_of_the_logistic_function(dtype: Any, close: float, gaps: list[float]) -> None:
    slopes = np.array(gaps, dtype=dtype)
    loss = _bpr_slopes(slopes)
    exact = np.array(gaps, dtype=dtype).astype(np.float64)
    assert loss == pytest.approx(-log_expit(exact).sum(), rel=close, abs=1e-13)
    np.testing.assert_allclose(slopes, expit(-exact), rtol=close, atol=1e-34)


def test_single_precision_trains_the_same_model() -> None:
    data = some_data(90, 70, share=0.05)
    config = TrainConfig(model="bpr", negatives=2, batch=40, l2=0.01, learning_rate=0.02)
    exact, single = some_model(data), some_model(data)
    single = MF(single.users.detach().float(), single.items.detach().float(), single.bias.float())
    losses = []
    for model in (exact, single):
        optimiser = optimisers_of(model, config)["accuracy"]
        losses.append(steps_for(model, config)(model, data, config, optimiser, np.random.default_rng(3)))
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert_close(single.users.double(), exact.users, rtol=1e-3, atol=1e-4)
    assert_close(single.items.double(), exact.items, rtol=1e-3, atol=1e-4)


def test_without_l2_rows_and_dense_are_one_optimiser() -> None:
    data = some_data(200, 150, share=0.02)
    config = TrainConfig(model="bpr", negatives=2, batch=16, l2=0.0, learning_rate=0.01)
    dense, rows = some_model(data), some_model(data)
    optimisers = [optimisers_of(model, config)["accuracy"] for model in (dense, rows)]
    for epoch in range(1, 4):
        losses = [
            steps(model, data, config, optimiser, epoch_rng(0, "accuracy", epoch))
            for steps, model, optimiser in zip((on_all_rows, on_touched_rows), (dense, rows), optimisers, strict=True)
        ]
        assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert_close(rows.users, dense.users, rtol=1e-5, atol=1e-6)
    for table, other in ((dense.users, rows.users), (dense.items, rows.items)):
        for moment in ("exp_avg", "exp_avg_sq"):
            there, here = optimisers[0].state[table][moment], optimisers[1].state[other][moment]
            assert_close(here, there, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("adam", ["dense", "rows"])
def test_l2_is_for_rows_in_the_batch_alone(adam: Any) -> None:
    # with L2, Adam on all rows moves those too that nobody met and nobody drew
    ids = [pl.Series(range(n)) for n in (2, 9)]
    data = Interactions(np.array([0, 0, 1]), np.array([0, 1, 2]), None, *ids)
    config = TrainConfig(model="bpr", negatives=1, batch=100, l2=0.5, adam=adam)
    ((_, met, unmet, _),) = sample_chunks(data, 100, 1, np.random.default_rng(0))
    touched = {*met.tolist(), *unmet.ravel().tolist()}
    model = some_model(data)
    before = model.items.detach().clone()
    optimiser = optimisers_of(model, config)["accuracy"]
    steps_for(model, config)(model, data, config, optimiser, np.random.default_rng(0))
    moved = {row for row in range(9) if not torch.equal(model.items.detach()[row], before[row])}
    assert len(touched) < 9
    assert moved == (touched if adam == "rows" else set(range(9)))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 30), st.integers(1, 60), st.integers(0, 9))
def test_a_row_left_alone_is_where_torchs_adam_would_have_it(before: int, gap: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(3, 4, generator=generator, dtype=torch.float64).requires_grad_()
    optimiser = torch.optim.Adam([table], lr=0.01)
    for _ in range(before + 1):
        table.grad = torch.randn(3, 4, generator=generator, dtype=torch.float64)
        optimiser.step()
    state = optimiser.state[table]
    rows = np.stack([tensor.detach().numpy() for tensor in (table, state["exp_avg"], state["exp_avg_sq"])], axis=1)
    for _ in range(gap):
        table.grad = torch.zeros_like(table)
        optimiser.step()
    adam, side = LazyAdam(0.01, 0.0, before + 1, lazy_decay(before + 1, gap, np.dtype(np.float64))), side_of(rows, 3)
    values = np.empty((3, 4))
    catch_up(values, side, gap, adam, 0, 3)
    caught_up = values, rows[:, 1], rows[:, 2]
    for found, expected in zip(caught_up, (table.detach(), state["exp_avg"], state["exp_avg_sq"]), strict=True):
        assert_close(torch.from_numpy(found), expected, rtol=1e-6, atol=1e-8)


def test_an_epoch_cut_into_other_chunks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    data = some_data(60, 50, share=0.2)
    config = TrainConfig(model="bpr", negatives=2, batch=16, adam="rows")
    whole, cut = some_model(data), some_model(data)
    for model, chunk in ((whole, 1 << 14), (cut, 24)):
        monkeypatch.setattr("divmf.models.sampling.CHUNK", chunk)
        accuracy_epoch(model, data, config, optimisers_of(model, config)["accuracy"], epoch_rng(0, "accuracy", 1))
    assert torch.equal(whole.users, cut.users)
    assert torch.equal(whole.items, cut.items)


def test_the_size_of_the_model_decides_where_nothing_is_said() -> None:
    small, large = some_data(30, 20), some_data(90, 70)
    config = TrainConfig(model="bpr", batch=16)  # 4 · 16 = 64 rows
    assert steps_for(some_model(small), config) is on_all_rows
    assert steps_for(some_model(large), config) is on_touched_rows
    triples = TrainConfig(model="bpr", batch=32, shuffle="triples")  # which touch twice as many: 8 · 32 = 256 rows
    assert steps_for(some_model(large), triples) is on_all_rows
    assert steps_for(some_model(large), TrainConfig(model="bpr", batch=32)) is on_touched_rows
    assert steps_for(some_model(small), TrainConfig(model="bpr", adam="rows")) is on_touched_rows
    assert steps_for(some_model(large), TrainConfig(preset="paper", batch=16)) is on_all_rows
    assert steps_for(some_model(large), TrainConfig(preset="release", batch=16)) is on_all_rows


@pytest.mark.parametrize(("shuffle", "each"), [("triples", 1), ("pairs", 3)])
def test_the_loss_of_many_pairs_is_their_sum_however_far_apart_the_scores(shuffle: Any, each: int) -> None:
    # one logarithm is taken for 512 factors: the sum must not overflow where every factor is near 2, nor far from it
    data = some_data(80, 60)
    for scale in (0.0, 1.0, 30.0):
        model = some_model(data)
        with torch.no_grad():
            model.users.mul_(scale)
            model.bias.mul_(scale)
        config = TrainConfig(model="bpr", negatives=3, batch=1 << 20, l2=0.0, adam="dense", shuffle=shuffle)
        (chunk,) = sample_chunks(data, 1 << 20, 3, np.random.default_rng(1), each)
        users, met, unmet = (torch.from_numpy(part) for part in chunk[:3])
        expected = float(batch_loss(model, config, users, torch.cat([met[:, None], unmet], dim=1)).detach())
        optimiser = optimisers_of(model, config)["accuracy"]
        assert on_all_rows(model, data, config, optimiser, np.random.default_rng(1)) == pytest.approx(
            expected, rel=1e-9
        )


def test_an_epoch_after_resuming_is_the_epoch_that_would_have_followed() -> None:
    data = some_data(200, 150, share=0.02)
    config = TrainConfig(model="bpr", negatives=2, batch=16, adam="rows")
    straight = some_model(data)
    optimisers = optimisers_of(straight, config)
    accuracy_epoch(straight, data, config, optimisers["accuracy"], epoch_rng(0, "accuracy", 1))
    kept = {name: tensor.clone() for name, tensor in optimiser_tensors(optimisers).items()}
    resumed = MF(*(tensor.requires_grad_() for tensor in (straight.copy().users, straight.copy().items)), straight.bias)
    again = optimisers_of(resumed, config)["accuracy"]
    restore_optimiser("accuracy", again, kept)
    for model, optimiser in ((straight, optimisers["accuracy"]), (resumed, again)):
        accuracy_epoch(model, data, config, optimiser, epoch_rng(0, "accuracy", 2))
    assert torch.equal(straight.users, resumed.users)
    assert torch.equal(straight.items, resumed.items)
