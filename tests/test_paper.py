"""Claims on real data: what the project promises to show. Slow: each trains for minutes."""

from collections.abc import Callable
from pathlib import Path

import pytest

import divmf

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def two_threads() -> None:
    import numba
    import torch

    torch.set_num_threads(2)
    numba.set_num_threads(min(2, numba.config.NUMBA_NUM_THREADS))


def test_movielens_1m_under_the_honest_protocol(real: Callable[[str], Path]) -> None:
    data = divmf.Interactions.read(real("ml-1m.parquet"))
    assert (data.n_users, data.n_items, len(data)) == (6040, 3706, 1_000_209)
    model = divmf.DivMF(preset="paper", k=5, seed=0, diversity_epochs=80).fit(data.leave_one_out(seed=0))
    base = model.curve.base
    assert base.test["ndcg"] >= 0.027
    assert base.valid["coverage"] == pytest.approx(0.38, abs=0.04)
    chosen = model.at(ndcg_drop=0.05).point
    assert chosen.valid["ndcg"] >= 0.95 * base.valid["ndcg"]
    assert chosen.valid["coverage"] >= 1.3 * base.valid["coverage"]
    assert chosen.valid["gini"] <= 0.84


def test_epinions_15_reaches_nearly_the_whole_catalog(real: Callable[[str], Path]) -> None:
    split = divmf.Interactions.read(real("epinions.parquet")).k_core(15).leave_one_out(seed=0)
    assert (split.n_users, split.n_items) == (5531, 4287)
    model = divmf.DivMF(preset="paper", k=5, seed=0).fit(split)
    curve = model.curve
    assert curve.base.test["ndcg"] >= 0.019
    assert max(point.test["coverage"] for point in curve.points) >= 0.95
    assert min(point.test["gini"] for point in curve.points) <= 0.55
