"""The reading of curves in the benchmark on the authors' splits."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from benchmarks import plain
from benchmarks.authors import RELEASE, accuracy_table, base_of, chosen, file_of, gini_at
from scipy import sparse

from divmf.data.datasets import marketplace
from divmf.ranking.lists import TopK
from divmf.ranking.metrics import measure


def points(*rows: tuple[str, float, float, float]) -> pl.DataFrame:
    """(phase, nDCG on validation, nDCG on test, Gini, the same on both), an epoch each."""
    frame = pl.DataFrame(rows, schema=["phase", "valid_ndcg", "test_ndcg", "test_gini"], orient="row")
    frame = frame.with_row_index("epoch", offset=1)
    return frame.with_columns(pl.col("test_gini").alias("valid_gini"))


CURVE = points(
    ("accuracy", 0.10, 0.30, 0.95), ("accuracy", 0.20, 0.22, 0.90), ("accuracy", 0.15, 0.40, 0.85),
    ("diversity", 0.19, 0.17, 0.80), ("diversity", 0.20, 0.18, 0.70), ("diversity", 0.15, 0.15, 0.50),
)  # fmt: skip


def test_mf_is_the_best_accuracy_epoch_on_validation() -> None:
    assert base_of(CURVE)["test_ndcg"] == 0.22


def test_mf_of_preset_release_is_the_last_accuracy_epoch_with_which_its_curve_begins() -> None:
    assert base_of(CURVE, RELEASE)["test_ndcg"] == 0.40
    assert chosen(CURVE, 0.0, RELEASE)["test_gini"] == 0.50  # of a validation nDCG of 0.15
    assert gini_at(CURVE, 0.19, RELEASE) == pytest.approx(0.70)  # pooled .275, .18, .19, .15


def test_the_table_has_the_epoch_by_validation_a_fixed_one_and_the_best_on_the_test(tmp_path: Path) -> None:
    for seed in (0, 1):
        tests = np.full(40, 0.30 + seed / 10)
        tests[[9, 29, 39]] += (0.01, 0.02, 0.03)  # the best on validation, the thirtieth, the best on the test
        frame = pl.DataFrame({"epoch": range(1, 41), "valid_ndcg": [0.1] * 40, "test_ndcg": tests, "loss": [0.5] * 40})
        better = pl.when(pl.col("epoch") == 10).then(0.2).otherwise("valid_ndcg").alias("valid_ndcg")
        path = file_of(tmp_path, "ml-1m", "preset paper", seed)
        path.parent.mkdir(exist_ok=True)
        frame.with_columns(better, pl.lit("accuracy").alias("phase")).write_parquet(path)
    counts = {"preset release": 0, "preset paper": 2, "MF, pairs shuffled": 0, "MF, a plain torch loop": 0}
    row = list(accuracy_table(tmp_path, "ml-1m", counts))[1].split(" | ")
    means = [f"{0.35 + more:.4f} ± 0.0500" for more in (0.01, 0.02, 0.03)]
    assert (row[2], row[3], row[5], row[6], row[7]) == (means[0], "0.3100–0.4100", "10", means[1], means[2])


def test_gini_at_a_pooled_ndcg_lies_between_the_last_two_points_around_it() -> None:
    # pooled .21, .18, .19, .15: .18 lies a quarter of the way from .19 to .15; below .20 it falls only before that
    assert gini_at(CURVE, 0.18) == pytest.approx(0.70 - 0.25 * 0.20)
    assert gini_at(CURVE, 0.20) == pytest.approx(0.90 - 0.10 / 3)
    assert gini_at(CURVE, 0.14) is None
    assert gini_at(CURVE, 0.30) is None


def test_a_point_is_chosen_by_validation_among_those_that_keep_enough() -> None:
    assert chosen(CURVE, 0.0)["test_gini"] == 0.70
    assert chosen(CURVE, 0.3)["test_gini"] == 0.50


def test_the_plain_loop_draws_what_is_not_in_train_and_measures_as_we_do() -> None:
    rng = np.random.default_rng(0)
    seen, scores = rng.random((20, 30)) < 0.4, rng.normal(size=(20, 30))
    users = np.repeat(np.arange(20), 50)
    assert not seen[users, plain.negatives(users, seen, rng)].any()
    held = np.zeros_like(seen)
    held[np.arange(20), [rng.choice(np.flatnonzero(~row)) for row in seen]] = True
    order = np.argsort(-np.where(seen, -np.inf, scores), axis=1)[:, :10].astype(np.int32)
    lists = TopK(order, np.zeros(order.shape, dtype=np.float32), pl.Series(range(20)), pl.Series(range(30)))
    found = plain.ndcg(*(torch.from_numpy(each) for each in (scores, seen, held)))
    for k, value in zip(plain.LENGTHS, found, strict=True):
        assert value == pytest.approx(measure(lists, sparse.csr_array(held), np.ones(30), k)["ndcg"])


def test_the_plain_loop_goes_on_until_validation_is_no_better() -> None:
    split = marketplace(users=60, items=30, interactions=900, seed=2).leave_one_out(0)
    parts = {"train": split.train, "validation": split.valid, "test": split.test}
    table = pl.concat(
        pl.DataFrame({"user_id": part.users, "item_id": part.items, "split": [name] * len(part)})
        for name, part in parts.items()
    )
    found = plain.plain_bpr(table, 0, patience=3)
    best = base_of(found)
    assert found["epoch"].to_list() == list(range(1, len(found) + 1))
    assert found["loss"][0] == pytest.approx(np.log(2), rel=1e-3)  # −log σ(0)
    assert found["valid_ndcg"][:-3].max() == best["valid_ndcg"] >= found["valid_ndcg"][-3:].max()
