"""What a training step looks at."""

from itertools import pairwise

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from divmf.data.interactions import Interactions
from divmf.engine.threads import RowRange
from divmf.kernels.shuffle import shuffled
from divmf.models.sampling import own_in_shuffle, sample_chunks, submatrices


def some_data(n_users: int = 30, n_items: int = 20, seed: int = 0) -> Interactions:
    rng = np.random.default_rng(seed)
    users, items = np.nonzero(rng.random((n_users, n_items)) < 0.4)
    return Interactions.from_frame(pl.DataFrame({"user_id": users, "item_id": items}))


@given(st.integers(1, 400), st.integers(1, 5), st.booleans(), st.integers(0, 99))
def test_an_epoch_visits_every_pair_as_often_as_it_has_negatives_with_items_the_user_has_not_met(
    size: int, negatives: int, together: bool, seed: int
) -> None:
    data, each = some_data(), negatives if together else 1
    met = data.matrix.toarray() > 0
    seen = []
    for users, items, unmet, bounds in sample_chunks(data, size, negatives, np.random.default_rng(seed), each):
        assert (np.diff(bounds)[:-1] == size).all()
        assert unmet.shape == (len(users), each)
        assert not met[users[:, None], unmet].any()
        seen += list(zip(users.tolist(), items.tolist(), strict=True))
    pairs = sorted(zip(data.users.tolist(), data.items.tolist(), strict=True))
    assert sorted(seen) == sorted(pairs * (negatives // each))


def triples_of(data: Interactions, size: int, each: int) -> list[tuple[int, int, int]]:
    """All samples of an epoch, in its order."""
    found = []
    for users, items, unmet, _ in sample_chunks(data, size, 3, np.random.default_rng(5), each):
        for column in range(each):
            found += list(zip(users.tolist(), items.tolist(), unmet[:, column].tolist(), strict=True))
    return found


def test_neither_the_batch_size_nor_what_is_shuffled_changes_what_is_drawn() -> None:
    data = some_data()
    whole = sorted(triples_of(data, 10_000, 1))
    assert sorted(triples_of(data, 7, 1)) == whole
    assert sorted(triples_of(data, 10_000, 3)) == sorted(triples_of(data, 7, 3)) == whole


def test_triples_of_a_pair_fall_into_batches_of_their_own() -> None:
    # about 240 pairs × 3 in batches of 24: both other triples of a pair are in the batch of its first one time in a
    # thousand, 23·22/(719·718); shuffled as pairs, always
    data = some_data()

    def kept_together(each: int) -> float:
        batch_of: dict[tuple[int, int], set[int]] = {}
        number = 0
        for chunk in sample_chunks(data, 24 // each, 3, np.random.default_rng(1), each):
            for users, items, _ in chunk.batches():
                for pair in zip(users.tolist(), items.tolist(), strict=True):
                    batch_of.setdefault(pair, set()).add(number)
                number += 1
        return sum(len(batches) == 1 for batches in batch_of.values()) / len(data)

    assert kept_together(3) == 1
    assert kept_together(1) < 0.03


def order_of(n: int, key: int, *cuts: int) -> list[int]:
    """A whole order, found piece by piece."""
    bounds = [0, *sorted(cut % (n + 1) for cut in cuts), n]
    return np.concatenate([shuffled(*ends, n, key) for ends in pairwise(bounds)]).tolist()


@given(st.integers(1, 300), st.integers(0, 2**63 - 1), st.lists(st.integers(0, 300), max_size=3))
def test_an_order_holds_every_number_once_and_is_the_same_for_any_cut(n: int, key: int, cuts: list[int]) -> None:
    assert sorted(order_of(n, key)) == list(range(n))
    assert order_of(n, key, *cuts) == order_of(n, key)


@given(st.integers(1, 300), st.integers(0, 300), st.integers(0, 2**63 - 1), st.integers(0, 300), st.integers(0, 300))
def test_processes_find_their_own_numbers_in_the_same_places(n: int, cut: int, key: int, one: int, other: int) -> None:
    cut, first, last = cut % (n + 1), *sorted((one % (n + 1), other % (n + 1)))
    joined = {}
    for own in (range(cut), range(cut, n)):
        numbers, positions = own_in_shuffle(first, last, n, key, own)
        assert all(number in own for number in numbers)
        assert (np.diff(positions) > 0).all()
        joined |= dict(zip(positions.tolist(), numbers.tolist(), strict=True))
    assert [joined[span] for span in range(last - first)] == shuffled(first, last, n, key).tolist()


def test_the_order_is_as_random_as_one_that_is_drawn() -> None:
    # 40 numbers into 4 batches, 4,000 keys: each number 1,000 times in each batch (standard deviation 27), and each two
    # numbers together as often as of 40 drawn ones, 4,000 · 9/39 = 923 times (standard deviation 27)
    alone, together = np.zeros((40, 4)), np.zeros((40, 40))
    for key in np.random.default_rng(0).integers(0, 2**63, 4000):
        of = np.zeros((40, 4))
        of[shuffled(0, 40, 40, int(key)), np.arange(40) // 10] = 1
        alone += of
        together += of @ of.T
    assert np.abs(alone - 1000).max() < 4.5 * 27
    assert np.abs(together[~np.eye(40, dtype=bool)] - 923).max() < 4.5 * 27


def test_negatives_are_uniform_over_the_items_not_met() -> None:
    # one user met items 0–9 of 20; 20,000 draws over the other 10: 2,000 each, standard deviation 42
    pairs = [(0, i) for i in range(10)] + [(1, i) for i in range(20)]
    data = Interactions.from_frame(pl.DataFrame(pairs, schema=["user_id", "item_id"], orient="row"))
    drawn = [
        negatives[users == 0]
        for users, _, negatives, _ in sample_chunks(data, 100, 2000, np.random.default_rng(0), 2000)
    ]
    counts = np.bincount(np.concatenate(drawn).ravel(), minlength=20)
    assert counts[:10].sum() == 0
    assert (np.abs(counts[10:] - 2000) < 5 * 42).all()


def test_a_user_who_met_everything_gets_the_item_itself_as_its_negative() -> None:
    # so that the BPR gradient of the pair is zero, and nothing waits for a negative that does not exist
    data = Interactions.from_frame(pl.DataFrame({"user_id": [0, 0, 1], "item_id": [0, 1, 0]}))
    for users, items, negatives, _ in sample_chunks(data, 10, 4, np.random.default_rng(0), 4):
        assert (negatives[users == 0] == items[users == 0][:, None]).all()


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 40), st.integers(1, 40), st.integers(0, 9))
def test_blocks_cover_every_pair_exactly_once(n_users: int, n_items: int, rows: int, columns: int, seed: int) -> None:
    seen = np.zeros((n_users, n_items), dtype=int)
    for users, items in submatrices(n_users, n_items, rows, columns, np.random.default_rng(seed)):
        chosen = np.arange(n_items) if items is None else items
        assert len(users) <= rows
        assert items is None or len(items) <= columns
        seen[np.ix_(users, chosen)] += 1
    assert (seen == 1).all()


def test_no_block_size_is_one_block_of_everything() -> None:
    ((users, items),) = submatrices(5, 4, None, None, np.random.default_rng(0))
    assert users.tolist() == [0, 1, 2, 3, 4]
    assert items is None


@given(st.integers(2, 30), st.integers(1, 12), st.integers(1, 12), st.integers(0, 9), st.integers(1, 29))
def test_processes_have_the_users_of_the_same_blocks(
    n_users: int, rows: int, columns: int, seed: int, cut: int
) -> None:
    cut = min(cut, n_users)
    whole = list(submatrices(n_users, 12, rows, columns, np.random.default_rng(seed)))
    shares = [
        list(submatrices(n, 12, rows, columns, np.random.default_rng(seed), RowRange(first, first + n, n_users, 2)))
        for first, n in ((0, cut), (cut, n_users - cut))
    ]
    for (users, items), (low, same), (high, also) in zip(whole, *shares, strict=True):
        assert users.tolist() == [*low, *(cut + high)]
        assert items is same is also or items.tolist() == same.tolist() == also.tolist()
