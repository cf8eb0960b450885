from math import exp, log

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from rerank_cases import by_score, candidates, items_of, make_candidates, rows_of, some

from divmf.ranking.lists import TopK
from divmf.ranking.metrics import gini
from divmf.rerank import METHODS, popcon


def entropy(counts):
    total = sum(counts)
    return -sum(f / total * log(f / total) for f in counts if f) if total else 0.0


def plain_popcon(wide, k, beta, seed):
    rng, rows, n = np.random.default_rng(seed), rows_of(wide), wide.n_items
    lists, counts = [[] for _ in rows], [0] * n

    def gain(item):
        more = [f + (i == item) for i, f in enumerate(counts)]
        return (entropy(more) - entropy(counts)) / log(max(n, 2)) + (
            sum(f > 0 for f in more) - sum(f > 0 for f in counts)
        ) / n

    def value(item, score):
        a = (1 / (1 + exp(-score))) ** beta
        return round(a + (1 - a) * gain(item), 12)  # so that what ties on paper ties here

    orders = [rng.permutation(len(rows)) for _ in range(k)]
    for users in orders:
        for user in users:
            left = [(item, score) for item, score in rows[user] if item not in lists[user]]
            if left:
                chosen, _ = max(left, key=lambda pair: value(*pair))
                lists[user].append(chosen)
                counts[chosen] += 1
    return lists


@some
@given(candidates(ties=st.just(False)), st.integers(1, 4), st.sampled_from([0.0, 0.5, 2.0, 20.0]), st.integers(0, 9))
def test_popcon_takes_greedily_as_a_plain_loop_does(wide, k, beta, seed):
    expected = plain_popcon(wide, k, beta, seed)
    assert items_of(popcon(wide, k, beta=beta, seed=seed, order="method")) == expected
    assert items_of(popcon(wide, k, beta=beta, seed=seed, order="score")) == by_score(wide, expected)


def test_a_catalog_of_two_items_is_as_a_plain_loop_has_it():
    for seed in range(40):
        wide = make_candidates(seed, n_items=2, width=2)
        expected = plain_popcon(wide, 1, 2.0, seed)
        assert items_of(popcon(wide, 1, beta=2.0, seed=seed, order="method")) == expected


def test_the_grid_reaches_far_more_even_lists_whatever_the_size_of_the_scores():
    # of BPR's models scores are about 10, where the sigmoid is 1 but for 1/22,000
    tastes = np.random.default_rng(0).normal(size=(60, 40)) * 0.5 + np.linspace(2, -2, 40)
    items = np.argsort(-tastes, axis=1).astype(np.int32)
    users, catalog = pl.Series("user_id", range(60)), pl.Series("item_id", range(40))
    for size in (2.0, 10.0):
        wide = TopK(items, np.take_along_axis(tastes + size, items, 1).astype(np.float32), users, catalog)
        ends = [popcon(wide, 3, beta=beta).counts for beta in (METHODS["popcon"].grid[0], METHODS["popcon"].grid[-1])]
        assert gini(ends[0]) > 0.8
        assert gini(ends[1]) < 0.5
