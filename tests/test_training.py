"""The chunked, blocked training steps against autograd of the dense equations, and laws of an epoch."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch.testing import assert_close

from divmf.data.interactions import Interactions
from divmf.engine import threads
from divmf.models import losses
from divmf.models.config import TrainConfig, TrainingDiverged
from divmf.models.diversity import UNREACHABLE, Lengths, diversity_gradient
from divmf.models.epochs import (
    accuracy_epoch,
    adam,
    diversity_epoch,
    epoch_rng,
    initial_model,
)
from divmf.models.mf import MF
from divmf.ranking.select import top


def some_data(n_users: int = 13, n_items: int = 11, seed: int = 0) -> Interactions:
    import polars as pl

    rng = np.random.default_rng(seed)
    met = rng.random((n_users, n_items)) < 0.3
    met[np.arange(n_users), rng.integers(0, n_items, n_users)] = True
    met[rng.integers(0, n_users, n_items), np.arange(n_items)] = True
    users, items = np.nonzero(met)
    return Interactions.from_frame(pl.DataFrame({"user_id": users, "item_id": items}))


def some_model(data: Interactions, seed: int = 0) -> MF:
    generator = torch.Generator().manual_seed(seed)
    tables = [torch.randn(n, 4, generator=generator, dtype=torch.float64) for n in (data.n_users, data.n_items)]
    bias = torch.randn(data.n_items, generator=generator, dtype=torch.float64)
    return MF(tables[0].requires_grad_(), tables[1].requires_grad_(), bias)


def dense_gradient(model: MF, data: Interactions, config: TrainConfig) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Autograd of the equations on the whole matrix at once."""
    scores = model.scores(slice(None))
    if config.mask_seen:
        scores = scores.masked_fill(torch.from_numpy(data.matrix.toarray() > 0), UNREACHABLE)
    extra = config.unmask if config.unmask_policy == "top" else 0
    kept = top(scores, min(config.k + extra, data.n_items))[0]
    log_t = losses.log_mass(scores, kept)
    loss = torch.zeros((), dtype=torch.float64)
    if config.reg_cov:
        loss = loss + losses.coverage(losses.column_mass(log_t.exp(), kept, data.n_items), config.eps)
    if config.reg_skew:
        loss = loss + losses.skewness(log_t if config.skew_rows == "kept" else log_t[:, : config.k])
    users, items = torch.autograd.grad(loss, (model.users, model.items))
    return users, items, float(loss.detach())


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 99), st.integers(1, 200), st.booleans(),
    st.sampled_from([(True, True), (True, False), (False, True)]),
    st.sampled_from(["top", "none"]), st.sampled_from(["list", "kept"]),
)  # fmt: skip
def test_chunk_size_does_not_change_the_gradient(
    seed: int, block: int, mask_seen: bool, used: tuple[bool, bool], policy: Any, skew_rows: Any
) -> None:
    data = some_data(seed=seed)
    config = TrainConfig(
        k=2, unmask=3, unmask_policy=policy, mask_seen=mask_seen, reg_cov=used[0], reg_skew=used[1], skew_rows=skew_rows
    )
    model = some_model(data, seed)
    users, items, loss = dense_gradient(model, data, config)
    total = diversity_gradient(model, np.arange(data.n_users), None, data.matrix, config, 0, block_scores=block)
    assert_close(model.users.grad, users, rtol=1e-10, atol=1e-12)
    assert_close(model.items.grad, items, rtol=1e-10, atol=1e-12)
    assert total == pytest.approx(loss, rel=1e-10)


def test_one_block_of_everything_is_the_full_batch() -> None:
    data = some_data()
    config = TrainConfig(k=2, unmask=3)
    whole, block = some_model(data), some_model(data)
    everything = np.arange(data.n_users)
    diversity_gradient(whole, everything, None, data.matrix, config, 0)
    diversity_gradient(block, everything, np.arange(data.n_items), data.matrix, config, 0)
    assert_close(block.users.grad, whole.users.grad, rtol=1e-10, atol=1e-12)
    assert_close(block.items.grad, whole.items.grad, rtol=1e-10, atol=1e-12)


