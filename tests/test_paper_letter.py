"""The paper's equations written down plainly, beside what training does: presets, blocks, the joint schedule."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import sparse
from torch import Tensor

from divmf.data.datasets import marketplace
from divmf.data.split import Split
from divmf.models.config import TrainConfig
from divmf.models.diversity import Lengths, diversity_gradient
from divmf.models.epochs import epoch_rng, joint_epoch, optimisers_of
from divmf.models.mf import MF
from divmf.models.sampling import sample_chunks, submatrices
from divmf.ranking.lists import TopK
from divmf.ranking.metrics import measure
from divmf.ranking.retrieval import recommend
from divmf.train.fitting import fit
from divmf.train.runs import Run


def regularizers(scores: Tensor, kept: int, eps: float, skewed: int | None = None) -> tuple[Tensor, Tensor]:
    """Reg_cov and Reg_skew of Sec. 3.2, T = top(S, kept); skewed: how many entries of S Reg_skew reads, if not T's."""
    s = scores.exp() / scores.exp().sum(dim=1, keepdim=True)
    t, read = torch.zeros_like(s), torch.zeros_like(s)
    for user in range(len(s)):
        order = sorted(range(s.shape[1]), key=lambda item, row=s[user]: (-row[item].item(), item))
        for item in order[:kept]:
            t[user, item] = s[user, item]
        for item in order[: skewed or kept]:
            read[user, item] = s[user, item]
    cov = -sum((t[:, item].sum() + eps).log() for item in range(s.shape[1]))
    skew = torch.zeros((), dtype=s.dtype)
    for row in read:
        whole = row.sum()
        for entry in row[row > 0]:
            skew = skew + entry / whole * (entry / whole).log()
    return torch.as_tensor(cov), skew


