import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rerank_cases import by_score, candidates, items_of, make_candidates, make_train, rows_of, some, units_of
from scipy import sparse

from divmf.data.interactions import Interactions
from divmf.ranking.lists import TopK
from divmf.rerank import karakaya
from divmf.rerank.karakaya import aligned_matrix, similar_items


def plain_karakaya(wide, k, train, threshold, walks, steps, neighbours, seed):
    similar, mass = similar_items(train.matrix, neighbours)
    rng = np.random.default_rng(seed)
    rows, units = rows_of(wide), units_of(wide)
    lists = [[item for item, _ in row[:k]] for row in rows]
    even_share = len(rows) * k / wide.n_items
    counts = [sum(item in chosen for chosen in lists) for item in range(wide.n_items)]

    def walk(user, start):
        item = start
        for _ in range(steps):
            draw = rng.random()
            reached = [j for j, up_to in zip(similar[item], mass[item], strict=True) if j >= 0 and draw < up_to]
            if not reached:
                return None
            item = int(reached[0])
            good = units[user].get(item, -1) >= threshold
            if good and item not in lists[user] and counts[item] < even_share:
                return item
        return None

    for user in rng.permutation(len(rows)):
        for old in sorted(lists[user], key=lambda item: -counts[item]):
            if counts[old] <= even_share:
                continue
            for _ in range(walks):
                new = walk(user, old)
                if new is not None:
                    lists[user][lists[user].index(old)] = new
                    counts[old] -= 1
                    counts[new] += 1
                    break
    return lists


@some
@given(candidates(), st.integers(1, 4), st.sampled_from([0.0, 0.4, 0.9]), st.integers(0, 100))
def test_karakaya_replaces_as_a_plain_loop_with_the_same_draws(wide, k, threshold, seed):
    train = make_train(wide, seed)
    expected = plain_karakaya(wide, k, train, threshold, walks=3, steps=2, neighbours=4, seed=seed)
    setting = {"threshold": threshold, "walks": 3, "steps": 2, "neighbours": 4, "seed": seed}
    assert items_of(karakaya(wide, k, train=train, order="method", **setting)) == expected
    assert items_of(karakaya(wide, k, train=train, **setting, order="score")) == by_score(wide, expected)


def pairs_met(wide, n_similar):
    """Everyone met the first items, which are therefore similar to each other and to nothing else."""
    users, items = np.divmod(np.arange(len(wide) * n_similar, dtype=np.int32), n_similar)
    return Interactions(users.astype(np.int32), items.astype(np.int32), None, wide.user_ids, wide.item_ids)


def same_for_all(n_lists, row, n_items):
    """Everyone has these candidates in this order."""
    items = np.tile(np.array(row, dtype=np.int32), (n_lists, 1))
    scores = np.tile(-np.arange(len(row), dtype=np.float32), (n_lists, 1))
    return TopK(items, scores, pl.Series(range(n_lists)), pl.Series(range(n_items)))


def test_a_walk_leads_from_an_item_everyone_gets_to_a_similar_one():
    # all four get item 0, twice q = 4/2; every walk goes to item 1, until both have their share
    wide = same_for_all(4, [0, 1], n_items=2)
    assert karakaya(wide, 1, train=pairs_met(wide, 2), threshold=0).counts.tolist() == [2, 2]


def test_an_item_that_has_its_even_share_already_does_not_come_in():
    # q = 3/3 = 1, and all three get item 0: one walk brings item 1 in, then it has its share, and item 0 keeps two
    wide = same_for_all(3, [0, 1], n_items=3)
    assert karakaya(wide, 1, train=pairs_met(wide, 2), threshold=0).counts.tolist() == [2, 1, 0]


@some
@given(st.integers(0, 1000))
def test_neighbours_are_the_nearest_by_cosine(seed):
    rng = np.random.default_rng(seed)
    dense = (rng.random((8, 6)) < 0.4).astype(np.float32)
    items, mass = similar_items(sparse.csr_array(dense), 3)
    for item in range(6):
        norm = [np.sqrt(dense[:, other].sum()) for other in range(6)]
        both = [dense[:, item] @ dense[:, other] for other in range(6)]
        cosine = {j: both[j] / (norm[item] * norm[j]) for j in range(6) if j != item and both[j] > 0}
        nearest = sorted(cosine, key=lambda j: (-round(cosine[j], 6), j))[:3]
        assert [int(j) for j in items[item] if j >= 0] == nearest
        if nearest:
            steps = np.diff(mass[item], prepend=0)[: len(nearest)]
            np.testing.assert_allclose(
                steps, np.array([cosine[j] for j in nearest]) / sum(cosine[j] for j in nearest), rtol=1e-5
            )


def test_train_with_other_item_numbers_gives_the_same_lists():
    wide = make_candidates(1, n_lists=12, n_items=9)
    train = make_train(wide)
    other = Interactions.from_frame(train.frame.with_columns(item_id=pl.col("item_id")))
    assert len(other.item_ids) < len(wide.item_ids) or other.n_items == wide.n_items
    np.testing.assert_array_equal(
        aligned_matrix(wide, other).toarray()[: other.n_users], train.matrix.toarray()[other.user_ids]
    )
    np.testing.assert_array_equal(
        karakaya(wide, 3, train=train, threshold=0).items, karakaya(wide, 3, train=other, threshold=0).items
    )


def test_train_about_other_items_is_refused():
    wide = make_candidates(1)
    other = Interactions.from_frame(pl.DataFrame({"user_id": [1, 2], "item_id": [100, 200]}))
    with pytest.raises(ValueError, match="knows none of the catalog"):
        karakaya(wide, 3, train=other)


def test_an_item_is_too_often_shown_from_a_multiple_of_the_even_share_on():
    wide = make_candidates(3, n_lists=30, n_items=12, width=10)
    train = make_train(wide)
    own = items_of(wide.head(3))
    assert items_of(karakaya(wide, 3, train=train, threshold=0.0)) != own
    assert items_of(karakaya(wide, 3, train=train, threshold=0.0, share=1e6)) == own  # nothing is shown so often


def test_scores_are_scaled_over_all_unseen_items_where_their_lowest_is_known():
    # beside an item that far below, all candidates are next to 1: what T = 0.9 keeps out over the candidates comes in
    wide = make_candidates(3, n_lists=30, n_items=12, width=10)
    train, lowest = make_train(wide), np.full(30, -1e6)
    everything = items_of(karakaya(wide, 3, train=train, threshold=0.0))
    assert items_of(karakaya(wide, 3, train=train, threshold=0.9, lowest=lowest)) == everything
    assert items_of(karakaya(wide, 3, train=train, threshold=0.9, lowest=lowest, scale="candidates")) != everything
