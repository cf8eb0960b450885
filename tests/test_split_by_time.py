"""Splits by time: nothing that is learnt from happened after what is tested."""

import itertools
import logging
from datetime import date, datetime

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divmf import Interactions
from divmf.data.times import as_moment


def log_of(times: list[int], users: int = 4, items: int = 5, seed: int = 0) -> Interactions:
    """Distinct pairs in a random order, one for each time."""
    pairs = np.random.default_rng(seed).permutation(users * items)[: len(times)]
    return Interactions.from_frame(
        pl.DataFrame({"user_id": pairs % users, "item_id": pairs // users, "timestamp": times})
    )


def test_ten_interactions_worked_by_hand() -> None:
    split = log_of(list(range(10))).by_time(test=0.2, valid=0.25, cold=True)
    # the last two of ten; then the last two of eight
    assert [sorted(part.times) for part in (split.train, split.valid, split.test)] == [
        [0, 1, 2, 3, 4, 5],
        [6, 7],
        [8, 9],
    ]


@given(times=st.lists(st.integers(-50, 50), min_size=6, max_size=20), test=st.floats(0.1, 0.6), valid=st.floats(0, 0.5))
def test_every_part_ends_before_the_next_begins_and_none_is_larger_than_asked(
    times: list[int], test: float, valid: float
) -> None:
    data = log_of(times)
    try:
        split = data.by_time(test=test, valid=valid, cold=True)
    except ValueError as error:  # too many at one moment
        assert "choose a moment between" in str(error)  # noqa: PT017
        return
    parts = [part.times for part in (split.train, split.valid, split.test) if len(part)]
    assert all(one.max() < other.min() for one, other in itertools.pairwise(parts))
    assert sum(map(len, parts)) == len(data)
    assert len(split.test) <= test * len(data)
    assert len(split.valid) <= valid * (len(split.train) + len(split.valid))
    # one more moment would have been too much
    last = split.train.times.max() if not len(split.valid) else split.valid.times.max()
    assert (data.times >= last).sum() > test * len(data)


@pytest.mark.parametrize(
    "when", ["2024-01-01", date(2024, 1, 1), datetime(2024, 1, 1), 1704067200, "2024-01-01T00:00:00"]
)
def test_a_moment_is_a_date_a_text_or_a_number(when: object) -> None:
    new_year = 1704067200
    split = log_of([new_year - 20, new_year - 10, new_year - 1, new_year, new_year + 5]).by_time(
        when, valid=0.34, cold=True
    )  # type: ignore[arg-type]
    assert sorted(split.test.times) == [new_year, new_year + 5]
    assert sorted(split.valid.times) == [new_year - 1]


@pytest.mark.parametrize("per_second", [1, 10**3, 10**6, 10**9])
def test_the_unit_of_the_times_is_known_by_their_size(per_second: int) -> None:
    assert as_moment("2024-01-01", 1_700_000_000 * per_second) == 1704067200 * per_second
    assert as_moment("2024-01-01T01:00:00+01:00", 1_700_000_000 * per_second) == 1704067200 * per_second


def test_dates_in_the_file_are_split_by_dates() -> None:
    frame = pl.DataFrame(
        {
            "user": ["a", "a", "a", "b"],
            "item": [1, 2, 3, 1],
            "date": ["2023-05-01", "2023-06-01", "2024-02-01", "2024-03-01"],
        }
    )
    split = Interactions.from_frame(frame).by_time("2024-01-01", valid=0, cold=True)
    assert split.test.frame["item_id"].to_list() == [3, 1]


def test_what_train_does_not_have_is_left_out_of_what_is_held_out_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    frame = pl.DataFrame(
        {"user": ["a", "b", "a", "b", "c", "a"], "item": [1, 2, 2, 1, 1, 9], "time": [0, 1, 10, 11, 12, 13]}
    )
    data = Interactions.from_frame(frame)
    with caplog.at_level(logging.INFO):
        split = data.by_time(10, valid=0)
    assert split.test.frame["user_id"].to_list() == ["a", "b"]
    assert "2 held-out interactions are of users or items not in train" in caplog.text
    assert len(data.by_time(10, valid=0, cold=True).test) == 4
    assert (split.n_users, split.n_items) == (3, 3)


def test_rolling_folds_test_one_window_after_the_other() -> None:
    data = log_of(list(range(20)))
    folds = data.rolling(folds=3, test=0.2, valid=0.25)
    whole = [
        data.by_time(8, valid=0.25, cold=True),
        data.by_time(12, valid=0.25, cold=True),
        data.by_time(16, valid=0.25),
    ]
    for fold, wanted, (first, last) in zip(folds, whole, ((8, 12), (12, 16), (16, 20)), strict=True):
        assert set(fold.test.times) <= set(range(first, last))
        np.testing.assert_array_equal(fold.train.times, wanted.train.times)
        assert len(fold.test) > 0


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"when": 5, "test": 0.2}, "both say where the test begins"),
        ({"test": 1.0}, "test=1.0 must be a share"),
        ({"valid": 1.0}, "valid=1.0 must be a share"),
        ({"when": "last year"}, "'last year' is not a time"),
        ({"when": 99}, "begin at 99, which leaves .* choose a moment between them"),
        ({"when": 0}, "leaves 0 interactions to learn from"),
    ],
)
def test_a_split_that_cannot_be_is_refused(given_: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        log_of(list(range(10))).by_time(**given_)  # type: ignore[arg-type]


def test_without_times_there_is_no_split_by_time() -> None:
    data = Interactions.from_frame(pl.DataFrame({"user": [1, 2], "item": [1, 2]}))
    for split in (data.by_time, data.rolling):
        with pytest.raises(ValueError, match="no times to split by; name the time column"):
            split()


def test_folds_that_leave_nothing_to_learn_from_are_refused() -> None:
    with pytest.raises(ValueError, match=r"5 folds of test=0.2 leave nothing"):
        log_of(list(range(10))).rolling(5, 0.2)
