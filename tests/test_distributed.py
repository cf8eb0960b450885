"""Several processes, started by torchrun as anyone would: they give what one gives, and losing one loses nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import distributed_work as work
from divmf.data.datasets import marketplace
from divmf.engine import comm
from divmf.ranking.retrieval import recommend
from divmf.train.runs import Run

EXACT_RUNS = ("softmax and market",)  # of these every bit is the same
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "DIVMF_THREADS": "1", "NUMBA_NUM_THREADS": "1"}


def torchrun(size: int, *arguments: Any) -> list[str]:
    """A command; a free port is found by `--standalone`."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
    return [*start, *map(str, arguments)]


def run_together(size: int, *arguments: Any) -> str:
    """Run to the end; stdout."""
    done = subprocess.run(
        torchrun(size, *arguments), env=os.environ | ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """A folder with all that so many processes made of it; they are started once for several tests."""
    folders: dict[int, Path] = {}
    has_data = (Path(os.environ.get("DIVMF_DATA", "")) / "ml-100k.parquet").exists()

    def folder_of(size: int) -> Path:
        if size not in folders:
            folders[size] = tmp_path_factory.mktemp(f"of-{size}")
            run_together(size, work.__file__, folders[size], *(["ml-100k"] if has_data else []))
        return folders[size]

    return folder_of


@pytest.fixture(scope="module")
def alone() -> dict[str, list[np.ndarray]]:
    return work.single_steps()


SEVERAL = pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])


@SEVERAL
def test_single_steps_are_those_of_one_process(
    size: int, alone: dict[str, list[np.ndarray]], done: Callable[[int], Path]
) -> None:
    with np.load(done(size) / "steps.npz") as found:
        assert {name.rpartition("/")[0] for name in found} == alone.keys()
        for name, arrays in alone.items():
            for number, expected in enumerate(arrays):
                there = found[f"{name}/{number}"]
                if name in work.EXACT and number:  # the first is a loss, summed in another order
                    assert_array_equal(there, expected, err_msg=name)
                else:
                    close = (
                        1e-8 if "an epoch" in name else 1e-10
                    )  # many steps of Adam, each on what the one before left
                    assert_allclose(there, expected, rtol=close, atol=1e-12, err_msg=name)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the threads in /proc")
@SEVERAL
def test_no_thread_of_the_group_outlives_it(size: int, done: Callable[[int], Path]) -> None:
    # one that did aborted the process while it ended: `terminate called without an active exception`, exit −6
    for rank in range(size):
        assert json.loads((done(size) / f"threads-{rank}.json").read_text()) == []


def assert_same_curve(one: Run, other: Run, exact: bool = False) -> None:
    """Losses and metrics, the weights of every point that may be chosen, and its lists."""
    assert len(one.read_curve()) == len(other.read_curve()) > 3
    split = one.read_split()
    # what a tie can change; where passes are exact, there are none
    one_place = 0.0 if exact else 1 / min(split.n_users, split.n_items)
    for mine, theirs in zip(one.read_curve().points, other.read_curve().points, strict=True):
        assert (mine.phase, mine.epoch) == (theirs.phase, theirs.epoch)
        for value, same in ((mine.loss, theirs.loss), (mine.knob, theirs.knob), (mine.gap, theirs.gap)):
            assert value is same is None or value == pytest.approx(same, rel=1e-5)
        for part in ("valid", "test"):
            found, expected = getattr(mine, part), getattr(theirs, part)
            for metric, value in expected.items():
                # of the mean popularity, one slot of one list is worth what an item can be
                unit = split.train.popularity.max() / 5 if metric == "popularity" else 1.0
                assert found[metric] == pytest.approx(value, rel=1e-5, abs=unit * one_place), metric
            assert found.keys() == expected.keys()
    for mine, theirs in zip(one.read_curve().operating, other.read_curve().operating, strict=True):
        models = one.read_model(mine), other.read_model(theirs)
        for table, same in zip(*(model.tensors().values() for model in models), strict=True):
            # Adam makes a whole step even of a gradient next to nothing, whose sign is a matter of rounding, and the
            # other rows follow
            apart = (same - table).abs() > 1e-4 * table.abs() + 1e-5 * table.abs().max()
            assert apart.double().mean() < 1e-3
            assert_allclose(same.numpy(), table.numpy(), rtol=0, atol=0.01)  # a few steps
        (items, scores), (others, their_scores) = (recommend(model, split.train.matrix, 5) for model in models)
        tied = np.abs(scores - their_scores) <= 1e-5 * np.abs(scores).max()
        # rows that are apart by whole steps may have another item: as few slots as rows; none where passes are exact
        wrong = (items != others) & ~tied
        assert wrong.mean() < (1e-12 if exact else 5e-4)
        assert (items == others).mean() > 0.999


