import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from divmf.data.interactions import Interactions
from divmf.data.split import PARTS, Split, counts_per_user, hold_out, leave_one_out, users_in_train_only

EVENTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8), st.integers(0, 4)), min_size=1, max_size=60)


def from_events(events, timed: bool = True) -> Interactions:
    frame = pl.DataFrame(events, schema=["user_id", "item_id", "timestamp"], orient="row")
    return Interactions.from_frame(frame if timed else frame.drop("timestamp"))


def pairs(part: Interactions) -> set:
    return set(part.frame.select("user_id", "item_id").iter_rows())


def assert_whole_and_disjoint(split: Split, data: Interactions) -> None:
    assert sum(len(getattr(split, part)) for part in PARTS) == len(data)
    assert pairs(split.train) | pairs(split.valid) | pairs(split.test) == pairs(data)
    for part in PARTS:
        assert getattr(split, part).user_ids is data.user_ids
        assert getattr(split, part).item_ids is data.item_ids


def test_the_latest_is_tested_and_of_a_tie_the_one_later_in_the_file():
    frame = pl.DataFrame(
        [
            ("ann", "late", 7), ("ann", "later", 7), ("ann", "first", 1), ("ann", "middle", 5),
            ("bob", "x", 3), ("bob", "y", 3), ("bob", "z", 3),
            ("cyd", "x", 1), ("cyd", "y", 2),
            ("dan", "z", 9),
        ],
        schema=["user_id", "item_id", "timestamp"], orient="row",
    )  # fmt: skip
    split = Interactions.from_frame(frame).leave_one_out(seed=0)
    assert pairs(split.test) == {("ann", "later"), ("bob", "z")}
    assert pairs(split.valid) == {("ann", "late"), ("bob", "y")}
    assert pairs(split.train) == {
        ("ann", "first"),
        ("ann", "middle"),
        ("bob", "x"),
        ("cyd", "x"),
        ("cyd", "y"),
        ("dan", "z"),
    }
    assert users_in_train_only(split) == 2
    assert counts_per_user(split.train).tolist() == [2, 1, 2, 1]
    assert repr(split) == "Split(4 users, 7 items: train 6, valid 2, test 2)"


@given(EVENTS, st.booleans(), st.integers(0, 3))
def test_leave_one_out_takes_one_each_from_users_with_three_or_more(events, timed, seed):
    data = from_events(events, timed)
    split = data.leave_one_out(seed)
    assert_whole_and_disjoint(split, data)
    enough = counts_per_user(data) >= 3
    assert counts_per_user(split.test).tolist() == enough.tolist()
    assert counts_per_user(split.valid).tolist() == enough.tolist()
    assert users_in_train_only(split) == (~enough).sum()


@given(EVENTS)
def test_nothing_learnt_from_is_later_than_what_is_tested(events):
    split = from_events(events).leave_one_out()
    for user, time in zip(split.test.users, split.test.times, strict=True):
        valid = split.valid.times[split.valid.users == user]
        assert (valid <= time).all()
        assert (split.train.times[split.train.users == user] <= valid.min()).all()


@given(EVENTS, st.integers(0, 3), st.randoms())
def test_without_times_the_split_depends_on_the_seed_only(events, seed, random):
    shuffled = random.sample(events, len(events))
    one, other = from_events(events, False).leave_one_out(seed), from_events(shuffled, False).leave_one_out(seed)
    assert_frame_equal(one.frame, other.frame)


def test_without_times_every_item_is_tested_about_equally_often():
    data = from_events([(user, item, 0) for user in range(3000) for item in range(5)], timed=False)
    split = data.leave_one_out(seed=1)
    for part in (split.test, split.valid):  # 600 each expected, standard deviation 22
        assert np.abs(part.popularity - 600).max() < 5 * 22
    assert not np.array_equal(split.test.items, data.leave_one_out(seed=2).test.items)


def test_with_times_the_seed_changes_nothing():
    data = from_events([(user, item, item) for user in range(3) for item in range(5)])
    assert_frame_equal(data.leave_one_out(0).frame, data.leave_one_out(1).frame)


def test_one_can_be_held_out_instead_of_two():
    data = from_events([(1, 1, 1), (1, 2, 2), (2, 1, 1)])
    split = leave_one_out(data, np.random.default_rng(0), held_out=1)
    assert pairs(split.test) == {(1, 2)}
    assert len(split.valid) == 0


