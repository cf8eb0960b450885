"""The parts of the market, each worked by hand or beside a plain loop: values, discounts, bounds, responses."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from divmf.data.filters import Blocked
from divmf.kernels.bound import BINS, balances, offered
from divmf.kernels.market import ONE, Terms, keep_highest
from divmf.kernels.response import candidates
from divmf.market.bonus import Bonus
from divmf.market.certificate import balanced, beginning, certify
from divmf.market.chosen import Chosen
from divmf.market.columns import KINDS, Finder, GivenLists, Held, no_counts
from divmf.market.entering import least_discounts, with_new
from divmf.market.ledger import Ledger
from divmf.market.ledger import Terms as LedgerTerms
from divmf.market.offer import Offer, respond
from divmf.market.response import best_response, chosen_of
from divmf.market.solve import Lists, Solution, solve
from divmf.market.stakes import steadied
from divmf.models.scorer import Blocks
from test_market import market_of, worth

Array = NDArray[Any]

# ---- the market


@pytest.mark.parametrize("exposure", ["count", "attention"])
def test_the_value_of_lists_is_added_up_as_it_is_defined(exposure: str) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(6, 9))
    market = market_of(scores, 3, exposure)
    for rho in (0.0, 0.4, 3.0):
        found = solve(market, rho, market.own[1]["all"])
        lists = found.lists["all"]
        assert market.value(found.columns, rho, lists) == pytest.approx(worth(market, scores, rho, lists.items))


def test_lists_as_good_as_the_best_stay_also_where_everything_is_worth_nothing() -> None:
    market = market_of(np.zeros((4, 5)), 2)
    columns, made = market.own
    lists = Lists(np.tile(np.array([1, 3], dtype=np.int32), (4, 1)), made["all"].exposed.copy())
    lists = market.lists(lists.items)
    assert market.turns(columns, 1, 0.0, lists) == 0
    assert lists.items.tolist() == [[1, 3]] * 4


def test_the_certificate_does_not_depend_on_the_unit_of_scores() -> None:
    rng = np.random.default_rng(2)
    scores, gaps = rng.normal(size=(40, 15)), []
    for unit in (1.0, 1 / 4096):
        market = market_of(unit * scores, 3)
        gaps.append(certify(market, solve(market, 0.3 * market.spread, market.own[1]["all"])).gap)
    assert gaps[0] == pytest.approx(gaps[1], rel=1e-3)
    assert gaps[0] > 1e-4


def test_lists_that_gain_nothing_have_no_gap() -> None:
    market = market_of(np.random.default_rng(0).normal(size=(5, 6)), 2)
    assert certify(market, solve(market, 0.0, market.own[1]["all"])).gap == 0.0


def test_the_kinds_of_lists_are_told_apart_by_bits() -> None:
    market = market_of(np.zeros((2, 3)), 1)
    three = type(market)(market.finder, market.slots, market.exposure, market.bonus, KINDS)
    assert three.bits == [(1, "valid"), (2, "test"), (4, "all")]


@given(values=st.lists(st.sampled_from([0.0, -1.5, 2.0, 2.5, 3.0, 7.0]), max_size=9), k=st.integers(1, 4))
def test_the_highest_are_kept_in_ascending_order(values: list[float], k: int) -> None:
    highest, size = np.full(k, np.nan), 0
    for number, value in enumerate(values, 1):
        if size < k or value > highest[0]:  # as those who call it ask
            size = keep_highest(highest, size, value)
        assert highest[:size].tolist() == sorted(values[:number])[-k:]


def test_short_lists_stay_where_there_is_nothing_else() -> None:
    known = sparse.csr_array(np.array([[1, 1, 1, 0], [0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]], dtype=np.float32))
    market = market_of(np.random.default_rng(0).normal(size=(4, 4)), 3, known=known)
    columns, own = market.own
    lists = own["all"].copy()
    assert (lists.items >= 0).sum(axis=1).tolist() == [1, 2, 0, 3]
    for rho in (0.0, 0.5):
        for _ in range(9):
            changed = market.turns(columns, 1, rho, lists)
        assert changed == 0
        assert (lists.items >= 0).sum(axis=1).tolist() == [1, 2, 0, 3]


@pytest.mark.parametrize(("nearby", "least", "most"), [(None, 5, 12), (np.full(8, 0.5), 5, 12)])
def test_a_certificate_takes_so_many_looks_at_least_and_at_most(nearby: Any, least: int, most: int) -> None:
    for scores, rho, looks in (
        (np.eye(8), 1e-3, {least}),
        (np.random.default_rng(1).normal(size=(6, 8)), 1.0, range(least, most + 1)),
    ):
        market = market_of(scores, 2)
        found, calls, demand = solve(market, rho, market.own[1]["all"]), [], market.finder.demand
        market.finder.demand = lambda *args, demand=demand, calls=calls: calls.append(args) or demand(*args)  # type: ignore[method-assign]
        certify(market, found, nearby)
        assert len(calls) in looks


def test_a_certificate_begins_as_near_to_known_discounts_as_the_exposure_allows() -> None:
    market = market_of(np.zeros((4, 4)), 2)
    table = market.bonus.table
    lists = Lists(np.full((4, 2), -1, dtype=np.int32), np.array([0, 2 * ONE, 2 * ONE, 2 * ONE]))
    between = (table[1] + table[2]) / 2
    known = 0.5 * np.array([table[0] + 1, table[1] + 1, table[2] - 1, between])
    discount, radius = beginning(market, 0.5, lists, 0.1, known)
    assert discount == pytest.approx(0.5 * np.array([table[0] + 1, table[1], table[2], between]))
    span = 0.1 * 0.5 * (table[1] - table[2])
    assert radius == pytest.approx(np.array([0.3, *3 * [min(max(span, 0.008), 0.3)]]))
    discount, radius = beginning(market, 0.5, lists, 0.1, None)
    assert discount == pytest.approx(0.5 * table[[0, 2, 2, 2]])
    assert radius == pytest.approx(np.full(4, 0.008))


# ---- candidates


def open_best(values: Array, n: int) -> Array:
    return np.argsort(-values, kind="stable")[:n]


@pytest.mark.parametrize("seed", range(4))
def test_what_is_held_out_enters_by_value_or_by_value_plus_discount(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_users, n_items, width = 9, 14, 3
    scores = rng.normal(size=(n_users, n_items)).astype(np.float32)
    weights = rng.uniform(0.5, 2, n_users).astype(np.float32)
    discount = rng.uniform(0, 2, n_items)
    known = (rng.random((n_users, n_items)) < 0.4).astype(np.float32)
    rows, items = np.nonzero(known)
    opens = rng.integers(1, 4, len(rows))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_users))])
    held = Held(sparse.csr_array(known), offsets, items.astype(np.int32), opens.astype(np.int64))
    kept = np.full((n_users, 2), -1, dtype=np.int32)
    kept[:, 0] = [np.flatnonzero(row == 0)[-1] for row in known]
    finder = Finder(Blocks(lambda users: scores[users], n_users, n_items), held, weights, width)
    columns = finder.find(discount, kept)
    for user in range(n_users):
        own = weights[user] * scores[user]
        both = own + discount.astype(np.float32)
        free = np.flatnonzero(known[user] == 0)
        by_value, by_both = free[open_best(own[free], width)], free[open_best(both[free], width)]
        expected = dict.fromkeys([*by_value, *by_both, kept[user, 0]], 7)
        for at in range(offsets[user], offsets[user + 1]):
            item = items[at]
            if scores[user, item] >= scores[user, by_value].min() or both[item] >= both[by_both].min():
                expected[item] = opens[at]
        span = slice(columns.starts[user], columns.ends[user])
        order = sorted(expected, key=lambda item, own=own: (-own[item], item))
        assert columns.items[span].tolist() == order
        assert columns.values[span].tolist() == own[order].tolist()  # to the last digit, negative ones too
        assert columns.opens[span].tolist() == [expected[item] for item in order]


# ---- the bound


def test_what_given_lists_are_worth_and_at_what_discounts_users_would_take_an_item() -> None:
    # one user, one slot, items of value 1 and 0 at discounts of ½ and 0: item 0 is taken, worth 1½
    source = GivenLists(np.array([[0, 1]], dtype=np.int32), np.array([[1.0, 0.0]], dtype=np.float32), 3)
    terms = Terms(np.ones(1), np.array([ONE]), np.zeros(4))
    discount = np.array([0.5, 0.0, 0.0])
    # item 0 is taken from −1 on, below the range from ½ − 1; item 1 from 1½ on, in the last twelfth of its range
    (found,) = source.demand(source.columns, 1, terms, discount, np.array([1.0, 1.625, 1.0]))
    assert found.worth == 1.5
    expected = no_counts(3)
    expected[0, 0] = expected[1, BINS] = ONE
    np.testing.assert_array_equal(found.counts, expected)
    (found,) = source.demand(source.columns, 1, terms, discount, np.array([1.0, 1.5, 1.0]))
    expected[1, BINS] = 0  # exactly at the end of the range is not within
    np.testing.assert_array_equal(found.counts, expected)


def test_users_of_several_slots_are_counted_by_what_the_slot_exposes() -> None:
    # two slots of weights 2 and 1, which expose 1 and ½; values 4, 2, 1 at no discounts: items 0 and 1, worth 10
    source = GivenLists(np.array([[0, 1, 2]], dtype=np.int32), np.array([[4.0, 2.0, 1.0]], dtype=np.float32), 3)
    terms = Terms(np.array([2.0, 1.0]), np.array([ONE, ONE // 2]), np.zeros(4))
    (found,) = source.demand(source.columns, 1, terms, np.zeros(3), np.full(3, 4.0))
    assert found.worth == 10
    # without item 2 a list is worth 10, with it 9: (10 − 9)/½ = 2. Without item 1 it is 9, with it 10: (9 − 10)/½ = −2.
    # Without item 0 it is 5, with it 10, (5 − 10)/1 = −5, which is below the range
    bins = [[0], [3], [9]]  # −2 begins the fourth of twelve bins of 8/12, 2 the tenth
    for item, (at,) in enumerate(bins):
        expected = np.zeros(1 + BINS, dtype=np.int64)
        expected[at if item == 0 else 1 + at] = ONE if item == 0 else ONE // 2
        np.testing.assert_array_equal(found.counts[item], expected)


def test_what_is_offered_between_whole_showings_and_beyond_them() -> None:
    bonus = np.array([4.0, 2.0, 1.0, 0.5])  # half a showing at 4, one and a half at 2, …, three and a half at ½
    narrow = np.array([4.0, 3.75, 1.0])
    assert [offered(discount, narrow) for discount in (4.0625, 4.125, 4.5)] == [0.375, 0.25, 0.0]
    for discount, showings in ((9.0, 0.0), (4.5, 0.375), (4.0, 0.5), (3.5, 0.75), (1.0, 2.5), (0.5, 3.5), (0.1, 3.5)):
        assert offered(discount, bonus) == showings


def test_demand_that_grows_meets_an_offer_that_falls_where_two_lines_cross() -> None:
    bonus, counts, found = np.array([4.0, 3.0, 1.0, 0.5]), np.zeros((1, 1 + BINS), dtype=np.int64), np.empty(1)
    # around 3.5 by 3: bins of ½ from ½ on; from 2.5 to 3 two users come, 4 (d − 2.5), where 3 − d/2 are offered
    counts[0, 5] = 2 * ONE
    balances(counts, np.array([3.5]), np.array([3.0]), bonus, found)
    assert found[0] == pytest.approx(13 / 4.5, abs=1e-6)
    counts[0, 2] = ONE  # one more from the start: 1 + 4 (d − 2.5) = 3 − d/2
    balances(counts, np.array([3.5]), np.array([3.0]), bonus, found)
    assert found[0] == pytest.approx(12 / 4.5, abs=1e-6)


def test_the_next_discount_lies_on_the_way_and_the_next_radius_is_as_wide_as_the_way() -> None:
    bonus = np.array([4.0, 3.0, 1.0, 0.5])
    market: Any = SimpleNamespace(bonus=SimpleNamespace(table=bonus))
    counts = np.zeros((6, 1 + BINS), dtype=np.int64)
    counts[[0, 5], 0] = ONE  # in balance at 3.5: ¼ above, and where it is
    counts[[1, 2, 4], 0] = 9 * ONE  # far too much: beyond the lower end; nobody wants the fourth: beyond the upper
    discount, radius = np.array([3.25, 3.5, 3.5, 0.25, 0.125, 3.5]), np.array([0.5, 0.5, 2.0, 0.5, 0.5, 0.5])
    moved, wider = balanced(market, 1.0, discount, radius, counts, 1.0)
    assert moved == pytest.approx([3.45, 3.1, 1.9, 0.65, 0.0, 3.5], abs=1e-6)  # eight tenths of the way, not below 0
    # half as much again as the way; twice the radius where the balance lies beyond it, from 0.01 to 3 at the most
    assert wider == pytest.approx([0.375, 1.0, 3.0, 1.0, 1.0, 0.01], abs=1e-6)
    _, wider = balanced(market, 1.0, discount, radius, counts, 0.5)
    assert wider == pytest.approx([0.375, 1.0, 1.5, 1.0, 1.0, 0.005], abs=1e-6)


# ---- responses


@given(seed=st.integers(0, 10_000), width=st.integers(1, 4))
def test_both_kinds_of_candidates_stand_in_order_of_score_each_once(seed: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 4, 12).astype(np.float32)
    scores[rng.random(12) < 0.2] = -np.inf
    by_value = np.argsort(-scores, kind="stable")[:width].astype(np.int32)
    by_both = np.append(rng.permutation(12)[:width], -1).astype(np.int32)
    items, values = np.empty(2 * width + 1, dtype=np.int32), np.empty(2 * width + 1)
    size = candidates(scores, by_value, by_both, items, values)
    expected = {int(item) for item in (*by_value, *by_both) if item >= 0 and scores[item] > -np.inf}
    assert items[:size].tolist() == sorted(expected, key=lambda item: (-scores[item], item))
    assert values[:size].tolist() == [scores[item] for item in items[:size]]


@pytest.mark.parametrize("width", [1, 40])
def test_a_response_looks_beyond_the_best_by_score(width: int) -> None:
    # item 49 has the lowest of fifty scores and the one discount that makes up for it
    scores = np.linspace(1, 0, 50, dtype=np.float32)[None]
    discount = np.zeros(50)
    discount[49] = 1.5
    assert respond(scores, Offer.of(discount, width)).tolist() == [[*range(width - 1), 49]]


def test_what_entered_the_list_reached_its_bar() -> None:
    scores, discounts = np.array([[3.0, 2.0, 1.0]], dtype=np.float32), np.array([0.0, 1.0, 8.0])
    page = best_response(
        scores.copy(), 1.0, np.zeros(0, np.int64), discounts.astype(np.float32), discounts.__getitem__, 2,
        np.array([1.0, 0.5]),
    )  # fmt: skip
    # slots count 2.51 and 1 of a value, and all and half of a discount: 0 and 2 are worth 7.53 + 1 + 4
    assert page.items.tolist() == [0, 2]
    assert page.bar == 3.0  # the first: 3 + 1·0; the second: 1 + ½·8
    nothing = best_response(
        scores.copy(), 1.0, np.arange(3), discounts.astype(np.float32), discounts.__getitem__, 2, np.ones(2)
    )
    assert nothing.items.tolist() == []
    assert nothing.bar == np.inf


def test_fewer_candidates_than_slots_make_a_shorter_list() -> None:
    assert chosen_of(np.array([2.0, 1.0]), np.array([0.0, 0.0]), 4, np.ones(4)).tolist() == [0, 1]
    assert chosen_of(np.zeros(0), np.zeros(0), 2, np.ones(2)).tolist() == []


def test_a_list_gives_up_the_item_that_costs_least_also_where_exposure_falls() -> None:
    offer = Offer(np.zeros(0), np.array([3.0, 1.0]), np.array([1.0, 0.5]))
    # 3·2 + 1·1 = 7. In place of the second item, the new one of 3 comes first: 9 + 2 = 11, a full showing: −4; in
    # place of the first: 9 + 1 = 10, −3
    needed, exposed = least_discounts(np.array([[2.0, 1.0]]), np.zeros((1, 2)), np.array([3.0]), offer)
    assert needed.tolist() == [-4.0]
    assert exposed.tolist() == [1.0]
    needed, exposed = least_discounts(np.array([[2.0, 1.0]]), np.zeros((1, 2)), np.array([0.5]), offer)
    assert needed.tolist() == [1.0]  # the second slot: (7 − 6.5)/½
    assert exposed.tolist() == [0.5]


def test_less_than_the_usual_spread_is_raised_however_small_the_usual_is() -> None:
    assert steadied(np.array([1.0, 2.0]), np.array([0.25, 1.0]), 0.5) == pytest.approx([2.0, 2.0])


def test_a_list_with_room_takes_a_new_item_at_no_discount() -> None:
    # one user who has met item 0, with a list of item 1 alone; item 2 is new. b(x) = log(1 + 1/(x + 1)): .69, .41
    scores = np.array([[3.0, 2.0, 1.0]], dtype=np.float32)
    scorer, met = Blocks(lambda users: scores[users], 1, 3), sparse.csr_array(np.array([[1, 0, 0]], dtype=np.float32))
    chosen = Chosen(np.zeros(3, dtype=np.float32), {"all": np.array([[1, -1]], dtype=np.int32)})
    bonus, offer = Bonus(1.0, 1.0, 1.0, 1), Offer.of(np.zeros(3), 2)
    made = with_new(chosen, scorer, {"all": met}, np.array([2]), (1.0, bonus), offer, np.ones(1))
    assert made.lists["all"].tolist() == [[1, 2]]
    assert made.discount == pytest.approx([0, 0, (np.log(2) + np.log(1.5)) / 2])  # the user asks for nothing
    met = sparse.csr_array(np.array([[1, 0, 1]], dtype=np.float32))
    made = with_new(chosen, scorer, {"all": met}, np.array([2]), (1.0, bonus), offer, np.ones(1))
    assert made.lists["all"].tolist() == [[1, -1]]  # who has met it is not shown it
    assert made.discount[2] == pytest.approx(np.log(2))


# ---- points


def tensors(items: list[list[int]], dtype: Any = torch.int32) -> dict[str, torch.Tensor]:
    lists = {f"users.{kind}": torch.tensor(items, dtype=dtype) for kind in KINDS}
    return {"discount": torch.zeros(3)} | lists


def test_lists_of_a_file_name_items_that_there_are() -> None:
    whole = Chosen.of(tensors([[0, 2], [1, -1]]), 3, Path("x"))
    assert whole.lists["all"].tolist() == [[0, 2], [1, -1]]
    assert Chosen.of(tensors([[]]), 3, Path("x")).lists["all"].shape == (1, 0)
    for items, dtype, said in (
        ([[0, 3]], torch.int32, "names items that there are not"),
        ([[0, -2]], torch.int32, "names items that there are not"),
        ([[0, 1]], torch.int64, "holds int64 in 2 dimensions"),
        ([0, 1], torch.int32, "holds int32 in 1 dimensions"),
    ):
        with pytest.raises(ValueError, match=said):
            Chosen.of(tensors(items, dtype), 3, Path("x"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"it has no users\.test"):
        Chosen.of({name: each for name, each in tensors([[0]]).items() if name != "users.test"}, 3, Path("x"))


def test_a_longer_list_goes_on_with_the_best_by_score_plus_discount() -> None:
    scores = np.array([[5.0, 4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0, 5.0]], dtype=np.float32)
    scorer = Blocks(lambda users: scores[users], 2, 5)
    lists = np.array([[0, 1], [4, 3]], dtype=np.int32)
    chosen = Chosen(np.array([0.0, 0.0, 0.0, 1.5, 0.0], dtype=np.float32), {"all": lists})
    seen = sparse.csr_array(np.array([[0, 0, 0, 0, 1], [0, 0, 1, 0, 0]], dtype=np.float32))
    rows = np.array([1, 0])
    assert chosen.first("all", 1, scorer, seen, rows).tolist() == [[4], [0]]
    assert chosen.first("all", 2, scorer, seen, rows).tolist() == [[4, 3], [0, 1]]
    assert chosen.first("all", 4, scorer, seen, rows).tolist() == [[4, 3, 1, 0], [0, 1, 3, 2]]
    # what is blocked moves up what follows; item 1 for the user in row 0 alone, item 4 for all
    pairs = sparse.csr_array(np.array([[0, 1, 0, 0, 0], [0, 0, 0, 0, 0]], dtype=np.float32))
    blocked = Blocked(np.arange(5) == 4, pairs)
    assert chosen.first("all", 2, scorer, seen, rows, blocked).tolist() == [[3, 1], [0, 3]]
    assert chosen.first("all", 1, scorer, seen, rows, blocked).tolist() == [[3], [0]]


# ---- the ledger


def test_a_horizon_of_one_request_is_one() -> None:
    ledger = Ledger(LedgerTerms(rho=1.0, k=1, horizon=1), np.full(2, 0.5))
    ledger.count(np.array([0]))
    assert (ledger.turn, ledger.turn_before, ledger.clock) == (0, 1, 0.0)


def test_drift_is_a_root_mean_square_in_units_of_rho() -> None:
    ledger = Ledger(LedgerTerms(rho=2.0, k=1, horizon=10), np.array([0.5, 0.7]))
    assert ledger.drift == pytest.approx(0.0, abs=1e-12)
    ledger.start = ledger.now() - np.array([0.6, 0.8])
    assert ledger.drift == pytest.approx(np.sqrt((0.36 + 0.64) / 2) / 2)


def test_what_is_taken_back_after_a_horizon_has_ended_leaves_no_debt() -> None:
    ledger = Ledger(LedgerTerms(rho=1.0, k=1, horizon=2), np.full(3, 0.5))
    ledger.count(np.array([0]))
    ledger.count(np.array([1]))  # a horizon ends
    ledger.uncount(np.array([1]))
    assert (ledger.clock, ledger.turn, ledger.requests) == (0.0, 0, 1)
    assert ledger.exposed.tolist() == [0.0, 0.0, 0.0]
    assert ledger.present.tolist() == [0, 0, 0]
    assert ledger.shown.tolist() == [1, 0, 0]


def test_discounts_nobody_looks_at_are_worked_out_in_turn() -> None:
    # 128 requests: within two of them each of five items is brought up to the present
    ledger = Ledger(LedgerTerms(rho=1.0, k=1, horizon=128), np.full(5, 0.5))
    ledger.discount[:] = -1.0
    ledger.count(np.array([0]))
    assert (ledger.discount >= 0).tolist() == [True, True, True, False, False]
    ledger.count(np.array([0]))
    assert (ledger.discount >= 0).all()


def test_an_item_found_to_be_full_is_full_until_it_is_heard_why() -> None:
    ledger = Ledger(LedgerTerms(rho=1.0, k=1, horizon=9), np.zeros(3))
    ledger.shown[:] = 4
    ledger.set_full(1)
    assert ledger.full.tolist() == [1]
    ledger.set_capacity(0, 4)
    ledger.set_capacity(2, 7)
    ledger.set_full(2)
    assert ledger.full.tolist() == [0, 1, 2]
    assert ledger.shown.tolist() == [4, 4, 4]  # what others have shown is counted when it is heard of
    ledger.heard()
    assert ledger.full.tolist() == [0]


# ---- the bonus


def test_what_showings_are_worth_by_hand() -> None:
    bonus = Bonus(delta=1.0, level=3.0, steepness=2.0, most=2)  # b(x) = log(1 + (3/(x + 1))²)/2
    expected = np.log1p((3 / np.array([1.0, 2.0, 3.0, 4.0])) ** 2) / 2
    assert bonus.table == pytest.approx(expected)
    assert bonus.sums == pytest.approx([0, *np.cumsum(expected)])


def test_the_solution_names_its_rho() -> None:
    market = market_of(np.eye(3), 1)
    found = solve(market, 0.25, market.own[1]["all"])
    assert isinstance(found, Solution)
    assert found.rho == 0.25
