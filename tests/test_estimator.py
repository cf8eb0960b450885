"""The face for users: ids in, ids out, and what is saved is what is loaded."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import divmf
from divmf.data.datasets import marketplace
from divmf.estimator.recommender import tell_beginning


@pytest.fixture(scope="module")
def split() -> divmf.Split:
    return marketplace(users=150, items=80, interactions=2500, seed=3).leave_one_out(0)


PAPER = divmf.DivMF(
    preset="paper", k=4, dim=8, unmask=20, learning_rate=0.02, diversity_rate=0.02, accuracy_epochs=8,
    diversity_epochs=10,
)  # fmt: skip
MARKET = divmf.DivMF(k=4, dim=8, l2=2.0, accuracy_epochs=20, diversity_epochs=10)
MIXED = divmf.DivMF(k=4, dim=8, model="bpr", learning_rate=0.02, accuracy_epochs=8, diversity_epochs=10)


@pytest.fixture(scope="module", params=[PAPER, MARKET, MIXED], ids=["paper", "market", "market on bpr"])
def fitted(request: pytest.FixtureRequest, split: divmf.Split) -> divmf.DivMF:
    model: divmf.DivMF = replace(request.param)
    assert model.fit(split) is model
    return model


@pytest.fixture(scope="module")
def market(split: divmf.Split) -> divmf.DivMF:
    """With the whole path."""
    return replace(MARKET, diversity_epochs=200).fit(split)


def test_the_curve_has_a_row_an_epoch_with_validation_and_test(fitted: divmf.DivMF) -> None:
    frame = fitted.curve.frame
    assert frame["phase"].value_counts().sort("phase")["count"].to_list()[1] == 10
    for part in ("valid", "test"):
        for metric in ("ndcg", "hit", "coverage", "entropy", "gini", "popularity", "head_share", "tail_share"):
            assert frame[f"{part}_{metric}"].is_finite().all()


def test_diversifying_spreads_the_lists(fitted: divmf.DivMF) -> None:
    curve = fitted.curve
    assert curve.points[-1].test["gini"] < curve.base.test["gini"] - 0.05
    assert curve.points[-1].test["coverage"] > curve.base.test["coverage"]


def test_the_base_of_a_curve_is_the_model_itself(fitted: divmf.DivMF, split: divmf.Split) -> None:
    base = fitted.at(epoch=0)
    assert divmf.evaluate(base.lists(seen="train+valid"), split) == pytest.approx(base.point.test)
    last = fitted.at(epoch=10)
    assert (last.chosen is not None) == (fitted.method == "market")
    assert divmf.evaluate(last.lists(seen="train+valid"), split) == pytest.approx(last.point.test)


def test_recommendations_carry_the_original_ids_and_hold_nothing_seen(fitted: divmf.DivMF, split: divmf.Split) -> None:
    chosen = fitted.at(epoch=10)
    users = split.user_ids[[5, 3, 77]].to_list()
    ids, scores = chosen.recommend(users, k=6)
    assert ids.shape == scores.shape == (3, 6)
    assert (np.diff(scores[:, :4], axis=1) <= 0).all()  # beyond k, lists of the market go on by score plus discount
    met = pl.concat([split.train.frame, split.valid.frame]).select("user_id", "item_id")
    listed = pl.DataFrame({"user_id": np.repeat(users, 6), "item_id": ids.ravel().astype(str)})
    assert listed.join(met, on=["user_id", "item_id"]).is_empty()
    frame = chosen.recommend_frame(k=6)
    assert frame.columns == ["user_id", "item_id", "score", "rank"]
    for row, user in enumerate(users):
        assert frame.filter(pl.col("user_id") == user).sort("rank")["item_id"].to_list() == ids[row].tolist()
    everything = chosen.recommend_frame(k=6, seen="all")
    assert everything.join(split.test.frame, on=["user_id", "item_id"]).is_empty()


def test_scores_are_the_dot_products_of_the_saved_vectors(fitted: divmf.DivMF, split: divmf.Split) -> None:
    chosen = fitted.at(epoch=3)
    lists = chosen.lists(k=5)
    weights = chosen.weights
    row = 17
    expected = weights.users[row] @ weights.items[lists.items[row].tolist()].T
    np.testing.assert_allclose(lists.scores[row], expected.numpy(), rtol=1e-5, atol=1e-6)


def test_a_saved_model_gives_the_same_lists(fitted: divmf.DivMF, tmp_path: Path) -> None:
    chosen = fitted.at(ndcg_drop=0.1)
    chosen.save(tmp_path / "model")
    chosen.save(tmp_path / "model")  # again: replaced
    loaded = divmf.load(tmp_path / "model")
    assert loaded.recommend_frame().equals(chosen.recommend_frame())
    assert loaded.point == chosen.point
    for name, tensor in chosen.weights.tensors().items():
        assert loaded.weights.tensors()[name].equal(tensor), name
    assert set(loaded.weights.tensors()) == set(chosen.weights.tensors())
    assert {path.suffix for path in (tmp_path / "model").iterdir()} == {".json", ".parquet", ".safetensors"}
    with pytest.raises(ValueError, match="neither a saved model nor a run"):
        divmf.load(tmp_path)
    (tmp_path / "file.txt").write_text("mine")
    with pytest.raises(ValueError, match="not a saved model"):
        chosen.save(tmp_path)


@pytest.mark.parametrize("settings", [{"preset": "paper"}, {"l2": 1.0}, {"model": "bpr"}, {"method": "divmf"}])
def test_a_run_folder_can_be_opened_as_a_fitted_model(
    split: divmf.Split, tmp_path: Path, settings: dict[str, Any]
) -> None:
    model = divmf.DivMF(k=3, dim=4, accuracy_epochs=2, diversity_epochs=2, **settings)
    model.fit(split, run=tmp_path / "run")
    again = divmf.DivMF.load(tmp_path / "run")
    assert again == model
    assert again.at(epoch=2).recommend_frame().equals(model.at(epoch=2).recommend_frame())
    model.run.pick(epoch=1)
    assert divmf.load(tmp_path / "run").point.epoch == 1


def test_a_temporary_run_folder_goes_with_the_model(split: divmf.Split) -> None:
    model = divmf.DivMF(k=3, dim=4, accuracy_epochs=1, diversity_epochs=0).fit(split)
    folder = model.run.folder
    assert folder.exists()
    del model
    import gc

    gc.collect()
    assert not folder.exists()


@pytest.mark.parametrize("method", ["divmf", "market"])
def test_diversify_starts_from_factors_trained_elsewhere(split: divmf.Split, method: str) -> None:
    rng = np.random.default_rng(0)
    users, items = rng.normal(size=(split.n_users, 6)), rng.normal(size=(split.n_items, 6))
    items[:5] *= 4  # a few items are everybody's
    settings: dict[str, Any] = {"k": 4, "diversity_epochs": 25, "method": method}
    settings |= {"unmask": 20, "diversity_rate": 0.02} if method == "divmf" else {}
    found = divmf.diversify(users, items, split, **settings)
    phases = [point.phase for point in found.curve.points]
    assert phases == ["accuracy"] + ["diversity"] * (25 if method == "divmf" else len(phases) - 1)
    np.testing.assert_allclose(found.at(epoch=0).weights.users.numpy(), users, rtol=1e-6)
    assert found.curve.points[-1].test["gini"] < found.curve.base.test["gini"] - 0.1
    assert users.flags.writeable
    with pytest.raises(ValueError, match=r"user_factors has 149 rows, the split 150"):
        divmf.diversify(users[:-1], items, split)
    with pytest.raises(ValueError, match="do not multiply"):
        divmf.diversify(users[:, :3], items, split)
    with pytest.raises(ValueError, match="NaN"):
        divmf.diversify(users * np.nan, items, split)
    with pytest.raises(ValueError, match="item_bias has shape"):
        divmf.diversify(users, items, split, item_bias=[1.0])
    with pytest.raises(ValueError, match="dim is not a setting"):
        divmf.diversify(users, items, split, dim=3)
    with pytest.raises(ValueError, match="typo"):
        divmf.diversify(users, items, split, typo=3)


@pytest.mark.parametrize("method", ["divmf", "market"])
def test_factors_in_any_memory_order_and_type_give_the_same(split: divmf.Split, method: str) -> None:
    # Fortran-ordered factors were trained in a copy
    rng = np.random.default_rng(0)
    users, items = rng.normal(size=(split.n_users, 6)), rng.normal(size=(split.n_items, 6))
    settings: dict[str, Any] = {"k": 4, "diversity_epochs": 2, "method": method}
    found = divmf.diversify(users, items, split, **settings)
    other = divmf.diversify(np.asfortranarray(users), np.asfortranarray(items), split, **settings)
    assert found.at(epoch=2).recommend_frame().equals(other.at(epoch=2).recommend_frame())
    assert found.at(epoch=0).weights.users.is_contiguous()


def test_a_run_folder_belongs_to_the_factors_it_began_from(split: divmf.Split, tmp_path: Path) -> None:
    # the second call gave the results of the first one's factors
    rng = np.random.default_rng(0)
    users, items = rng.normal(size=(split.n_users, 6)), rng.normal(size=(split.n_items, 6))
    divmf.diversify(users, items, split, run=tmp_path / "run", diversity_epochs=1)
    divmf.diversify(users, items, split, run=tmp_path / "run", diversity_epochs=1)
    with pytest.raises(ValueError, match="began from another model"):
        divmf.diversify(users + 1, items, split, run=tmp_path / "run", diversity_epochs=1)


def test_wrong_calls_say_what_to_do(fitted: divmf.DivMF, split: divmf.Split) -> None:
    with pytest.raises(ValueError, match=r"not fitted yet; call fit"):
        _ = divmf.DivMF().curve
    with pytest.raises(ValueError, match=r"make one with data.leave_one_out"):
        divmf.DivMF().fit(split.train)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'nobody'"):
        fitted.at(epoch=1).recommend(["nobody"])
    with pytest.raises(ValueError, match="the given ids are integers"):
        fitted.at(epoch=1).recommend([1, 2])
    with pytest.raises(ValueError, match="k=81 must be from 1 to"):
        fitted.at(epoch=1).lists(k=81)
    with pytest.raises(ValueError, match="seen='none' is unknown"):
        fitted.at(epoch=1).lists(seen="none")  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["divmf", "market"])
def test_a_user_with_few_items_left_gets_a_shorter_list(method: Any) -> None:
    pairs = [
        (u, i) for u in range(6) for i in range(7) if (i < 6 if u == 0 else (u + i) % 3)
    ]  # user 0 met all but item 6
    data = divmf.Interactions.from_frame(pl.DataFrame(pairs, schema=["user_id", "item_id"], orient="row"))
    model = divmf.DivMF(k=3, dim=2, accuracy_epochs=1, diversity_epochs=2, method=method, l2=1.0,
                        **({"unmask": 2} if method == "divmf" else {}))  # fmt: skip
    model.fit(data.leave_one_out(0))
    ids, scores = model.at(epoch=2).recommend([0], seen="all")
    assert ids.tolist() == [[6, -1, -1]]
    assert np.isinf(scores[0, 1:]).all()
    assert model.at(epoch=2).recommend_frame(users=[0], seen="all").height == 1


# ---- points of the market between those of the path


def test_asking_twice_for_a_point_adds_nothing_the_second_time(market: divmf.DivMF) -> None:
    # bisecting stopped after four steps, and the next call took four more
    for criterion in ({"ndcg_drop": 0.05}, {"ndcg_drop": 0.2}, {"ndcg_drop": 0.0}, {"gini": 0.8}, {"coverage": 0.5}):
        before = market.curve.points
        first = market.at(**criterion)
        made = market.curve.points
        assert made[: len(before)] == before  # what was there stays
        assert market.at(**criterion).point == first.point
        assert market.curve.points == made


@pytest.mark.parametrize("drop", [0.02, 0.05, 0.1, 0.3])
def test_a_point_within_a_loss_keeps_the_promise_and_is_as_deep_as_it_can_be(market: divmf.DivMF, drop: float) -> None:
    chosen = market.at(ndcg_drop=drop).point
    curve = market.curve
    least = (1 - drop) * curve.base.valid["ndcg"]
    assert chosen.valid["ndcg"] >= least
    kept = [point for point in curve.operating if point.valid["ndcg"] >= least]
    following = curve.operating[curve.operating.index(kept[-1]) + 1]
    assert following.valid["ndcg"] < least  # the last point that keeps it has one beside it that does not
    low, high, first = (point.knob or 0.0 for point in (kept[-1], following, curve.of_epoch(1)))
    lost = 1 - kept[-1].valid["ndcg"] / curve.base.valid["ndcg"]
    assert high - low <= 0.02 * max(high, first) or lost >= 0.98 * drop


def test_a_rho_is_solved_for_exactly_and_only_once(market: divmf.DivMF) -> None:
    grid = sorted(point.knob for point in market.curve.points if point.knob is not None)
    wanted = (grid[3] + 2 * grid[4]) / 3
    n_points = len(market.curve)
    chosen = market.at(rho=wanted)
    assert chosen.point.knob == wanted
    assert chosen.chosen is not None
    assert len(market.curve) == n_points + 1
    assert market.at(rho=wanted).point == chosen.point
    assert market.at(rho=0).point == market.curve.base
    assert market.at(rho=grid[3]).point.knob == grid[3]
    assert len(market.curve) == n_points + 1
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="ρ is a number, 0 or more"):
            market.at(rho=wrong)
    assert len(market.curve) == n_points + 1


def test_choosing_computes_nothing_and_refining_adds_the_points_that_at_takes(split: divmf.Split) -> None:
    model = replace(MARKET).fit(split)
    points = model.curve.points
    coarse = model.choose(ndcg_drop=0.07)
    assert model.curve.points == points
    assert coarse.point in points
    assert model.refine(ndcg_drop=0.07) is model
    assert len(model.curve) > len(points)
    fine = model.choose(ndcg_drop=0.07)
    assert fine.point.valid["gini"] <= coarse.point.valid["gini"]
    assert np.array_equal(fine.lists().items, model.at(ndcg_drop=0.07).lists().items)
    with pytest.raises(ValueError, match="exactly one of"):
        model.refine(gini=0.5, coverage=0.5)


def test_choices_that_need_no_point_in_between_add_none(market: divmf.DivMF) -> None:
    points = market.curve.points
    market.at("knee")
    market.at(epoch=3)
    market.at(ndcg_drop=1.0)  # every point keeps nothing
    with pytest.raises(ValueError, match="not reached on validation"):
        market.at(gini=0.0)
    assert market.curve.points == points


def test_a_criterion_met_before_the_first_rho_is_looked_for_there(split: divmf.Split) -> None:
    model = replace(MARKET, diversity_epochs=2).fit(split)
    first = model.curve.of_epoch(1)
    drop = 1 - (first.valid["ndcg"] + 1e-9) / model.curve.base.valid["ndcg"]
    assert 0 <= drop <= 1
    assert model.curve.of_epoch(2).valid["ndcg"] <= first.valid["ndcg"]
    chosen = model.at(ndcg_drop=drop).point
    n_points = len(model.curve)
    assert (chosen.knob or 0.0) < (first.knob or 0.0)
    model.at(ndcg_drop=drop)
    assert len(model.curve) == n_points


def test_factors_whose_scores_are_no_numbers_are_refused(split: divmf.Split) -> None:
    # factors of 1e19 were worked on without end
    users, items = np.ones((split.n_users, 4)), np.ones((split.n_items, 4))
    with pytest.raises(ValueError, match=r"user_factors holds numbers larger than 1e\+12; scale the factors down"):
        divmf.diversify(users * 1e19, items, split)
    with pytest.raises(ValueError, match=r"item_factors holds numbers larger than 1e\+12"):
        divmf.diversify(users, -1e19 * items, split)


def test_the_beginnings_of_longer_lists_say_what_they_leave(caplog: pytest.LogCaptureFixture) -> None:
    lists = np.array([[0, 1, 2], [1, 0, 3], [0, 1, -1]])
    tell_beginning(lists, 3, 8)
    assert not caplog.messages
    tell_beginning(lists, 2, 8)
    assert caplog.messages == [
        "the lists were chosen for k = 3: their first 2 show 25.0% of the catalog, all of them 50.0%; a run with k = 2"
        " shows more on such a page"
    ]