@given(EVENTS, st.floats(0, 0.45), st.floats(0.01, 0.5), st.integers(0, 3))
def test_hold_out_takes_a_share_of_each_user_and_leaves_at_least_one(events, valid, test, seed):
    data = from_events(events)
    split = hold_out(data, np.random.default_rng(seed), valid, test)
    assert_whole_and_disjoint(split, data)
    size = counts_per_user(data)
    assert (counts_per_user(split.train) >= 1).all()
    assert (np.abs(counts_per_user(split.test) - test * size) <= 1).all()
    assert (np.abs(counts_per_user(split.valid) - valid * size) <= 1.5).all()


@pytest.mark.parametrize(("valid", "test"), [(0.5, 0.5), (-0.1, 0.2), (0.1, 0.0), (0.1, 1.0)])
def test_hold_out_refuses_shares_that_leave_nothing_to_learn(valid, test):
    with pytest.raises(ValueError, match=f"valid={valid} and test={test} must be shares"):
        hold_out(from_events([(1, 1, 1)]), np.random.default_rng(0), valid, test)


@given(EVENTS, st.booleans())
def test_a_split_survives_its_frame(events, timed):
    split = from_events(events, timed).leave_one_out()
    assume(len(split.test))
    again = Split.from_frame(split.frame)
    for part in PARTS:
        assert pairs(getattr(again, part)) == pairs(getattr(split, part))
    assert again.user_ids.equals(split.user_ids)


def test_a_split_survives_its_files(small_log, tmp_path):
    split = Interactions.from_frame(small_log).leave_one_out()
    split.write(tmp_path / "parts")
    for part in PARTS:
        assert_frame_equal(pl.read_parquet(tmp_path / "parts" / f"{part}.parquet"), getattr(split, part).frame)
    catalog = pl.read_parquet(tmp_path / "parts" / "catalog.parquet")
    assert catalog.rows() == [("egg", 1), ("jam", 1), ("rye", 1), ("tea", 0)]


def test_seen_is_train_and_validation_and_known_is_everything(small_log):
    data = Interactions.from_frame(small_log)
    split = data.leave_one_out()
    assert split.seen.toarray().tolist() == [[0, 1, 1, 0], [0, 1, 1, 0], [1, 0, 0, 0]]
    assert (split.known.toarray() == data.matrix.toarray()).all()


def test_a_split_without_validation_gets_it_from_train():
    frame = pl.DataFrame(
        {"user": [1] * 4, "item": [1, 2, 3, 4], "time": [4, 3, 2, 1], "split": ["test", "train", "Train", "train"]}
    )
    split = Split.from_frame(frame)
    assert (pairs(split.test), pairs(split.valid), pairs(split.train)) == ({(1, 1)}, {(1, 2)}, {(1, 3), (1, 4)})


@pytest.mark.parametrize(
    ("labels", "items", "message"),
    [
        (["train", "dev", "test"], [1, 2, 3], "column 'split' holds 'dev'; it may hold train, valid and test only"),
        (["train", None, "test"], [1, 2, 3], "column 'split' holds 'None'"),
        (["train", "test", "test"], [1, 1, 2], "1 pairs stand in the data more than once"),
        (["train", "train", "train"], [1, 2, 3], "no row is marked 'test'"),
    ],
)
def test_a_bad_split_column_is_refused(labels, items, message, tmp_path):
    path = tmp_path / "split.parquet"
    pl.DataFrame({"user_id": [1] * 3, "item_id": items, "split": labels}).write_parquet(path)
    with pytest.raises(ValueError, match=message) as caught:
        Split.read(path)
    assert str(path) in str(caught.value)


def test_a_missing_split_column_is_named(small_log):
    with pytest.raises(ValueError, match="there is no column 'split'"):
        Split.from_frame(small_log)


def test_the_split_the_authors_released_is_read(real):
    split = Split.read(real("divmf-epinions-15-split.parquet"))
    assert (split.n_users, split.n_items) == (5_531, 4_287)
    assert len(split.test) == 5_531
    assert len(split.train) + len(split.valid) + len(split.test) == 186_995


@pytest.mark.parametrize(("name", "core"), [("ml-1m", 0), ("epinions", 15)])
def test_leave_one_out_of_real_data_holds_out_one_each(name, core, real):
    data = Interactions.read(real(f"{name}.parquet")).k_core(core)
    split = data.leave_one_out(seed=0)
    assert (counts_per_user(split.test) == 1).all()
    assert (counts_per_user(split.valid) == 1).all()
    assert split.known.nnz == len(data)
