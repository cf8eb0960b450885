from itertools import combinations, product
from math import ceil

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rerank_cases import candidates, items_of, make_candidates, needs, rows_of, some, units_of
from scipy.optimize import linprog

from divmf.ranking.lists import TopK
from divmf.rerank import gap, mincost_flow, optimal, random_top
from divmf.rerank.mincost_flow import convex

pytestmark = pytest.mark.skipif(not needs("mincost_flow"), reason="needs ortools: pip install 'divmf[flow]'")

few = candidates(n_lists=st.integers(1, 3))


def all_lists(wide, k):
    """Every way to give each user min(k, candidates) items."""
    return product(*(list(combinations([item for item, _ in row], min(k, len(row)))) for row in rows_of(wide)))


def score(wide, lists):
    return sum(r[item] for r, chosen in zip(units_of(wide), lists, strict=True) for item in chosen)


def counts_of(wide, lists):
    return [sum(item in chosen for chosen in lists) for item in range(wide.n_items)]


def cost(count, target, penalty):
    """0 up to the target, then penalty, above twice the target (of at least 1) two penalties, above four times …"""
    steps, edge, total = 1, target + max(target, 1), 0.0
    for shown in range(1, count + 1):
        while shown > edge:
            steps, edge = steps + 1, target + (edge - target) * 2 + max(target, 1)
        total += steps * penalty if shown > target else 0
    return total


@some
@given(few, st.integers(1, 2), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.1, 1.0]))
def test_min_cost_flow_gives_the_best_of_all_lists(wide, k, alpha, penalty):
    own = counts_of(wide, [[item for item, _ in row[:k]] for row in rows_of(wide)])
    target = [ceil(alpha * f + (1 - alpha) * len(wide) * k / wide.n_items - 1e-9) for f in own]

    def value(lists):
        counts = counts_of(wide, lists)
        return score(wide, lists) - sum(cost(f, t, penalty) for f, t in zip(counts, target, strict=True))

    best = max(map(value, all_lists(wide, k)))
    assert value(items_of(mincost_flow(wide, k, alpha=alpha, penalty=penalty))) == pytest.approx(best, abs=1e-5)


def test_the_layers_of_the_cost_double():
    layers = convex(np.array([3.0, 0.0]), 20, 0.5)
    assert [(capacity.tolist(), price) for capacity, price in layers] == [
        ([3, 0], 0), ([3, 1], 0.5), ([6, 2], 1.0), ([12, 4], 1.5), ([24, 8], 2.0), ([48, 16], 2.5), ([20, 20], 3.0)
    ]  # fmt: skip


@some
@given(few, st.integers(1, 2), st.integers(0, 3))
def test_optimal_lists_are_the_best_within_the_capacities(wide, k, capacity):
    lists = items_of(optimal(wide, capacity, k))
    assert max(counts_of(wide, lists)) <= capacity
    rows = rows_of(wide)
    choices = [
        [chosen for size in range(min(k, len(row)) + 1) for chosen in combinations([item for item, _ in row], size)]
        for row in rows
    ]
    shorter = product(*choices)
    within = [each for each in shorter if max(counts_of(wide, each)) <= capacity]
    fullest = max(sum(map(len, each)) for each in within)
    best = max(score(wide, each) for each in within if sum(map(len, each)) == fullest)
    assert sum(map(len, lists)) == fullest
    assert score(wide, lists) == pytest.approx(best, abs=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_optimal_equals_a_linear_program(seed):
    wide, k, capacity = make_candidates(seed, n_lists=30, n_items=20, width=12), 4, 7
    r = units_of(wide)
    pairs = [(user, item) for user, values in enumerate(r) for item in values]
    rows = np.array([[float(user == each) for user, _ in pairs] for each in range(30)])
    columns = np.array([[float(item == each) for _, item in pairs] for each in range(20)])
    program = linprog(
        [-r[user][item] for user, item in pairs],
        A_eq=rows,
        b_eq=[k] * 30,
        A_ub=columns,
        b_ub=[capacity] * 20,
        bounds=(0, 1),
    )
    assert score(wide, items_of(optimal(wide, capacity, k))) == pytest.approx(-program.fun, abs=1e-4)


@some
@given(few, st.integers(1, 2), st.integers(0, 9))
def test_the_gap_is_what_the_best_lists_with_the_same_counts_have_more(wide, k, seed):
    lists = random_top(wide, k, c=8, seed=seed)
    measured, chosen = gap(lists, wide), items_of(lists)
    same = [each for each in all_lists(wide, k) if counts_of(wide, each) == counts_of(wide, chosen)]
    assert measured.score == pytest.approx(score(wide, chosen), abs=1e-9)
    assert measured.optimum == pytest.approx(max(score(wide, each) for each in same), abs=1e-5)
    assert measured.model == pytest.approx(
        score(wide, [[item for item, _ in row[:k]] for row in rows_of(wide)]), abs=1e-9
    )
    assert measured.lost == pytest.approx(measured.optimum - measured.score, abs=1e-5)
    assert 0 <= measured.share <= 1


def test_the_gap_of_a_swap_by_hand():
    # both lists swapped: 0.6 + 0.6 instead of 1 + 1 with the same counts
    items = np.array([[0, 1, 2], [1, 0, 2]], dtype=np.int32)
    wide = TopK(items, np.tile([1, 0.6, 0], (2, 1)).astype(np.float32), pl.Series([0, 1]), pl.Series(range(3)))
    swapped = TopK(
        np.array([[1], [0]], dtype=np.int32), np.full((2, 1), 0.6, dtype=np.float32), wide.user_ids, wide.item_ids
    )
    measured = gap(swapped, wide)
    assert (measured.score, measured.optimum, measured.model) == pytest.approx((1.2, 2, 2))
    assert measured.share == pytest.approx(0.4)


def test_lists_that_do_not_come_from_the_candidates_are_refused():
    wide = make_candidates(0, n_lists=3, n_items=9, width=4)
    strange = make_candidates(5, n_lists=3, n_items=9, width=9)
    with pytest.raises(ValueError, match="are no candidates of their user"):
        gap(strange, wide)


@pytest.mark.parametrize("capacity", [-1, np.array([1, 2])])
def test_a_wrong_capacity_is_an_error(capacity):
    with pytest.raises(ValueError, match="capacity"):
        optimal(make_candidates(0), capacity, 2)


def test_without_ortools_the_error_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ortools.graph.python.min_cost_flow", None)
    with pytest.raises(ImportError, match=r"pip install 'divmf\[flow\]'"):
        mincost_flow(make_candidates(0), 2)
