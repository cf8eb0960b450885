"""The numbers: worked by hand, against plain loops and other libraries, their laws, their intervals."""

import copy
import json
import logging
import math
import pickle

import numpy as np
import polars as pl
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.metrics import ndcg_score

from divmf.data.interactions import Interactions
from divmf.data.split import Split
from divmf.ranking.bootstrap import resampled
from divmf.ranking.lists import TopK
from divmf.ranking.metrics import (
    METRICS,
    Estimate,
    compare,
    coverage,
    coverage_ceiling,
    entropy,
    estimate,
    evaluate,
    gini,
    head_share,
    measure,
    measure_each,
    sum_of_slots,
    tail_share,
)

COUNTS = arrays(np.int64, st.integers(1, 30), elements=st.integers(0, 50))


def lists_of(items, n_items):
    items = np.array(items, dtype=np.int32).reshape(len(items), -1)
    scores = np.where(items >= 0, 0.0, -np.inf).astype(np.float32)
    return TopK(items, scores, pl.Series("user_id", range(len(items))), pl.Series("item_id", range(n_items)))


def held(rows, n_items):
    """A matrix from the held-out items of each user."""
    users = [user for user, row in enumerate(rows) for _ in row]
    items = [item for row in rows for item in row]
    return sparse.csr_array((np.ones(len(items)), (users, items)), shape=(len(rows), n_items))


def nothing_held(lists):
    return held([[]] * len(lists), lists.n_items)


# ---- worked by hand


def test_the_counts_on_which_libraries_disagree_give_the_papers_numbers():
    counts = [6, 3, 2, 1, 0, 0, 0, 0]
    lists = lists_of(np.repeat(range(8), counts), 8)
    found = measure(lists, nothing_held(lists))
    assert found["coverage"] == 0.5
    assert found["entropy"] == pytest.approx(1.199, abs=5e-4)
    assert found["gini"] == pytest.approx(16 / 21, rel=1e-12)  # 0.762


def test_ndcg_and_hit_worked_by_hand():
    # user 0: held {3}, found second; user 1: held {0, 1}, one found first; user 2: nothing held; user 3: no list
    lists = lists_of([[2, 3], [1, 2], [0, 1], [-1, -1]], 4)
    found = measure(lists, held([[3], [0, 1], [], [2]], 4))
    second = 1 / math.log2(3)
    assert found["ndcg"] == pytest.approx((second + 1 / (1 + second) + 0) / 3, rel=1e-12)
    assert found["hit"] == pytest.approx(2 / 3, rel=1e-12)


def test_a_place_left_empty_before_a_hit_still_counts_as_a_place():
    assert measure(lists_of([[-1, 1]], 2), held([[1]], 2))["ndcg"] == pytest.approx(1 / math.log2(3))


def test_popularity_head_and_tail_worked_by_hand():
    # 11 items, so the head is the 2 with the most interactions, the tail the 5 with the fewest
    popularity = np.array([5, 90, 7, 100, 5, 5, 5, 5, 5, 5, 5])
    # by train count, ties to the lowest number: 3 1 | 2 0 4 5 | 6 7 8 9 10
    lists = lists_of([[3, 1, 0], [10, 5, -1], [-1, -1, -1]], 11)
    found = measure(lists, nothing_held(lists), popularity)
    assert found["popularity"] == pytest.approx(((100 + 90 + 5) / 3 + 5) / 2)
    assert found["head_share"] == pytest.approx(2 / 5)
    assert found["tail_share"] == pytest.approx(1 / 5)


def test_items_that_tie_in_popularity_are_ranked_by_their_number():
    for items, head, tail in ((range(20), 1, 0), (range(20, 100), 0, 0), (range(100, 200), 0, 1)):
        lists = lists_of([[item] for item in items], 200)
        found = measure(lists, nothing_held(lists), np.full(200, 7))
        assert (found["head_share"], found["tail_share"]) == (head, tail)


