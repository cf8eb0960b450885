import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from rerank_cases import candidates, items_of, rows_of, some

from divmf.ranking.lists import TopK
from divmf.rerank import bayes_rule


@some
@given(candidates(), st.integers(1, 4), st.sampled_from([0.0, 0.2, 0.7, 1.0]))
def test_bayes_rule_takes_the_largest_of_what_the_equation_says(wide, k, a):
    rows = rows_of(wide)
    softmax = []
    for row in rows:
        total = sum(np.exp(score) for _, score in row)
        softmax.append({item: np.exp(score) / total for item, score in row})
    mass = {item: sum(s.get(item, 0) for s in softmax) for item in range(wide.n_items)}
    for s, chosen in zip(softmax, items_of(bayes_rule(wide, k, a=a)), strict=True):
        key = {item: np.log(s[item]) - a * np.log(mass[item]) for item in s}
        assert len(chosen) == min(k, len(key))
        others = [key[item] for item in key if item not in chosen]
        # the same up to rounding: two keys that are equal on paper may go either way
        assert min((key[item] for item in chosen), default=0) >= max(others, default=-np.inf) - 1e-9


def test_with_full_strength_the_item_wanted_by_one_beats_the_item_wanted_by_all():
    items = np.array([[0, 1], [0, 2], [0, 3]], dtype=np.int32)
    wide = TopK(items, np.tile([1.0, 0.5], (3, 1)).astype(np.float32), pl.Series(range(3)), pl.Series(range(4)))
    assert items_of(bayes_rule(wide, 1, a=0)) == [[0], [0], [0]]
    # log s differs by 0.5 within a user, log Σ s by log 3 + 0.5: the discount wins as soon as a (log 3 + 0.5) > 0.5
    assert items_of(bayes_rule(wide, 1, a=0.31)) == [[0], [0], [0]]
    assert items_of(bayes_rule(wide, 1, a=0.32)) == [[1], [2], [3]]


def test_scores_far_apart_neither_overflow_nor_vanish():
    items = np.array([[0, 1, 2]], dtype=np.int32)
    wide = TopK(items, np.array([[1e4, 0, -1e4]], dtype=np.float32), pl.Series([0]), pl.Series(range(3)))
    assert items_of(bayes_rule(wide, 2, a=0.5)) == [[0, 1]]
