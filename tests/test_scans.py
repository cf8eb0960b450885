"""Reading by ranges of users: what each process has is what it would cut out of the whole data."""

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from divmf.data import scans
from divmf.data.datasets import open_data
from divmf.data.interactions import Interactions
from divmf.data.order import blocks_of_users, in_order
from divmf.data.scans import parquet_parts
from divmf.data.split import PARTS, Split
from divmf.engine import comm

EVENTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 7), st.integers(0, 4)), min_size=8, max_size=60)
TYPES = {
    "numbers": (pl.Int64, pl.Int64, pl.Int64), "small": (pl.UInt16, pl.Int8, pl.Float64),
    "words": (pl.String, pl.String, pl.Int32), "dates": (pl.Categorical, pl.Int32, pl.Date),
    "untimed": (pl.Int64, pl.String),
}  # fmt: skip


def write_parts(folder: Path, events: list[tuple[int, int, int]], kind: str, n_parts: int) -> None:
    for old in folder.glob("*.parquet"):
        old.unlink()
    names = ["user_id", "item_id", "timestamp"]
    table = pl.DataFrame(events, schema=names, orient="row")[:, : len(TYPES[kind])]
    texts = [pl.col(name).cast(pl.String) for name, kind in zip(table.columns, TYPES[kind], strict=True)
             if kind in (pl.String, pl.Categorical)]  # fmt: skip
    table = table.with_columns(texts).cast(dict(zip(table.columns, TYPES[kind], strict=True)))
    for part in range(n_parts):
        first, last = (len(table) * edge // n_parts for edge in (part, part + 1))
        table[first:last].write_parquet(folder / f"part-{part}.parquet")


def assert_same(one: Interactions, other: Interactions) -> None:
    assert_frame_equal(one.frame, other.frame)
    for name in ("user_ids", "item_ids"):
        assert getattr(one, name).to_list() == getattr(other, name).to_list()
    assert one.share == other.share


@given(EVENTS, st.sampled_from(list(TYPES)), st.integers(1, 3), st.integers(1, 4), st.integers(0, 3), st.integers(0, 2))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_share_is_what_would_be_cut_out_of_the_whole(tmp_path, processes, events, kind, size, n_parts, k, seed):
    write_parts(tmp_path, events, kind, n_parts)
    whole = Interactions.from_frame(pl.read_parquet(tmp_path / "*.parquet"))
    assume(whole.n_users >= size)

    def split_of(data: Interactions) -> Split | str:
        try:
            return data.k_core(k).leave_one_out(seed)
        except ValueError as error:
            return str(error)

    shares = processes(size).run(lambda: (data := Interactions.read_share(tmp_path), split_of(data)))
    assert sum(data.merged for data, _ in shares) == whole.merged
    cut = 0
    for data, _ in shares:
        expected = whole.users_between(cut, cut + data.n_users) if size > 1 else whole
        assert_same(data, expected)
        cut += data.n_users
    assert cut == whole.n_users
    expected_split, cut = split_of(whole), 0
    for _, split in shares:
        if isinstance(expected_split, str):
            assert split == expected_split
            continue
        for name in PARTS:
            part, of_whole = getattr(split, name), getattr(expected_split, name)
            assert_same(part, of_whole.users_between(cut, cut + split.n_users) if size > 1 else of_whole)
        cut += split.n_users


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 9))
def test_blocks_hold_whole_users_and_together_all_rows(counts, rows):
    ends = np.cumsum(counts)
    found = list(blocks_of_users(ends, rows))
    assert [place for block in found for place in range(block.start, block.stop)] == list(range(sum(counts)))
    assert all(block.stop in ends and block.stop > block.start for block in found)
    assert all(block.stop - block.start < rows + max(counts) for block in found)


@given(EVENTS, st.booleans(), st.integers(1, 20))
def test_rows_are_ordered_in_blocks_as_they_are_all_together(events, timed, rows):
    users, items, times = np.array(events, dtype=np.int32).T
    together = in_order(users, items, times.astype(np.int64) if timed else None, (10, 8))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("divmf.data.order.blocks_of_users", lambda ends: blocks_of_users(ends, rows))
        in_blocks = in_order(users, items, times.astype(np.int64) if timed else None, (10, 8))
    for one, other in zip(together, in_blocks, strict=True):
        np.testing.assert_array_equal(one, other)


