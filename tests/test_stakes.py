"""What users have at stake: how it is read off what is held out, and what it does to lists."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import sparse

from divmf.data.datasets import marketplace
from divmf.data.interactions import Interactions
from divmf.data.split import Split
from divmf.engine.arrays import Array
from divmf.estimator import Recommender
from divmf.market.stakes import PRIOR, spreads_of, stake_of, stakes_of, steadied
from divmf.models.config import TrainConfig
from divmf.train.fitting import fit
from divmf.train.runs import Run


def rows(counts: list[int]) -> sparse.csr_array:
    return sparse.csr_array([[column < n for column in range(max(counts))] for n in counts], dtype=np.int8)


def test_stakes_grow_with_the_power_of_interactions_by_hand() -> None:
    # (n + 50) is 50, 60 and 100: their mean is 70
    assert stakes_of(rows([0, 10, 50]), 1.0) == pytest.approx([50 / 70, 60 / 70, 100 / 70])
    assert stakes_of(rows([0, 10, 50]), 0.5) == pytest.approx(np.sqrt([50 / 70, 60 / 70, 100 / 70]))
    assert (stakes_of(rows([0, 10, 50]), 0.0) == 1).all()
    assert PRIOR == 50  # docs and the help say so


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


@pytest.fixture(scope="module")
def split() -> Split:
    return marketplace(300, 120, 9_000).hold_out(seed=0)


def changed_by_group(run: Run, split: Split) -> Array:
    """Of the half of the users with few interactions, and of the others: the share of places changed at the last ρ."""
    lists = [Recommender.at(run, run.read_curve().operating[at], split).lists(seen="train").items for at in (0, -1)]
    kept = [len(set(one) & set(other)) / 5 for one, other in zip(*(found.tolist() for found in lists), strict=True)]
    n = np.diff(split.train.matrix.indptr)
    return np.array([1 - np.mean(np.array(kept)[group]) for group in (n <= np.median(n), n > np.median(n))])


def test_with_stakes_those_with_few_interactions_give_way_first(split: Split, tmp_path: Path) -> None:
    made = {}
    for power in (0.0, 1.0):
        config = TrainConfig(l2=8.0, learning_rate=0.2, accuracy_epochs=15, diversity_epochs=6, stake=power)
        run = Run.start(tmp_path / str(power), split, config)
        list(fit(run, split, config))
        made[power] = changed_by_group(run, split)
    assert made[1.0][0] > made[0.0][0]
    assert made[1.0][1] < made[0.0][1]


def test_spreads_and_steadied_weights_by_hand() -> None:
    scores = np.array([[5.0, 1.0, 2.0, -np.inf], [0.2, 0.1, 0.15, 0.0], [-np.inf] * 4], dtype=np.float32)
    assert spreads_of(scores) == pytest.approx([4.0, 0.2, 0.0])
    many = np.arange(100, dtype=np.float32)[None]
    assert spreads_of(many) == pytest.approx([31.0])  # the best is 99, the 32nd 68
    # whoever has less than the usual spread of 2 is raised to it; who has more stays
    assert steadied(np.array([1.0, 0.5]), np.array([4.0, 0.2]), 2.0) == pytest.approx([1.0, 10.0])
    assert steadied(np.array([1.0, 0.5]), np.array([4.0, 0.2]), 0.0) == pytest.approx([1.0, 0.5])
