"""top() and fill_seen() against numpy, and against their own other paths."""

import numba
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal
from scipy import sparse

from divmf.ranking.select import fill_seen, top, top_by_sorting

# few distinct values, so that most rows have ties; the special ones among them
VALUES = st.sampled_from([-np.inf, np.nan, -1.5, -0.0, 0.0, 0.25, 1.0, 3.0, np.inf])
MATRICES = st.tuples(st.integers(0, 6), st.integers(1, 40)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=VALUES)
)


def oracle(scores, width):
    """The plain way: sort each row by (−score, item), drop what is not a score, pad."""
    items = np.full((len(scores), width), -1)
    kept = np.full((len(scores), width), -np.inf)
    for row, values in enumerate(scores):
        order = np.lexsort((np.arange(len(values)), -values))
        order = [item for item in order if values[item] > -np.inf][:width]
        items[row, : len(order)] = order
        kept[row, : len(order)] = values[order]
    return items, kept


@given(MATRICES, st.integers(1, 50), st.sampled_from([np.float32, np.float64]))
def test_top_is_the_stable_sort_with_ties_to_the_lowest_number(scores, width, dtype):
    items, kept = top(torch.from_numpy(scores.astype(dtype)), width)
    expected_items, expected_kept = oracle(scores, width)
    assert_array_equal(items.numpy(), expected_items)
    assert_array_equal(kept.numpy(), expected_kept.astype(dtype))
    assert kept.numpy().dtype == dtype


@given(MATRICES, st.integers(1, 50))
def test_the_path_of_other_devices_gives_the_same(scores, width):
    # once, nan_to_num also made −inf finite there, so that seen items came back into the lists
    items, kept = top_by_sorting(torch.from_numpy(scores), width)
    expected_items, expected_kept = top(torch.from_numpy(scores), width)
    assert_array_equal(items.numpy(), expected_items.numpy())
    assert_array_equal(kept.numpy(), expected_kept.numpy())


def test_continuous_scores_agree_with_torch_topk():
    scores = torch.randn(300, 700, generator=torch.Generator().manual_seed(0))
    items, kept = top(scores, 20)
    expected = scores.topk(20)
    assert_array_equal(items.numpy(), expected.indices.numpy())
    assert_array_equal(kept.numpy(), expected.values.numpy())


def test_the_number_of_threads_does_not_change_top():
    scores = torch.randint(0, 30, (500, 400), generator=torch.Generator().manual_seed(0)).float()
    before = numba.get_num_threads()
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("numba has one thread here: it would be compared with itself")
    results = []
    try:
        for threads in (1, 2):
            numba.set_num_threads(threads)
            results.append(top(scores, 50))
    finally:
        numba.set_num_threads(before)
    assert_array_equal(results[0][0].numpy(), results[1][0].numpy())
    assert_array_equal(results[0][1].numpy(), results[1][1].numpy())


def test_top_takes_views_and_leaves_scores_alone():
    scores = torch.arange(24.0).reshape(4, 6)
    before = scores.clone()
    assert top(scores.T, 1)[0].flatten().tolist() == [3] * 6
    assert top(scores[:, ::2], 2)[0].tolist() == [[2, 1]] * 4
    assert torch.equal(scores, before)


def test_top_of_scores_with_a_gradient_is_cut_off_from_it():
    items, kept = top(torch.ones(2, 3, requires_grad=True), 2)
    assert items.tolist() == [[0, 1], [0, 1]]
    assert not kept.requires_grad


@pytest.mark.parametrize("width", [0, -1])
def test_a_width_that_keeps_nothing_is_an_error(width):
    # once, width 0 wrote outside its arrays
    with pytest.raises(ValueError, match=f"width={width} keeps nothing"):
        top(torch.ones(2, 3), width)


def test_fill_seen_writes_over_seen_items_only_and_picks_the_rows():
    seen = sparse.csr_array(np.array([[1, 0, 0], [0, 0, 0], [0, 1, 1]], dtype=np.float32))
    filled = fill_seen(torch.ones(2, 3), np.array([2, 0]), seen, -np.inf)
    assert_array_equal(filled.numpy(), [[1, -np.inf, -np.inf], [-np.inf, 1, 1]])


@given(arrays(np.bool_, (5, 7)), arrays(np.int64, 4, elements=st.integers(0, 4)))
def test_both_paths_of_fill_seen_agree_and_seen_items_get_no_gradient(seen, rows):
    matrix = sparse.csr_array(seen.astype(np.float32))
    plain = fill_seen(torch.ones(4, 7), rows, matrix, -9.0)
    leaf = torch.ones(4, 7, requires_grad=True)
    tracked = fill_seen(leaf * 1, rows, matrix, -9.0)
    tracked.sum().backward()
    assert_array_equal(plain.numpy(), np.where(seen[rows], -9.0, 1.0))
    assert_array_equal(tracked.detach().numpy(), plain.numpy())
    assert_array_equal(leaf.grad.numpy(), ~seen[rows])
