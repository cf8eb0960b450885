"""What a training step looks at."""

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from divmf.interactions import Interactions
from divmf.sampling import slabs, submatrices


def some_data(n_users: int = 30, n_items: int = 20, seed: int = 0) -> Interactions:
    rng = np.random.default_rng(seed)
    users, items = np.nonzero(rng.random((n_users, n_items)) < 0.4)
    return Interactions.from_frame(pl.DataFrame({"user_id": users, "item_id": items}))


@given(st.integers(1, 400), st.integers(1, 5), st.integers(0, 99))
def test_an_epoch_visits_every_pair_once_with_items_the_user_has_not_met(size: int, each: int, seed: int) -> None:
    data = some_data()
    met = data.matrix.toarray() > 0
    seen = []
    for users, items, negatives in slabs(data, size, each, np.random.default_rng(seed)):
        assert negatives.shape == (len(users), each)
        assert not met[users[:, None], negatives].any()
        seen += list(zip(users.tolist(), items.tolist(), strict=True))
    assert sorted(seen) == sorted(zip(data.users.tolist(), data.items.tolist(), strict=True))


def test_the_batch_size_does_not_change_what_is_drawn() -> None:
    data = some_data()
    whole = [np.concatenate(parts) for parts in zip(*slabs(data, 10_000, 3, np.random.default_rng(5)), strict=True)]
    small = [np.concatenate(parts) for parts in zip(*slabs(data, 7, 3, np.random.default_rng(5)), strict=True)]
    for one, other in zip(whole, small, strict=True):
        assert np.array_equal(one, other)


def test_negatives_are_uniform_over_the_items_not_met() -> None:
    # one user met items 0–9 of 20; 20,000 draws over the other 10: 2,000 each, standard deviation 42
    pairs = [(0, i) for i in range(10)] + [(1, i) for i in range(20)]
    data = Interactions.from_frame(pl.DataFrame(pairs, schema=["user_id", "item_id"], orient="row"))
    drawn = [negatives[users == 0] for users, _, negatives in slabs(data, 100, 2000, np.random.default_rng(0))]
    counts = np.bincount(np.concatenate(drawn).ravel(), minlength=20)
    assert counts[:10].sum() == 0
    assert (np.abs(counts[10:] - 2000) < 5 * 42).all()


def test_a_user_who_met_everything_gets_the_item_itself_as_its_negative() -> None:
    # so that the BPR gradient of the pair is zero, and nothing waits for a negative that does not exist
    data = Interactions.from_frame(pl.DataFrame({"user_id": [0, 0, 1], "item_id": [0, 1, 0]}))
    for users, items, negatives in slabs(data, 10, 4, np.random.default_rng(0)):
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
