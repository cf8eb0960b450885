import logging
from math import inf

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rerank_cases import by_score, candidates, items_of, make_candidates, make_train, rows_of, some, units_of

from divmf.data.interactions import Interactions
from divmf.ranking.lists import TopK
from divmf.rerank import uimatch
from divmf.rerank.uimatch import capacities, normalised


def plain_uimatch(wide, k, capacity, scores):
    """scores: one dictionary of comparable scores a user."""
    pairs = [(-scores[user][item], item, user) for user, row in enumerate(rows_of(wide)) for item, _ in row]
    lists, left = [[] for _ in range(len(wide))], list(capacity)
    wanted = [min(k, len(row)) for row in rows_of(wide)]
    while True:
        for _, item, user in sorted(pairs):
            if len(lists[user]) < k and left[item] > 0 and item not in lists[user]:
                lists[user].append(item)
                left[item] -= 1
        if all(len(chosen) == size for chosen, size in zip(lists, wanted, strict=True)):
            return lists
        left = [have + more for have, more in zip(left, capacity, strict=True)]
        capacity = [2 * more for more in capacity]


@some
@given(candidates(), st.integers(1, 4), st.sampled_from([0.3, 1.0, 2.0, inf]), st.sampled_from([0, 0.5, 1]))
def test_uimatch_gives_pairs_as_a_plain_loop_does(wide, k, c, gamma):
    train = make_train(wide)
    popularity = [float(count) ** gamma for count in train.popularity]
    slots = len(wide) * k
    share = [slots if c == inf else c * slots * each / max(sum(popularity), 1e-9) for each in popularity]
    capacity = [max(1, min(round(each), slots)) for each in share]
    expected = plain_uimatch(wide, k, capacity, units_of(wide))
    assert items_of(uimatch(wide, k, c=c, gamma=gamma, train=train, order="method")) == expected
    assert items_of(uimatch(wide, k, c=c, gamma=gamma, train=train, order="score")) == by_score(wide, expected)


@some
@given(candidates(ties=st.just(False)), st.sampled_from(["softmax", "zscore"]))
def test_the_other_normalisations_are_what_they_say(wide, how):
    ours = normalised(wide, how)
    for user, row in enumerate(rows_of(wide)):
        values = np.array([score for _, score in row])
        if how == "softmax":
            np.testing.assert_allclose(np.exp(ours[user, : len(row)]), np.exp(values) / np.exp(values).sum(), rtol=1e-9)
        elif len(row) > 1:
            np.testing.assert_allclose(ours[user, : len(row)], (values - values.mean()) / values.std(), atol=1e-9)


@some
@given(candidates(), st.integers(1, 3), st.sampled_from([1.0, 3.0]), st.integers(0, 50))
def test_capacities_hold_where_they_can(wide, k, c, seed):
    train = make_train(wide, seed)
    capacity = capacities(wide, k, c, 1.0, train)
    lists = uimatch(wide, k, c=c, train=train)
    over = np.maximum(lists.counts - capacity, 0)
    if over.any():  # then someone holds all candidates that had a copy left
        room = lists.counts < capacity
        assert any(
            not room[sorted(set(items) - set(chosen))].any()
            for items, chosen in zip(([item for item, _ in row] for row in rows_of(wide)), items_of(lists), strict=True)
        )


def test_the_best_pair_takes_the_last_copy_by_hand(caplog):
    # there is one copy of each item; both want item 0 most (r = 1), the first user gets it, the second the next best
    items = np.array([[0, 1, 2], [0, 2, 1]], dtype=np.int32)
    scores = np.array([[9, 5, 0], [9, 8, 0]], dtype=np.float32)
    wide = TopK(items, scores, pl.Series(["a", "b"]), pl.Series(range(3)))
    assert items_of(uimatch(wide, 1, gamma=0)) == [[0], [2]]
    with caplog.at_level(logging.INFO):
        assert items_of(uimatch(wide, 3, gamma=0, c=0.1, order="score")) == [[0, 1, 2], [0, 2, 1]]
    assert "3 of 6 slots are given over" in caplog.text


def test_uimatch_without_train_says_what_is_missing():
    with pytest.raises(ValueError, match=r"train=… .* or gamma=0"):
        uimatch(make_candidates(0), 3)
    assert len(uimatch(make_candidates(0), 3, c=inf)) == 5


def test_items_met_once_each_share_all_places_evenly() -> None:
    # the most popular item weighs 1, also where it was met once: two items, four lists of two, so four slots each
    lists = TopK.from_arrays(np.tile([0, 1], (4, 1)), np.tile([2.0, 1.0], (4, 1)), list("wxyz"), ["a", "b"])
    train = Interactions.from_frame(pl.DataFrame({"user_id": ["w", "x"], "item_id": ["a", "b"]}))
    assert capacities(lists, 2, 1.0, 2.0, train).tolist() == [4, 4]