def test_a_block_has_the_gradient_of_its_submatrix() -> None:
    # users 2, 5, 6 × items 0, 3, 4, 7, 9: k = 4 of 11 items gives 4·5/11 = 1.8, so 2 listed, and ceil(6/3) = 2 unmasked
    data = some_data()
    config = TrainConfig(k=4, unmask=6, columns=5)
    users, items = np.array([2, 5, 6]), np.array([0, 3, 4, 7, 9])
    assert Lengths.of(config, data.n_items, len(items)) == Lengths(2, 2, 4)
    model = some_model(data)
    diversity_gradient(model, users, items, data.matrix, config, 0)
    scores = (model.scores(slice(None)))[users][:, items]
    scores = scores.masked_fill(torch.from_numpy(data.matrix.toarray()[users][:, items] > 0), UNREACHABLE)
    expected = torch.autograd.grad(losses.diversity(scores, top(scores, 4)[0], config.eps), (model.users, model.items))
    assert_close(model.users.grad, expected[0], rtol=1e-10, atol=1e-12)
    assert_close(model.items.grad, expected[1], rtol=1e-10, atol=1e-12)


def test_released_blocks_have_their_own_lengths() -> None:
    released = TrainConfig(preset="release")
    assert (released.k, released.diversity_k, released.mask_seen, released.carry_adam) == (5, 10, False, True)
    # 4 blocks of 25 of 100 items: ceil(10/4) of T, ceil(100/4) unmasked (22 fit), the full 10 in Reg_skew
    assert Lengths.of(TrainConfig(preset="release", columns=25), 100, 25) == Lengths(3, 22, 10)
    assert Lengths.of(TrainConfig(k=10, columns=25, unmask=40), 100, 25) == Lengths(3, 10, 13)
    # 3,706 items in blocks of 1,000: the last block, of 706, still counts as one of four
    assert Lengths.of(TrainConfig(k=10, columns=1000), 3706, 706) == Lengths(2, 25, 27)


@pytest.mark.parametrize("policy", ["random", "none"])
def test_released_blocks_read_the_full_list_for_skewness_whatever_is_unmasked(policy: Any) -> None:
    data = some_data()
    config = TrainConfig(preset="release", diversity_k=4, unmask=3, unmask_policy=policy, columns=6, reg_cov=False)
    users, items = np.arange(data.n_users), np.array([0, 2, 3, 5, 8, 10])
    model = some_model(data)
    diversity_gradient(model, users, items, data.matrix, config, 7)
    scores = model.scores(slice(None))[:, items]
    expected = torch.autograd.grad(
        losses.skewness(losses.log_mass(scores, top(scores, 4)[0])), (model.users, model.items)
    )
    assert_close(model.users.grad, expected[0], rtol=1e-10, atol=1e-12)
    assert_close(model.items.grad, expected[1], rtol=1e-10, atol=1e-12)


def test_what_pass_1_cannot_remember_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    data = some_data()
    config = TrainConfig(k=2, unmask=3, unmask_policy="random")
    known, found = some_model(data), some_model(data)
    diversity_gradient(known, np.arange(data.n_users), None, data.matrix, config, 5, block_scores=30)
    monkeypatch.setattr("divmf.models.diversity.REMEMBERED", 0)
    diversity_gradient(found, np.arange(data.n_users), None, data.matrix, config, 5, block_scores=30)
    assert torch.equal(known.users.grad, found.users.grad)
    assert torch.equal(known.items.grad, found.items.grad)


def test_what_is_set_by_name_wins_over_the_preset() -> None:
    assert TrainConfig(preset="release", k=7).k == 7
    paper = TrainConfig(preset="paper")
    assert paper == TrainConfig(preset="paper", model="bpr", method="divmf", k=5)
    assert (paper.rate(1), paper.rate(99), paper.decay, paper.epochs) == (0.001, 0.001, 0.0001, 200)
    assert TrainConfig(preset="paper", model="softmax").model == "softmax"


def test_what_is_not_given_depends_on_the_loss_of_the_accuracy_phase() -> None:
    config = TrainConfig(model="softmax")
    assert (config.model, config.method, config.epochs) == ("softmax", "market", 40)
    # 0.2 for three epochs of five, then half a cosine: halved when half of the rest is gone, next to nothing at last
    assert [config.rate(epoch) for epoch in (1, 24, 25, 33)] == pytest.approx([0.2, 0.2, 0.2, 0.1])
    assert 0 < config.rate(40) < 0.002
    assert TrainConfig(learning_rate=0.5, accuracy_epochs=5).rate(5) == pytest.approx(0.25)
    # λ of the softmax is a sum's, not a mean's: the diversity phase does not take it over
    assert TrainConfig(l2=8.0).decay == 0.0001
    assert TrainConfig(model="bpr", l2=8.0).decay == 8.0
    assert TrainConfig(model="mse", accuracy_epochs=0).epochs == 0


