"""An output replaces an earlier one of its kind, and nothing else: no run, no input, no file of anybody's."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from divmf.data.outputs import OF_RUN, protect
from divmf.engine import files
from divmf.estimator import load


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", [*OF_RUN[:-1], "points/000.safetensors", "points/new.csv", "points/000.json"])
def test_no_command_writes_over_a_file_of_a_run(run_folder: Path, divmf: Any, name: str) -> None:
    # `recommend run -o run/config.json` destroyed the run
    before = contents(run_folder)
    for command in ("recommend", "curve"):
        done = divmf(command, run_folder, "-o", run_folder / name)
        assert done.code == 2
        assert str(run_folder / name) in done.err
    assert contents(run_folder) == before


def test_no_command_writes_over_what_it_reads(run_folder: Path, tmp_path: Path, divmf: Any) -> None:
    wide, train = tmp_path / "wide.parquet", tmp_path / "train.csv"
    assert divmf("recommend", run_folder, "-o", wide, "--k", 20).code == 0
    pl.DataFrame({"user_id": ["u00001"], "item_id": ["i00001"], "score": [1], "rank": [1]}).write_csv(train)
    before = contents(tmp_path)
    for output in (wide, train):
        done = divmf("rerank", wide, "--method", "bayes_rule", "--train", train, "-o", output)
        assert (done.code, done.err) == (2, f"divmf: {output} is read by this command; choose another place with -o\n")
    (tmp_path / "link.csv").symlink_to(train)
    assert divmf("rerank", wide, "--method", "bayes_rule", "--train", train, "-o", tmp_path / "link.csv").code == 2
    (tmp_path / "link.csv").unlink()
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("letter.csv", b"Dear Ann,\n"),
        ("users.parquet", None),
        ("notes.jsonl", b'{"text": "mine"}\n'),
        ("other.tsv", b"user_id,item_id,score,rank\n"),
        ("binary.csv", b"\xff\xfe\x00"),
    ],
)
def test_no_command_writes_over_a_file_that_is_not_an_earlier_output(
    run_folder: Path, tmp_path: Path, divmf: Any, name: str, content: bytes | None
) -> None:
    path = tmp_path / name
    if content is None:
        pl.DataFrame({"user_id": [1]}).write_parquet(path)
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    done = divmf("recommend", run_folder, "-o", path)
    assert done.code == 2
    assert f"{path} is there already and is not an earlier output of this command" in done.err
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["lists.csv", "lists.tsv", "lists.parquet", "lists.jsonl"])
def test_an_earlier_output_is_replaced(run_folder: Path, divmf: Any, name: str) -> None:
    for place in (run_folder, run_folder.parent):  # in the folder of the run too, beside what is the run's
        (place / name).touch()  # as of mktemp
        assert divmf("recommend", run_folder, "-o", place / name).code == 0
        first = (place / name).read_bytes()
        assert divmf("recommend", run_folder, "-o", place / name, "--epoch", 0).code == 0
        assert (place / name).read_bytes() != first


@pytest.mark.parametrize("name", ["c.csv", "c.parquet", "c.html", "c.png", "c.svg", "c.json"])
def test_a_curve_replaces_a_curve_and_no_other_file(run_folder: Path, tmp_path: Path, divmf: Any, name: str) -> None:
    for _ in range(2):
        assert divmf("curve", run_folder, "-o", tmp_path / name).code == 0
    (tmp_path / name).write_text("<p>mine</p>" if name == "c.html" else "mine")
    assert divmf("curve", run_folder, "-o", tmp_path / name).code == 2


def test_outputs_of_several_files_are_protected_too(run_folder: Path, tmp_path: Path, divmf: Any) -> None:
    for folder, name in (("c", "report.html"), ("c", "matched.csv"), ("s", "train.parquet"), ("s", "catalog.parquet")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text("mine")
        command = ["compare", run_folder] if folder == "c" else ["data", "split", "synthetic:60x40x900"]
        assert divmf(*command, "-o", tmp_path / folder).code == 2
        assert contents(tmp_path / folder) == {name: b"mine"}
        shutil.rmtree(tmp_path / folder)
    assert divmf("data", "split", "synthetic:60x40x900", "-o", tmp_path / "s").code == 0
    assert divmf("data", "split", tmp_path / "s", "-o", tmp_path / "s").code == 2
    assert divmf("data", "split", "synthetic:60x40x900", "-o", tmp_path / "s").code == 0


def test_an_output_does_not_become_a_part_of_the_data(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    with pytest.raises(ValueError, match=r"would be a part of .*events, which this command reads"):
        protect(tmp_path / "events" / "lists.parquet", [tmp_path / "events"])


@pytest.mark.parametrize(
    "arguments",
    [["train", "", "-o", "run"], ["train", "synthetic", "-o", ""], ["recommend", "", "-o", "x.csv"], ["pick", ""]],
)
def test_an_empty_argument_is_not_the_current_folder(
    divmf: Any, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `train "$UNSET"` read whatever lay around
    monkeypatch.chdir(tmp_path)
    done = divmf(*arguments)
    assert done.code == 2
    assert f"argument {arguments.index('') + 1} is empty, as of a variable that is not set" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_model_is_saved_over_a_model_and_over_nothing_else(run_folder: Path, tmp_path: Path) -> None:
    # what strangers had put into the folder was deleted with it
    model, folder = load(run_folder), tmp_path / "model"
    model.save(folder)
    first = contents(folder)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"model also holds notes\.txt, which is not of a saved model"):
        model.save(folder)
    assert contents(folder) == first | {"notes.txt": b"mine"}
    (folder / "notes.txt").unlink()
    (folder / "model.json").write_text("{}")
    model.save(folder)
    assert contents(folder) == first
    assert {path.name for path in tmp_path.iterdir()} == {"run", "model"}
    with pytest.raises(ValueError, match="is the folder you are in"):
        model.save("")


@pytest.mark.parametrize("can", [True, False])
def test_folders_change_places(tmp_path: Path, can: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not can:
        monkeypatch.setattr(files, "exchanged", lambda one, other: False)
    for name in ("made", "folder"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    files.put_folder(tmp_path / "made", tmp_path / "folder")
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["folder", "folder/made"]


KILLED = """
import os, signal, sys
from pathlib import Path
from divmf.engine import files
from divmf.estimator import load
at, run, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
step = 0
def counted(function):
    def call(*arguments, **named):
        global step
        step += 1
        if step == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)
    return call
for place, name in ((Path, "rename"), (Path, "replace"), (files, "exchanged"), (files.shutil, "rmtree")):
    setattr(place, name, counted(getattr(place, name)))
model = load(run)
step = 0
model.save(folder)
"""


@pytest.mark.slow
def test_a_model_killed_while_it_is_saved_is_the_one_before_or_the_new_one(run_folder: Path, tmp_path: Path) -> None:
    load(run_folder).save(tmp_path / "model")
    for at in range(1, 20):
        command = [sys.executable, "-c", KILLED, str(at), str(run_folder), str(tmp_path / "model")]
        code = subprocess.run(command, env=os.environ, check=False).returncode
        assert load(tmp_path / "model").lists().width == 5
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert at > 4
    assert {path.name for path in tmp_path.iterdir()} == {"run", "model"}
