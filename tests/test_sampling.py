"""What a training step looks at."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divmf import sampling
from divmf.interactions import Interactions
from divmf.kernels.shuffle import shuffled_batches
from divmf.sampling import dealt, slabs, submatrices
from divmf.threads import Place


@pytest.fixture(params=[sampling.SHUFFLED, 0], ids=["an order drawn", "places found"], scope="module", autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways to put an epoch in order: that of small data, and that of large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "SHUFFLED", request.param)
        yield


def some_data(n_users: int = 30, n_items: int = 20, seed: int = 0) -> Interactions:
    rng = np.random.default_rng(seed)
    users, items = np.nonzero(rng.random((n_users, n_items)) < 0.4)
    return Interactions.from_frame(pl.DataFrame({"user_id": users, "item_id": items}))


@given(st.integers(1, 400), st.integers(1, 5), st.integers(0, 99))
def test_an_epoch_visits_every_pair_once_with_items_the_user_has_not_met(size: int, each: int, seed: int) -> None:
    data = some_data()
    met = data.matrix.toarray() > 0
    seen = []
    for users, items, negatives, bounds in slabs(data, size, each, np.random.default_rng(seed)):
        assert (np.diff(bounds)[:-1] == size).all()
        assert negatives.shape == (len(users), each)
        assert not met[users[:, None], negatives].any()
        seen += list(zip(users.tolist(), items.tolist(), strict=True))
    assert sorted(seen) == sorted(zip(data.users.tolist(), data.items.tolist(), strict=True))


def test_the_batch_size_does_not_change_what_is_drawn() -> None:
    data = some_data()

    def by_pair(size: int) -> list[np.ndarray]:
        parts = [slab[:3] for slab in slabs(data, size, 3, np.random.default_rng(5))]
        users, items, negatives = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.lexsort((items, users))
        return [users[order], items[order], negatives[order]]

    for one, other in zip(by_pair(10_000), by_pair(7), strict=True):
        assert np.array_equal(one, other)


@given(st.integers(2, 300), st.integers(1, 50), st.integers(0, 99), st.integers(1, 299))
def test_processes_have_the_pairs_of_the_same_batches_and_their_draws(n: int, size: int, seed: int, cut: int) -> None:
    cut = min(cut, n)

    def drawn(first: int, last: int) -> list[dict[int, int]]:
        """Of each batch, the numbers in it and what their draws belong to."""
        found = dealt(last - first, size, np.random.default_rng(seed), Place(first, n, 2))
        rows = list(zip((found.order + first).tolist(), (found.places + found.first).tolist(), strict=True))
        return [dict(rows[start:end]) for start, end in pairwise(found.bounds)]

    whole = drawn(0, n)
    assert [low | high for low, high in zip(drawn(0, cut), drawn(cut, n), strict=True)] == whole
    assert sorted(place for batch in whole for place in batch.values()) == list(range(n))


@given(st.integers(1, 300), st.integers(1, 50), st.integers(0, 2**63 - 1), st.lists(st.floats(0, 1), max_size=3))
def test_every_number_is_in_one_batch_the_same_for_any_cut(whole: int, size: int, key: int, at: list[float]) -> None:
    batches, _ = batches_of(0, whole, whole, size, key)
    assert sorted(number for batch in batches for number in batch) == list(range(whole))
    assert [len(batch) for batch in batches[:-1]] == [size] * (len(batches) - 1)
    cuts = [0, *sorted(int(share * whole) for share in at), whole]
    joined: list[list[int]] = [[] for _ in batches]
    for first, last in pairwise(cuts):
        for batch, more in zip(joined, batches_of(first, last - first, whole, size, key)[0], strict=True):
            batch += [first + number for number in more]
    assert joined == batches


def batches_of(first: int, n: int, whole: int, size: int, key: int) -> tuple[list[list[int]], int]:
    order, bounds = shuffled_batches(first, n, whole, size, key)
    return [order[start:end].tolist() for start, end in pairwise(bounds)], len(order)


def test_the_order_is_as_random_as_one_that_is_drawn() -> None:
    # 40 numbers into 4 batches, 4,000 keys: each number 1,000 times in each batch (standard deviation 27), and each two
    # numbers together as often as of 40 drawn ones, 4,000 · 9/39 = 923 times (standard deviation 27)
    alone, together = np.zeros((40, 4)), np.zeros((40, 40))
    for key in np.random.default_rng(0).integers(0, 2**63, 4000):
        of = np.zeros((40, 4))
        for batch, numbers in enumerate(batches_of(0, 40, 40, 10, int(key))[0]):
            of[numbers, batch] = 1
        alone += of
        together += of @ of.T
    assert np.abs(alone - 1000).max() < 4.5 * 27
    assert np.abs(together[~np.eye(40, dtype=bool)] - 923).max() < 4.5 * 27


def test_negatives_are_uniform_over_the_items_not_met() -> None:
    # one user met items 0–9 of 20; 20,000 draws over the other 10: 2,000 each, standard deviation 42
    pairs = [(0, i) for i in range(10)] + [(1, i) for i in range(20)]
    data = Interactions.from_frame(pl.DataFrame(pairs, schema=["user_id", "item_id"], orient="row"))
    drawn = [negatives[users == 0] for users, _, negatives, _ in slabs(data, 100, 2000, np.random.default_rng(0))]
    counts = np.bincount(np.concatenate(drawn).ravel(), minlength=20)
    assert counts[:10].sum() == 0
    assert (np.abs(counts[10:] - 2000) < 5 * 42).all()


def test_a_user_who_met_everything_gets_the_item_itself_as_its_negative() -> None:
    # so that the BPR gradient of the pair is zero, and nothing waits for a negative that does not exist
    data = Interactions.from_frame(pl.DataFrame({"user_id": [0, 0, 1], "item_id": [0, 1, 0]}))
    for users, items, negatives, _ in slabs(data, 10, 4, np.random.default_rng(0)):
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
        list(submatrices(n, 12, rows, columns, np.random.default_rng(seed), Place(first, n_users, 2)))
        for first, n in ((0, cut), (cut, n_users - cut))
    ]
    for (users, items), (low, same), (high, also) in zip(whole, *shares, strict=True):
        assert users.tolist() == [*low, *(cut + high)]
        assert items is same is also or items.tolist() == same.tolist() == also.tolist()
