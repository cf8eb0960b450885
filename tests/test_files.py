"""Files of ours: whole or not at all, on disk before they have their name, and nobody meets in a temporary one."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from divmf.engine import files
from divmf.engine.files import append_line, names, read_json, replacing, write_json


@pytest.mark.parametrize("torn", ["", '{"phase": "diver', '{"phase": "diversity"}'])
def test_a_line_is_added_behind_whole_lines_alone(tmp_path: Path, torn: str) -> None:
    # half a line of a full disk and the next one became one line that nobody could read
    path = tmp_path / "epochs.jsonl"
    path.write_text("one\ntwo\n" + torn)
    append_line(path, "three")
    assert path.read_text() == "one\ntwo\nthree\n"


def test_a_line_that_finds_no_room_leaves_the_lines_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "epochs.jsonl"
    path.write_text("one\n")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"epochs.jsonl could not be written: No space left on device"):
        append_line(path, "two")
    assert path.read_text() == "one\n"


def test_what_is_renamed_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(files, "to_disk", lambda path: done.append("folder" if path.is_dir() else path.read_text()))
    rename = Path.replace
    monkeypatch.setattr(Path, "replace", lambda old, new: (done.append("renamed"), rename(old, new))[1])
    write_json(tmp_path / "a.json", 1)
    assert done == ["1\n", "renamed", "folder"]


def test_two_who_write_one_file_do_not_share_a_temporary_name(tmp_path: Path) -> None:
    path = tmp_path / "lists.csv"
    with replacing(path) as one, replacing(path) as other:
        one.write_text("one")
        other.write_text("other")
        assert one != other
    assert path.read_text() == "one"
    assert [each.name for each in tmp_path.iterdir()] == ["lists.csv"]


def test_what_killed_calls_left_goes_with_the_next_and_what_others_write_stays(tmp_path: Path) -> None:
    path = tmp_path / "a[1].json"  # a name is no pattern
    dead, living = tmp_path / ".a[1].json.999999999-ab.tmp", tmp_path / f".a[1].json.{os.getppid()}-ab.tmp"
    strangers = tmp_path / ".a[1].json.note-of-mine.tmp"
    for each in (dead, living, strangers):
        each.write_text("half")
    write_json(path, 1)
    assert not dead.exists()
    assert living.exists()
    assert strangers.exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "Expecting property name"),
        (b"\xff\xfe", "not text"),
        (b"[" * 100_000, "recursion"),
        (b"9" * 5000, "digits"),
    ],
)
def test_what_is_not_json_is_an_error_that_names_the_file(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ValueError, match=rf"a\.json is damaged \(.*{said}.*\); remove the run folder"):
        read_json(tmp_path / "a.json")


def test_the_panic_of_a_writer_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    panic: Any = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})
    with pytest.raises(OSError, match=r"a could not be written: no room; what was there"), replacing(tmp_path / "a"):
        raise panic("no room\nmany lines")
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "a"):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("column 'a' is odd. Name it", ".", False), ("a.csv holds nothing", "a.csv", True),
        ("b/a.csv is bad", "a.csv", False), ("a.csv.gz is bad", "a.csv", False),
        ("parts/1.parquet is bad", "parts", True), ("the partsman", "parts", False),
        ("it is in a.csv", "a.csv", False), ("a.csv: no rows", "a.csv", True),
    ],
)  # fmt: skip
def test_a_text_names_a_path_or_only_holds_its_letters(text: str, path: str, expected: bool) -> None:
    # `divmf train .` named no file: the full stop of the sentence was taken for the folder
    assert names(text, path) is expected
