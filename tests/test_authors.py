"""The reading of curves in the benchmark on the authors' splits."""

import polars as pl
import pytest
from benchmarks.authors import base_of, chosen, gini_at


def points(*rows: tuple[str, float, float, float]) -> pl.DataFrame:
    """(phase, nDCG on validation, nDCG on test, Gini, the same on both)."""
    frame = pl.DataFrame(rows, schema=["phase", "valid_ndcg", "test_ndcg", "test_gini"], orient="row")
    return frame.with_columns(pl.col("test_gini").alias("valid_gini"))


CURVE = points(
    ("accuracy", 0.10, 0.30, 0.95), ("accuracy", 0.20, 0.22, 0.90), ("accuracy", 0.15, 0.40, 0.85),
    ("diversity", 0.19, 0.17, 0.80), ("diversity", 0.20, 0.18, 0.70), ("diversity", 0.15, 0.15, 0.50),
)  # fmt: skip


def test_mf_is_the_best_accuracy_epoch_on_validation() -> None:
    assert base_of(CURVE)["test_ndcg"] == 0.22


def test_gini_at_a_pooled_ndcg_lies_between_the_last_two_points_around_it() -> None:
    # pooled .21, .18, .19, .15: .18 lies a quarter of the way from .19 to .15; below .20 it falls only before that
    assert gini_at(CURVE, 0.18) == pytest.approx(0.70 - 0.25 * 0.20)
    assert gini_at(CURVE, 0.20) == pytest.approx(0.90 - 0.10 / 3)
    assert gini_at(CURVE, 0.14) is None
    assert gini_at(CURVE, 0.30) is None


def test_a_point_is_chosen_by_validation_among_those_that_keep_enough() -> None:
    assert chosen(CURVE, 0.0)["test_gini"] == 0.70
    assert chosen(CURVE, 0.3)["test_gini"] == 0.50
