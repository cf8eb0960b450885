import datetime
import logging
from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from divmf.data.interactions import Interactions
from divmf.data.order import last_of_each

PAIRS = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=60)
EVENTS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=40)


def from_pairs(pairs) -> Interactions:
    return Interactions.from_frame(pl.DataFrame(pairs, schema=["user_id", "item_id"], orient="row"))


def pairs_of(data: Interactions) -> set:
    return set(data.frame.select("user_id", "item_id").iter_rows())


def test_a_small_log_is_read_as_worked_out_by_hand(small_log, caplog):
    with caplog.at_level(logging.DEBUG):
        data = Interactions.from_frame(small_log)
    assert data.user_ids.to_list() == ["ann", "bob", "cyd"]
    assert data.item_ids.to_list() == ["egg", "jam", "rye", "tea"]
    assert data.users.tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert data.items.tolist() == [1, 2, 3, 2, 1, 3, 0]  # ann: jam and rye at 7 in the order of the file, tea at 9
    assert data.times.tolist() == [7, 7, 9, 2, 3, 4, 5]
    assert data.merged == 1
    assert "merged 1 repeated pairs" in caplog.text
    assert data.popularity.tolist() == [1, 2, 2, 2]
    assert data.density == pytest.approx(7 / 12, rel=1e-12)
    assert data.matrix.toarray().tolist() == [[0, 1, 1, 1], [0, 1, 1, 1], [1, 0, 0, 0]]
    assert repr(data) == "Interactions(3 users, 4 items, 7 interactions, with times)"


@given(EVENTS)
def test_repeated_pairs_become_one_with_the_latest_time(events):
    data = Interactions.from_frame(pl.DataFrame(events, schema=["user", "item", "time"], orient="row"))
    latest: dict = {}
    for user, item, time in events:
        latest[user, item] = max(time, latest.get((user, item), time))
    assert {(user, item): time for user, item, time in data.frame.iter_rows()} == latest
    assert data.merged == len(events) - len(latest)


@given(EVENTS)
def test_rows_stand_by_user_then_time_then_place_in_the_file(events):
    data = Interactions.from_frame(pl.DataFrame(events, schema=["user", "item", "time"], orient="row"))
    position = {
        (user, item, time): position for position, (user, item, time) in enumerate(events)
    }  # the last one counts
    rows = list(data.frame.iter_rows())
    assert rows == sorted(rows, key=lambda row: (row[0], row[2], position[row]))


@given(PAIRS, st.randoms())
def test_without_times_the_order_of_the_file_has_no_meaning(pairs, random):
    one, other = from_pairs(pairs), from_pairs(random.sample(pairs, len(pairs)))
    assert_frame_equal(one.frame, other.frame)
    assert one.user_ids.equals(other.user_ids)
    assert one.item_ids.equals(other.item_ids)


@given(st.lists(st.integers(0, 5), min_size=1))
def test_last_of_each_marks_what_a_loop_marks(keys):
    slow = [key not in keys[position + 1 :] for position, key in enumerate(keys)]
    assert last_of_each(np.array(keys)).tolist() == slow


@pytest.mark.parametrize("kind", ["polars", "lazy", "pandas", "arrow"])
def test_frames_of_every_library_give_the_same(kind, small_log):
    frame = {"polars": lambda: small_log, "lazy": small_log.lazy, "pandas": small_log.to_pandas,
             "arrow": small_log.to_arrow}[kind]()  # fmt: skip
    found = Interactions.from_frame(frame)
    assert_frame_equal(found.frame, Interactions.from_frame(small_log).frame)


def test_the_columns_can_be_named():
    frame = pl.DataFrame({"buyer": [1], "thing": ["a"], "when": [3], "user_id": ["no"], "item_id": ["no"]})
    data = Interactions.from_frame(frame, user="buyer", item="thing", time="when")
    assert data.frame.rows() == [(1, "a", 3)]


@given(PAIRS, st.integers(1, 5))
def test_k_core_is_what_is_left_when_the_small_ones_are_taken_away_again_and_again(pairs, k):
    left = set(pairs)
    while True:
        users, items = Counter(user for user, _ in left), Counter(item for _, item in left)
        still = {(user, item) for user, item in left if users[user] >= k and items[item] >= k}
        if still == left:
            break
        left = still
    data = from_pairs(pairs)
    if not left:
        with pytest.raises(ValueError, match=f"k_core={k} leaves no user"):
            data.k_core(k)
        return
    core = data.k_core(k)
    assert pairs_of(core) == left
    assert core.user_ids.to_list() == sorted({user for user, _ in left})
    assert core.item_ids.to_list() == sorted({item for _, item in left})


@given(PAIRS, st.integers(0, 3), st.integers(0, 3))
def test_the_core_of_a_core_is_the_larger_core(pairs, one, other):
    data = from_pairs(pairs)
    try:
        largest = data.k_core(max(one, other))
    except ValueError:
        reject()
    assert_frame_equal(data.k_core(one).k_core(other).frame, largest.frame)
    assert pairs_of(largest) <= pairs_of(data.k_core(min(one, other)))


