from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rerank_cases import candidates, items_of, make_candidates, rows_of, some
from scipy import sparse

from divmf.engine.arrays import Array
from divmf.kernels.market import ONE
from divmf.market.values import exposure_weights, slot_weights
from divmf.ranking.lists import TopK
from divmf.ranking.metrics import gini
from divmf.rerank import market
from divmf.rerank.market import Found, MarketOfLists, path_to


def plain_turn(wide, k, lists, unit, exposure):
    """Every user in turn takes the best of all lists, given the others'; whether one changed."""
    slots, counts = slot_weights(k), exposure_weights(k, exposure) / ONE
    level, changed = 0.9 * len(wide) * counts.sum() / wide.n_items, False

    def earned(exposed):
        table = np.logaddexp(0, 16 * np.log(level / (np.arange(len(wide) + 2) + 1e-4))) / 16
        whole = np.floor(exposed + 1e-9).astype(int)
        return sum(table[:n].sum() + (amount - n) * table[n] for amount, n in zip(exposed, whole, strict=True))

    def exposed_by(everybody):
        exposed = np.zeros(wide.n_items)
        for items in everybody:
            for r, item in enumerate(items):
                exposed[item] += counts[r]
        return exposed

    for user, row in enumerate(rows_of(wide)):
        scores = dict(row)

        def value(items, user=user, scores=scores):
            everybody = [items if other == user else kept for other, kept in enumerate(lists)]
            return sum(slots[r] * scores[item] for r, item in enumerate(items)) + unit * earned(exposed_by(everybody))

        options = [list(chosen) for chosen in combinations([item for item, _ in row], min(k, len(row)))]
        best = max(options, key=value) if options else []
        if options and value(best) > value(lists[user]) + 1e-6 * max(1, abs(value(best))):
            lists[user], changed = best, True
    return changed


@some
@given(candidates(n_lists=st.integers(1, 4)), st.integers(1, 3), st.sampled_from([0.3, 2.0]))
def test_no_user_of_a_plain_loop_would_take_another_list(wide, k, rho):
    lists = items_of(market(wide, k, rho=rho))
    unit = rho * MarketOfLists(wide, k).unit
    assert not plain_turn(wide, k, lists, unit, "count")


@some
@given(candidates(), st.integers(1, 4))
def test_at_rho_zero_lists_are_as_they_are(wide, k):
    assert items_of(market(wide, k, rho=0.0)) == [[item for item, _ in row[:k]] for row in rows_of(wide)]


@pytest.mark.parametrize("replace", [0.1, 0.3, 0.6])
def test_no_more_is_replaced_than_may_be(replace):
    wide = make_candidates(3, n_lists=300, n_items=60, width=30)
    own, made = items_of(market(wide, 4, rho=0.0)), items_of(market(wide, 4, replace=replace))
    kept = np.mean([len(set(one) & set(other)) / 4 for one, other in zip(own, made, strict=True)])
    assert 1 - replace <= kept < 1


def test_a_larger_rho_spreads_lists_more_evenly():
    wide = make_candidates(5, n_lists=400, n_items=50, width=30)
    values = [gini(market(wide, 4, rho=rho).counts) for rho in (0.0, 0.05, 0.5, 5.0)]
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.3 * values[0]


def wide_lists(own: Array, width: int) -> TopK:
    """The best of scores in which some items are liked by all."""
    scores = own + 2 * np.random.default_rng(7).normal(size=own.shape[1])
    items = np.argsort(-scores, axis=1)[:, :width].astype(np.int32)
    best = np.take_along_axis(scores, items, axis=1).astype(np.float32)
    return TopK(items, best, pl.Series("user_id", range(len(own))), pl.Series("item_id", range(own.shape[1])))


@pytest.mark.parametrize("exposure", ["count", "attention"])
def test_lists_at_fixed_discounts_are_the_best_of_all_by_hand(exposure: str) -> None:
    rng = np.random.default_rng(3)
    wide = make_candidates(3, 9, 8, 6)
    discount = np.round(rng.uniform(0, 2, 8), 2)
    made = MarketOfLists(wide, 3, exposure)
    slots, shares = slot_weights(3), exposure_weights(3, exposure) / ONE

    def worth(user: int, columns: tuple[int, ...]) -> float:
        items, scores = wide.items[user][list(columns)], wide.scores[user][list(columns)]
        return float((slots * scores + shares * discount[items]).sum())

    for user, items in enumerate(made.respond(discount)):
        columns = tuple(int(np.flatnonzero(wide.items[user] == item)[0]) for item in items)
        assert worth(user, columns) == pytest.approx(max(worth(user, each) for each in combinations(range(6), 3)))


