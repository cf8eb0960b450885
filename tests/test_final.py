"""Once more on everything, for use; splits by time, ratings and yesterday's model from the command line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import divmf as library
from divmf.data.datasets import marketplace
from divmf.data.split import Split
from divmf.models.ease import ease
from divmf.models.scorer import ItemItem
from divmf.train.final import everything


@pytest.fixture(scope="module")
def split() -> Split:
    return marketplace(users=150, items=70, interactions=2500, seed=2).hold_out(seed=0)


def test_everything_is_all_interactions_in_order_and_nothing_is_held_out(split: Split) -> None:
    whole = everything(split)
    assert (len(whole.valid), len(whole.test)) == (0, 0)
    assert (whole.known != split.known).nnz == 0
    assert len(whole.train) == sum(len(part) for part in (split.train, split.valid, split.test))
    assert whole.train.times is not None
    users, times = whole.train.users, whole.train.times
    same = users[1:] == users[:-1]
    assert (np.diff(users) >= 0).all()
    assert (np.diff(times)[same] >= 0).all()


def test_the_final_model_has_the_settings_chosen_and_has_learnt_from_what_was_held_out(split: Split) -> None:
    fitted = library.DivMF(k=4, model="ease", diversity_epochs=6).fit(split)
    chosen = fitted.final(epoch=5)
    choice = fitted.run.read_choice()
    assert choice is not None
    assert isinstance(chosen.scorer, ItemItem)
    np.testing.assert_allclose(chosen.scorer.weights, ease(split.known, choice["settings"]["l2"]).weights, atol=1e-6)
    assert chosen.point == fitted.curve.of_epoch(5)
    lists = chosen.lists()
    assert lists.width == 4
    for user, row in enumerate(lists.items):
        assert not set(row.tolist()) & set(split.known[[user]].indices.tolist())
    base = fitted.final(epoch=0)
    gini = [library.measure(each.lists(), split.test.matrix)["gini"] for each in (base, chosen)]
    assert gini[1] < gini[0]  # at the ρ of the point


def test_a_model_trained_by_epochs_says_why_it_has_no_final(split: Split) -> None:
    fitted = library.DivMF(k=4, model="bpr", accuracy_epochs=1, diversity_epochs=1).fit(split)
    with pytest.raises(ValueError, match="trained by epochs until validation converged"):
        fitted.final(epoch=0)


@pytest.fixture(scope="module")
def ratings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "ratings.csv"
    frame = marketplace(users=150, items=70, interactions=3500, seed=2).frame
    stars = np.random.default_rng(0).integers(1, 6, frame.height)
    frame.with_columns(rating=pl.Series(stars)).write_csv(path)
    return path


def test_the_command_learns_once_more_and_recommends_from_that(divmf: Any, ratings: Path, tmp_path: Path) -> None:
    short = ["--k", 4, "--model", "ease", "--diversity-epochs", 6, "-q"]
    assert divmf("train", ratings, "-o", tmp_path / "run", *short, "--final").code == 0
    done = divmf("recommend", tmp_path / "run", "-o", tmp_path / "lists.parquet")
    assert "final: learnt from everything" in done.err
    wanted = library.load(tmp_path / "run" / "final").recommend_frame()
    assert pl.read_parquet(tmp_path / "lists.parquet").equals(wanted)
    divmf("pick", tmp_path / "run", "--epoch", 1, "-q")
    assert "picked since" in divmf("recommend", tmp_path / "run", "-o", tmp_path / "lists.parquet").err
    refused = divmf("train", ratings, "-o", tmp_path / "no", "--final", "--model", "bpr")
    assert refused.code == 2
    assert "--final goes with a model that one process chooses" in refused.err


def test_high_ratings_alone_and_the_latest_share_for_the_test(divmf: Any, ratings: Path, tmp_path: Path) -> None:
    short = ["--k", 4, "--model", "ease", "--diversity-epochs", 1, "-q"]
    done = divmf("train", ratings, "-o", tmp_path / "run", *short, "--min-rating", 4, "--by-time", "20%")
    assert done.code == 0, done.err
    split = library.DivMF.load(tmp_path / "run").run.read_split()
    liked = pl.read_csv(ratings).filter(pl.col("rating") >= 4)
    assert len(split.train) + len(split.valid) + len(split.test) <= liked.height
    assert split.frame.join(liked, on=["user_id", "item_id"]).height == split.frame.height
    assert split.train.times is not None
    assert split.test.times is not None
    assert split.train.times.max() <= split.test.times.min()
    for flags, said in (
        (["--hold-out", "20%", "--by-time", "20%"], "choose one of them"),
        (["--rating", "rating"], "give min_rating"),
        (["--by-time", "tomorrow"], "tomorrow"),
    ):
        refused = divmf("train", ratings, "-o", tmp_path / "no", *flags)
        assert refused.code == 2
        assert said in refused.err
    assert not (tmp_path / "no").exists()
    assert json.loads((tmp_path / "run" / "models.json").read_text())["model"] == "ease"


@pytest.mark.parametrize("model", ["ials", "softmax", "ease"])
def test_yesterdays_model_is_taken_on_with_new_users_and_items(
    divmf: Any, ratings: Path, tmp_path: Path, model: str
) -> None:
    now = pl.read_csv(ratings)
    gone = [now["user_id"][0], now["item_id"][1]]
    before = now.sort("timestamp").head(3100).filter(pl.col("user_id") != gone[0], pl.col("item_id") != gone[1])
    before.write_csv(tmp_path / "before.csv")
    short = ["--k", 4, "--diversity-epochs", 2, "--hold-out", "20%"]
    dim = [] if model == "ease" else ["--dim", 8]
    divmf("train", tmp_path / "before.csv", "-o", tmp_path / "old", *short, "--model", model, *dim, "-q")
    fresh = divmf("train", ratings, "-o", tmp_path / "fresh", *short, "--model", model, *dim, "--json").json
    done = divmf("train", ratings, "-o", tmp_path / "new", *short, "--from", tmp_path / "old", "--json")
    assert done.code == 0, done.err
    (trial,) = done.json["model"]["tried"]  # nothing is chosen anew
    old = json.loads((tmp_path / "old" / "models.json").read_text())
    assert (trial["model"], trial["settings"].get("l2")) == (model, old["settings"]["l2"])
    assert trial["valid_ndcg"] > 0.85 * fresh["base"]["valid"]["ndcg"]
    assert library.load(tmp_path / "new").recommend([gone[0]])[0].shape == (1, 4)
    again = divmf("train", ratings, "-o", tmp_path / "new", *short, "--from", tmp_path / "old")
    assert f"taken on from {tmp_path / 'old'}: {model} (" in again.out
    assert "models tried" not in again.out
    refused = divmf("train", ratings, "-o", tmp_path / "new", *short)
    assert "began from another model" in refused.err
    refused = divmf("train", ratings, "-o", tmp_path / "no", *short, "--from", tmp_path / "old", "--model", "ease")
    assert "leave --model, --dim and --budget out" in refused.err


def test_python_takes_on_an_earlier_model_as_the_command_does(split: Split, tmp_path: Path) -> None:
    settings = {"k": 4, "diversity_epochs": 2}
    before = library.DivMF(model="ials", dim=8, **settings).fit(split, tmp_path / "old")  # type: ignore[arg-type]
    for start in (tmp_path / "old", before):
        fitted = library.DivMF(**settings).fit(split, start=start)  # type: ignore[arg-type]
        old, new = before.run.read_choice(), fitted.run.read_choice()
        assert old is not None
        assert new is not None
        assert (new["model"], new["settings"]) == ("ials", old["settings"])
        assert len(new["tried"]) == 1  # nothing is chosen anew
        assert fitted.curve.base.valid["ndcg"] > 0.9 * before.curve.base.valid["ndcg"]
    with pytest.raises(ValueError, match="leave model, dim and budget out"):
        library.DivMF(model="ease", **settings).fit(split, start=before)  # type: ignore[arg-type]
    by_epochs = library.DivMF(model="bpr", accuracy_epochs=1, **settings).fit(split)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="trained by epochs until validation converged"):
        library.DivMF(**settings).fit(split, start=by_epochs)  # type: ignore[arg-type]