def test_without_popularity_the_metrics_that_need_it_are_left_out():
    lists = lists_of([[0, 1]], 3)
    assert list(measure(lists, nothing_held(lists))) == ["ndcg", "hit", "coverage", "entropy", "gini"]
    assert list(measure(lists, nothing_held(lists), np.ones(3))) == list(METRICS)


# ---- against other libraries and plain loops


@pytest.mark.parametrize("seed", range(20))
def test_ndcg_agrees_with_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    n_users, n_items, k = 30, int(rng.integers(6, 40)), int(rng.integers(1, 6))
    relevant = rng.random((n_users, n_items)) < rng.choice([0.03, 0.2, 0.6])
    scores = rng.random((n_users, n_items))
    some = relevant.any(axis=1)
    lists = lists_of(np.argsort(-scores, axis=1)[:, :k], n_items)
    found = measure(lists, sparse.csr_array(relevant.astype(np.float32)))
    expected = ndcg_score(relevant[some], scores[some], k=k) if some.any() else 0.0
    assert found["ndcg"] == pytest.approx(expected, rel=1e-10)


def gini_by_pairs(counts):
    """Half the mean absolute difference of two different items, over the mean: no sorting, no ranks."""
    n = len(counts)
    pairs = sum(abs(int(one) - int(other)) for one in counts for other in counts)
    return pairs / (n * (n - 1)) / (2 * sum(map(int, counts)) / n)


@given(COUNTS.filter(lambda counts: len(counts) > 1 and counts.sum() > 0))
def test_gini_is_half_the_relative_mean_difference(counts):
    assert gini(counts) == pytest.approx(gini_by_pairs(counts), rel=1e-10, abs=1e-12)


@given(COUNTS.filter(lambda counts: counts.sum() > 0))
def test_entropy_is_scipys_and_that_of_a_plain_loop(counts):
    loop = -sum(count / counts.sum() * math.log(count / counts.sum()) for count in map(int, counts) if count)
    assert entropy(counts) == pytest.approx(loop, rel=1e-10, abs=1e-12)
    assert entropy(counts) == pytest.approx(scipy.stats.entropy(counts), rel=1e-10, abs=1e-12)


# ---- laws


@st.composite
def cases(draw):
    """Lists with gaps, held-out items, train counts."""
    n_users, n_items = draw(st.integers(1, 8)), draw(st.integers(1, 12))
    width = draw(st.integers(0, min(5, n_items)))
    orders = [draw(st.permutations(range(n_items)))[:width] for _ in range(n_users)]
    kept = draw(arrays(np.bool_, (n_users, width)))
    items = np.where(kept, np.array(orders, dtype=np.int32).reshape(n_users, width), -1)
    relevant = draw(arrays(np.bool_, (n_users, n_items)))
    popularity = draw(arrays(np.int64, n_items, elements=st.integers(0, 20)))
    return lists_of(items, n_items), sparse.csr_array(relevant.astype(np.float32)), popularity


def rows_of(lists, rows):
    return lists_of(lists.items[rows].reshape(len(rows), lists.width), lists.n_items)


@given(cases())
def test_every_metric_is_a_number_within_its_range(case):
    lists, held_out, popularity = case
    for name, value in measure(lists, held_out, popularity).items():
        assert type(value) is float
        assert 0 <= value <= METRICS[name].highest(lists.n_items) * (1 + 1e-12), name


@given(arrays(np.bool_, st.tuples(st.integers(0, 7), st.integers(0, 5))))
def test_values_summed_over_marked_places_are_a_matrix_product(marks: np.ndarray) -> None:
    values = 1 / np.log2(np.arange(marks.shape[1]) + 2)
    assert_allclose(sum_of_slots(marks, values), marks @ values, rtol=1e-15)