@pytest.mark.parametrize(
    ("given", "model", "by_epochs"),
    [
        ({}, "auto", False),
        ({"dim": 8}, "auto", False),
        ({"model": "softmax"}, "softmax", False),
        ({"model": "softmax", "l2": 8.0}, "softmax", True),
        ({"accuracy_epochs": 3}, "softmax", True),
        ({"method": "divmf"}, "softmax", True),
        ({"model": "bpr"}, "bpr", True),
        ({"preset": "paper"}, "bpr", True),
        ({"model": "ease", "l2": 400.0}, "ease", False),
    ],
)
def test_which_model_learns_and_how(given: dict[str, Any], model: str, by_epochs: bool) -> None:
    config = TrainConfig(**given)
    assert (config.model, config.by_epochs) == (model, by_epochs)
    assert TrainConfig(**asdict(config)) == config  # as a run folder keeps it


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model": "auto", "l2": 1.0}, "l2 is a setting of models trained by epochs"),
        ({"model": "ials", "patience": 3}, "patience is a setting of models trained by epochs"),
        ({"model": "ease", "dim": 8}, "ease has none: leave it out, or choose ials or softmax"),
        ({"model": "ease", "method": "divmf"}, "method divmf trains vectors; model ease does not go with it"),
        ({"budget": "soon"}, "a time such as 60s, 5m or 1h, not 'soon'"),
        ({"budget": "-3s"}, "greater than 0"),
    ],
)
def test_a_setting_that_a_model_does_not_have_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        TrainConfig(**given)


def test_a_budget_may_have_a_unit() -> None:
    assert [TrainConfig(budget=given).budget for given in (60, "60", "60s", "5m", "1.5h")] == [60, 60, 60, 300, 5400]  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [{}, {"model": "bpr"}, {"method": "divmf"}])
def test_the_alternating_schedule_is_the_papers_alone(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="set model to bpr or mse, and method to divmf"):
        TrainConfig(schedule="alternating", **given)
    assert TrainConfig(schedule="alternating", preset="paper").schedule == "alternating"


@pytest.mark.parametrize(
    "wrong",
    [{"k": 0}, {"k": -3}, {"dim": 0}, {"learning_rate": -1}, {"rows": 0}, {"unmask_policy": "best"}, {"eps": 0}],
)
def test_absurd_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        TrainConfig(**wrong)


@pytest.mark.parametrize("wrong", [{"diversity_epoch": 3}, {"random_state": 1}, {"eps": float("inf")}])
def test_a_misspelt_or_infinite_setting_is_refused(wrong: dict[str, Any]) -> None:
    # pydantic's dataclasses pass over unknown names unless told otherwise
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        TrainConfig(**wrong)


def test_a_diversity_phase_without_regularizers_is_refused() -> None:
    with pytest.raises(ValidationError, match="both off"):
        TrainConfig(reg_cov=False, reg_skew=False)


@given(st.integers(1, 9000), st.integers(1, 5), st.floats(0, 1), st.floats(0, 1))
def test_a_share_of_the_users_begins_with_the_vectors_it_has_among_all(
    n_users: int, dim: int, one: float, other: float
) -> None:
    first, last = sorted((int(one * n_users), int(other * n_users)))
    whole = MF.random(n_users, 3, dim, torch.Generator().manual_seed(1))
    share = MF.random(n_users, 3, dim, torch.Generator().manual_seed(1), slice(first, last))
    assert torch.equal(share.users, whole.users[first:last])
    assert torch.equal(share.items, whole.items)
    drawn = torch.empty(n_users, dim).normal_(0, 0.01, generator=torch.Generator().manual_seed(1))
    assert torch.equal(whole.users, drawn)


def test_an_epoch_draws_the_same_whatever_came_before() -> None:
    assert epoch_rng(3, "accuracy", 7).random() == epoch_rng(3, "accuracy", 7).random()
    draws = {epoch_rng(s, p, e).random() for s in (0, 1) for p in ("accuracy", "diversity") for e in (1, 2)}
    assert len(draws) == 8


