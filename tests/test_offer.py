"""The best list at given discounts, against every list there is; and people who were not in training, end to end."""

import logging
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import divmf as library
from divmf.data.datasets import marketplace
from divmf.data.histories import Histories
from divmf.data.split import Split
from divmf.market.offer import Offer, respond
from divmf.market.stakes import spreads_of, stakes_of, steadied
from divmf.models.fold_in import Known, fold_in
from divmf.train.people import usual_spread

N_ITEMS = 7
NUMBERS = st.floats(-4, 4, width=16)


def worth(items: tuple[int, ...], scores: np.ndarray, offer: Offer, weight: float) -> float:
    return sum(
        weight * offer.slots[slot] * scores[item] + offer.exposure[slot] * offer.discount[item]
        for slot, item in enumerate(items)
    )


@given(
    st.lists(NUMBERS, min_size=N_ITEMS, max_size=N_ITEMS),
    st.lists(st.floats(0, 6, width=16), min_size=N_ITEMS, max_size=N_ITEMS),
    st.integers(1, 4), st.sampled_from(["count", "attention"]), st.floats(0.25, 3), st.integers(0, N_ITEMS),
)  # fmt: skip
def test_no_list_in_order_of_score_is_better(
    scores: list[float], discount: list[float], k: int, exposure: str, weight: float, closed: int
) -> None:
    given_scores = np.array([scores], dtype=np.float32)
    given_scores[0, :closed] = -np.inf  # may not be listed
    offer = Offer.of(np.array(discount), k, exposure)
    (found,) = respond(given_scores, offer, np.array([weight]))
    listed = tuple(int(item) for item in found if item >= 0)
    left = range(closed, N_ITEMS)
    size = min(k, len(left))
    assert len(listed) == size
    assert set(listed) <= set(left)
    values = [given_scores[0, item] for item in listed]
    assert values == sorted(values, reverse=True)
    by_score = sorted(left, key=lambda item: (-given_scores[0, item], item))  # of equals the lower number first
    best = max(worth(some, given_scores[0], offer, weight) for some in combinations(by_score, size))
    assert worth(listed, given_scores[0], offer, weight) == pytest.approx(best, abs=1e-5)


@given(
    st.lists(NUMBERS, min_size=N_ITEMS, max_size=N_ITEMS),
    st.lists(st.floats(0, 6, width=16), min_size=N_ITEMS, max_size=N_ITEMS), st.integers(1, 4),
)  # fmt: skip
def test_what_an_index_finds_for_each_slot_holds_the_best_list(
    scores: list[float], discount: list[float], k: int
) -> None:
    # where all slots expose alike, the order by value costs nothing: of the k items worth the most in a slot, one can
    # take the place of any item that is not among them
    offer, row = Offer.of(np.array(discount), k), np.array(scores, dtype=np.float32)
    found = {
        int(item)
        for slot, share in zip(offer.slots, offer.exposure, strict=True)
        for item in np.argsort(-(slot * row + share * offer.discount), kind="stable")[:k]
    }
    kept = np.full((1, N_ITEMS), -np.inf, dtype=np.float32)
    kept[0, sorted(found)] = row[sorted(found)]
    (retrieved,), (best,) = respond(kept, offer), respond(row[None], offer)
    assert worth(tuple(retrieved), row, offer, 1.0) == pytest.approx(worth(tuple(best), row, offer, 1.0), abs=1e-5)


def test_without_discounts_the_list_is_the_models_own_and_a_longer_one_begins_with_it() -> None:
    scores = np.random.default_rng(0).normal(size=(5, 30)).astype(np.float32)
    nothing = Offer.of(np.zeros(30), 4)
    np.testing.assert_array_equal(respond(scores, nothing), np.argsort(-scores, axis=1)[:, :4])
    offer = Offer.of(np.random.default_rng(1).random(30), 4)
    long = respond(scores, offer, k=11)
    np.testing.assert_array_equal(long[:, :4], respond(scores, offer))
    np.testing.assert_array_equal(long[:, :2], respond(scores, offer, k=2))
    assert all(len(set(row)) == 11 for row in long)
    both = np.take_along_axis(scores + offer.discount, long[:, 4:], axis=1)
    assert (np.diff(both, axis=1) <= 0).all()  # then the best by score plus discount