def check_curves(folders: dict[int, Path]) -> None:
    """Each kind of run by one process, and by several."""
    for name in work.CURVES:
        one, *others = (Run.open(folder / name.replace(" ", "-")) for folder in folders.values())
        for several in others:
            assert_same_curve(one, several, name in EXACT_RUNS)
            there, here = (json.loads(run.config_file.read_text())["data"] for run in (one, several))
            assert there == here
            if name in EXACT_RUNS:  # exact passes alone: every bit
                for file in ("ids.parquet", "interactions.parquet"):  # polars cuts its groups of rows as it likes
                    assert pl.read_parquet(one.folder / file).equals(pl.read_parquet(several.folder / file)), file
                for file in ("state.safetensors", *(f"points/{each.name}" for each in one.folder.glob("points/*"))):
                    assert (one.folder / file).read_bytes() == (several.folder / file).read_bytes(), file


@SEVERAL
def test_curves_on_ml_100k_are_those_of_one_process(
    size: int, tmp_path: Path, real: Callable[[str], Path], done: Callable[[int], Path]
) -> None:
    real("ml-100k.parquet")
    work.curves(tmp_path, "ml-100k")
    check_curves({1: tmp_path, size: done(size)})


RULES = """
[capacity]
count = 18
[groups.seller]
floor = 46
per_list = 1
[groups.kind]
floor = 190
"""


def test_lists_that_keep_rules_are_those_of_one_process(tmp_path: Path, divmf: Any) -> None:
    """Floors of nine tenths of all slots, so that there is something to be filled and mended."""
    data = marketplace(300, 120, 4000, seed=3)
    data.frame.write_parquet(tmp_path / "events.parquet")
    sellers, kinds = ([f"{name}{number % n}" for number in range(120)] for name, n in (("s", 30), ("k", 7)))
    items = pl.DataFrame({"item_id": data.item_ids, "seller": sellers, "kind": kinds})
    items.write_parquet(tmp_path / "items.parquet")
    (tmp_path / "rules.toml").write_text(RULES)
    settings = "--model softmax --accuracy-epochs 2 --dim 8 --diversity-epochs 2 --device cpu --l2 4 -q"
    call: list[Any] = ["train", tmp_path / "events.parquet", *settings.split()]
    call += ["--rules", tmp_path / "rules.toml", "--catalog", tmp_path / "items.parquet", "-o"]
    assert divmf(*call, tmp_path / "1").code == 0
    run_together(2, "-m", "divmf", *call, tmp_path / "2")
    one, two = (Run.open(tmp_path / name) for name in "12")
    points = [point for point in one.read_curve().points if point.knob is not None]
    assert len(points) > 1
    bound = one.read_rules()
    assert bound is not None
    for point in points:
        lists, same = (run.read_chosen(point).lists for run in (one, two))  # type: ignore[union-attr]
        for kind, made in lists.items():
            assert_array_equal(same[kind], made)
            counts = bound.counted(made)
            assert (counts >= bound.low).all()
            assert (counts <= bound.high).all()


@pytest.mark.slow
def test_curves_on_epinions_15_are_those_of_one_process(tmp_path: Path, real: Callable[[str], Path]) -> None:
    real("epinions.parquet")
    folders = {size: tmp_path / str(size) for size in (1, 2, 3)}
    for size, folder in folders.items():
        folder.mkdir()
        if size == 1:
            work.curves(folder, "epinions-15")
        else:
            run_together(size, work.__file__, folder, "epinions-15")
    check_curves(folders)


