"""Items that were not in training: what is known of them, their discount, and the lists that take them in."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import divmf as library
from divmf.data.datasets import marketplace
from divmf.data.new_items import NewItems
from divmf.data.split import Split
from divmf.market.bonus import Bonus
from divmf.market.entering import entering, least_discounts
from divmf.market.offer import Offer


@pytest.fixture(scope="module")
def split() -> Split:
    return marketplace(users=150, items=70, interactions=2500, seed=2).hold_out(seed=0)


def test_the_discount_is_where_what_users_ask_for_meets_what_a_showing_earns() -> None:
    bonus = Bonus(delta=1.0, level=1.0, steepness=1.0, most=4)  # b(x) = log(1 + 1/(x + 1))
    needed, full = np.array([0.5, 0.1, np.inf, 0.25]), np.ones(4)
    # ρ·b: 0.693, 0.405, 0.288, 0.223; two take it, for 0.5 > 0.288: from 0.288 on, up to what the second earns, 0.405
    assert entering(needed, full, 1.0, bonus) == pytest.approx((np.log(4 / 3) + np.log(3 / 2)) / 2)
    # ρ·b: 0.347, 0.203; one takes it, for 0.25 > 0.203: from 0.203 on, up to what the second asks for, 0.25
    assert entering(needed, full, 0.5, bonus) == pytest.approx((0.5 * np.log(1.5) + 0.25) / 2)
    # one takes it, from what that one asks for, 0.6, up to what it earns, 0.693
    assert entering(np.array([0.6, 0.7]), np.ones(2), 1.0, bonus) == pytest.approx((0.6 + np.log(2)) / 2)
    assert entering(np.array([0.7]), np.ones(1), 1.0, bonus) == pytest.approx(np.log(2))  # nobody: what the first earns


def test_where_more_take_it_than_the_bonus_knows_the_last_showing_counts() -> None:
    bonus = Bonus(delta=1.0, level=1.0, steepness=1.0, most=4)
    assert entering(np.full(7, -1.0), np.ones(7), 1.0, bonus) == pytest.approx(bonus.table[-1])
    assert bonus.table[-1] < bonus.table[-2]


def test_a_list_asks_for_what_it_loses_by_the_new_item() -> None:
    offer = Offer(np.zeros(0), np.array([3.0, 1.0]), np.array([1.0, 1.0]))
    values, discounts = np.array([[2.0, 1.0], [2.0, 1.0]]), np.array([[0.0, 0.5], [0.5, 0.0]])
    needed, exposed = least_discounts(values, discounts, np.array([0.25, 1.5]), offer)
    # last out: 7.5 against 6 + 0.25; and 7.5 against 6 + 0.5 + 1.5: it would be taken at any discount
    np.testing.assert_allclose(needed, [1.25, -0.5])
    np.testing.assert_allclose(exposed, 1)


def by(kind: str, split: Split) -> Any:
    """A new item as people tell of it."""
    if kind == "like":
        return {"zz-new": list(split.item_ids[[3, 9]])}
    return pl.DataFrame({"item_id": ["zz-new"] * 8, "user_id": split.user_ids[:8]})


@pytest.mark.parametrize("kind", ["like", "met"])
@pytest.mark.parametrize("model", ["ease", "ials", "softmax", "bpr"])
def test_the_market_shows_a_new_item_at_a_positive_discount(split: Split, model: str, kind: str) -> None:
    epochs = {"accuracy_epochs": 3} if model == "bpr" else {}
    chosen = library.DivMF(k=4, model=model, diversity_epochs=5, **epochs).fit(split).at(epoch=5)  # type: ignore[arg-type]
    more = chosen.with_items(by(kind, split))
    assert more.chosen is not None
    assert chosen.chosen is not None
    assert more.split.n_items == 71
    number = more.split.n_items - 1  # its id is the last
    assert more.chosen.discount[number] > 0
    np.testing.assert_array_equal(more.chosen.discount[:number], chosen.chosen.discount)
    lists = more.lists()
    holders = (lists.items == number).any(axis=1)
    assert 0 < holders.sum() < 75
    others = ~holders & (np.arange(150) >= 8)  # with EASE, who has met the item has other scores
    np.testing.assert_array_equal(lists.items[others], chosen.lists().items[others])
    if kind == "met":
        assert not holders[:8].any()  # who has met it is not shown it
    kept = [len(set(new) & set(old)) for new, old in zip(lists.items, chosen.lists().items, strict=True)]
    np.testing.assert_array_equal(kept, np.where(holders, 3, 4))


def test_a_point_with_new_items_is_saved_and_serves_people_who_are_new(split: Split, tmp_path: Path) -> None:
    more = library.DivMF(k=4, model="ials", diversity_epochs=3).fit(split).at(epoch=3).with_items(by("like", split))
    more.save(tmp_path / "model")
    again = library.load(tmp_path / "model")
    assert again.recommend_frame().equals(more.recommend_frame())
    assert again.recommend(history=[more.split.item_ids[-1]])[0].shape == (1, 4)  # somebody who met the new item alone


def test_what_is_told_of_new_items_is_checked(split: Split, caplog: pytest.LogCaptureFixture) -> None:
    old, user = split.item_ids[0], split.user_ids[0]
    new, other = "zz-new", "nobody"
    for given, said in (
        ({old: [split.item_ids[1]]}, "is in the catalog already"),
        ({new: []}, "at least one item that it is like"),
        ({new: [new]}, "which is not in the catalog"),
        (pl.DataFrame({"item_id": [new]}), "new items need rows of item_id and like"),
        (pl.DataFrame({"item_id": [new], "user_id": [other]}), "nothing is known of"),
    ):
        with pytest.raises(ValueError, match=said):
            NewItems.of(given, split)
    with caplog.at_level(logging.WARNING):
        found = NewItems.of(pl.DataFrame({"item_id": [new, new, new], "user_id": [user, user, other]}), split)
    assert "1 interactions with new items are of people who were not in training" in caplog.text
    assert found.met.nnz == 1  # met twice is met
    joined, numbers = found.joined(split)
    assert (len(joined.train), joined.n_items) == (len(split.train) + 1, split.n_items + 1)
    assert joined.train.frame.sort("user_id", "item_id").filter(pl.col("item_id") == new)["user_id"].to_list() == [user]
    assert (np.diff(joined.train.users) >= 0).all()
    np.testing.assert_array_equal(numbers, np.arange(71))


@pytest.mark.parametrize("model", ["ease", "ials", "softmax"])
def test_who_met_a_new_item_counts_by_weight_where_the_model_learnt_from_weights(split: Split, model: str) -> None:
    rng = np.random.default_rng(0)
    plays = split.train.frame.with_columns(weight=rng.integers(1, 9, len(split.train)))
    data = library.Interactions.from_frame(plays, weight="weight")
    chosen = library.DivMF(k=4, model=model, diversity_epochs=1).fit(data.hold_out(seed=0)).at(epoch=0)  # type: ignore[arg-type]
    usual, people = data.hold_out(seed=0).train.mean_weight, chosen.split.user_ids[:8]
    met = pl.DataFrame({"item_id": ["zz-new"] * 8, "user_id": people})
    ones, usuals, steep = (
        chosen.with_items(met if weights is None else met.with_columns(weight=pl.Series(weights)))
        for weights in (None, [usual] * 8, [9, 1, 1, 1, 1, 1, 1, 9])
    )
    everybody = np.arange(chosen.split.n_users)
    scores = [point.scoring.scores(everybody)[:, -1] for point in (ones, usuals, steep)]
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-5, atol=1e-6)
    assert np.abs(scores[2] - scores[0]).max() > 1e-3
    added = steep.split.train.frame.filter(pl.col("item_id") == "zz-new").sort("user_id")
    assert added["weight"].to_list() == pytest.approx([9, 1, 1, 1, 1, 1, 1, 9])
    with pytest.raises(ValueError, match="holds the weight -1; weights are 0 or more"):
        chosen.with_items(met.with_columns(weight=pl.lit(-1)))


def test_the_command_lists_new_items(divmf: Any, split: Split, tmp_path: Path) -> None:
    split.train.frame.write_csv(tmp_path / "log.csv")
    divmf("train", tmp_path / "log.csv", "-o", tmp_path / "run", "--model", "ease", "--diversity-epochs", 5, "-q")
    like = split.item_ids[3]
    (tmp_path / "new.csv").write_text(f"item_id,like\n1000000,{like}\n")
    flags = ["-o", tmp_path / "lists.csv", "--new-items"]
    done = divmf("recommend", tmp_path / "run", *flags, tmp_path / "new.csv")
    assert done.code == 0, done.err
    assert "1000000" in pl.read_csv(tmp_path / "lists.csv")["item_id"]
    (tmp_path / "bad.csv").write_text("item_id,like\n1000000,no-such-item\n")
    refused = divmf("recommend", tmp_path / "run", *flags, tmp_path / "bad.csv")
    assert refused.code == 2
    assert "bad.csv" in refused.err
    (tmp_path / "rules.toml").write_text("")
    refused = divmf("recommend", tmp_path / "run", *flags, tmp_path / "new.csv", "--rules", tmp_path / "rules.toml")
    assert refused.code == 2
    assert "--new-items and --rules do not go together" in refused.err


def test_a_point_whose_lists_keep_rules_refuses_new_items(split: Split, tmp_path: Path) -> None:
    rules = library.Rules(capacity={"count": 40})  # type: ignore[call-arg, arg-type]
    chosen = library.DivMF(k=4, model="ease", diversity_epochs=1).fit(split, rules=rules).at(epoch=1)
    chosen.save(tmp_path / "model")
    for point in (chosen, library.load(tmp_path / "model")):
        with pytest.raises(ValueError, match="keep rules, which do not know new items"):
            point.with_items(by("like", split))
