from math import exp, log

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from rerank_cases import by_score, candidates, items_of, rows_of, some

from divmf.rerank import popcon


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
    assert items_of(popcon(wide, k, beta=beta, seed=seed)) == by_score(wide, expected)
