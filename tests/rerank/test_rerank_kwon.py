import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rerank_cases import by_score, candidates, items_of, make_candidates, make_train, rows_of, some, units_of

from divmf.ranking.lists import TopK
from divmf.rerank import kwon
from divmf.rerank.candidates import unit_scores


def plain_kwon(wide, k, t_r, measure):
    """A by the measure ascending, then the others by score: measure(user, item)."""
    chosen = []
    for user, (row, r) in enumerate(zip(rows_of(wide), units_of(wide), strict=True)):
        above = [item for item, _ in row if r[item] >= t_r] if t_r < 1 else []
        above = sorted(above, key=lambda item: measure(user, item))  # a stable sort: ties stay by score
        chosen.append((above + [item for item, _ in row if item not in above])[:k])
    return chosen


@some
@given(candidates(), st.integers(1, 4), st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]))
def test_kwon_ranks_the_best_upside_down_as_a_plain_loop_does(wide, k, t_r):
    expected = plain_kwon(wide, k, t_r, lambda user, item: units_of(wide)[user][item])
    assert items_of(kwon(wide, k, t_r=t_r, order="method")) == expected
    assert items_of(kwon(wide, k, t_r=t_r, order="score")) == by_score(wide, expected)


@some
@given(candidates(), st.integers(1, 4), st.sampled_from([0.2, 0.5, 0.9]), st.sampled_from([0.1, 0.8]))
def test_the_variants_rank_by_popularity_and_by_likes(wide, k, t_r, t_h):
    train, units = make_train(wide), units_of(wide)
    popularity = plain_kwon(wide, k, t_r, lambda _, item: train.popularity[item])
    assert items_of(kwon(wide, k, t_r=t_r, ranking="popularity", train=train, order="method")) == popularity
    likes = [sum(r.get(item, -1) >= min(t_h, t_r) for r in units) for item in range(wide.n_items)]
    liked = plain_kwon(wide, k, t_r, lambda _, item: likes[item])
    assert items_of(kwon(wide, k, t_r=t_r, t_h=t_h, ranking="liked", order="method")) == liked


def test_kwon_by_hand():
    # r = 1, 0.95, 0.9, 0.5, 0: with T_R = 0.9 the first three are reversed, the rest is by score
    wide = TopK(
        np.array([[4, 2, 0, 1, 3]], dtype=np.int32),
        np.array([[2, 1.9, 1.8, 1, 0]], dtype=np.float32),
        pl.Series(["u"]),
        pl.Series(range(5)),
    )
    assert items_of(kwon(wide, 4, t_r=0.89, order="method")) == [[0, 2, 4, 1]]
    assert items_of(kwon(wide, 2, t_r=0.89)) == [[0, 2]]
    assert items_of(kwon(wide, 2, t_r=0.89, order="score")) == [[2, 0]]


def test_scores_are_scaled_over_all_unseen_items_where_their_lowest_is_known():
    # scores 2, 1.9, 1.8, 1 over candidates that end at 1: r = 1, 0.9, 0.8, 0. The user's worst unseen item has −8: over
    # all of them r = 1, 0.99, 0.98, 0.9, so T_R = 0.89 turns the whole list upside down, not the first two alone
    wide = TopK(
        np.array([[4, 2, 0, 1]], dtype=np.int32),
        np.array([[2, 1.9, 1.8, 1]], dtype=np.float32),
        pl.Series(["u"]),
        pl.Series(range(9)),
    )
    lowest = np.array([-8.0])
    np.testing.assert_allclose(unit_scores(wide, lowest), [[1, 0.99, 0.98, 0.9]])
    assert items_of(kwon(wide, 4, t_r=0.89, lowest=lowest)) == [[1, 0, 2, 4]]
    assert items_of(kwon(wide, 4, t_r=0.89, lowest=lowest, scale="candidates")) == [[2, 4, 0, 1]]
    assert items_of(kwon(wide, 4, t_r=0.89)) == [[2, 4, 0, 1]]
    with pytest.raises(ValueError, match="scale='unseen' needs each user's lowest score"):
        kwon(wide, 4, scale="unseen")
    with pytest.raises(ValueError, match="give one score for each of 1 users"):
        kwon(wide, 4, lowest=np.zeros(2))


def test_ranking_by_popularity_without_train_says_what_is_missing():
    with pytest.raises(ValueError, match="needs the training interactions"):
        kwon(make_candidates(0), 3, ranking="popularity")