@pytest.mark.parametrize("accuracy", ["bpr", "softmax"])
def test_an_accuracy_epoch_learns_what_users_met(accuracy: Any) -> None:
    data = some_data(60, 40)
    config = TrainConfig(model=accuracy, l2=0.0)
    model = initial_model(data.n_users, data.n_items, config)
    optimiser = adam(model, 0.02 if accuracy == "bpr" else 0.1, 0.0)
    found = [accuracy_epoch(model, data, config, optimiser, epoch_rng(0, "accuracy", e)) for e in range(1, 30)]
    # random vectors know nothing: which of two items, or of all 40, was met
    assert found[0] == pytest.approx(np.log(2 if accuracy == "bpr" else 40), abs=0.01)
    scores = model.scores(slice(None)).detach().numpy()
    met = data.matrix.toarray() > 0
    assert scores[met].mean() > scores[~met].mean() + 2
    n_met = met.sum(axis=1)
    least = 0.0 if accuracy == "bpr" else (n_met * np.log(n_met)).sum() / n_met.sum()  # all that was met ties
    assert least < found[-1] < least + 0.3


def trained(monkeypatch: pytest.MonkeyPatch, n_threads: int, config: TrainConfig, data: Interactions) -> MF:
    import numba

    before = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(n_threads)
    numba.set_num_threads(min(n_threads, numba.config.NUMBA_NUM_THREADS))
    pool = ThreadPoolExecutor(n_threads)
    monkeypatch.setattr(threads, "workers", lambda: pool)
    try:
        model = initial_model(data.n_users, data.n_items, config)
        optimiser = adam(model, 0.01, config.decay)
        for epoch in (1, 2):
            accuracy_epoch(model, data, config, optimiser, epoch_rng(config.seed, "accuracy", epoch))
            diversity_epoch(model, data, config, optimiser, epoch_rng(config.seed, "diversity", epoch))
    finally:
        torch.set_num_threads(before[0])
        numba.set_num_threads(before[1])
        pool.shutdown()
    return model


@pytest.mark.parametrize(("accuracy", "policy"), [("bpr", "top"), ("bpr", "random"), ("softmax", "top")])
def test_the_number_of_threads_does_not_change_the_result(
    monkeypatch: pytest.MonkeyPatch, accuracy: Any, policy: Any
) -> None:
    data = some_data(200, 80)
    config = TrainConfig(
        model=accuracy, l2=0.5 if accuracy == "softmax" else None, k=3, unmask=10, unmask_policy=policy, batch=512,
        rows=50, columns=30,
    )  # fmt: skip
    one, two = (trained(monkeypatch, n_threads, config, data) for n_threads in (1, 2))
    assert_close(one.users, two.users, rtol=1e-5, atol=1e-6)
    assert_close(one.items, two.items, rtol=1e-5, atol=1e-6)


def test_diversity_epochs_lower_the_loss_and_spread_the_lists() -> None:
    data = some_data(60, 40)
    config = TrainConfig(k=3, unmask=10)
    model = initial_model(data.n_users, data.n_items, config)
    optimiser = adam(model, 0.02, config.decay)
    found = [diversity_epoch(model, data, config, optimiser, epoch_rng(0, "diversity", e)) for e in range(1, 40)]
    assert found[-1] < found[0] - 0.3


@pytest.mark.parametrize("accuracy", ["bpr", "softmax"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_loss_that_is_no_number_stops_training(accuracy: Any, dtype: torch.dtype) -> None:
    data = some_data()
    model = MF(*(tensor.detach().to(dtype) for tensor in some_model(data).tensors().values()))
    for table in (model.users, model.items):
        table.requires_grad_()
    with torch.no_grad():
        model.users[0, 0] = torch.nan
    optimiser = torch.optim.Adam([model.users, model.items], lr=0.1)
    with pytest.raises(TrainingDiverged, match="smaller learning rate"):
        accuracy_epoch(model, data, TrainConfig(model=accuracy, l2=0.1), optimiser, epoch_rng(0, "accuracy", 1))
    with pytest.raises(TrainingDiverged, match="diversity loss"):
        diversity_epoch(model, data, TrainConfig(k=2), optimiser, epoch_rng(0, "diversity", 1))


def test_a_user_who_has_seen_nearly_everything_gives_no_nan() -> None:
    import polars as pl

    pairs = [(0, i) for i in range(9)] + [(u, u % 10) for u in range(1, 12)]
    data = Interactions.from_frame(pl.DataFrame(pairs, schema=["user_id", "item_id"], orient="row"))
    model = some_model(data)
    total = diversity_gradient(model, np.arange(data.n_users), None, data.matrix, TrainConfig(k=5, unmask=100), 0)
    assert np.isfinite(total)
    assert torch.isfinite(model.users.grad).all()
    assert torch.isfinite(model.items.grad).all()
