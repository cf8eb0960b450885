from itertools import pairwise

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from rerank_cases import by_score, candidates, items_of, make_train, rows_of, some

from divmf.data.interactions import Interactions
from divmf.ranking.lists import TopK
from divmf.rerank import sapid


def plain_sapid(wide, k, c, drop, popularity):
    total = max(sum(popularity), 1)
    counts, lists = [0] * wide.n_items, []
    for user, row in enumerate(rows_of(wide)):
        top = row[: max(c, k)]
        drops = [above[1] - below[1] for above, below in pairwise(top)]
        mean = (top[0][1] - top[-1][1]) / len(drops) if drops else 0
        large = [size for size, each in enumerate(drops, 1) if each > drop * mean]
        pool = top[: max([k, *large])]
        left = len(wide) - user - 1
        chosen = sorted(
            (item for item, _ in pool), key=lambda item: counts[item] + left * k * (popularity[item] / total)
        )[:k]
        for item in chosen:
            counts[item] += 1
        lists.append(chosen if c > k else [item for item, _ in row[:k]])
    return lists


@some
@given(candidates(), st.integers(1, 4), st.integers(1, 8), st.sampled_from([0.5, 1.0]))
def test_sapid_serves_users_in_order_as_a_plain_loop_does(wide, k, c, drop):
    train = make_train(wide)
    expected = plain_sapid(wide, k, c, drop, train.popularity.tolist())
    assert items_of(sapid(wide, k, train=train, c=c, drop=drop, order="method")) == expected
    assert items_of(sapid(wide, k, train=train, c=c, drop=drop, order="score")) == by_score(wide, expected)


def test_the_pool_ends_at_the_last_large_drop_by_hand():
    # drops 0.1, 0.1, 5, 0.1: the pool are items 0, 1, 2, and all are as popular, so counts decide, then the score
    scores = np.array([[9, 8.9, 8.8, 3.8, 3.7]], dtype=np.float32)
    wide = TopK(np.arange(5, dtype=np.int32)[None], scores, pl.Series([7]), pl.Series(range(5)))
    train = Interactions.from_frame(pl.DataFrame({"user_id": [7] * 5, "item_id": range(5)}))
    two = TopK(np.tile(wide.items, (2, 1)), np.tile(scores, (2, 1)), pl.Series([7, 8]), wide.item_ids)
    assert items_of(sapid(wide, 2, train=train, c=5)) == [[0, 1]]
    assert items_of(sapid(two, 2, train=train, c=5)) == [[0, 1], [2, 0]]  # item 2 is the one that nobody has yet
    assert items_of(sapid(two, 2, train=train, c=5, order="score")) == [[0, 1], [0, 2]]