def test_the_discounts_of_a_solution_give_nearly_its_lists() -> None:
    wide = wide_lists(np.random.default_rng(0).normal(size=(400, 60)), 40)
    made = MarketOfLists(wide, 5)
    found = made.at(1.0)
    again = made.respond(made.certificate(found).discount)
    kept = np.mean([len(set(one) & set(other)) / 5 for one, other in zip(found.items, again, strict=True)])
    assert kept > 0.9
    assert gini(made.listed(again).counts) < gini(made.listed(made.at(0.0)).counts) - 0.2


def test_a_loss_of_ndcg_is_kept_and_no_more_is_replaced_than_allowed() -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(300, 50))
    wide = wide_lists(scores, 30)
    users, columns = np.nonzero(rng.random((300, 4)) < 0.5)  # half of the best are met later
    met = (np.ones(len(users), dtype=np.float32), (users, wide.items[users, columns]))
    held = sparse.csr_array(met, shape=(300, 50))
    made = MarketOfLists(wide, 4)
    lost = made.loss_on(held)
    found = made.within(lost, 0.05)
    assert found.rho > 0
    assert lost(found.items) <= 0.05 < lost(made.at(2 * found.rho + 1).items)
    with pytest.raises(ValueError, match="nothing of the users of these lists"):
        made.loss_on(sparse.csr_array((300, 50), dtype=np.float32))


@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_the_unit_of_the_scores_does_not_matter(factor: float) -> None:
    # ρ counts in spreads of a user's scores
    rng = np.random.default_rng(5)
    items = np.tile(np.arange(12, dtype=np.int32), (8, 1))
    scores = rng.random((8, 12)).astype(np.float32)
    made = [
        market(TopK.from_arrays(items, unit * scores, list(range(8)), list(range(12))), 3, rho=0.5)
        for unit in (1, factor)
    ]
    assert made[0].items.tolist() == made[1].items.tolist()
    assert made[0].items.tolist() != np.argsort(-scores, axis=1)[:, :3].tolist()


def test_rho_is_reached_in_steps_of_three_from_a_hundredth_on() -> None:
    np.testing.assert_allclose(list(path_to(1.0)), [1 / 81, 1 / 27, 1 / 9, 1 / 3, 1.0])
    assert list(path_to(0.001)) == [0.001]
    assert list(path_to(0.0)) == []


def by_rho(made: MarketOfLists) -> list[float]:
    """Let solutions hold their ρ in place of items; those that were asked for."""
    asked: list[float] = []

    def solved(rho: float, before: Found) -> Found:
        assert before.rho == max([0.0, *(each for each in asked if each <= rho and each <= 0.2)])
        asked.append(rho)
        return Found(rho, np.array([rho]), None)

    made.solved = solved  # type: ignore[method-assign]
    return asked


def test_the_largest_rho_that_is_allowed_is_looked_for_in_steps_of_three_then_on_the_line_between() -> None:
    made = MarketOfLists(make_candidates(0), 2)
    asked = by_rho(made)
    found = made.within(lambda items: float(np.log(items[0] / 0.001) ** 2), float(np.log(200) ** 2))
    np.testing.assert_allclose(asked[:4], [0.01, 0.03, 0.09, 0.27])
    way = (np.log(200) ** 2 - np.log(90) ** 2) / (np.log(270) ** 2 - np.log(90) ** 2)
    assert asked[4:] == pytest.approx([0.09 * 3**way])  # what is lost there is within 2% of what may be
    assert found.rho == asked[4]


def test_where_what_is_lost_leaps_six_more_are_tried() -> None:
    made = MarketOfLists(make_candidates(0), 2)
    asked = by_rho(made)
    found = made.within(lambda items: 0.1 if items[0] <= 0.2 else 0.3, 0.25)
    # .75 of the way from 0.09 to 0.27, then between 0.09 and that
    assert asked[4] == pytest.approx(0.09 * 3**0.75)
    assert asked[5] == pytest.approx(0.09 * 3 ** (0.75 * 0.75))
    assert len(asked) == 4 + 6
    assert 0.09 < found.rho <= 0.2
    nothing = MarketOfLists(make_candidates(0), 2)
    by_rho(nothing)
    kept = nothing.within(lambda items: 1.0, 0.5)
    assert kept.rho == 0
    assert kept.items.tolist() == nothing.own.items.tolist()
    everything = MarketOfLists(make_candidates(0), 2)
    everything.solved = lambda rho, before: Found(rho, np.array([rho]), None)  # type: ignore[method-assign]
    assert 4e5 < everything.within(lambda items: 0.0, 0.5).rho < 1.3e6