@given(COUNTS)
def test_gini_is_zero_exactly_when_all_items_are_recommended_equally_often(counts):
    even = len(set(counts.tolist())) == 1 and counts[0] > 0
    assert (gini(counts) == 0) == (even or len(counts) == 1)
    if even:
        assert entropy(counts) == pytest.approx(math.log(len(counts)), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("n_items", [2, 3, 50])
def test_gini_is_one_when_one_item_has_every_place(n_items):
    assert gini(np.eye(n_items, dtype=np.int64)[1] * 7) == 1


@given(cases(), st.integers(2, 4))
def test_repeating_every_user_changes_nothing(case, times):
    lists, held_out, popularity = case
    rows = np.tile(np.arange(len(lists)), times)
    repeated = measure(rows_of(lists, rows), held_out[rows], popularity)
    assert_allclose(list(repeated.values()), list(measure(lists, held_out, popularity).values()), rtol=1e-10)


@given(cases(), st.randoms(use_true_random=False))
def test_neither_the_order_of_users_nor_the_numbers_of_items_matter(case, random):
    lists, held_out, _ = case
    rows, names = list(range(len(lists))), list(range(lists.n_items))
    random.shuffle(rows)
    random.shuffle(names)
    renamed = np.where(lists.items[rows] >= 0, np.array(names)[lists.items[rows]], -1)
    matrix = sparse.csr_array(held_out.toarray()[rows][:, np.argsort(names)])
    found = measure(lists_of(renamed.reshape(lists.items.shape), lists.n_items), matrix)
    assert_allclose(list(found.values()), list(measure(lists, held_out).values()), rtol=1e-10)


@given(cases(), st.lists(st.integers(1, 7), min_size=1, max_size=4))
def test_several_k_in_one_pass_equal_each_k_alone(case, ks):
    lists, held_out, popularity = case
    found = measure_each(lists, held_out, popularity, ks)
    assert set(found) == set(ks)
    for k in ks:
        assert found[k] == measure(lists, held_out, popularity, k)
        if k <= lists.width:
            assert found[k] == measure(lists.head(k), held_out, popularity, k)


def test_a_k_beyond_the_lists_asks_for_more_than_they_hold():
    lists, held_out = lists_of([[0]], 3), held([[0, 1]], 3)
    assert measure(lists, held_out)["ndcg"] == 1
    assert measure(lists, held_out, k=2)["ndcg"] == pytest.approx(1 / (1 + 1 / math.log2(3)))


def test_the_held_out_matrix_may_be_unsorted_and_repeat_entries():
    matrix = sparse.csr_array((np.ones(4), np.array([7, 2, 7, 0]), np.array([0, 4])), shape=(1, 9))
    found = measure(lists_of([[7, 1, 2, 3, 4]], 9), matrix)
    discount = 1 / np.log2(np.arange(3) + 2)
    assert found["ndcg"] == pytest.approx((discount[0] + discount[2]) / discount.sum())
    assert matrix.nnz == 4  # the caller's matrix is left as it was


def test_a_user_with_many_held_out_items_is_looked_up_rightly():
    rng = np.random.default_rng(0)
    relevant = rng.random((50, 400)) < 0.3
    items = np.argsort(rng.random((50, 400)), axis=1)[:, :20]
    found = measure(lists_of(items, 400), sparse.csr_array(relevant.astype(np.float32)))
    hits = np.take_along_axis(relevant, items, axis=1)
    discount = 1 / np.log2(np.arange(20) + 2)
    assert found["ndcg"] == pytest.approx((hits @ discount).mean() / discount.sum(), rel=1e-10)


# ---- edges


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("items", [[[-1, -1], [-1, -1]], np.empty((2, 0)), np.empty((0, 3))])
@pytest.mark.parametrize("n_items", [1, 5])
def test_no_recommendations_at_all_have_numbers(items, n_items):
    lists = (
        lists_of(items, n_items)
        if len(items)
        else TopK.from_arrays(items, items, pl.Series([], dtype=pl.Int64), range(n_items))
    )
    held_out = held([[0]] * len(lists), n_items)
    expected = dict.fromkeys(METRICS, 0.0) | {"gini": float(n_items > 1)}
    assert measure(lists, held_out, np.arange(n_items)) == expected
    assert estimate(lists, held_out, np.arange(n_items), resamples=3) == expected


@pytest.mark.filterwarnings("error")
def test_a_catalog_of_one_item_is_covered_even_and_certain():
    found = measure(lists_of([[0], [0]], 1), held([[0], []], 1), np.array([3]))
    assert found == {
        "ndcg": 1, "hit": 1, "coverage": 1, "entropy": 0, "gini": 0, "popularity": 3, "head_share": 1, "tail_share": 0
    }  # fmt: skip


def test_what_does_not_fit_is_an_error_that_says_so():
    lists = lists_of([[0, 5]], 3)
    with pytest.raises(ValueError, match="item number 5 is outside the catalog of 3 items"):
        measure(lists, nothing_held(lists))
    lists = lists_of([[0, 2]], 3)
    with pytest.raises(ValueError, match=r"held_out is \(2, 3\); for these lists it must be \(1, 3\)"):
        measure(lists, held([[0], [1]], 3))
    with pytest.raises(ValueError, match=r"popularity is \(2,\); for this catalog it must be \(3,\)"):
        measure(lists, nothing_held(lists), np.ones(2))
    with pytest.raises(ValueError, match="k=0 is not the length of a list"):
        measure(lists, nothing_held(lists), k=0)
    with pytest.raises(ValueError, match="resamples=1 gives no standard error"):
        estimate(lists, nothing_held(lists), resamples=1)


def test_every_metric_says_what_it_is():
    for metric in METRICS.values():
        assert metric.label
        assert len(metric.definition) > 20
        assert metric.better in ("high", "low")
    assert [name for name, metric in METRICS.items() if metric.better == "low"] == ["gini", "popularity", "head_share"]
    assert [METRICS[name].worst for name in ("gini", "coverage", "entropy")] == [1, 0, 0]


# ---- on a split


N_USERS, N_ITEMS = 400, 60


@pytest.fixture(scope="module")
def split():
    """400 users with three of items 0 … 39, one for each part; and a user for each of items 40 … 59, in train only."""
    rng = np.random.default_rng(0)
    items = np.argsort(rng.random((N_USERS, 40)), axis=1)[:, :3]
    frame = pl.DataFrame(
        {"user": np.repeat(range(N_USERS), 3), "item": items.ravel(), "time": np.tile([1, 2, 3], N_USERS)}
    )
    rare = pl.DataFrame({"user": range(N_USERS, N_USERS + 20), "item": range(40, 60), "time": [1] * 20})
    return Interactions.from_frame(pl.concat([frame, rare])).leave_one_out()


def random_lists(split, rng, share=0.0):
    """Lists of five unseen items; a share of the users find their test item, at a random slot."""
    scores = rng.random((split.n_users, split.n_items)) - 9 * (split.seen + split.test.matrix).toarray()
    found = (rng.random(split.n_users) < share)[:, None] & (split.test.matrix.toarray() > 0)
    scores[found] = rng.uniform(0.7, 1, found.sum())
    items = np.argsort(-scores, axis=1)[:, :5]
    return TopK.from_arrays(items, np.take_along_axis(scores, items, axis=1), split.user_ids, split.item_ids)


def test_evaluating_gives_what_measure_gives_in_any_order_of_rows(split):
    lists = random_lists(split, np.random.default_rng(0), share=0.3)
    found = evaluate(lists, split, k=3, resamples=5)
    assert found == measure(lists, split.test.matrix, split.train.popularity, 3)
    shuffled = TopK.from_frame(lists.frame.sample(fraction=1.0, shuffle=True, seed=0))
    assert evaluate(shuffled, split, k=3, resamples=5) == found


def test_validation_is_measured_on_the_validation_items(split):
    lists = TopK.from_arrays(
        split.valid.items[:, None],
        np.ones((len(split.valid), 1)),
        split.user_ids.gather(split.valid.users),
        split.item_ids,
    )
    assert evaluate(lists, split, part="valid", resamples=2)["hit"] == 1
    assert evaluate(lists, split, part="test", resamples=2)["hit"] == 0
    with pytest.raises(ValueError, match="part='train' holds nothing out"):
        evaluate(lists, split, part="train")


def test_seen_items_and_missing_lists_are_counted_and_logged(split, caplog):
    rows = [0, 1, 2]
    items = np.stack([split.train.items[rows], split.valid.items[rows], split.test.items[rows]], axis=1)
    lists = TopK.from_arrays(items, np.ones((3, 3)), split.user_ids.gather(rows), split.item_ids)
    with caplog.at_level(logging.WARNING, logger="divmf"):
        found = evaluate(lists, split, resamples=2)
    assert "6 slots of the lists hold items their users have already seen" in caplog.text
    assert f"{N_USERS - 3} users with held-out items have no list" in caplog.text
    assert found["hit"] == 3 / N_USERS
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="divmf"):
        evaluate(lists, split, part="valid", resamples=2)
    assert "3 slots of the lists hold items" in caplog.text


