"""Chains of swaps, by hand and beside the largest flow there is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import maximum_flow

import divmf
from divmf import Rules
from divmf.market.chains import link
from divmf.market.ruled import State
from divmf.models.ease import ease
from divmf.ranking.groups import Groups
from divmf.rerank.market import MarketOfLists, bound_to_lists

Array = NDArray[Any]


def shop(items: Array, k: int, rules: Rules, n_items: int) -> MarketOfLists:
    """Candidates in this order, each worth one less than the one before."""
    scores = np.where(items >= 0, -np.arange(items.shape[1], dtype=np.float32), -np.inf).astype(np.float32)
    ids = pl.Series("user_id", range(len(items))), pl.Series("item_id", range(n_items))
    wide = divmf.TopK(items.astype(np.int32), scores, *ids)
    return MarketOfLists(wide, k, bound=bound_to_lists(rules, wide, k, None))


def linked(made: MarketOfLists, lists: Any) -> State:
    assert made.ruled is not None
    state = made.ruled.state_of(made.market.lists(np.array(lists, dtype=np.int32)))
    columns, _ = made.market.own
    link(made.ruled, columns, 1, 0.0, state)
    assert state.counts.tolist() == made.ruled.bound.counted(state.lists.items).tolist()
    assert state.lists.exposed.tolist() == made.market.lists(state.lists.items).exposed.tolist()
    return state


def test_a_second_list_makes_up_for_what_the_first_gave() -> None:
    # item 0 is seller a's, 1 is b's, 2 and 3 are of nobody; only user 0 could show item 0, who shows the only 1
    catalog = pl.DataFrame({"item_id": range(4), "seller": ["a", "b", None, None]})
    rules = Rules(groups={"seller": {"floor": 1}}, catalog=catalog)
    made = shop(np.array([[1, 0, -1], [2, 3, 1], [2, 1, 3]]), 1, rules, 4)
    state = linked(made, [[1], [2], [2]])
    assert state.counts.tolist() == [1, 1]
    assert state.lists.items.tolist() == [[0], [2], [1]]  # of the two who could, the one who loses less by item 1


def test_room_is_made_where_a_total_is_full() -> None:
    # item 0 is the only one of seller a, and of the full kind x; user 1 shows another x and can take item 2
    catalog = pl.DataFrame({"item_id": range(4), "seller": ["a", None, None, None], "kind": ["x", "x", None, None]})
    rules = Rules(groups={"seller": {"floor": 1}, "kind": {"cap": 1}}, catalog=catalog)
    made = shop(np.array([[3, 0], [1, 2]]), 1, rules, 4)
    state = linked(made, [[3], [1]])
    assert state.lists.items.tolist() == [[0], [2]]


def test_a_list_that_may_hold_no_more_of_a_total_takes_no_part() -> None:
    catalog = pl.DataFrame({"item_id": range(4), "seller": ["a", "a", "b", "b"]})
    rules = Rules(groups={"seller": {"floor": {"a": 2}, "per_list": 1}}, catalog=catalog)
    made = shop(np.array([[0, 2, 1], [2, 1, 3]]), 2, rules, 4)
    assert linked(made, [[0, 2], [2, 3]]).lists.items.tolist() == [[0, 2], [2, 1]]


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 3))
def test_what_chains_leave_missing_no_lists_can_give(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    n_users, n_items, width, n_groups = 12, 15, 6, 5
    items = np.array([rng.permutation(n_items)[:width] for _ in range(n_users)])
    groups, low = rng.integers(0, n_groups, n_items), rng.integers(0, 1 + 2 * n_users * k // n_groups, n_groups)
    catalog = pl.DataFrame({"item_id": range(n_items), "seller": groups})
    floors = {str(group): int(low[group]) for group in np.unique(groups)}
    if sum(floors.values()) > n_users * k:
        floors = {group: floor // 3 for group, floor in floors.items()}
    made = shop(items, k, Rules(groups={"seller": {"floor": floors}}, catalog=catalog), n_items)
    state = linked(made, items[:, :k])
    assert made.ruled is not None
    wanted = made.ruled.bound.low
    missing = int(np.maximum(wanted - state.counts, 0).sum())
    assert missing == int(wanted.sum()) - most_given(items, np.unique(groups, return_inverse=True)[1], wanted, k)
    assert (np.sort(state.lists.items, axis=1)[:, 1:] != np.sort(state.lists.items, axis=1)[:, :-1]).all()
    assert all(set(own) <= set(row) for own, row in zip(state.lists.items.tolist(), items.tolist(), strict=True))


def most_given(items: Array, groups: Array, wanted: Array, k: int) -> int:
    """The most showings towards floors that any lists give: a flow from users over items to groups."""
    n_users, n_items = len(items), len(groups)
    end = 1 + n_users + n_items + len(wanted)
    users, things = 1 + np.arange(n_users), 1 + n_users + np.arange(n_items)
    sellers = 1 + n_users + n_items + np.arange(len(wanted))
    tails = np.concatenate([np.zeros(n_users, int), np.repeat(users, items.shape[1]), things, sellers])
    heads = np.concatenate([users, things[items.ravel()], sellers[groups], np.full(len(wanted), end)])
    most = np.concatenate([np.full(n_users, k), np.ones(items.size, int), np.full(n_items, n_users), wanted])
    graph = sparse.csr_array((most.astype(np.int32), (tails, heads)), shape=(end + 1, end + 1))
    return int(maximum_flow(sparse.csr_matrix(graph), 0, end).flow_value)


@pytest.mark.slow
@pytest.mark.parametrize("fraction", [0.2, 0.4])
def test_publishers_of_steam_have_all_showings_that_any_lists_could_give(
    fraction: float, real: Callable[[str], Path]
) -> None:
    split = divmf.Interactions.read(real("steam.parquet")).hold_out(0)
    catalog, k = pl.read_parquet(real("steam-items.parquet")), 5
    scores = ease(split.train.matrix, 3000.0).scores(np.arange(split.n_users))
    scores[split.seen.nonzero()] = -np.inf
    items = np.argsort(-scores, axis=1, kind="stable")[:, :200].astype(np.int32)
    wide = divmf.TopK(items, np.take_along_axis(scores, items, 1), split.user_ids, split.item_ids)
    groups = Groups.read(catalog, "publisher", split.item_ids)
    rules = Rules(groups={"publisher": {"floor": int(fraction * split.n_users * k / len(groups))}}, catalog=catalog)
    bound, of = bound_to_lists(rules, wide, k, None), np.empty(split.n_items, dtype=np.int64)
    of[groups.items] = groups.codes
    counts = bound.counted(divmf.rerank.market(wide, k, rho=0.0, rules=rules).items)
    missing = int(np.maximum(bound.low - counts, 0).sum())
    assert missing == int(bound.low.sum()) - most_given(items, of, bound.low, k)


def test_lists_that_lack_nothing_stay() -> None:
    catalog = pl.DataFrame({"item_id": range(3), "seller": ["a", "b", "b"]})
    made = shop(np.array([[0, 1], [1, 2]]), 1, Rules(groups={"seller": {"floor": 1}}, catalog=catalog), 3)
    assert linked(made, [[0], [1]]).lists.items.tolist() == [[0], [1]]