@pytest.fixture(scope="module")
def split() -> Split:
    return marketplace(users=160, items=80, interactions=3000, seed=3).hold_out(seed=0)


@pytest.fixture(scope="module", params=["ease", "ials", "softmax", "bpr", "mse"])
def fitted(request: pytest.FixtureRequest, split: Split) -> library.DivMF:
    epochs: dict[str, Any] = {"accuracy_epochs": 25, "learning_rate": 0.05} if request.param in ("bpr", "mse") else {}
    return library.DivMF(k=4, model=request.param, diversity_epochs=6, **epochs).fit(split)


def test_people_folded_in_with_a_known_history_get_nearly_the_lists_they_had(
    fitted: library.DivMF, split: Split
) -> None:
    base = fitted.at(epoch=0)
    known = base.lists(seen="train")
    people = Histories.from_frame(split.train.frame, split.item_ids)
    new = base.lists(histories=people)
    assert new.user_ids.to_list() == people.user_ids.to_list()
    rows = split.train.user_numbers(new.user_ids)
    same = np.mean([len(set(a) & set(b)) / 4 for a, b in zip(new.items, known.items[rows], strict=True)])
    # exactly theirs where a user is solved exactly in training; gradient steps end before the minimum
    assert same > {"ease": 0.9999, "ials": 0.99, "softmax": 0.5, "bpr": 0.4, "mse": 0.4}[fitted.model]


def test_new_people_take_the_best_list_at_the_discounts_of_the_point(fitted: library.DivMF, split: Split) -> None:
    chosen = fitted.at(epoch=5)
    assert chosen.chosen is not None
    history = split.train.frame.filter(pl.col("user_id") == split.user_ids[11])["item_id"].to_list()
    ids, scores = chosen.recommend(history=history, k=9)
    assert ids.shape == scores.shape == (1, 9)
    assert not set(ids[0]) & set(history)
    people = Histories.of(history, split.item_ids)
    theirs = fold_in(Known(chosen.scoring, chosen.learnt.name or "", chosen.learnt.settings), people.met)
    row = theirs.scores(np.arange(1))
    row[0, people.met.indices] = -np.inf
    offer = Offer.of(chosen.chosen.discount, 4)
    weight = stakes_of(people.met, chosen.learnt.stake, len(split.train) / split.n_users)
    weight = steadied(weight, spreads_of(row), usual_spread(chosen.scoring, split, chosen.learnt.stake))
    assert split.train.item_numbers(list(ids[0])).tolist() == respond(row, offer, weight, 9)[0].tolist()
    kept, _ = chosen.recommend(history=[history, history[:2]], k=3)
    assert kept.shape == (2, 3)
    np.testing.assert_array_equal(kept[0], ids[0, :3])


def test_a_saved_model_serves_new_people_alike(fitted: library.DivMF, split: Split, tmp_path: Path) -> None:
    chosen, frame = fitted.at(epoch=3), split.train.frame.head(200)
    chosen.save(tmp_path / "model")
    wanted = chosen.recommend_frame(frame, k=5)
    assert library.load(tmp_path / "model").recommend_frame(histories=frame, k=5).equals(wanted)


def test_similar_items_are_others_and_the_most_alike_first(fitted: library.DivMF, split: Split) -> None:
    ids, likeness = fitted.at(epoch=0).similar_items(split.item_ids[:3], k=5)
    assert ids.shape == likeness.shape == (3, 5)
    assert (np.diff(likeness, axis=1) <= 0).all()
    assert all(item not in row for item, row in zip(split.item_ids[:3], ids, strict=True))
    with pytest.raises(ValueError, match="item 'nothing' is not in the catalog"):
        fitted.at(epoch=0).similar_items(["nothing"])