def some_model(n_users: int, n_items: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> MF:
    generator = torch.Generator().manual_seed(seed)
    tables = [torch.randn(n, 4, generator=generator, dtype=torch.float64).to(dtype) for n in (n_users, n_items)]
    return MF(tables[0].requires_grad_(), tables[1].requires_grad_(), torch.zeros(n_items, dtype=dtype))


def some_seen(n_users: int, n_items: int) -> sparse.csr_array:
    """Half of all pairs: a softmax that leaves them out is another one."""
    return sparse.csr_array((np.random.default_rng(1).random((n_users, n_items)) < 0.5).astype(np.float32))


@pytest.mark.parametrize(
    ("given", "in_block", "kept", "skewed"),
    [
        # the letter: all of T, k + n = 3 + 4, seen items in it
        ({"preset": "paper", "k": 3, "unmask": 4}, 40, 7, None),
        # 4 blocks of 10 of 40: a share of 0.75 of 3 listed items makes 1, with ceil(6/4) unmasked; Reg_skew of all of T
        ({"preset": "paper", "k": 3, "unmask": 6, "columns": 10}, 10, 3, None),
        # the release, whole: T of its own 5 + 4, Reg_skew of the 5 best
        ({"preset": "release", "diversity_k": 5, "unmask": 4}, 40, 9, 5),
        # the release in 8 blocks: ceil(6/8) listed, ceil(9/8) unmasked; Reg_skew reads all its 6 best of the block
        ({"preset": "release", "diversity_k": 6, "unmask": 9, "columns": 5}, 5, 3, 5),
        ({"preset": "release", "diversity_k": 4, "unmask": 9, "columns": 5}, 5, 3, 4),
        # ours in blocks: a share of 0.5 of 4, so 1 listed, and Reg_skew of the 4 best of the block
        ({"k": 4, "unmask": 0, "columns": 5, "mask_seen": False, "skew_rows": "list"}, 5, 1, 4),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("used", [(True, True), (True, False), (False, True)])
def test_the_gradient_is_that_of_the_equations(
    given: dict[str, Any], in_block: int, kept: int, skewed: int | None, dtype: torch.dtype, used: tuple[bool, bool]
) -> None:
    # float64 takes the chunks, float32 the kernel
    model, seen = some_model(9, 40, dtype), some_seen(9, 40)
    settings = {"reg_cov": used[0], "reg_skew": used[1]} | given
    config = TrainConfig(**settings)
    users, items = np.arange(9), None if in_block == 40 else np.arange(40)[3 : 3 + in_block]
    loss = diversity_gradient(model, users, items, seen, config, 0)
    tables = [table.detach().double().requires_grad_() for table in (model.users, model.items)]
    scores = (tables[0] @ tables[1].T)[:, slice(None) if items is None else items]
    both = regularizers(scores, kept, config.eps, skewed)
    expected = sum(term for term, wanted in zip(both, used, strict=True) if wanted)
    close = {"rtol": 1e-10, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 2e-5}
    assert loss == pytest.approx(float(expected.detach()), rel=1e-5 if dtype == torch.float32 else 1e-10)
    gradients = torch.autograd.grad(expected, tables)
    for table, gradient in zip((model.users, model.items), gradients, strict=True):
        assert_allclose(table.grad.numpy(), gradient.numpy(), **close)


@pytest.mark.parametrize("preset", ["paper", "release"])
def test_at_the_papers_own_size_reg_skew_has_a_gradient(preset: Any) -> None:
    # Gowalla-15, r_b = c_b = 5,000, 500 unmasked: a block holds 0.39 of 5 places, and one score alone is never skewed
    n_users, n_items = 34_688, 63_729
    config = TrainConfig(preset=preset, unmask=500, rows=5000, columns=5000, reg_cov=False)
    lengths = Lengths.of(config, n_items, 5000)
    assert lengths == (Lengths(1, 39, 40) if preset == "paper" else Lengths(1, 39, 10))
    model, nothing = some_model(n_users, n_items, torch.float32), sparse.csr_array((n_users, n_items))
    users, items = next(submatrices(n_users, n_items, 5000, 5000, np.random.default_rng(0)))
    assert items is not None
    diversity_gradient(model, users, items, nothing, config, 0)
    some, vectors = users[:20], model.items.detach().double()[items]
    own = model.users.detach().double()[some].requires_grad_()
    _, skew = regularizers(own @ vectors.T, lengths.kept, config.eps, lengths.skewed)
    (expected,) = torch.autograd.grad(skew, [own])
    assert model.users.grad is not None
    assert float(expected.abs().max()) > 0.1
    assert_allclose(model.users.grad[some].numpy(), expected.numpy(), rtol=2e-3, atol=1e-4)


def test_a_share_of_a_place_is_taken_to_the_nearest_whole_and_at_least_one() -> None:
    def listed(k: int, n_items: int, columns: int, in_block: int) -> int:
        return Lengths.of(TrainConfig(k=k, columns=columns), n_items, in_block).listed

    # MovieLens-1M in five blocks: 5·742/3706 = 1.001, the last one 0.996
    assert [listed(5, 3706, 742, size) for size in (742, 738)] == [1, 1]
    # MovieLens-10M at 5,000: 2.34 of 5 places, and 0.32 in the last block of 677
    assert [listed(5, 10_677, 5000, size) for size in (5000, 677)] == [2, 1]
    assert listed(5, 20, 10, 10) == 3  # a half goes up
    assert listed(5, 20, 20, 20) == 5


def some_split() -> Split:
    return marketplace(users=60, items=30, interactions=900, seed=2).leave_one_out(0)


@pytest.mark.parametrize(("rows", "columns"), [(None, None), (25, 12)])
@pytest.mark.parametrize("accuracy", ["bpr", "mse"])
def test_a_joint_step_is_one_of_adam_on_the_sum_of_both_losses(accuracy: Any, rows: Any, columns: Any) -> None:
    train = some_split().train
    config = TrainConfig(
        preset="paper", schedule="joint", model=accuracy, k=3, unmask=4, negatives=2, rows=rows, columns=columns
    )
    model, plain = some_model(train.n_users, train.n_items), some_model(train.n_users, train.n_items)
    loss = joint_epoch(model, train, config, optimisers_of(model, config)["diversity"], epoch_rng(0, "diversity", 1))
    adam = torch.optim.Adam([plain.users, plain.items], lr=0.001, weight_decay=0.0001)
    rng, each = epoch_rng(0, "diversity", 1), 2 if accuracy == "mse" else 1
    n_steps = 1 if rows is None else 3 * 3
    blocks = submatrices(train.n_users, train.n_items, rows, columns, rng)
    samples = (batch for chunk in sample_chunks(train, 1, 2, rng, each, n_steps) for batch in chunk.batches())
    total, n_samples = 0.0, 0
    for (block, items), (users, met, unmet) in zip(blocks, samples, strict=True):
        rng.integers(0, 2**63)  # the key of a draw that `top` does not make
        scores = plain.users @ plain.items.T
        apart = scores[users, met][:, None] - scores[users[:, None], unmet]
        if accuracy == "bpr":
            acc = -(1 / (1 + (-apart).exp())).log().sum()
        else:
            acc = (1 - scores[users, met]).square().sum() + scores[users[:, None], unmet].square().sum()
        lengths = Lengths.of(config, train.n_items, train.n_items if items is None else len(items))
        part = scores[block][:, slice(None) if items is None else items]
        together = acc + sum(regularizers(part, lengths.kept, config.eps))
        adam.zero_grad()
        together.backward()
        adam.step()
        total, n_samples = total + float(together.detach()), n_samples + len(users)
    assert n_samples == len(train) * (2 // each)
    assert loss == pytest.approx(total / train.n_users, rel=1e-9)
    assert_allclose(model.users.detach().numpy(), plain.users.detach().numpy(), rtol=1e-6, atol=1e-9)
    assert_allclose(model.items.detach().numpy(), plain.items.detach().numpy(), rtol=1e-6, atol=1e-9)


def test_the_joint_schedule_is_a_curve_of_its_epochs_and_goes_on_after_a_stop(tmp_path: Path) -> None:
    split = some_split()
    config = TrainConfig(preset="paper", schedule="joint", diversity_epochs=4, rows=20, columns=15, dim=4)
    straight, stopped = (Run.start(tmp_path / name, split, config) for name in ("straight", "stopped"))
    points = list(fit(straight, split, config))
    assert [(point.phase, point.epoch) for point in points] == [("diversity", number) for number in (1, 2, 3, 4)]
    for _, _ in zip(range(2), fit(stopped, split, config), strict=False):
        pass
    list(fit(stopped, split, config))
    last = [run.read_model(run.read_curve().points[-1]) for run in (straight, stopped)]
    assert torch.equal(last[0].users, last[1].users)


@pytest.mark.parametrize("given", [{"model": "softmax"}, {"method": "market"}])
def test_the_joint_schedule_is_the_papers_alone(given: dict[str, Any]) -> None:
    settings = {"preset": "paper", "schedule": "joint"} | given
    with pytest.raises(ValueError, match="joint schedule is the paper's"):
        TrainConfig(**settings)


@pytest.mark.parametrize("end", ["best", "last"])
def test_the_diversity_phase_begins_with_the_weights_and_moments_of_one_accuracy_epoch(
    end: Literal["best", "last"], tmp_path: Path
) -> None:
    # patience ends three epochs after the best, a fixed number of epochs wherever it does: here not at the best
    split = some_split()
    config = TrainConfig(
        preset="release", dim=4, patience=3, learning_rate=0.05, batch=64, diversity_epochs=1, seed=1, accuracy_end=end,
        accuracy_epochs=100 if end == "best" else 9,
    )  # fmt: skip
    run = Run.start(tmp_path / "run", split, config)
    points = list(fit(run, split, config))
    accuracy, best = [point for point in points if point.phase == "accuracy"], run.read_curve().base.epoch
    assert best == len(accuracy) - 3 if end == "best" else best < len(accuracy) == 9
    # the same epochs again, to the one that the diversity phase began with and no further
    began = best if end == "best" else 9
    shorter = replace(config, accuracy_epochs=began, diversity_epochs=0)
    again = Run.start(tmp_path / "again", split, shorter)
    list(fit(again, split, shorter))
    state = again.resume(split.n_users)
    model = MF(state["users"], state["items"], state["bias"])
    adam = optimisers_of(model, config)["diversity"]
    for name, table in (("users", model.users), ("items", model.items)):
        adam.state[table] = {
            moment: state[f"accuracy.{name}.{moment}"].clone() for moment in ("step", "exp_avg", "exp_avg_sq")
        }
    diversity_gradient(model, np.arange(model.n_users), None, split.train.matrix, config, 0)
    adam.step()
    found = run.read_model(points[-1])
    assert_allclose(found.users.detach().numpy(), model.users.detach().numpy(), rtol=1e-6, atol=1e-7)
    assert_allclose(found.items.detach().numpy(), model.items.detach().numpy(), rtol=1e-6, atol=1e-7)


def test_a_run_of_the_released_settings_stopped_between_its_phases_goes_on_from_the_last_epoch(tmp_path: Path) -> None:
    split = some_split()
    config = TrainConfig(preset="release", dim=4, learning_rate=0.05, batch=64, accuracy_epochs=5, diversity_epochs=2)
    straight, stopped = (Run.start(tmp_path / name, split, config) for name in ("straight", "stopped"))
    list(fit(straight, split, config))
    for _ in zip(range(5), fit(stopped, split, config), strict=False):
        pass
    assert [point.phase for point in stopped.read_curve().points] == ["accuracy"] * 5
    list(fit(stopped, split, config))
    last = [run.read_model(run.read_curve().points[-1]) for run in (straight, stopped)]
    assert torch.equal(last[0].users, last[1].users)
    assert torch.equal(last[0].items, last[1].items)


def test_the_released_settings_train_for_as_many_epochs_as_the_released_code() -> None:
    released = TrainConfig(preset="release")
    assert (released.epochs, released.diversity_epochs, released.accuracy_end) == (30, 170, "last")
    assert TrainConfig(preset="paper").accuracy_end == "best"


def test_the_released_settings_are_measured_at_both_lengths(tmp_path: Path) -> None:
    split = some_split()
    config = TrainConfig(preset="release", dim=4, accuracy_epochs=2, diversity_epochs=1)
    assert (config.k, config.diversity_k) == (5, 10)
    run = Run.start(tmp_path / "run", split, config)
    point = list(fit(run, split, config))[-1]
    for part, seen, held in (
        (point.valid, split.train.matrix, split.valid.matrix), (point.test, split.seen, split.test.matrix),
    ):  # fmt: skip
        lists = TopK(*recommend(run.read_model(point), seen, 10), split.user_ids, split.item_ids)
        for k, ending in ((5, ""), (10, "@10")):
            expected = measure(lists, held, split.train.popularity, k)
            assert {name: part[f"{name}{ending}"] for name in expected} == pytest.approx(expected)
    assert run.read_curve().points[-1].valid == pytest.approx(dict(point.valid))
