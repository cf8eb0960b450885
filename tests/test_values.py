"""--weight: how much each interaction counts, from the file to the model, and on to people who were not in training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from divmf import DivMF, Interactions, Split, load
from divmf.data.datasets import marketplace, open_data
from divmf.data.fingerprint import fingerprint
from divmf.data.histories import Histories
from divmf.data.stored import read_split, write_split
from divmf.models.auto import refit
from divmf.models.ease import ease
from divmf.models.fold_in import Known, fold_in
from divmf.models.full_softmax import softmax_gradient
from divmf.models.ials import user_vectors
from divmf.models.mf import MF
from divmf.train.final import everything

LOG = pl.DataFrame(
    {"user_id": [1, 1, 1, 2, 2, 3], "item_id": [10, 11, 10, 10, 12, 11], "plays": [5.0, 3.0, 2.5, 2.0, 0.0, 4.5],
     "timestamp": [1, 2, 3, 4, 5, 6]}
)  # fmt: skip
SUMS = {(1, 10): 7.5, (1, 11): 3.0, (2, 10): 2.0, (2, 12): 0.0, (3, 11): 4.5}


def weights_of(*parts: Interactions) -> dict[tuple[Any, Any], float]:
    frame = pl.concat([part.frame for part in parts])
    return {(row["user_id"], row["item_id"]): row["weight"] for row in frame.iter_rows(named=True)}


def weighted(users: int = 60, items: int = 40, pairs: int = 900, seed: int = 0) -> Interactions:
    """A marketplace whose interactions count 0.5 to 4."""
    data = marketplace(users, items, pairs, seed)
    drawn = np.random.default_rng(seed).choice(np.float32([0.5, 1, 2, 4]), len(data))
    return replace(data, weights=drawn)


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_weights_are_read_and_those_of_a_repeated_pair_added_up(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"log.{ending}"
    {"csv": LOG.write_csv, "parquet": LOG.write_parquet, "jsonl": LOG.write_ndjson}[ending](path)
    for read in (Interactions.read, Interactions.read_share, lambda path, weight: open_data(str(path), weight=weight)):
        data = read(path, weight="plays")
        assert weights_of(data) == SUMS
        assert data.merged == 1
        assert data.mean_weight == pytest.approx(17 / 5)
        assert_allclose(data.weighted.toarray()[0], np.float32([7.5, 3.0, 0.0]) / np.float32(17 / 5))
    assert Interactions.read(path).weights is None
    assert repr(Interactions.from_frame(LOG, weight="plays")).endswith("with times, with weights)")


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 64)), min_size=1, max_size=40),
    st.booleans(),
)
def test_sums_are_those_of_a_loop(rows: list[tuple[int, int, int]], timed: bool) -> None:
    sums: dict[tuple[int, int], float] = {}
    for user, item, weight in rows:
        sums[user, item] = sums.get((user, item), 0) + weight / 4
    columns = {"user_id": [row[0] for row in rows], "item_id": [row[1] for row in rows]}
    frame = pl.DataFrame(columns | {"w": [row[2] / 4 for row in rows]})
    if timed:
        frame = frame.with_columns(timestamp=pl.int_range(pl.len(), 0, -1))
    if max(row[2] for row in rows):
        assert weights_of(Interactions.from_frame(frame, weight="w")) == sums
    else:
        with pytest.raises(ValueError, match="the largest weight of column 'w' is 0"):
            Interactions.from_frame(frame, weight="w")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1, -2, 3], "column 'w' holds the weight -2; weights are 0 or more"),
        ([1, None, 3], "column 'w' has 1 rows of 3 without a weight"),
        ([1.0, float("nan"), float("inf")], "column 'w' has 2 rows of 3 without a weight"),
        (["a", "b", "c"], "column 'w' holds String, not weights"),
        ([1e300, 1.0, 1.0], "the largest weight of column 'w' is 1e"),
    ],
)
def test_what_is_no_weight_is_said(tmp_path: Path, values: list[Any], said: str) -> None:
    frame = pl.DataFrame({"user_id": [1, 2, 3], "item_id": [1, 2, 3], "w": values})
    frame.write_parquet(tmp_path / "log.parquet")
    for read in (
        lambda: Interactions.from_frame(frame, weight="w"),
        lambda: Interactions.read(tmp_path / "log.parquet", weight="w"),
    ):
        with pytest.raises(ValueError, match=said):
            read()
    with pytest.raises(ValueError, match="there is no column 'plays'"):
        Interactions.read(tmp_path / "log.parquet", weight="plays")
    with pytest.raises(ValueError, match="synthetic is read without weights"):
        open_data("synthetic", weight="w")


def test_every_split_keeps_each_pair_with_its_weight(tmp_path: Path) -> None:
    data = weighted()
    known = weights_of(data)
    splits = [data.leave_one_out(), data.hold_out(), data.by_time(test=0.2), data.k_core(3).hold_out()]
    for split in splits:
        parts = split.train, split.valid, split.test
        assert weights_of(*parts).items() <= known.items()
        shares = [split.of_process(rank, 2) for rank in range(2)]
        assert weights_of(*(share.train for share in shares)) == weights_of(split.train)
        assert weights_of(everything(split).train) == weights_of(*parts)
    splits[1].frame.write_parquet(tmp_path / "split.parquet")
    again = Split.read(tmp_path / "split.parquet", weight="weight")
    assert weights_of(again.test) == weights_of(splits[1].test)


def test_a_run_folder_keeps_them_and_its_fingerprint_knows_them(tmp_path: Path) -> None:
    split = weighted().hold_out()
    plain = Split(*(replace(part, weights=None) for part in (split.train, split.valid, split.test)))
    other = replace(split, train=replace(split.train, weights=split.train.weights * 2))
    assert len({fingerprint(each) for each in (split, plain, other)}) == 3
    write_split(split, tmp_path)
    back = read_split(tmp_path, fingerprint(split))
    for name in ("train", "valid", "test"):
        assert_allclose(getattr(back, name).weights, getattr(split, name).weights, rtol=0)
    (tmp_path / "interactions.parquet").unlink()
    write_split(plain, tmp_path)
    assert read_split(tmp_path, fingerprint(plain)).train.weights is None


SETTINGS = {
    "ease": {"l2": 20.0},
    "ials": {"dim": 8, "alpha": 0.1, "l2": 0.01},
    "softmax": {"dim": 8, "l2": 4.0, "pairs": 15.0, "ials_alpha": 0.1, "ials_l2": 0.01},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_only_ratios_of_weights_count_and_equal_ones_are_none(name: str) -> None:
    data = weighted()
    of = {"as given": data, "in hours": replace(data, weights=data.weights * np.float32(8)),
          "alike": replace(data, weights=np.full(len(data), 3, np.float32)),
          "none": replace(data, weights=None)}  # fmt: skip
    scores = {key: refit(name, SETTINGS[name], each).scores(np.arange(60)) for key, each in of.items()}
    assert_allclose(scores["in hours"], scores["as given"], rtol=0)
    assert_allclose(scores["alike"], scores["none"], rtol=0)
    assert np.abs(scores["as given"] - scores["none"]).max() > 0.01


def test_ease_regresses_on_weights() -> None:
    met = weighted(30, 40, 250).weighted
    dense = met.toarray().astype(np.float64)
    inverse = np.linalg.inv(dense.T @ dense + 7 * np.eye(40))
    wanted = -inverse / np.diagonal(inverse)
    np.fill_diagonal(wanted, 0)
    assert_allclose(ease(met, 7.0).weights, wanted, atol=2e-5)


def test_a_weight_is_the_confidence_of_ials() -> None:
    met, rng = weighted(20, 30, 150).weighted, np.random.default_rng(0)
    items, dense = rng.normal(size=(30, 4)).astype(np.float32), met.toarray()
    found = user_vectors(items, met, 0.3, 0.01)
    for user in range(20):
        l2 = 0.01 * (dense[user].sum() + 0.3 * 30)
        left = items.T @ (items * dense[user][:, None]) + 0.3 * items.T @ items + l2 * np.eye(4)
        assert_allclose(found[user], np.linalg.solve(left, items.T @ dense[user]), rtol=1e-3, atol=1e-5)


def test_a_pair_of_weight_two_is_two_pairs_of_the_softmax() -> None:
    met = weighted(20, 30, 150).weighted
    model = MF.random(20, 30, 3, torch.Generator().manual_seed(0))
    loss = softmax_gradient(model, met, 0.0)
    dense = met.toarray().astype(np.float64)
    scores = model.scores(slice(None)).detach().double().numpy()
    log_shares = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    assert loss == pytest.approx(-(dense * log_shares).sum(), rel=1e-5)
    in_scores = dense.sum(axis=1, keepdims=True) * np.exp(log_shares) - dense
    assert_allclose(model.users.grad, in_scores @ model.items.detach().numpy(), atol=1e-4)
    assert_allclose(model.items.grad, in_scores.T @ model.users.detach().numpy(), atol=1e-4)
    doubled = MF(*(tensor.detach().clone().double() for tensor in model.tensors().values()))
    assert softmax_gradient(doubled, met, 0.0) == pytest.approx(loss, rel=1e-5)
    assert_allclose(doubled.users.grad, model.users.grad, atol=1e-4)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_history_with_the_weights_of_a_user_is_the_user(name: str) -> None:
    data = weighted(200, 40, 4000)
    settings = SETTINGS[name] | ({"pairs": 20.0} if name == "softmax" else {})
    scorer = refit(name, settings, data)
    frame = data.frame
    people = Histories.from_frame(frame, data.item_ids, usual=data.mean_weight)
    assert people.user_ids.to_list() == data.user_ids.to_list()
    folded = fold_in(Known(scorer, name, settings), people.met)
    if name == "softmax":  # its users are a few steps from the solution, where this gradient is zero
        dense, counts = people.met.toarray(), people.met.sum(axis=1)
        scores = folded.scores(np.arange(200)).astype(np.float64)
        shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        l2 = settings["l2"] * ((counts + 1) / (settings["pairs"] + 1)) ** 0.5
        gradient = (counts[:, None] * shares - dense) @ folded.items_t.T + l2[:, None] * folded.users
        assert np.abs(gradient).max() < 1e-3 * np.abs(dense @ folded.items_t.T).max()
    else:
        assert_allclose(folded.scores(np.arange(200)), scorer.scores(np.arange(200)), atol=1e-3)
    other = Histories.from_frame(frame.drop("weight"), data.item_ids, usual=data.mean_weight)
    assert (other.met.data == 1).all()
    with pytest.raises(ValueError, match="weight='weight' is named, but the model learnt from no weights"):
        Histories.from_frame(frame, data.item_ids, weight="weight")


def test_from_the_file_to_lists_of_new_people(divmf: Any, tmp_path: Path) -> None:
    data = weighted(150, 50, 3000, seed=1)
    frame = data.frame.rename({"weight": "plays"})
    frame.write_csv(tmp_path / "log.csv")
    short = ["--k", 4, "--diversity-epochs", 3, "-q", "--hold-out", "20%"]
    run = tmp_path / "run"
    done = divmf("train", tmp_path / "log.csv", "-o", run, "--weight", "plays", "--model", "ease", "--final", *short)
    assert done.code == 0, done.err
    split = DivMF.load(run).run.read_split()
    assert weights_of(split.train, split.valid, split.test) == pytest.approx(weights_of(data))
    split_made = DivMF.load(run).split_.train.weighted
    assert_allclose(DivMF.load(run).run.read_scorer().met.toarray(), split_made.toarray())
    later = tmp_path / "later"
    done = divmf("train", tmp_path / "log.csv", "-o", later, "--weight", "plays", "--from", run, *short)
    assert done.code == 0, done.err
    frame.head(200).write_csv(tmp_path / "people.csv")
    made = {}
    for name, more in (("by plays", ["--weight", "plays"]), ("alike", [])):
        out = tmp_path / f"{name}.parquet"
        done = divmf("recommend", run, "-o", out, "--histories", tmp_path / "people.csv", "-q", *more)
        assert done.code == 0, done.err
        made[name] = pl.read_parquet(out)
    assert not made["by plays"].equals(made["alike"])
    people = frame.head(200).rename({"plays": "weight"})
    chosen = DivMF.load(run)
    assert made["by plays"].equals(load(run / "final").recommend_frame(histories=people))
    assert chosen.run.read_facts()["fingerprint"] == fingerprint(split)
    refused = divmf("recommend", run, "-o", tmp_path / "x.csv", "--weight", "plays")
    assert refused.code == 2
    assert "--weight names a column of --histories" in refused.err


def test_what_cannot_use_them_says_so(caplog: pytest.LogCaptureFixture) -> None:
    split = weighted().leave_one_out()
    DivMF(model="bpr", accuracy_epochs=1, diversity_epochs=0, dim=4).fit(split)
    assert "bpr learns from what was met, each pair alike" in caplog.text
    caplog.clear()
    DivMF(model="softmax", accuracy_epochs=1, diversity_epochs=0, dim=4, l2=1.0, learning_rate=0.1).fit(split)
    assert "alike" not in caplog.text
