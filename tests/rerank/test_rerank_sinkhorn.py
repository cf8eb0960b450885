import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rerank_cases import candidates, items_of, make_candidates, some, units_of
from rerank_market import market

from divmf.kernels.rerank_transport import _scale
from divmf.rerank import sinkhorn
from divmf.rerank.candidates import ready, unit_scores
from divmf.rerank.sinkhorn import even_exposure, log_column_scale


def plain_scale(values, wanted):
    """x with Σ min(1, x·value) = wanted, by bisection of log x."""
    if wanted >= len(values):
        return 1 / min(values)
    low, high = -100.0, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(1, np.exp(middle) * values).sum() < wanted else (low, middle)
    return np.exp(low)


def plain_log_scale(wide, k, rho, epsilon, passes):
    """The same passes on a dense matrix, each row and column scaled by bisection."""
    kernel = np.zeros((len(wide), wide.n_items))
    for user, r in enumerate(units_of(wide)):
        for item, value in r.items():
            kernel[user, item] = np.exp((value - 1) / epsilon)
    rows, columns = np.ones(len(wide)), np.ones(wide.n_items)
    wanted = np.minimum((kernel > 0).sum(axis=1), k)

    def scale_rows():
        for user in range(len(wide)):
            if wanted[user]:
                there = kernel[user] > 0
                rows[user] = plain_scale(kernel[user, there] * columns[there], wanted[user])

    def sums():
        return np.minimum(1, rows[:, None] * kernel * columns).sum(axis=0)

    scale_rows()
    target = (1 - rho) * sums() + rho * even_exposure((kernel > 0).sum(axis=0), float(wanted.sum()))
    for _ in range(passes):
        if (np.abs(sums() - target) <= 1e-3 * target).all():
            break
        for item in range(wide.n_items):
            there = kernel[:, item] > 0
            if there.any():
                columns[item] = plain_scale(kernel[there, item] * rows[there], target[item])
        scale_rows()
    return np.log(columns)


@some
@given(candidates(n_lists=st.integers(1, 5)), st.integers(1, 3), st.sampled_from([0.0, 0.5, 1.0]))
def test_sinkhorn_scales_as_a_dense_loop_with_bisection(wide, k, rho):
    expected = plain_log_scale(wide, k, rho, 0.5, 4)
    ours = log_column_scale(wide, unit_scores(wide), k, rho, 0.5, 4)
    np.testing.assert_allclose(ours, expected, atol=1e-6)
    for user, (r, chosen) in enumerate(
        zip(units_of(wide), items_of(sinkhorn(wide, k, rho=rho, epsilon=0.5, passes=4)), strict=True)
    ):
        key = {item: value + 0.5 * expected[item] for item, value in r.items()}
        others = [key[item] for item in key if item not in chosen]
        assert len(chosen) == min(k, len(key)), user
        assert min((key[item] for item in chosen), default=0) >= max(others, default=-np.inf) - 1e-6


@some
@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=8), st.floats(0.01, 1))
def test_a_scale_gives_the_wanted_sum_with_no_entry_above_one(values, share):
    values = np.array(values)
    wanted = share * len(values)
    assert np.minimum(1, _scale(values, wanted) * values).sum() == pytest.approx(wanted, rel=1e-9)


@some
@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.floats(0, 1))
def test_the_even_exposure_has_its_sum_and_is_as_even_as_degrees_allow(degree, share):
    degree = np.array(degree)
    even = even_exposure(degree, share * degree.sum())
    assert even.sum() == pytest.approx(share * degree.sum())
    assert (even <= degree).all()
    below = even < degree - 1e-9
    if below.any():
        assert even[below] == pytest.approx(even.max())


def test_the_plan_has_its_row_and_column_sums():
    wide, k, epsilon = ready(market(), 5), 5, 0.2
    r = unit_scores(wide)
    column = np.exp(log_column_scale(wide, r, k, 0.3, epsilon, 500))
    plan = np.exp((r - 1) / epsilon) * column[wide.items]
    scaled = np.array([np.minimum(1, plain_scale(row, k) * row) for row in plan])
    own = np.exp((r - 1) / epsilon)
    own = np.array([np.minimum(1, plain_scale(row, k) * row) for row in own])
    exposure, base = (np.bincount(wide.items.ravel(), each.ravel(), minlength=wide.n_items) for each in (scaled, own))
    target = 0.7 * base + 0.3 * even_exposure(wide.counts, len(wide) * k)
    np.testing.assert_allclose(exposure, target, rtol=2e-3, atol=1e-6)


def test_the_sharpest_plan_stays_within_the_numbers_and_a_sharper_one_is_refused():
    wide = ready(market(), 5)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        for rho in (0.0, 0.5, 1.0):
            scale = log_column_scale(wide, unit_scores(wide), 5, rho, 0.002, 50)
            assert np.isfinite(scale).all()
            assert (sinkhorn(wide, 5, rho=rho, epsilon=0.002).lengths == 5).all()
    np.testing.assert_array_equal(sinkhorn(wide, 5, rho=0, epsilon=0.002).items, wide.items[:, :5])
    with pytest.raises(ValueError, match=r"epsilon=0.001 is not allowed; choose 0.002 or more"):
        sinkhorn(wide, 5, epsilon=0.001)


@pytest.mark.parametrize("epsilon", [0.002, 0.003, 0.005, 0.02])
def test_wanted_exposures_that_no_plan_has_do_not_overflow(epsilon):
    # with no limit on b, about one in fifty such cases divided by zero or was not finite at 0.002
    for seed in range(120):
        shape = {"n_lists": 1 + seed % 9, "n_items": 5 + seed % 20, "width": 3 + seed % 15}
        wide = make_candidates(seed, **shape, ties=seed % 2 == 0, short=seed % 3 == 0)
        for rho in (0.5, 1.0):
            assert np.isfinite(log_column_scale(wide, unit_scores(wide), 5, rho, epsilon, 500)).all()
            lists = sinkhorn(wide, 5, rho=rho, epsilon=epsilon, passes=500)
            assert (lists.lengths == np.minimum(wide.lengths, 5)).all()
