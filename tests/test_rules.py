"""Rules as they are written: what they mean for data, worked by hand, and what is wrong with them in one line."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from divmf import Rules
from divmf.market.binding import bind
from divmf.market.bound import MANY, Bound, Shop
from divmf.market.rules import amount

CATALOG = pl.DataFrame(
    {
        "item_id": ["a", "b", "c", "d"],
        "seats": [2, None, 1, 3],
        "seller": ["x", "x", "y", None],
        "tags": [["s", "t"], ["t"], [], ["s"]],
        "is_new": [True, False, False, True],
        "worth": [1.0, 1.0, 2.0, 0.0],
        "sold": [0, 0, 0, 1],
    }
)


def shop(met: Any = None, k: int = 1, n_users: int = 3, popularity: Any = None) -> Shop:
    matrix = np.zeros((n_users, 4)) if met is None else np.asarray(met, dtype=float)
    users = pl.Series("user_id", [f"u{number}" for number in range(len(matrix))])
    return Shop(CATALOG["item_id"], users, sparse.csr_array(matrix), False, k, popularity)


def totals_of(bound: Bound, item: int) -> list[str]:
    return [bound.called(total) for total in bound.totals[bound.offsets[item] : bound.offsets[item + 1]]]


def test_a_file_says_what_python_says(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(
        '[capacity]\ncolumn = "seats"\n[floor]\nwhere = "is_new"\ncount = 1\n'
        '[groups.seller]\nfloor = "20%"\ncap = 2\nper_list = 1\n[filter]\nexclude = "sold"\n'
    )
    read = Rules.read(path, CATALOG)
    made = Rules(
        capacity={"column": "seats"}, floor={"where": "is_new", "count": 1},
        groups={"seller": {"floor": "20%", "cap": 2, "per_list": 1}}, filter={"exclude": "sold"}, catalog=CATALOG,
    )  # fmt: skip
    assert read.model_dump() == made.model_dump()
    assert read.groups["seller"].per_list == 1
    assert str(read.groups["seller"].floor) == "20%"


def test_what_rules_mean_worked_by_hand() -> None:
    rules = Rules(
        capacity={"column": "seats"}, floor={"items": {"b": 1}},
        groups={"seller": {"floor": "20%", "per_list": 1}, "tags": {"cap": {"s": 2}}},
        promote={"where": "is_new", "share": "40%"}, catalog=CATALOG,
    )  # fmt: skip
    bound = bind(rules, shop(k=2))
    # six slots: 20% are at least 1.2, so 2; 40% are 3
    named = {bound.called(total): total for total in range(bound.n_totals)}
    bounds = {name: (int(bound.low[at]), int(bound.high[at]), int(bound.per_list[at])) for name, at in named.items()}
    assert bounds == {
        "item 'a'": (0, 2, MANY), "item 'b'": (1, MANY, MANY), "item 'c'": (0, 1, MANY), "item 'd'": (0, 3, MANY),
        "seller 'x'": (2, MANY, 1), "seller 'y'": (1, MANY, 1),
        "tags 's'": (0, 2, MANY), "tags 't'": (0, MANY, MANY), "promote": (3, MANY, MANY),
    }  # fmt: skip
    assert bound.floor[named["seller 'y'"]] == 2  # its one item has one seat
    assert bound.impossible == (
        "seller 'y': 2 showings asked for, at most 1 possible: that is the capacity of its item",
    )
    assert totals_of(bound, 0) == ["item 'a'", "seller 'x'", "tags 's'", "tags 't'", "promote"]
    assert totals_of(bound, 3) == ["item 'd'", "tags 's'", "promote"]
    assert bound.counted(np.array([[0, 1], [3, -1]]))[[named["seller 'x'"], named["promote"]]].tolist() == [2, 2]


def test_targets_are_shares() -> None:
    popularity = np.array([4, 0, 1, 4])
    bound = bind(Rules(target={"by": "merit", "power": 0.5}), shop(popularity=popularity))
    assert bound.target == pytest.approx([0.4, 0, 0.2, 0.4])
    bound = bind(Rules(groups={"seller": {"target": "worth", "weight": 3}}, catalog=CATALOG), shop(k=2))
    assert bound.level == pytest.approx([3, 3])  # of six slots
    assert bound.weight.tolist() == [3, 3]
    even = bind(Rules(groups={"seller": {"target": "even"}}, catalog=CATALOG), shop(k=1))
    assert even.level == pytest.approx([1.5, 1.5])
    assert bind(Rules(target={"by": "even"}), shop()).target is None


def test_what_cannot_be_met_is_said_with_its_numbers() -> None:
    met = [[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0]]
    rules = Rules(groups={"seller": {"floor": {"x": 4}}}, catalog=CATALOG)
    bound = bind(rules, shop(met, k=2))
    assert bound.impossible == (
        "seller 'x': 4 showings asked for, at most 3 possible: 2 users have not met its 2 items",
    )
    assert bound.low.tolist() == [3, 0]
    bound = bind(Rules(floor={"items": {"a": 3}}), shop(met))
    assert bound.impossible == ("item 'a': 3 showings asked for, at most 1 possible: 1 users have not met it",)


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 3), per_list=st.integers(1, 3), is_open=st.booleans())
def test_what_is_possible_for_a_group_is_counted_user_by_user(seed: int, k: int, per_list: int, is_open: bool) -> None:
    rng = np.random.default_rng(seed)
    matrix: NDArray[Any] = (rng.random((7, 6)) < 0.5).astype(float)
    item_ids = pl.Series("item_id", list(range(6)))
    sellers = rng.integers(0, 2, 6)
    sellers[:2] = 0, 1
    catalog = pl.DataFrame({"item_id": item_ids, "seller": sellers})
    rules = Rules(groups={"seller": {"floor": {"0": 7 * k}, "per_list": per_list}}, catalog=catalog)
    data = Shop(item_ids, pl.Series("user_id", list(range(7))), sparse.csr_array(matrix), is_open, k)
    try:
        bound = bind(rules, data)
    except ValueError as error:
        assert "per_list" in str(error)  # noqa: PT017
        return
    open_ = matrix if is_open else 1 - matrix
    most = sum(min(k, per_list, int(row[sellers == 0].sum())) for row in open_)
    assert bound.low[0] == min(7 * k, most)
    assert bool(bound.impossible) == (most < 7 * k)


BAD = [
    ({"capacity": {"column": "chairs"}}, ["capacity.column", "'chairs'"]),
    ({"capacity": {"column": "seller"}}, ["capacity.column", "'seller'"]),
    ({"capacity": {"items": {"nope": 4}}}, ["capacity.items", "'nope'"]),
    ({"capacity": {"items": {"a": -4}}}, ["capacity.items.a", "-4"]),
    ({"capacity": {"items": {"a": 2}, "count": 3}}, ["capacity", "exactly one"]),
    ({"capacity": {"count": 0}}, ["capacity", "0 showings", "3 slots"]),
    ({"floor": {"where": "is_old", "count": 1}}, ["floor.where", "'is_old'"]),
    ({"floor": {"items": {"a": 3}}, "capacity": {"items": {"a": 2}}}, ["'a'", "floor of 3", "capacity of 2"]),
    ({"floor": {"items": {"a": 2, "b": 2}}}, ["floor", "4 showings", "3 slots"]),
    ({"floor": {"items": {"d": 1}}, "filter": {"exclude": "sold"}}, ["'d'", "filter"]),
    ({"groups": {"seller": {"floor": "120%"}}}, ["groups.seller.floor", "'120%'", "100%"]),
    ({"groups": {"seller": {"floor": "60%"}}}, ["groups.seller.floor", "120%"]),
    ({"groups": {"seller": {"floor": 1.5}}}, ["groups.seller.floor", "1.5"]),
    ({"groups": {"seller": {"floor": 2, "cap": 1}}}, ["seller", "floor of 2", "cap of 1"]),
    ({"groups": {"seller": {"floor": {"z": 1}}}}, ["groups.seller.floor", "'z'"]),
    ({"groups": {"maker": {"floor": 1}}}, ["groups.maker", "'maker'"]),
    ({"groups": {"worth": {"floor": 1}}}, ["groups.worth", "Float64"]),
    ({"groups": {"seller": {}}}, ["groups.seller", "says nothing"]),
    ({"groups": {"seller": {"target": "merit"}}}, ["groups.seller.target", "merit"]),
    ({"groups": {"tags": {"per_list": 0}}}, ["groups.tags.per_list", "0"]),
    ({"filter": {"exclude": "sold", "allow": "sold"}}, ["filter", "contradict"]),
    ({"filter": {"exclude": ["a"], "allow": ["a", "b"]}}, ["filter.exclude", "filter.allow", "'a'"]),
    ({"filter": {"allow": ["nope"]}}, ["filter.allow", "'nope'"]),
    ({"filter": {"exclude": ["a", "b", "c", "d"]}}, ["filter.exclude", "none of 4"]),
    ({"promote": {"where": "is_new", "share": 5}}, ["promote.share", "5"]),
    ({"promote": {"where": "worth > 9", "share": "5%"}}, ["promote.where", "none"]),
    ({"promotion": {"where": "is_new"}}, ["promotion", "no such rule"]),
    ({"capacity": {"colum": "seats"}}, ["capacity.colum", "unknown"]),
]  # fmt: skip


@pytest.mark.parametrize(("given", "says"), BAD, ids=[str(number) for number in range(len(BAD))])
def test_bad_rules_are_one_line_that_names_rule_and_value(given: dict[str, Any], says: list[str]) -> None:
    with pytest.raises(ValueError, match=says[0]) as caught:
        bind(Rules(**given, catalog=CATALOG), shop())
    assert "\n" not in str(caught.value)
    for words in says:
        assert words in str(caught.value)


def test_a_user_left_without_k_items_is_named(tmp_path: Path) -> None:
    met = [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0]]
    with pytest.raises(ValueError, match=r"2 users \(such as 'u0': 2\) with fewer than k=3"):
        bind(Rules(filter={"exclude": ["a", "b"]}), shop(met, k=3))
    pairs = tmp_path / "pairs.csv"
    pl.DataFrame({"user_id": ["u0"] * 2, "item_id": ["a", "b"]}).write_csv(pairs)
    with pytest.raises(ValueError, match=r"1 users \(such as 'u0': 2\)"):
        bind(Rules(filter={"exclude": str(pairs)}), shop(met, k=3))
    with pytest.raises(ValueError, match=r"groups.seller.per_list = 1 leaves room for 3 items in a list of k=4"):
        bind(Rules(groups={"seller": {"per_list": 1}}, catalog=CATALOG), shop(k=4))


def test_files_are_found_beside_the_rules(tmp_path: Path) -> None:
    pl.DataFrame({"user_id": ["u0", "u1"], "item_id": ["a", "b"]}).write_csv(tmp_path / "pairs.csv")
    (tmp_path / "rules.toml").write_text('[filter]\nexclude = "pairs.csv"\n')
    bound = bind(Rules.read(tmp_path / "rules.toml"), shop())
    assert bound.blocked.pairs is not None
    assert bound.blocked.pairs.toarray()[:2].tolist() == [[1, 0, 0, 0], [0, 1, 0, 0]]
    for text, says in (("capacity = [", "not TOML"), ("[filter]\nexclude = 'no.csv'", "no.csv"), ("[floor]", "floor")):
        (tmp_path / "rules.toml").write_text(text)
        with pytest.raises(ValueError, match=r"rules\.toml") as caught:
            bind(Rules.read(tmp_path / "rules.toml"), shop())
        assert says in str(caught.value)
    with pytest.raises(ValueError, match="no such file"):
        Rules.read(tmp_path / "none.toml")


def test_a_catalog_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"1 of 4 items .*'d'.* not in the catalog"):
        bind(Rules(capacity={"column": "seats"}, catalog=CATALOG[:3]), shop())
    with pytest.raises(ValueError, match="--catalog"):
        bind(Rules(capacity={"column": "seats"}), shop())
    with pytest.raises(ValueError, match="twice"):
        bind(Rules(capacity={"column": "seats"}, catalog=pl.concat([CATALOG, CATALOG])), shop())


# ---- amounts, limits of a kind, and what two rules leave


def test_shares_are_rounded_to_the_side_that_keeps_them() -> None:
    assert [amount("30%").at_least(slots) for slots in (0, 1, 10, 11)] == [0, 1, 3, 4]
    assert [amount("30%").at_most(slots) for slots in (0, 1, 10, 11)] == [0, 0, 3, 3]
    assert (amount("7%").at_least(100), amount("7%").at_most(100)) == (7, 7)  # 7.000000000000001 is 7
    assert (amount(40).at_least(3), amount(40).at_most(3)) == (40, 40)
    assert (str(amount("2.5%")), str(amount(1200))) == ("2.5%", "1,200")
    assert [amount(each).number for each in ("0%", "100%", 0, 1 << 40)] == [0, 1, 0, 1 << 40]
    for wrong in ("101%", "-1%", "nan%", "x%", True, 1.0, -1, (1 << 40) + 1, "40"):
        with pytest.raises(ValueError, match=r"shares go from|write a share"):
            amount(wrong)


def test_groups_that_add_up_to_everything_are_possible() -> None:
    two = bind(Rules(groups={"seller": {"floor": "50%"}}, catalog=CATALOG), shop(k=2))
    assert two.low.tolist() == [3, 3]
    assert two.impossible == ()
    exact = bind(Rules(groups={"seller": {"floor": 2, "cap": 2}}, catalog=CATALOG), shop(k=2))
    assert (exact.low.tolist(), exact.high.tolist()) == ([2, 2], [2, 2])
    shares = bind(Rules(groups={"seller": {"cap": {"x": "50%"}}}, catalog=CATALOG), shop(k=2))
    assert shares.share.tolist() == [0.5, 0.0]
    assert shares.high.tolist() == [3, MANY]
    single = bind(Rules(floor={"items": {"a": 2}}, capacity={"items": {"a": 2}}), shop())
    assert (single.low.tolist(), single.high.tolist()) == ([2], [2])


def test_capacities_that_leave_room_for_every_slot_are_possible() -> None:
    assert bind(Rules(capacity={"count": 1}), shop(k=1, n_users=4)).high.tolist() == [1] * 4
    with pytest.raises(ValueError, match=r"capacity: all items together may have 4 showings, fewer than the 5 slots"):
        bind(Rules(capacity={"count": 1}), shop(k=1, n_users=5))
    bind(Rules(floor={"count": 1}), shop(k=1, n_users=4))
    with pytest.raises(ValueError, match="floor: 8 showings asked for in all, more than the 4 slots"):
        bind(Rules(floor={"count": 2}), shop(k=1, n_users=4))
    # users who have met much have fewer slots
    met = [[1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]]
    bind(Rules(capacity={"count": 1}), shop(met, k=2))  # one, none and two slots: three showings
    every = CATALOG.with_columns(seller=pl.lit("x"))
    with pytest.raises(ValueError, match=r"groups.seller.cap: all items together may have 2 showings, fewer than"):
        bind(Rules(groups={"seller": {"cap": 2}}, catalog=every), shop(met, k=2))


def test_a_floor_that_the_users_just_can_fill_is_possible() -> None:
    met = [[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert bind(Rules(floor={"items": {"a": 2}}), shop(met)).impossible == ()
    group = Rules(groups={"seller": {"floor": {"x": 5}}}, catalog=CATALOG)
    assert bind(group, shop(met, k=2)).impossible == ()  # one of x for the first, two for each other
    group = Rules(groups={"seller": {"floor": {"x": 6}}}, catalog=CATALOG)
    bound = bind(group, shop(met, k=2))
    assert bound.low.tolist() == [5, 0]
    assert bound.impossible == (
        "seller 'x': 6 showings asked for, at most 5 possible: 3 users have not met its 2 items",
    )


def test_what_caps_of_groups_leave_is_told() -> None:
    # a and b are seller x, c is y; d has no seller: of six slots two may be of x, one of y, three of d
    rules = Rules(
        groups={"seller": {"cap": {"x": 2, "y": 1}}}, floor={"where": "worth > 0", "count": 1},
        promote={"where": "worth > 0", "share": "60%"}, catalog=CATALOG,
    )  # fmt: skip
    bound = bind(rules, shop(k=2))
    assert bound.impossible == (
        "promote: 4 showings asked for, at most 3 possible: that is what groups.seller.cap leaves",
    )
    # the tags overlap: a is in both, and each showing counts in at least one of them, but those of c in none
    tags = Rules(groups={"tags": {"cap": {"s": 1, "t": 1}}}, catalog=CATALOG)
    assert bind(tags, shop(k=1)).impossible == ()
    met = [[0, 0, 1, 0]] * 3
    with pytest.raises(ValueError, match=r"groups.tags.cap: all items together may have 2 showings, fewer than the 3"):
        bind(tags, shop(met, k=1))


def test_floors_of_two_rules_that_share_no_item_fit_into_the_slots_together() -> None:
    rules: dict[str, Any] = {"promote": {"where": "seller = 'y'", "share": "60%"}, "catalog": CATALOG}
    bind(Rules(groups={"seller": {"floor": {"x": 2}}}, **rules), shop(n_users=5))
    with pytest.raises(ValueError, match=r"groups.seller.floor and promote: 6 showings asked for together, more than"):
        bind(Rules(groups={"seller": {"floor": {"x": 3}}}, **rules), shop(n_users=5))
    bind(Rules(groups={"seller": {"floor": {"y": 3}}}, **rules), shop(n_users=5))  # the same showings


def test_rules_about_nothing_are_refused(tmp_path: Path) -> None:
    empty = CATALOG.with_columns(seller=pl.lit(None, pl.String), seats=pl.lit(None, pl.Int64))
    with pytest.raises(ValueError, match=r"groups.seller.column = 'seller' holds nothing for these 4 items"):
        bind(Rules(groups={"seller": {"floor": 1}}, catalog=empty), shop())
    with pytest.raises(ValueError, match=r"capacity.column = 'seats' holds nothing for these 4 items"):
        bind(Rules(capacity={"column": "seats"}, catalog=empty), shop())
    with pytest.raises(ValueError, match=r"filter.exclude and filter.allow leave none of 4 items to recommend"):
        bind(Rules(filter={"allow": []}), shop())
    (tmp_path / "rules.toml").write_text("# soon\n")
    with pytest.raises(ValueError, match=r"rules.toml: it says nothing; there are capacity, floor"):
        Rules.read(tmp_path / "rules.toml")


def test_floors_of_what_is_left_out_and_of_candidates_are_told() -> None:
    rules = Rules(groups={"seller": {"floor": {"y": 1}}}, filter={"exclude": ["c"]}, catalog=CATALOG)
    assert bind(rules, shop()).impossible == (
        "seller 'y': 1 showings asked for, none possible: all its items are left out by filter",
    )
    open_to = sparse.csr_array(np.array([[1, 0, 1, 0], [0, 0, 1, 1], [0, 1, 1, 1]], dtype=float))
    data = shop(n_users=3)._replace(open_to=open_to, is_open=True)
    bound = bind(Rules(floor={"items": {"a": 2}}), data)
    assert bound.impossible == ("item 'a': 2 showings asked for, at most 1 possible among the candidates",)
    assert bind(Rules(floor={"items": {"d": 2}}), data).impossible == ()


def test_the_first_five_floors_that_cannot_be_met_are_named(caplog: pytest.LogCaptureFixture) -> None:
    ids = pl.Series("item_id", [f"i{number}" for number in range(7)])
    met = sparse.csr_array(np.ones((9, 7)) * (np.arange(9) > 0)[:, None])
    data = Shop(ids, pl.Series("user_id", range(9)), met, False, 7)
    with caplog.at_level("WARNING"):
        bound = bind(Rules(floor={"count": 2}), data)
    assert len(bound.impossible) == 7
    assert bound.low.tolist() == [1] * 7
    assert bound.floor.tolist() == [2] * 7
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "item 'i0': 2 showings asked for, at most 1 possible: 1 users have not met it"
    assert len(said) == 6
    assert said[5] == "2 further floors cannot be met; they are met as far as possible"


def test_columns_of_numbers_say_nothing_where_they_are_empty() -> None:
    catalog = CATALOG.with_columns(seats=pl.Series([2.0, float("nan"), None, 0.0]), far=pl.Series([1e15, 1, 1, 1]))
    bound = bind(Rules(capacity={"column": "seats"}, catalog=catalog), shop())
    assert [bound.called(total) for total in range(bound.n_totals)] == ["item 'a'", "item 'd'"]
    assert bound.high.tolist() == [2, 0]
    assert bind(Rules(capacity={"column": "far"}, catalog=catalog), shop()).n_totals == 3
    limited = bind(Rules(capacity={"count": 2, "where": "is_new"}, catalog=CATALOG), shop())
    assert [bound.called(total) for total in range(limited.n_totals)] == ["item 'a'", "item 'd'"]
    for column, said in (([0.5, 1, 1, 1], "holds 0.5"), ([1, -2, 1, 1], "holds -2")):
        wrong = CATALOG.with_columns(seats=pl.Series(column, dtype=pl.Float64))
        with pytest.raises(ValueError, match=said):
            bind(Rules(capacity={"column": "seats"}, catalog=wrong), shop())
    with pytest.raises(ValueError, match=r"capacity.where = 'worth > 9' holds for none of 4 items"):
        bind(Rules(capacity={"count": 2, "where": "worth > 9"}, catalog=CATALOG), shop())


def test_targets_that_aim_at_nothing_are_refused() -> None:
    for tables, popularity, said in (
        ({"target": {"by": "merit"}}, np.zeros(4), "is 0 for every item"),
        ({"target": {"by": "seller"}}, None, "holds String, not numbers"),
        ({"groups": {"seller": {"target": "worth"}}}, None, None),
    ):
        if said is None:
            bind(Rules(**tables, catalog=CATALOG), shop())
            continue
        with pytest.raises(ValueError, match=said):
            bind(Rules(**tables, catalog=CATALOG), shop(popularity=popularity))
    below = CATALOG.with_columns(worth=pl.Series([1.0, -1.0, 0, 0]))
    with pytest.raises(ValueError, match=r"holds -1; targets are 0 or more"):
        bind(Rules(target={"by": "worth"}, catalog=below), shop())


def test_a_line_of_an_error_names_the_rule_as_it_is_written() -> None:
    for tables, said in (
        ({"groups": {"seller": {"floor": "nan%"}}}, "groups.seller.floor = 'nan%': shares go from 0% to 100%"),
        ({"capacity": {"count": -1}}, "capacity.count = -1: should be greater than or equal to 0"),
        ({"nothing": 1}, "nothing: there is no such rule; there are capacity"),
        ({"floor": {"cuont": 1}}, "floor.cuont: unknown key"),
        ({"filter": {}}, "filter: it says nothing; give exclude or allow"),
        ({"floor": {"items": {"a": 1}, "where": "x"}}, "items and where do not go together"),
    ):
        with pytest.raises(ValueError, match=said.replace("(", r"\(")) as caught:
            Rules(**tables)
        assert str(caught.value).startswith(said) or "go together" in said
    assert Rules().is_empty
    assert not Rules(filter={"exclude": ["a"]}).is_empty
    assert not Rules(groups={"x": {"per_list": 1}}).is_empty