def test_ranges_of_many_users_are_cut_by_a_sample_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(scans, "ENOUGH", 50)
    users = np.random.default_rng(0).permutation(np.repeat(np.arange(3000) ** 2, 2))
    pl.DataFrame({"user_id": users, "item_id": np.arange(len(users))}).write_parquet(tmp_path / "log.parquet")
    asked: list[int] = []
    distinct = scans.Scan.distinct

    def counted(self: scans.Scan, files: pl.LazyFrame, role: str) -> pl.Series:
        found = distinct(self, files, role)
        asked.append(len(found))
        return found

    monkeypatch.setattr(scans.Scan, "distinct", counted)
    monkeypatch.setattr(comm, "size", lambda: 3)
    monkeypatch.setattr(scans, "SMALL", 600)
    begins = scans.Scan.of([tmp_path / "log.parquet"], None, None, None).first_ids(6000)
    assert 200 < asked[0] < 400  # a tenth of the users
    assert len(asked) == 1
    assert np.sqrt(begins[1:]) == pytest.approx([1000, 2000], abs=200)  # a process would have 800 … 1,200 users


@given(st.lists(st.integers(0, 30), min_size=1), st.integers(1, 10), st.integers(1, 5))
def test_distinct_ids_are_found_in_batches_of_any_size(users, many, size):
    files = pl.LazyFrame({"user_id": users, "item_id": users})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scans, "MANY", many)
        batches = [pl.DataFrame({"user_id": users[first : first + size]}) for first in range(0, len(users), size)]
        patch.setattr(pl.LazyFrame, "collect_batches", lambda self, engine: iter(batches))
        found = scans.Scan(files, {"user": "user_id"}, files.collect_schema()).distinct(files, "user")
    assert found.to_list() == sorted(set(users))
    assert found.name == "user_id"


def test_no_rows_hold_no_ids():
    files = pl.LazyFrame({"user_id": ["a"], "item_id": ["b"]})
    scan = scans.Scan(files, {"user": "user_id"}, files.collect_schema())
    assert scan.distinct(files.filter(pl.col("user_id") == "c"), "user").equals(pl.Series("user_id", [], pl.String))


def test_a_folder_a_pattern_and_one_file_are_read_alike(tmp_path):
    folder = tmp_path / "log [1]"
    (folder / "day=2").mkdir(parents=True)
    (folder / "_temporary").mkdir()
    table = pl.DataFrame({"user_id": [3, 1, 2, 1], "item_id": ["a", "b", "a", "c"], "timestamp": [4, 3, 2, 1]})
    table.write_parquet(tmp_path / "all.parquet")
    table[:1].write_parquet(folder / "0.parquet")
    table[1:].write_parquet(folder / "day=2" / "1.parquet")
    table[:0].write_parquet(folder / "day=2" / "2.parquet")
    (folder / "_temporary" / "3.parquet").write_text("half a file")
    expected = Interactions.from_frame(table)
    for name in (tmp_path / "all.parquet", folder, tmp_path / "log*/**/[0-2].parquet"):
        assert_same(open_data(str(name)), expected)
    assert parquet_parts(folder) == [folder / name for name in ("0.parquet", "day=2/1.parquet", "day=2/2.parquet")]