def test_where_the_first_rho_loses_too_much_smaller_ones_are_tried() -> None:
    made = MarketOfLists(make_candidates(0), 2)
    asked = by_rho(made)
    # nothing is lost at a third of 0.01, .1 at 0.01: the line says .6 of the way; nine tenths are the most
    found = made.within(lambda items: 10 * float(items[0]), 0.06)
    assert asked[:2] == pytest.approx([0.01, 0.01 / 3 * 3**0.6])
    assert 0.98 * 0.006 <= found.rho <= 0.006
    steep = MarketOfLists(make_candidates(0), 2)
    asked = by_rho(steep)
    steep.within(lambda items: float(items[0] >= 0.01) * 0.101, 0.1)
    assert asked[1] == pytest.approx(0.01 / 3 * 3**0.9)


def test_rho_grows_no_more_where_lists_stay_as_they_are() -> None:
    made = MarketOfLists(make_candidates(0), 2)
    asked: list[float] = []

    def solved(rho: float, before: Found) -> Found:
        asked.append(rho)
        return Found(rho, made.own.items if rho < 0.05 else np.array([min(rho, 0.5)]), None)

    made.solved = solved  # type: ignore[method-assign]
    assert made.within(lambda items: float(items.flat[0] / 9), 0.999).rho == pytest.approx(2.43)
    np.testing.assert_allclose(asked, [0.01, 0.03, 0.09, 0.27, 0.81, 2.43])


def test_what_is_replaced_is_counted_in_slots() -> None:
    wide = make_candidates(0, n_lists=3, n_items=9, width=6)
    made = MarketOfLists(wide, 2)
    own = made.own.items
    other = own.copy()
    other[0, 0] = np.setdiff1d(np.arange(9), own[0])[0]  # one of six
    assert made.replaced(other) == pytest.approx(1 / 6)
    assert made.replaced(own[:, ::-1]) == 0  # in another order it is the same
    missing = own.copy()
    missing[1] = -1
    assert made.replaced(missing) == pytest.approx(2 / 6)


def test_a_loss_of_ndcg_is_a_share_of_that_of_the_own_lists_by_hand() -> None:
    items = np.array([[0, 1, 2], [1, 2, 0], [2, 0, 1]], dtype=np.int32)
    wide = TopK.from_arrays(items, np.tile([3.0, 2.0, 1.0], (3, 1)), list("uvw"), list("abc"))
    held = sparse.csr_array(
        np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0]], dtype=np.float32)
    )  # u met a, v met b, w nothing
    made = MarketOfLists(wide, 2)
    second = 1 / np.log2(3)
    worse = np.array([[1, 0], [1, 2], [0, 1]], dtype=np.int32)  # (second + 1)/2 of 1
    assert made.loss_on(held)(worse) == pytest.approx((1 - second) / 2)
    assert made.loss_on(held)(made.own.items) == 0


def test_discounts_of_lists_that_were_not_solved_are_none() -> None:
    made = MarketOfLists(make_candidates(0), 2)
    none = made.certificate(made.at(0.0))
    assert none.discount.tolist() == [0.0] * 9
    assert none.gap == 0.0
    solved = made.certificate(made.at(0.5))
    assert solved.discount.max() > 0
    assert solved.gap > 0


def test_lists_that_are_short_have_no_score_behind_their_end() -> None:
    wide = make_candidates(3, n_lists=6, n_items=9, width=4, short=True)
    made = MarketOfLists(wide, 3)
    listed = made.listed(made.at(0.0))
    lengths = np.minimum(wide.lengths, 3)
    assert listed.lengths.tolist() == lengths.tolist()
    assert np.isneginf(listed.scores).sum() == 18 - lengths.sum()


def test_the_bonus_of_lists_ends_at_a_multiple_of_the_even_share() -> None:
    made = MarketOfLists(make_candidates(0), 2, level=0.5, delta=0.01)  # ten slots of five users, nine items
    assert (made.market.bonus.delta, made.market.bonus.steepness, made.market.bonus.most) == (0.01, 16.0, 5)
    assert made.market.bonus.level == pytest.approx(0.5 * 10 / 9)
    by_attention = MarketOfLists(make_candidates(0), 2, "attention")
    assert by_attention.market.bonus.level == pytest.approx(0.9 * 5 * (1 + 1 / np.log2(3)) / 9, rel=1e-6)
    equal = TopK.from_arrays(np.array([[0, 1]]), np.zeros((1, 2)), ["u"], ["a", "b"])
    assert MarketOfLists(equal, 1).unit == 1.0  # no spread at all
