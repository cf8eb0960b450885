"""Exposure of the first slots, and by attention."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divmf.ranking.lists import TopK
from divmf.ranking.metrics import coverage, entropy, gini
from divmf.ranking.slots import exposure_by_slots


def lists_of(rows: list[list[int]], n_items: int) -> TopK:
    items = np.array(rows, dtype=np.int32)
    scores = np.zeros(items.shape, dtype=np.float32)
    return TopK(items, scores, pl.Series(range(len(rows))), pl.Series(range(n_items)))


def test_everybody_may_see_the_same_first_and_other_items_after_it_by_hand() -> None:
    found = exposure_by_slots(lists_of([[0, 1], [0, 2], [0, 3]], 4))
    assert list(found) == ["first slot", "all 2", "by attention"]
    assert found["first slot"] == {"coverage": 0.25, "coverage_ceiling": 0.75, "entropy": 0.0, "gini": 1.0}
    assert found["all 2"]["coverage"] == 1.0
    # 3, 1, 1, 1 showings: (−3 − 1 + 1 + 3·3)/(6·3)
    assert found["all 2"]["gini"] == pytest.approx(1 / 3)
    weight = 1 / np.log2(3)
    exposed = np.array([3, weight, weight, weight])
    assert found["by attention"]["gini"] == pytest.approx((9 - 3 * weight) / (3 * exposed.sum()))
    assert found["by attention"]["gini"] > found["all 2"]["gini"]


@given(st.integers(1, 9), st.integers(0, 99))
def test_all_slots_are_what_the_metrics_count(k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(12)[:k].tolist() for _ in range(7)]
    rows[0] = [-1] * k  # nobody's list
    found, counts = (
        exposure_by_slots(lists_of(rows, 12)),
        np.bincount([i for row in rows[1:] for i in row], minlength=12),
    )
    assert found[f"all {k}"] == pytest.approx({
        "coverage": coverage(counts), "coverage_ceiling": min(1, 6 * k / 12), "entropy": entropy(counts),
        "gini": gini(counts),
    })  # fmt: skip
    assert [name for name in found if name.startswith("first")] == ["first slot", "first 3", "first 5"][
        : sum(k > n for n in (1, 3, 5))
    ]


def test_a_shorter_k_counts_its_slots_alone() -> None:
    found = exposure_by_slots(lists_of([[0, 1, 2], [2, 1, 0]], 3), 2)
    assert list(found) == ["first slot", "all 2", "by attention"]
    assert found["all 2"]["coverage"] == 1.0
    assert found["first slot"]["coverage"] == pytest.approx(2 / 3)
