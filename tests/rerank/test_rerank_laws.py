"""What every reranker must do, whatever it is."""

import logging

import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rerank_cases import candidates, items_of, make_candidates, make_train, needs, rows_of, some
from rerank_market import market, market_split

from divmf.ranking.lists import TopK
from divmf.ranking.metrics import coverage, entropy, gini
from divmf.rerank import METHODS

every_method = pytest.mark.parametrize(
    "method",
    [
        pytest.param(
            method,
            marks=pytest.mark.skipif(not needs(name), reason="needs ortools: pip install 'divmf[flow]'"),
            id=name,
        )
        for name, method in METHODS.items()
    ],
)


def run(method, wide, k, value, order="method", train=None):
    train = make_train(wide) if train is None else train
    return method.run(wide, k, {method.knob: value, "order": order}, train, seed=3)


@every_method
@some
@given(data=st.data())
def test_lists_hold_k_distinct_candidates_or_all_there_are(method, data):
    wide = data.draw(candidates())
    k = data.draw(st.integers(1, wide.n_items))
    order = data.draw(st.sampled_from(["score", "method"]))
    lists = run(method, wide, k, data.draw(st.sampled_from(method.grid)), order)
    assert lists.items.shape == lists.scores.shape == (len(wide), k)
    assert lists.items.dtype == np.int32
    assert lists.scores.dtype == np.float32
    for row, chosen, scores in zip(rows_of(wide), items_of(lists), lists.scores, strict=True):
        assert len(set(chosen)) == len(chosen) == min(k, len(row))
        score = dict(row)
        assert [score[item] for item in chosen] == scores[: len(chosen)].tolist()
        assert (scores[len(chosen) :] == -np.inf).all()
        if order == "score":
            assert chosen == [item for item, _ in row if item in chosen]


@every_method
@some
@given(data=st.data())
def test_the_neutral_end_of_the_knob_is_the_models_own_list(method, data):
    wide, k = data.draw(candidates()), data.draw(st.integers(1, 4))
    own = [[item for item, _ in row[:k]] for row in rows_of(wide)]
    assert items_of(run(method, wide, k, method.neutral)) == own
    assert items_of(run(method, wide, k, method.neutral, "score")) == own


@every_method
def test_the_order_of_the_candidates_and_of_their_empty_places_does_not_matter(method):
    wide = make_candidates(4, n_lists=20, n_items=15, width=9, ties=True, short=True)
    rng = np.random.default_rng(0)
    shuffle = np.argsort(rng.random(wide.items.shape), axis=1)
    mixed = TopK(
        *(np.take_along_axis(each, shuffle, axis=1) for each in (wide.items, wide.scores)), wide.user_ids, wide.item_ids
    )
    for value in (method.grid[0], method.grid[-2], method.grid[-1]):
        np.testing.assert_array_equal(run(method, wide, 3, value).items, run(method, mixed, 3, value).items)


@every_method
@pytest.mark.parametrize("n_lists", [1, 6])
@pytest.mark.parametrize(("n_items", "width"), [(1, 1), (8, 8)])
def test_one_user_one_item_and_all_equal_scores(method, n_lists, n_items, width):
    wide = make_candidates(0, n_lists, n_items, width)
    equal = TopK(np.sort(wide.items, axis=1), np.zeros_like(wide.scores), wide.user_ids, wide.item_ids)
    for value in method.grid:
        assert (run(method, equal, min(3, width), value).lengths == min(3, width)).all()
    np.testing.assert_array_equal(run(method, equal, min(3, width), method.neutral).items, equal.items[:, :3])


@every_method
def test_a_catalog_without_candidates_gives_empty_lists(method):
    nothing = TopK(
        np.full((3, 4), -1, dtype=np.int32),
        np.full((3, 4), -np.inf, dtype=np.float32),
        pl.Series(range(3)),
        pl.Series(range(5)),
    )
    for value in (method.neutral, method.grid[-1]):
        assert (run(method, nothing, 2, value).lengths == 0).all()


@every_method
def test_the_same_seed_gives_the_same_lists_with_one_thread_and_with_two(method):
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("numba has one thread here: it would be compared with itself")
    before, train = numba.get_num_threads(), market_split().train
    results = []
    try:
        for threads in (1, 2):
            numba.set_num_threads(threads)
            results.append(run(method, market(), 5, method.grid[-2], train=train).items)
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(*results)


