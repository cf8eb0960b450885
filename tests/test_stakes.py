"""What users have at stake: how it is read off what is held out, and what it does to lists."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from scipy import sparse

from divmf.data.datasets import marketplace
from divmf.data.interactions import Interactions
from divmf.data.split import Split
from divmf.engine.arrays import Array
from divmf.estimator import DivMF, load
from divmf.market.prices import place_weights
from divmf.market.stakes import PRIOR, stake_of, stakes_of
from divmf.models.config import TrainConfig
from divmf.models.mf import MF
from divmf.ranking.retrieval import recommend
from divmf.train.fitting import fit
from divmf.train.runs import Run


def rows(counts: list[int]) -> sparse.csr_array:
    return sparse.csr_array([[column < n for column in range(max(counts))] for n in counts], dtype=np.int8)


def test_stakes_grow_with_the_power_of_interactions_by_hand() -> None:
    # (n + 50) is 50, 60 and 100: their mean is 70
    assert stakes_of(rows([0, 10, 50]), 1.0) == pytest.approx([50 / 70, 60 / 70, 100 / 70])
    assert stakes_of(rows([0, 10, 50]), 0.5) == pytest.approx(np.sqrt([50 / 70, 60 / 70, 100 / 70]))
    assert (stakes_of(rows([0, 10, 50]), 0.0) == 1).all()


def some_data(counts: list[int]) -> Interactions:
    pairs = [(user, item) for user, n in enumerate(counts) for item in range(n)]
    return Interactions.from_frame(pl.DataFrame(pairs, schema=["user_id", "item_id"], orient="row"))


def with_held(past: list[int], held: list[int]) -> Split:
    data = some_data([one + other for one, other in zip(past, held, strict=True)])
    first = np.concatenate([np.arange(one + other) < one for one, other in zip(past, held, strict=True)])
    return Split(data.where(first), data.where(~first), data.where(~first))


@pytest.mark.parametrize(
    ("past", "held", "power"),
    [
        ([10, 20, 30, 40], [1, 1, 1, 1], 0.0),
        ([10, 20, 30, 40], [1, 2, 3, 4], 1.0),
        # the line through (10, 2), (20, 3), (30, 4): a tenth more for one more; at the mean (20, 3) that is 2/3
        ([10, 20, 30], [2, 3, 4], 2 / 3),
        ([10, 20, 30, 5], [2, 3, 4, 0], 2 / 3),  # who has nothing held out says nothing
        ([10, 20, 30], [4, 3, 2], 0.0),  # never below 0,
        ([10, 20, 30], [1, 4, 9], 1.0),  # nor above 1
        ([7, 7, 7], [1, 2, 3], 0.0),  # all alike: nothing to be seen
    ],
)
def test_the_power_is_how_what_is_held_out_grows_with_the_past(past: list[int], held: list[int], power: float) -> None:
    assert stake_of(with_held(past, held)) == pytest.approx(power, abs=1e-12)


def test_leave_one_out_has_no_stakes_and_a_share_of_everybody_has_whole_ones() -> None:
    data = marketplace()
    assert stake_of(data.leave_one_out(seed=0)) == 0.0
    assert stake_of(data.hold_out(seed=0)) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("bias", [[0.0, 0.0, 0.0], [0.5, -1.0, 2.0]])
def test_weights_leave_lists_without_prices_as_they_are_and_multiply_scores(bias: list[float]) -> None:
    generator = torch.Generator().manual_seed(0)
    model = MF(torch.randn(4, 2, generator=generator), torch.randn(3, 2, generator=generator), torch.tensor(bias))
    weights = torch.tensor([1.0, 0.5, 2.0, 3.0])
    weighted = model.weighted(weights)
    assert torch.allclose(weighted.scores(slice(None)), weights[:, None] * model.scores(slice(None)), atol=1e-6)
    nothing = sparse.csr_array((4, 3), dtype=np.int8)
    assert np.array_equal(recommend(weighted, nothing, 3)[0], recommend(model, nothing, 3)[0])


def test_the_more_is_at_stake_the_later_a_list_gives_way_by_hand() -> None:
    # both users like item 0 by 1 more than item 1; a discount of 1.5 on item 1 moves the first, who has half as much at
    # stake, not the second, for whom it would have to be 2
    model = MF(torch.ones(2, 1), torch.tensor([[1.0], [0.0]]), torch.zeros(2)).weighted(torch.tensor([1.0, 2.0]))
    priced = MF(model.users, model.items, model.bias, price=torch.tensor([0.0, -1.5]))
    assert recommend(priced, sparse.csr_array((2, 2), dtype=np.int8), 1)[0].tolist() == [[1], [0]]


@pytest.fixture(scope="module")
def split() -> Split:
    return marketplace(300, 120, 9_000).hold_out(seed=0)


def changed_by_group(run: Run, split: Split) -> Array:
    """Of the half of the users with few interactions, and of the others: the share of places changed at the last ρ."""
    lists = [recommend(run.model(run.curve.operating[at]), split.train.matrix, 5)[0] for at in (0, -1)]
    kept = [len(set(one) & set(other)) / 5 for one, other in zip(*(found.tolist() for found in lists), strict=True)]
    n = np.diff(split.train.matrix.indptr)
    return np.array([1 - np.mean(np.array(kept)[group]) for group in (n <= np.median(n), n > np.median(n))])


def test_with_stakes_those_with_few_interactions_give_way_first(split: Split, tmp_path: Path) -> None:
    made = {}
    for power in (0.0, 1.0):
        config = TrainConfig(
            method="prices", l2=8.0, learning_rate=0.2, accuracy_epochs=15, diversity_epochs=6, stake=power
        )
        run = Run.start(tmp_path / str(power), split, config)
        list(fit(run, split, config))
        made[power] = changed_by_group(run, split)
    assert made[1.0][0] > made[0.0][0]
    assert made[1.0][1] < made[0.0][1]


def test_stakes_are_kept_with_the_run_and_the_saved_model(split: Split, tmp_path: Path) -> None:
    settings = {"method": "prices", "l2": 8.0, "learning_rate": 0.2, "accuracy_epochs": 15, "diversity_epochs": 6}
    model = DivMF(**settings).fit(split, run=tmp_path / "run")
    chosen = model.at(ndcg_drop=0.1)
    assert chosen.point.knob
    stakes = torch.from_numpy(stakes_of(split.train.matrix, stake_of(split)))
    scale = torch.from_numpy(model.run.standing(chosen.point).scale)
    base = model.run.model(model.curve.base)
    assert torch.allclose(chosen.weights.users, base.users * scale[:, None])
    # from what is at stake, where the last place of a list counts, to the first place's multiple of it
    assert (scale / stakes).min() >= 0.999
    assert (scale / stakes).max() <= 1.001 * place_weights(5)[0]
    assert len(scale.unique()) > 50
    assert PRIOR == 50  # docs and the help say so
    chosen.save(tmp_path / "model")
    again, reopened = load(tmp_path / "model"), DivMF.load(tmp_path / "run").at(ndcg_drop=0.1)
    for other in (again, reopened):
        assert np.array_equal(other.lists().items, chosen.lists().items)
    measured = chosen.lists(seen="train").counts
    assert (measured > 0).mean() == pytest.approx(chosen.point.valid["coverage"])