def test_what_cannot_be_read_together_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match=r"none\*\.parquet: no file fits this pattern"):
        open_data(str(tmp_path / "none*.parquet"))
    (tmp_path / "a.csv").write_text("user_id,item_id\n1,2\n")
    with pytest.raises(ValueError, match=r"a\.csv is not a parquet file; only those are read together by a pattern"):
        open_data(str(tmp_path / "*.csv"))
    (tmp_path / "parts").mkdir()
    with pytest.raises(ValueError, match="is a folder without parquet files"):
        open_data(str(tmp_path / "parts"))
    pl.DataFrame({"user_id": [1], "item_id": [2]}).write_parquet(tmp_path / "parts" / "0.parquet")
    pl.DataFrame({"user_id": ["x"], "item_id": [2]}).write_parquet(tmp_path / "parts" / "1.parquet")
    with pytest.raises(ValueError, match=r"parts: could not be read as parquet: .*all parts have the same columns"):
        open_data(str(tmp_path / "parts"))


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"user_id": [1, None], "item_id": [1, 2]}, "column 'user_id' has 1 empty ids of 2"),
        ({"user_id": [1, 2], "item_id": ["", "x"]}, "column 'item_id' has 1 empty ids of 2"),
        ({"user_id": [1.5, 2], "item_id": [1, 2]}, r"column 'user_id' holds Float64 \(such as 1.5\)"),
        ({"user_id": [1, 2], "item_id": [1, 2], "time": ["2024-01-01", "soon"]},
         r"1 values that are not times \(such as 'soon'\)"),
        ({"user_id": [1, 2], "item_id": [1, 2], "time": [1.0, float("nan")]}, "has 1 empty times of 2"),
        ({"user_id": [1, 2], "item_id": [1, 2], "time": [True, False]}, "holds Boolean, not times"),
        ({"user_id": [], "item_id": []}, "there are no rows"),
        ({"who": [1], "item_id": [1]}, "no column looks like the user"),
    ],
)  # fmt: skip
def test_errors_are_those_of_a_frame(tmp_path, table, problem):
    frame = pl.DataFrame(table, strict=False)
    with pytest.raises(ValueError, match=problem) as of_frame:
        Interactions.from_frame(frame)
    frame.write_parquet(tmp_path / "log.parquet")
    with pytest.raises(ValueError, match=problem) as of_file:
        Interactions.read(tmp_path / "log.parquet")
    assert str(of_file.value) == f"{tmp_path / 'log.parquet'}: {of_frame.value}"


def test_text_times_are_taken_for_numbers_only_if_all_of_them_are(tmp_path, processes):
    """Decided for the whole column: one process may have numbers alone."""
    table = pl.DataFrame({"user_id": [1, 1, 2, 2], "item_id": [1, 2, 3, 4], "time": ["20240101", "20240102", "x", "y"]})
    table.write_parquet(tmp_path / "log.parquet")
    with pytest.raises((ValueError, threading.BrokenBarrierError), match="not times"):
        processes(2).run(lambda: Interactions.read_share(tmp_path / "log.parquet"))


def test_more_processes_than_users_are_refused(tmp_path, processes):
    pl.DataFrame({"user_id": [1, 2], "item_id": [1, 2]}).write_parquet(tmp_path / "log.parquet")
    with pytest.raises(ValueError, match="2 users cannot be shared by 3 processes; start fewer"):
        processes(3).run(lambda: Interactions.read_share(tmp_path / "log.parquet"))


def test_a_pipe_is_not_waited_for(tmp_path: Path, divmf: Any) -> None:
    # a FIFO that nobody writes to, in a folder or by its name, was waited for for ever
    (tmp_path / "log").mkdir()
    for name in ("log/a.parquet", "a.csv", "a.parquet", "ratings.dat"):
        os.mkfifo(tmp_path / name)
    for call in (
        ["data", "describe", tmp_path / "log"],
        ["data", "describe", tmp_path / "a.csv"],
        ["data", "describe", tmp_path / "a.parquet"],
        ["train", tmp_path / "a.csv", "-o", tmp_path / "run", "--split-column", "split"],
        ["evaluate", tmp_path / "a.csv", "--test", tmp_path / "a.csv", "--catalog", tmp_path / "a.csv"],
        ["audit", tmp_path / "a.parquet", "--catalog", tmp_path / "ratings.dat", "-o", tmp_path / "r.html"],
    ):
        done = divmf(*call)
        assert done.code == 2
        assert "pipe" in done.err or "unknown kind of file" in done.err


def test_a_folder_of_everything_is_refused_after_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # `train .` in a home folder looked for parquet files for ever
    monkeypatch.setattr("divmf.data.scans.MOST_NAMES", 20)
    for number in range(21):
        (tmp_path / f"{number}.txt").touch()
    with pytest.raises(ValueError, match="holds more than 20 files; name the folder of parquet parts itself"):
        parquet_parts(tmp_path)


def test_a_folder_that_is_called_like_a_file_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").mkdir()
    log = pl.DataFrame({"user_id": [1, 2], "item_id": [3, 4]})
    log.write_parquet(tmp_path / "x.parquet" / "part-0.parquet")
    assert parquet_parts(tmp_path) == [tmp_path / "x.parquet" / "part-0.parquet"]
    assert Interactions.read(tmp_path).merged == 0