def test_k_core_keeps_the_times_with_their_rows(small_log):
    core = Interactions.from_frame(small_log).k_core(2)
    assert core.frame.rows() == [("ann", "jam", 7), ("ann", "rye", 7), ("ann", "tea", 9),
                                 ("bob", "rye", 2), ("bob", "jam", 3), ("bob", "tea", 4)]  # fmt: skip


def test_a_negative_core_is_refused(small_log):
    with pytest.raises(ValueError, match="k_core=-1 is negative; choose 0"):
        Interactions.from_frame(small_log).k_core(-1)


def test_interactions_cannot_be_changed(small_log):
    data = Interactions.from_frame(small_log)
    with pytest.raises(ValueError, match="read-only"):
        data.users[0] = 1
    with pytest.raises(AttributeError):
        data.users = data.items


@pytest.mark.parametrize(
    "times",
    [
        [3, 1, 2],
        [3.5, 1.25, 2.0],
        ["30", "4", "5"],
        ["2020-01-03", "2020-01-01", "2020-01-02"],
        ["2020-01-01T10:00:03Z", "2020-01-01T10:00:01Z", "2020-01-01T10:00:02Z"],
        ["2020-01-01 10:00:03", "2020-01-01 10:00:01", "2020-01-01 10:00:02"],
        [datetime.date(2020, 1, 3), datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)],
        [datetime.datetime(2020, 1, day, tzinfo=datetime.UTC) for day in (3, 1, 2)],
    ],
)
def test_times_of_every_kind_order_the_rows(times):
    data = Interactions.from_frame(pl.DataFrame({"user": [1, 1, 1], "item": ["a", "b", "c"], "time": times}))
    assert data.frame["item_id"].to_list() == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([1, None], "column 'when' has 1 empty times of 2; drop those rows"),
        ([1.0, float("nan")], "column 'when' has 1 empty times of 2"),
        ([1.0, float("inf")], "column 'when' has 1 empty times of 2"),
        ([None, None], "column 'when' has 2 empty times of 2"),
        (["2020-01-01", "late"], "column 'when' has 1 values that are not times .such as 'late'.; write them as"),
        (["early", "late"], "column 'when' has 2 values that are not times .such as 'early'"),
        ([True, False], "column 'when' holds Boolean, not times; name the time column"),
        ([datetime.time(1), datetime.time(2)], "column 'when' holds Time, not times"),
    ],
)
def test_bad_times_are_refused_by_column_and_value(times, message):
    frame = pl.DataFrame({"user": [1, 1], "item": [1, 2], "when": times})
    with pytest.raises(ValueError, match=message):
        Interactions.from_frame(frame, time="when")


def test_users_are_found_by_their_ids_and_an_unknown_one_is_named(small_log):
    data = Interactions.from_frame(small_log)
    assert data.user_numbers(["cyd", "ann"]).tolist() == [2, 0]
    assert data.user_numbers([]).tolist() == []
    with pytest.raises(ValueError, match=r"1 of the 2 users were not in the training data .such as 'zoe'"):
        data.user_numbers(["ann", "zoe"])


def test_the_real_epinions_has_the_counts_of_the_paper(real):
    data = Interactions.read(real("epinions.parquet"))
    assert (data.n_users, data.n_items, len(data)) == (40_163, 139_738, 664_823)
    core = data.k_core(15)
    assert (core.n_users, core.n_items, len(core)) == (5_531, 4_287, 186_995)


def test_the_real_movielens_1m_has_the_counts_of_the_paper(real):
    data = Interactions.read(real("ml-1m.parquet"))
    assert (data.n_users, data.n_items, len(data)) == (6_040, 3_706, 1_000_209)
    assert data.merged == 0


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("gowalla-lightgcn-10core", (13_149, 14_007, 535_610)),
        ("yelp-nfa", (5_002, 3_878, 127_538)),
        ("ml-100k", (943, 1_032, 96_546)),
        ("lastfm-hetrec2011", (1_601, 951, 53_491)),
        ("citeulike", (264, 412, 10_069)),
    ],
)
def test_the_15_cores_of_other_real_data_have_their_known_counts(name, counts, real):
    core = Interactions.read(real(f"{name}.parquet")).k_core(15)
    assert (core.n_users, core.n_items, len(core)) == counts


@pytest.mark.parametrize("scale", [1, 1e3, 1e6, 1e9], ids=["s", "ms", "µs", "ns"])
def test_decimal_times_of_every_unit_order_the_rows(scale):
    times = [scale * (1.7e9 + second) for second in (3.0, 1.0, 2.0)]
    data = Interactions.from_frame(pl.DataFrame({"user": [1, 1, 1], "item": ["a", "b", "c"], "time": times}))
    assert data.frame["item_id"].to_list() == ["b", "c", "a"]
    unit = 1_000_000 if scale == 1 else 1
    assert data.times.tolist() == [unit * round(time) for time in sorted(times)]


def test_parts_of_a_second_are_kept():
    frame = pl.DataFrame({"user": [1, 1], "item": ["a", "b"], "time": [1.7e9 + 0.5, 1.7e9 + 0.25]})
    assert Interactions.from_frame(frame).frame["item_id"].to_list() == ["b", "a"]
