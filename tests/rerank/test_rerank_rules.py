"""Rerankers with the rules of a shop: capacities and filters hold, what a method cannot keep is named."""

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rerank_cases import make_candidates

import divmf
from divmf import TopK
from divmf.rerank import METHODS

ABLE = ("dual_prices", "fairrec", "market", "mincost_flow", "uimatch")
SETTINGS: dict[str, dict[str, Any]] = {"uimatch": {"gamma": 0}}


def wide(seed: int, n_lists: int = 20, n_items: int = 12) -> TopK:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n_lists, n_items)) + 2 * rng.normal(size=n_items)
    items = np.argsort(-scores, axis=1)
    ids = pl.Series("item_id", [f"i{n}" for n in range(n_items)])
    return TopK.from_arrays(items, np.take_along_axis(scores, items, 1), pl.Series("user_id", range(n_lists)), ids)


def test_who_can_keep_rules() -> None:
    assert tuple(sorted(name for name, method in METHODS.items() if method.takes_rules)) == ABLE


@pytest.mark.parametrize("name", ABLE)
@given(seed=st.integers(0, 10**6), room=st.integers(5, 20))
def test_capacities_and_filters_hold_exactly(name: str, seed: int, room: int) -> None:
    lists = wide(seed)
    rules = divmf.Rules(capacity={"count": room, "where": "item_id <> 'i3'"}, filter={"exclude": ["i7"]},
                        catalog=pl.DataFrame({"item_id": lists.item_ids}))  # fmt: skip
    made = METHODS[name].run(lists, 3, SETTINGS.get(name, {}), rules=rules)
    counts = made.counts
    assert counts[7] == 0
    assert np.delete(counts, 3).max() <= room
    for row in made.items:
        assert len(set(row[row >= 0].tolist())) == (row >= 0).sum()


@pytest.mark.parametrize("name", ABLE)
def test_capacities_that_do_not_bind_change_nothing(name: str) -> None:
    lists, rules = wide(1), divmf.Rules(capacity={"count": 20})
    given = SETTINGS.get(name, {})
    assert METHODS[name].run(lists, 3, given, rules=rules).counts.tolist() == METHODS[name].run(
        lists, 3, given).counts.tolist()  # fmt: skip


def test_a_floor_is_an_items_guarantee() -> None:
    lists = wide(2)
    rare = int(np.argmin(lists.head(3).counts))
    rules = divmf.Rules(floor={"items": {f"i{rare}": 9}})
    assert METHODS["fairrec"].run(lists, 3, {"alpha": 0.0}, rules=rules).counts[rare] >= 9


def test_rules_that_a_method_cannot_keep_are_named() -> None:
    lists = wide(0)
    shop = pl.DataFrame({"item_id": lists.item_ids, "seller": ["x", "y"] * 6})
    rules = divmf.Rules(groups={"seller": {"floor": 5}}, floor={"count": 1}, catalog=shop)
    with pytest.raises(ValueError, match=r"uimatch keeps capacity and filter, not floor, groups.seller; use market"):
        METHODS["uimatch"].run(lists, 3, SETTINGS["uimatch"], rules=rules)
    with pytest.raises(ValueError, match=r"fairrec keeps capacity, floor and filter, not groups.seller"):
        METHODS["fairrec"].run(lists, 3, rules=rules)
    with pytest.raises(ValueError, match=r"random_top cannot keep rules; these can: .*mincost_flow"):
        METHODS["random_top"].run(lists, 3, rules=rules)


def test_what_is_possible_is_counted_over_all_candidates_the_first_item_too() -> None:
    lists = wide(3)
    rules = divmf.Rules(floor={"items": {"i0": 20}})  # everybody has it as a candidate
    assert METHODS["fairrec"].run(lists, 3, {"alpha": 0.0}, rules=rules).counts[0] == 20
    assert METHODS["market"].run(lists, 3, {"rho": 0.0}, rules=rules).counts[0] == 20


@pytest.mark.parametrize("name", ["dual_prices", "uimatch", "fairrec"])
def test_short_lists_with_rules_end_where_candidates_do(name: str) -> None:
    lists = make_candidates(5, n_lists=9, n_items=8, width=5, short=True)
    made = METHODS[name].run(lists, 3, SETTINGS.get(name, {}), rules=divmf.Rules(capacity={"count": 4}))
    for row, (chosen, candidates) in enumerate(zip(made.items, lists.items, strict=True)):
        own = chosen[chosen >= 0].tolist()
        assert set(own) <= set(candidates[candidates >= 0].tolist()), row
        assert len(own) == len(set(own))
    assert made.counts.max() <= 4
    room = made.counts < 4  # who has a shorter list than candidates has nothing left to take
    for chosen, candidates in zip(made.items, lists.items, strict=True):
        own, open_items = set(chosen[chosen >= 0].tolist()), set(candidates[candidates >= 0].tolist())
        assert len(own) == min(3, len(open_items)) or not room[sorted(open_items - own)].any()


def test_a_rule_that_is_not_there_is_not_named() -> None:
    lists = wide(0)
    with pytest.raises(ValueError, match=r"dual_prices keeps capacity and filter, not floor; use market"):
        METHODS["dual_prices"].run(lists, 3, rules=divmf.Rules(floor={"count": 1}))
    shop, share = pl.DataFrame({"item_id": lists.item_ids}), {"where": "item_id = 'i0'", "share": "5%"}
    others = divmf.Rules(target={"by": "even"}, promote=share, floor={"count": 1}, catalog=shop)
    with pytest.raises(ValueError, match=r"keeps capacity, floor and filter, not target, promote; use"):
        METHODS["fairrec"].run(lists, 3, rules=others)