@every_method
def test_the_knob_draws_a_curve(method):
    wide, train = market(), market_split().train
    counts = [run(method, wide, 5, value, train=train).counts for value in method.grid]
    away = -1 if method.name == "most_popular" else 1  # the one that goes the other way
    steps = away * np.array([[coverage(each), entropy(each), -gini(each)] for each in counts])  # (grid, 3)
    best = int(steps[:, 2].argmax())
    assert best >= 2, "the knob is too coarse: its best Gini index is next to the model's own"
    for end in (best, -1):
        assert (steps[end] - steps[0] > [0.02, 0.05, 0.01]).all(), steps
    # on the way to the best Gini index no point falls back by more than a fifth of the way; some methods turn beyond it
    way = steps[: best + 1, 1:]
    back = (np.maximum.accumulate(way) - way).max(axis=0) / (way.max(axis=0) - way.min(axis=0))
    assert (back < 0.2).all(), back


@every_method
def test_users_with_too_few_candidates_are_counted(method, caplog):
    wide = make_candidates(1, n_lists=6, n_items=9, width=5, short=True)
    with caplog.at_level(logging.WARNING):
        run(method, wide, 4, method.grid[-1])
    short = int((wide.lengths < 4).sum())
    assert f"{short} of 6 users have fewer than k=4 candidates" in caplog.text


def test_a_wider_k_than_candidates_leaves_the_rest_empty():
    lists = METHODS["kwon"].run(make_candidates(0, width=4), 7)
    assert lists.items.shape == (5, 7)
    assert (lists.items[:, 4:] == -1).all()


def broken(change):
    items, scores = np.array([[2, 0, 1]], dtype=np.int32), np.array([[3, 2, 1]], dtype=np.float32)
    change(items, scores)
    return TopK(items, scores, pl.Series(["u"]), pl.Series(["a", "b", "c"]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda items, scores: items.__setitem__((0, 1), 2), "1 users have an item among their candidates twice"),
        (lambda items, scores: items.__setitem__((0, 0), 0), "1 users have an item among their candidates twice"),
        (lambda items, scores: items.__setitem__((0, 1), 3), "item number 3 is outside the catalog of 3 items"),
        (lambda items, scores: items.__setitem__((0, 1), -2), "item number -2 is outside"),
        (lambda items, scores: scores.__setitem__((0, 1), np.nan), "1 candidates have a NaN or infinite score"),
        (lambda items, scores: scores.__setitem__((0, 1), np.inf), "1 candidates have a NaN or infinite score"),
    ],
)
def test_candidates_no_honest_list_can_be_made_of_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        METHODS["kwon"].run(broken(change), 2)


@pytest.mark.parametrize("k", [0, -1, 2.5, "5"])
def test_a_k_that_is_no_length_is_refused(k):
    with pytest.raises(ValueError, match="is not the length of a list"):
        METHODS["kwon"].run(make_candidates(0), k)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_no_candidates_at_all_are_refused(shape):
    nothing = TopK(np.empty(shape, np.int32), np.empty(shape, np.float32), pl.Series(range(shape[0])), pl.Series([1]))
    with pytest.raises(ValueError, match="there are no candidates"):
        METHODS["kwon"].run(nothing, 2)


def test_something_else_than_candidates_is_refused():
    with pytest.raises(ValueError, match="make a TopK of them"):
        METHODS["kwon"].run(make_candidates(0).frame, 2)


def test_lists_longer_than_the_catalog_are_refused():
    with pytest.raises(ValueError, match="k=10 is longer than the 9 items there are; choose k <= 9"):
        METHODS["kwon"].run(make_candidates(0, n_items=9), 10)
    assert METHODS["kwon"].run(make_candidates(0, n_items=9), 9).width == 9


@pytest.mark.parametrize("name", ["fairmatch", "sapid", "random_top"])
def test_as_many_candidates_as_slots_are_the_models_list_in_either_order(name):
    wide, method = make_candidates(2, n_lists=9, n_items=12, width=8), METHODS[name]
    for order in ("method", "score"):
        for value in (1, 3):
            assert items_of(run(method, wide, 3, value, order)) == [
                [item for item, _ in row[:3]] for row in rows_of(wide)
            ]