def test_asking_for_more_than_the_lists_hold_is_logged(split, caplog):
    evaluate(random_lists(split, np.random.default_rng(0)), split, k=7, resamples=2)
    assert "k is 7, but no list holds more than 5" in caplog.text


def test_lists_of_strangers_or_of_foreign_items_are_errors(split):
    lists = TopK.from_arrays([[0]], [[1.0]], [10**6], split.item_ids)
    with pytest.raises(ValueError, match="that the data does not know"):
        evaluate(lists, split)
    lists = TopK.from_arrays([[0]], [[1.0]], [0], [10**6])
    with pytest.raises(ValueError, match="are not in the catalog of 60 items"):
        evaluate(lists, split)


# ---- intervals


def test_an_estimate_is_a_float_with_an_interval():
    value = Estimate(0.5, 0.25, 1.0)
    assert isinstance(value, float)
    assert (value.low, value.high) == (0.25, 1.0)
    assert (str(value), f"{value:.3f}", json.dumps({"x": value})) == ("0.5", "0.500", '{"x": 0.5}')
    for other in (copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert (other, other.low, other.high) == (0.5, 0.25, 1.0)


def test_intervals_hold_their_value_stay_in_range_and_depend_on_the_seed_only(split):
    lists = random_lists(split, np.random.default_rng(0), share=0.02)
    found = evaluate(lists, split)
    assert list(found) == list(METRICS)
    for name, value in found.items():
        assert 0 <= value.low <= value <= value.high <= METRICS[name].highest(split.n_items)
    same, other = evaluate(lists, split), evaluate(lists, split, seed=1)
    assert [(value.low, value.high) for value in same.values()] == [(value.low, value.high) for value in found.values()]
    assert same == other
    assert same["gini"].low != other["gini"].low


def test_the_error_of_a_mean_is_the_textbooks(split):
    lists = random_lists(split, np.random.default_rng(0), share=0.4)
    found = evaluate(lists, split, resamples=3000)
    items, users = lists.items[split.test.users], split.test.users
    hits = items == split.test.items[:, None]
    assert len(users) == N_USERS
    per_user = hits @ (1 / np.log2(np.arange(5) + 2))
    for name, values in (("ndcg", per_user), ("hit", hits.any(axis=1))):
        # the number of users with something held out varies a little between resamples, as it should
        error = (found[name].high - found[name].low) / 2 / 1.96
        assert error == pytest.approx(np.std(values) / math.sqrt(len(values)), rel=0.06)


def test_the_error_of_aggregate_metrics_is_about_their_spread_over_new_users():
    n_users, n_items, rng = 600, 150, np.random.default_rng(0)
    weights = 1 / np.arange(1, n_items + 1)
    held_out = sparse.csr_array((n_users, n_items))

    def lists():
        keys = np.log(weights) + rng.gumbel(size=(n_users, n_items))
        return lists_of(np.argsort(-keys, axis=1)[:, :3], n_items)

    draws = [measure(lists(), held_out, 1000 * weights) for _ in range(200)]
    for name, value in estimate(lists(), held_out, 1000 * weights, resamples=300).items():
        spread, error = np.std([draw[name] for draw in draws]), (value.high - value.low) / 2 / 1.96
        # both are estimates, each known to some 7%
        assert spread / 1.3 <= error <= spread * 1.3, name


def test_identical_lists_differ_by_exactly_nothing(split):
    lists = random_lists(split, np.random.default_rng(0), share=0.3)
    again = TopK.from_frame(lists.frame, catalog=split.item_ids)
    for value in compare(lists, again, split).values():
        assert (value, value.low, value.high) == (0, 0, 0)


def test_differences_are_those_of_the_values_and_change_sign_with_the_sides(split):
    a, b = (random_lists(split, np.random.default_rng(seed), share) for seed, share in ((0, 0.4), (1, 0.2)))
    forth, back = compare(a, b, split, k=4), compare(b, a, split, k=4)
    left, right = (evaluate(lists, split, k=4) for lists in (a, b))
    for name, value in forth.items():
        assert value == left[name] - right[name]
        assert (back[name], back[name].low, back[name].high) == (-value, -value.high, -value.low)


def test_lists_of_different_width_are_compared_at_the_shorter(split):
    a = random_lists(split, np.random.default_rng(0), share=0.4)
    assert compare(a, a.head(2), split, resamples=2) == dict.fromkeys(METRICS, 0.0)


def test_pairing_makes_the_interval_narrower(split):
    a = random_lists(split, np.random.default_rng(0), share=0.5)
    b = TopK(a.items[:, ::-1].copy(), a.scores, a.user_ids, a.item_ids)
    paired, left, right = compare(a, b, split)["ndcg"], evaluate(a, split)["ndcg"], evaluate(b, split)["ndcg"]
    assert paired.high - paired.low < 0.5 * math.hypot(left.high - left.low, right.high - right.low)


def test_intervals_of_a_difference_hold_the_truth_nineteen_times_in_twenty(split):
    # each user finds the test item with chance 0.35 in a and 0.25 in b, by one throw: the true difference is 0.1
    rng, runs, held_truth = np.random.default_rng(0), 200, 0
    users, tests = split.test.users, split.test.items
    for _ in range(runs):
        throw = rng.random(len(users))
        sides = []
        for chance in (0.35, 0.25):
            items = np.full((split.n_users, 1), -1)
            items[users, 0] = np.where(throw < chance, tests, 59)
            sides.append(TopK.from_arrays(items, np.zeros(items.shape), split.user_ids, split.item_ids))
        value = compare(*sides, split, resamples=60)["ndcg"]
        held_truth += value.low <= 0.1 <= value.high
    assert 0.90 * runs <= held_truth <= 0.985 * runs  # three standard errors to each side


@pytest.mark.slow
def test_a_million_lists_of_ten_are_measured_as_plain_arrays_say():
    n_users, n_items, rng = 1_000_000, 20_000, np.random.default_rng(0)
    lists = lists_of((rng.random((n_users, 10)) ** 3 * n_items).astype(np.int32), n_items)
    slots = (np.arange(n_users), rng.integers(0, n_items, n_users))
    held_out = sparse.csr_array((np.ones(n_users, dtype=np.float32), slots), shape=(n_users, n_items))
    popularity = rng.integers(0, 1000, n_items)
    found = measure(lists, held_out, popularity)
    hits = lists.items == slots[1][:, None]
    assert found["ndcg"] == pytest.approx((hits / np.log2(np.arange(10) + 2)).sum(axis=1).mean(), rel=1e-9)
    assert found["coverage"] == len(np.unique(lists.items)) / n_items


# ---- the smallest catalogs, lists and samples


def test_a_catalog_of_one_item_and_lists_of_one_slot() -> None:
    assert coverage(np.array([3])) == 1.0
    assert coverage(np.array([0])) == 0.0
    assert coverage(np.zeros(0, dtype=np.int64)) == 0.0
    one, ranking = np.array([0, 1]), np.array([1, 0])
    assert (head_share(one, ranking), tail_share(one, ranking)) == (1.0, 0.0)
    assert (head_share(one, ranking[::-1]), tail_share(one, ranking[::-1])) == (0.0, 1.0)
    assert (head_share(0 * one, ranking), tail_share(0 * one, ranking)) == (0.0, 0.0)
    assert tail_share(np.array([1]), np.array([0])) == 0.0  # half of one item, rounded down
    lists = lists_of([[1]], 2)
    assert measure(lists, held([[1]], 2), k=1)["ndcg"] == 1.0
    assert (gini(np.array([5])), gini(np.zeros(2, dtype=np.int64)), gini(np.zeros(1, dtype=np.int64))) == (0, 1, 0)


def test_the_highest_coverage_that_slots_allow() -> None:
    found = [coverage_ceiling(slots, n_items) for slots, n_items in ((3, 4), (9, 4), (0, 5), (1, 1), (1, 2), (0, 0))]
    assert found == [0.75, 1.0, 0.0, 1.0, 0.5, 0.0]


def test_the_worst_values_there_are() -> None:
    worst = {"ndcg": 0, "hit": 0, "coverage": 0, "entropy": 0, "gini": 1, "popularity": math.inf, "head_share": 1,
             "tail_share": 0}  # fmt: skip
    assert {name: metric.worst for name, metric in METRICS.items()} == worst
    assert [metric.highest(8) for metric in METRICS.values()] == [1, 1, 1, math.log(8), 1, math.inf, 1, 1]


def test_two_resamples_are_the_fewest_and_their_error_is_worked_by_hand() -> None:
    lists, held_out = lists_of([[0], [1], [2]], 4), held([[0], [1], [0]], 4)
    found = estimate(lists, held_out, resamples=2, seed=3)
    draws = []

    def drawn(weights: np.ndarray) -> list[float]:
        hits = float(weights[:2].sum() / weights.sum())
        draws.append(hits)
        return [hits]

    resampled(drawn, 3, 2, np.random.default_rng(3))
    error = np.std(draws, ddof=1)
    assert found["hit"] == pytest.approx(2 / 3)
    assert found["hit"].low == pytest.approx(max(0, 2 / 3 - 1.96 * error))
    assert found["hit"].high == pytest.approx(min(1, 2 / 3 + 1.96 * error))


def test_differences_reach_from_the_worst_to_the_best() -> None:
    one, other = lists_of([[0]] * 3, 2), lists_of([[1]] * 3, 2)
    rows = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    data = Interactions.from_frame(pl.DataFrame(rows, schema=["user_id", "item_id"], orient="row"))
    split = Split(*(data.where(np.isin(np.arange(6), part)) for part in ([0, 1, 2, 4], [3], [5])))
    found = compare(one, other, split, part="valid", resamples=5)
    assert found["hit"] == -1
    assert found["hit"].low == -1
    assert found["coverage"] == 0


def test_an_item_number_beyond_the_catalog_is_refused() -> None:
    lists = lists_of([[0, 2]], 3)
    assert measure(lists, nothing_held(lists))["coverage"] == pytest.approx(2 / 3)
    wrong = copy.copy(lists)
    object.__setattr__(wrong, "items", np.array([[0, 3]], dtype=np.int32))
    with pytest.raises(ValueError, match="item number 3 is outside the catalog of 3 items"):
        measure(wrong, nothing_held(lists))
    with pytest.raises(ValueError, match="k=0 is not the length of a list"):
        measure(lists, nothing_held(lists), k=0)
