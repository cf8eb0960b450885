import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from rerank_cases import candidates, items_of, make_candidates, rows_of, some

from divmf.rerank import random_top


@some
@given(candidates(), st.integers(1, 4), st.integers(1, 8), st.integers(0, 99))
def test_random_top_draws_as_a_plain_loop_with_the_same_draws(wide, k, c, seed):
    draws = np.random.default_rng(seed).random((len(wide), wide.width))
    expected = []
    for row, draw in zip(rows_of(wide), draws, strict=True):
        pool = list(range(min(max(c, k), len(row))))
        drawn = sorted(pool, key=lambda column: -draw[column])[:k]
        expected.append([row[column][0] for column in (drawn if c > k else sorted(drawn))])
    assert items_of(random_top(wide, k, c=c, seed=seed, order="method")) == expected


def test_every_place_of_the_pool_is_as_likely():
    wide = make_candidates(0, n_lists=4000, n_items=12, width=12)
    lists = random_top(wide, 3, c=6)
    shown = (wide.items[:, :, None] == lists.items[:, None, :]).any(axis=2).sum(axis=0)
    assert shown[6:].sum() == 0
    np.testing.assert_allclose(shown[:6] / 4000, 0.5, atol=0.035)  # over four standard errors
