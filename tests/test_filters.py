"""Filters of a request: never these, these alone, for everybody or for one user; exactly k wherever k are left."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import divmf
from divmf.data.catalogs import holds, movielens_items, of_items, read_items
from divmf.data.datasets import marketplace
from divmf.data.filters import Filters
from divmf.ranking.lists import TopK

K = 4


@pytest.fixture(scope="module")
def split() -> divmf.Split:
    return marketplace(60, 40, 700, seed=1).leave_one_out(0)


@pytest.fixture(scope="module", params=["market", "divmf", "scorer"])
def chosen(request: pytest.FixtureRequest, split: divmf.Split) -> divmf.Recommender:
    rng = np.random.default_rng(0)
    users, items = rng.normal(size=(split.n_users, 3)), rng.normal(size=(split.n_items, 3))
    if request.param == "scorer":
        scores = (users @ items.T).astype(np.float32)
        return divmf.diversify(lambda rows: scores[rows], split, k=K, diversity_epochs=3).at(epoch=3)
    return divmf.diversify(users, items, split, k=K, method=request.param, diversity_epochs=3).at(epoch=3)


def left(split: divmf.Split, blocked: set[str], user: int) -> int:
    """How many items a user can be shown, counted one by one."""
    met = set(split.known[[user]].indices.tolist())
    return sum(number not in met and item not in blocked for number, item in enumerate(split.item_ids))


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), n_out=st.integers(0, 38), k=st.integers(1, 8))
def test_a_list_holds_k_allowed_items_wherever_k_are_left(
    chosen: divmf.Recommender, split: divmf.Split, seed: int, n_out: int, k: int
) -> None:
    out = np.random.default_rng(seed).choice(split.item_ids.to_numpy(), n_out, replace=False).tolist()
    lists = chosen.lists(k=k, exclude=out)
    shown = chosen.lists(k=k, items=[item for item in split.item_ids if item not in set(out)])
    assert np.array_equal(lists.items, shown.items)
    for user, row in enumerate(lists.items):
        named = [split.item_ids[int(item)] for item in row if item >= 0]
        assert not set(named) & set(out)
        assert len(set(named)) == len(named) == min(k, left(split, set(out), user))
        assert not set(row[row >= 0].tolist()) & set(split.known[[user]].indices.tolist())


def test_what_is_not_blocked_stays_in_its_order_and_the_next_best_follow(chosen: divmf.Recommender) -> None:
    plain = chosen.lists(k=K)
    first = chosen.split.item_ids[int(plain.items[0, 0])]
    without = chosen.lists(k=K, exclude=[first])
    kept = [row[row != plain.items[0, 0]].tolist() for row in plain.items]
    assert all(list(row[: len(kept[user])]) == kept[user] for user, row in enumerate(without.items))
    longer = chosen.lists(k=K + 1, exclude=[first])
    assert np.array_equal(longer.items[:, :K], without.items)


def test_pairs_are_left_out_of_their_users_lists_alone(chosen: divmf.Recommender, split: divmf.Split) -> None:
    plain = chosen.lists(k=K)
    user, item = split.user_ids[3], split.item_ids[int(plain.items[3, 0])]
    made = chosen.lists(k=K, exclude=pl.DataFrame({"user_id": [user], "item_id": [item]}))
    assert plain.items[3, 0] not in made.items[3]
    assert (made.items[3] >= 0).all()
    others = np.arange(split.n_users) != 3
    assert np.array_equal(made.items[others], plain.items[others])
    allowed = [split.item_ids[number] for number in range(split.n_items) if number not in split.seen[[3]].indices][:6]
    mine = chosen.lists(k=K, items=pl.DataFrame({"user_id": [user] * 6, "item_id": allowed}))
    assert {split.item_ids[int(number)] for number in mine.items[3]} <= set(allowed)
    assert np.array_equal(mine.items[others], plain.items[others])


def test_candidates_of_rerankers_are_filtered_alike() -> None:
    wide = TopK(
        np.array([[0, 1, 2], [2, 1, -1]], dtype=np.int32),
        np.array([[3, 2, 1], [5, 4, -np.inf]], dtype=np.float32),
        pl.Series("user_id", ["a", "b"]), pl.Series("item_id", ["x", "y", "z"]),
    )  # fmt: skip
    made = wide.filtered(exclude=["y"])
    assert made.items.tolist() == [[0, 2, -1], [2, -1, -1]]
    assert made.scores[0].tolist() == [3, 1, -np.inf]
    assert wide.filtered(pl.DataFrame({"user_id": ["b"], "item_id": ["z"]})).items.tolist() == [[0, 1, 2], [1, -1, -1]]
    assert wide.filtered() is wide


def test_conditions_are_sql_over_the_catalog() -> None:
    catalog = pl.DataFrame({"item_id": [3, 1, 2], "category": ["Drama", "Comedy", None], "new": [1, 0, None]})
    table = of_items(catalog, pl.Series("item_id", [1, 2, 3]))
    assert holds(table, "category = 'Drama'", "--where").tolist() == [False, False, True]
    assert holds(table, "new", "floor.where").tolist() == [False, False, True]
    assert holds(table, "category IS NULL OR item_id > 2", "--where").tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("genre = 'Drama'", "no column 'genre'"),
        ("category = ", "cannot be read"),
        ("category", "holds text, not true or false; write a condition, such as category = 'a'"),
        ("item_id", "not true or false"),
    ],
)
def test_conditions_that_do_not_work_say_so_in_one_line(expression: str, says: str) -> None:
    catalog = pl.DataFrame({"item_id": [1, 2, 3], "category": ["a", "b", "c"]})
    with pytest.raises(ValueError, match="where") as caught:
        holds(catalog, expression, "--where")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"exclude": ["nope"]}, "'nope'"),
        ({"items": ["i00001", "nope"]}, "'nope'"),
        ({"exclude": ["i00001"], "items": ["i00001", "i00002"]}, "contradict"),
        ({"items": []}, "leave none"),
        ({"exclude": Path("nowhere.csv")}, "nowhere.csv"),
    ],
)
def test_wrong_filters_are_named(chosen: divmf.Recommender, given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        chosen.lists(k=K, **given)
    assert "\n" not in str(caught.value)


def test_a_file_may_name_items_that_the_data_does_not_have(tmp_path: Path, split: divmf.Split, caplog: Any) -> None:
    pl.DataFrame({"item_id": ["i00001", "gone"]}).write_csv(tmp_path / "out.csv")
    made = Filters(split.item_ids, split.user_ids, folder=tmp_path).blocked("out.csv")
    assert np.flatnonzero(made.items).tolist() == [1]
    assert "1 of 2 rows" in caplog.text


def test_the_catalog_of_movielens_has_genres() -> None:
    table = movielens_items("1::Toy Story (1995)::Animation|Comedy\n2::Amélie::Drama\n".encode("latin-1"))
    assert table["genres"].to_list() == [["Animation", "Comedy"], ["Drama"]]
    assert table["title"].to_list() == ["Toy Story (1995)", "Amélie"]


def test_the_command_line_filters(divmf: Any, tmp_path: Path) -> None:
    data = marketplace(60, 40, 700, seed=1)
    data.frame.write_parquet(tmp_path / "data.parquet")
    category = ["Drama" if number % 2 else "Comedy" for number in range(40)]
    pl.DataFrame({"item_id": data.item_ids, "category": category}).write_csv(tmp_path / "items.csv")
    pl.DataFrame({"item_id": data.item_ids[:10]}).write_csv(tmp_path / "out.csv")
    run, lists = tmp_path / "run", tmp_path / "lists.parquet"
    divmf("train", tmp_path / "data.parquet", "-o", run, "--k", "3", "--accuracy-epochs", "3",
          "--diversity-epochs", "2")  # fmt: skip
    flags = ["--exclude", tmp_path / "out.csv", "--catalog", tmp_path / "items.csv", "--where"]
    divmf("recommend", run, "-o", lists, *flags, "category = 'Drama'")
    made = pl.read_parquet(lists)
    numbers = made["item_id"].str.slice(1).cast(pl.Int64)
    assert ((numbers % 2 == 1) & (numbers >= 10)).all()
    assert made.group_by("user_id").len()["len"].min() == 3
    result = divmf("recommend", run, "-o", tmp_path / "no.parquet", "--where", "category = 'Drama'")
    assert result.code == 2
    assert "--catalog" in result.err
    result = divmf("recommend", run, "-o", tmp_path / "no.parquet", *flags, "category = 'Opera'")
    assert result.code == 2
    assert "Opera" in result.err
    assert not (tmp_path / "no.parquet").exists()


def test_true_and_false_in_a_csv_are_truth_values_and_ids_are_not(tmp_path: Path) -> None:
    file = tmp_path / "items.csv"
    file.write_text("item_id,sold_out,named\ntrue,True,true\nfalse,FALSE,maybe\nx,,true\n")
    catalog = read_items(file)
    assert catalog["item_id"].to_list() == ["true", "false", "x"]
    assert catalog["sold_out"].to_list() == [True, False, None]
    assert catalog["named"].to_list() == ["true", "maybe", "true"]
    assert holds(catalog, "sold_out", "exclude").tolist() == [True, False, False]