def workers_of(agent: int) -> dict[int, int]:
    """The processes that torchrun has started: rank → process id."""
    found = {}
    for child in Path(f"/proc/{agent}/task/{agent}/children").read_text().split():
        variables = Path(f"/proc/{child}/environ").read_bytes().decode(errors="replace").split("\0")
        found |= {int(value[5:]): int(child) for value in variables if value.startswith("RANK=")}
    return found


def killed(command: list[str], run: Path, phase: str, rank: int) -> tuple[int, str]:
    """Start a command, kill one of its processes in the middle of a phase: exit code, stderr."""
    started = subprocess.Popen(command, env=os.environ | ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    lines, log_file = 0, run / "epochs.jsonl"
    while lines < 2 and started.poll() is None:
        lines = log_file.read_text().count(f'"phase": "{phase}"') if log_file.exists() else 0
        time.sleep(0.02)
    os.kill(workers_of(started.pid)[rank], signal.SIGKILL)
    _, errors = started.communicate(timeout=600)  # the others do not wait for the one that is gone
    return started.returncode, errors


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the processes in /proc")
def test_a_process_killed_in_either_phase_ends_the_run_and_the_same_command_goes_on(tmp_path: Path, divmf: Any) -> None:
    marketplace(users=300, items=120, interactions=4000, seed=2).frame.write_parquet(tmp_path / "log.parquet")
    settings = ["--preset", "paper", "--learning-rate", 0.01, "--accuracy-epochs", 15, "--patience", 15]
    settings += ["--diversity-epochs", 15, "-q"]
    command = ["-m", "divmf", "train", tmp_path / "log.parquet", "-o", tmp_path / "cut", *settings]
    code, errors = killed(torchrun(2, *command), tmp_path / "cut", "accuracy", 1)
    assert code == 1
    assert errors.count("divmf: another process of this run was lost") == 1
    assert "the same command goes on" in errors
    assert not [path for path in (tmp_path / "cut").rglob("*.tmp") if "shared" not in path.name]
    before = len(Run.open(tmp_path / "cut").read_curve())
    assert 2 <= before < 15
    # another number of processes goes on, and torchrun starts them again where one is killed
    code, errors = killed(torchrun(3, "--max-restarts", 1, *command), tmp_path / "cut", "diversity", 0)
    assert code == 0, errors
    assert errors.count("divmf: ") == 1
    assert divmf("train", *command[3:4], "-o", tmp_path / "whole", *settings).code == 0
    cut, whole = Run.open(tmp_path / "cut"), Run.open(tmp_path / "whole")
    assert_same_curve(whole, cut)
    assert cut.read_picked().epoch == whole.read_picked().epoch


def test_work_for_one_process_is_refused_by_several(divmf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comm, "launched", lambda: 2)
    monkeypatch.setattr(comm, "speaks_for_all", lambda: True)
    done = divmf("curve", "run")
    assert done.code == 2
    assert done.err == "divmf: `divmf curve` is work for one process; call it without torchrun\n"


def test_alone_nothing_is_sent_and_everything_comes_back() -> None:
    array = np.arange(3.0)
    assert (comm.size(), comm.rank(), comm.first(), comm.launched()) == (1, 0, True, 1)
    assert comm.row_range(7) == (0, 7, 7, 1)
    assert comm.total(array).tolist() == [0, 1, 2]
    assert comm.shared("a") == "a"
    assert comm.all_gather("a") == ["a"]
    assert comm.gathered_rows(array)[0].tolist() == [0, 1, 2]
    found = comm.total_of_parts([np.float32([1, 2]), np.float32([3, 4])], np.zeros(2, dtype=np.float32))
    assert found.tolist() == [4, 6]
    assert found.dtype == np.float32


def test_data_that_is_not_shared_out_is_refused_by_several(monkeypatch: pytest.MonkeyPatch, split: Any) -> None:
    from divmf.models.config import TrainConfig
    from divmf.train.choosing import check_fits

    monkeypatch.setattr(comm, "size", lambda: 2)
    with pytest.raises(ValueError, match=r"split\.of_process"):
        check_fits(split, TrainConfig(model="softmax", l2=8.0))