CATALOG = pl.Series("item_id", ["a", "b", "c"])


def test_a_history_is_what_was_met_each_once_and_known(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        people = Histories.from_frame(
            pl.DataFrame({"user_id": [7, 7, 7, 9, 8], "item_id": ["a", "c", "a", "z", "b"]}), CATALOG
        )
    assert people.user_ids.to_list() == [7, 8]
    np.testing.assert_array_equal(people.met.toarray(), [[1, 0, 1], [0, 1, 0]])
    assert [record.getMessage() for record in caplog.records] == [
        "items met that the catalog does not have are left out: 1, such as 'z'",
        "items that stand in a history more than once count once: 1",
        "people who met nothing of the catalog get no list: 1, such as 9",
    ]


@pytest.mark.parametrize(
    ("history", "said"),
    [
        ([], "history is empty: give at least one item"),
        ([["a"], []], "history 1 is empty: give at least one item"),
        (["x", "y"], "the catalog has no item of the histories, such as 'x'; give ids like 'a'"),
        ("a", "history='a' is one id; give a list of the items met"),
        ([1, 2], "the given ids are integers"),
    ],
)
def test_a_history_that_says_nothing_is_refused_in_one_line(history: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        Histories.of(history, CATALOG)
    assert "\n" not in str(error.value)


def test_vectors_from_elsewhere_take_in_nobody_and_say_why(split: Split) -> None:
    rng = np.random.default_rng(0)
    users, items = rng.normal(size=(split.n_users, 3)), rng.normal(size=(split.n_items, 3))
    given_vectors = library.diversify(users, items, split, k=3, diversity_epochs=1)
    with pytest.raises(ValueError, match="the vectors were trained elsewhere"):
        given_vectors.at(epoch=0).recommend(history=split.item_ids[:2].to_list())
    with pytest.raises(ValueError, match="name the users, or give the history"):
        given_vectors.at(epoch=0).recommend()
    with pytest.raises(ValueError, match="give one of them"):
        given_vectors.at(epoch=0).lists(split.user_ids[:1], histories=[split.item_ids[:1]])


def test_the_command_writes_lists_for_new_people(divmf: Any, split: Split, tmp_path: Path) -> None:
    library.DivMF(k=4, model="ease", diversity_epochs=3).fit(split, tmp_path / "run")
    divmf("pick", tmp_path / "run", "--epoch", 2, "-q")
    frame = split.train.frame.head(150).with_columns(user_id=pl.lit("new-") + pl.col("user_id"))
    frame.select("user_id", "item_id").write_csv(tmp_path / "new.csv")
    done = divmf("recommend", tmp_path / "run", "-o", tmp_path / "lists.parquet", "--histories", tmp_path / "new.csv")
    assert done.code == 0
    lists = pl.read_parquet(tmp_path / "lists.parquet")
    assert set(lists["user_id"]) == set(frame["user_id"])
    assert "in training" not in done.err
    split.train.frame.head(150).select("user_id", "item_id").write_csv(tmp_path / "old.csv")
    flags = ["--histories", tmp_path / "old.csv"]
    done = divmf("recommend", tmp_path / "run", "-o", tmp_path / "lists.parquet", *flags)
    known = split.train.frame.head(150)["user_id"].n_unique()
    assert f"{known:,} of the {known:,} users of {tmp_path / 'old.csv'} were in training (such as" in done.err
    assert lists.join(frame, on=["user_id", "item_id"]).is_empty()
    (tmp_path / "bad.csv").write_text("user_id,item_id\n1,nothing\n")
    done = divmf("recommend", tmp_path / "run", "-o", tmp_path / "no.parquet", "--histories", tmp_path / "bad.csv")
    assert done.code == 2
    assert "bad.csv: the catalog has no item of the histories" in done.err
    assert not (tmp_path / "no.parquet").exists()
