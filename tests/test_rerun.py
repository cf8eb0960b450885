"""divmf rerun: a run made again from its own folder is the same to the last byte, and what is not is found."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import divmf as library
from divmf.data.split import Split
from divmf.models.ease import ease
from divmf.train.rerun import Check, compared, first_difference, repeat
from divmf.train.runs import Run


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def failures(found: list[Check]) -> list[str]:
    return [f"{check.what}: {check.detail}" for check in found if not check.same]


def test_a_run_repeats_to_the_last_byte_and_stays_as_it_is(run_folder: Path, divmf: Any) -> None:
    before = contents(run_folder)
    done = divmf("rerun", run_folder, "--json")
    assert done.code == 0, done.err
    assert done.json["equal"]
    found = {check["what"]: check for check in done.json["checks"]}
    assert list(found) == ["data", "versions", "epochs.jsonl", "tuned.json", "points", "state.safetensors"]
    n_files = len(list((run_folder / "points").iterdir()))
    assert found["points"]["detail"].startswith(f"{n_files} of {n_files} files byte for byte")
    assert contents(run_folder) == before


def test_points_that_were_added_by_a_choice_are_made_again(run_folder: Path, tmp_path: Path, divmf: Any) -> None:
    assert divmf("pick", run_folder, "--rho", 0.0321).code == 0
    assert divmf("pick", run_folder, "--rho", 0.05).code == 0
    done = divmf("rerun", run_folder, "-o", tmp_path / "again", "--json")
    assert (done.code, done.json["equal"]) == (0, True)
    assert [point.knob for point in Run(tmp_path / "again").read_curve().points][-2:] == [0.0321, 0.05]


def test_what_is_not_the_same_is_named_with_its_place(run_folder: Path, divmf: Any) -> None:
    path = run_folder / "points" / "000.safetensors"
    with safe_open(path, framework="pt") as file:
        about = file.metadata()
    tensors = load_file(path)
    tensors["items"][3, 1] += 0.5
    save_file(tensors, path, about)
    log = run_folder / "epochs.jsonl"
    lines = log.read_text().splitlines()
    row = json.loads(lines[1])
    row["valid"]["gini"] = 0.125
    log.write_text("\n".join([lines[0], json.dumps(row | {"seconds": 99.0}), *lines[2:]]) + "\n")
    done = divmf("rerun", run_folder, "--json")
    assert (done.code, done.json["equal"]) == (1, False)
    found = {check["what"]: check["detail"] for check in done.json["checks"] if not check["equal"]}
    assert list(found) == ["epochs.jsonl", "points", "points/000.safetensors"]
    assert found["epochs.jsonl"].startswith("line 2: valid.gini was 0.125, now 0.")
    assert found["points/000.safetensors"] == "items[3, 1] differs first, by 0.5; at most 0.5"


def test_an_unfinished_run_is_made_as_far_as_it_is(split: Split, tmp_path: Path) -> None:
    from divmf.models.config import TrainConfig
    from divmf.train.fitting import fit

    config = TrainConfig(dim=4, accuracy_epochs=3, diversity_epochs=6, preset="paper")
    run = Run.start(tmp_path / "run", split, config)
    for number, _ in enumerate(fit(run, split, config), 1):
        if number == 5:
            break
    assert len(list(repeat(run, tmp_path / "again"))) == 5
    assert failures(compared(run, Run(tmp_path / "again"))) == []


@pytest.mark.parametrize("kind", ["factors", "scorer"])
def test_a_run_that_began_from_another_model_begins_from_it_again(kind: str, split: Split, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    if kind == "factors":
        users, items = rng.normal(size=(split.n_users, 3)), rng.normal(size=(split.n_items, 3))
        library.diversify(users, items, split, run=tmp_path / "run", diversity_epochs=3)
    else:
        library.diversify(ease(split.train.matrix, 10.0), split, run=tmp_path / "run", diversity_epochs=3)
    run = Run.open(tmp_path / "run")
    for _ in repeat(run, tmp_path / "again"):
        pass
    assert failures(compared(run, Run(tmp_path / "again"))) == []


def test_what_is_not_kept_cannot_be_made_again(split: Split, tmp_path: Path, divmf: Any) -> None:
    scores = np.random.default_rng(0).normal(size=(split.n_users, split.n_items)).astype(np.float32)
    library.diversify(lambda users: scores[users], split, run=tmp_path / "run", diversity_epochs=2)
    done = divmf("rerun", tmp_path / "run")
    assert done.code == 2
    assert "the scores were a function's, which is not kept" in done.err


def test_a_run_is_not_made_again_in_its_own_folder(run_folder: Path, divmf: Any) -> None:
    before = contents(run_folder)
    done = divmf("rerun", run_folder, "-o", Path(os.path.relpath(run_folder)))
    assert (done.code, "is the run itself" in done.err) == (2, True)
    assert contents(run_folder) == before


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ({"a": 1, "seconds": 2}, {"a": 1, "seconds": 3}, ""),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, "a.b[1] was 2, now 3"),
        ({"a": 1}, {"a": 1, "b": 2}, "b is in one of them alone"),
        ([1], [1, 2], " was [1], now [1, 2]"),
        (1, 1.0, ""),
    ],
)
def test_the_first_difference_of_two_documents_is_found(one: Any, other: Any, said: str) -> None:
    assert first_difference(one, other) == said
