"""A run whose model is chosen: what it writes down, how it goes on after a stop, and what it says."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from divmf.data.datasets import marketplace
from divmf.data.split import Split
from divmf.engine import comm
from divmf.models.accuracy import valid_ndcg
from divmf.models.auto import choose
from divmf.models.config import TrainConfig
from divmf.train.choosing import ahead_of_others, check_fits
from divmf.train.fitting import fit
from divmf.train.runs import Run

CONFIG = TrainConfig(k=4, diversity_epochs=4)


@pytest.fixture(scope="module")
def split() -> Split:
    return marketplace(users=150, items=70, interactions=2500, seed=2).hold_out(seed=0)


@pytest.fixture(scope="module")
def whole(split: Split, tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run.start(tmp_path_factory.mktemp("whole") / "run", split, CONFIG)
    list(fit(run, split, CONFIG))
    return run


def numbers(run: Run) -> list[dict[str, Any]]:
    """The points of a run without their seconds."""
    points = run.read_curve().points
    return [{key: value for key, value in point.to_json().items() if key != "seconds"} for point in points]


def test_the_run_holds_the_model_that_was_chosen_and_all_that_was_tried(split: Split, whole: Run) -> None:
    choice, found = whole.read_choice(), choose(split, CONFIG.k)
    assert choice is not None
    assert (choice["model"], choice["settings"]) == (found.name, found.settings)
    assert [(row["model"], row["valid_ndcg"]) for row in choice["tried"]] == [(t.name, t.ndcg) for t in found.tried]
    assert ahead_of_others(choice) == pytest.approx(found.ahead)
    expected = whole.read_curve().base.valid["ndcg"]
    assert valid_ndcg(whole.read_scorer(), split, CONFIG.k).mean() == pytest.approx(expected, rel=1e-6)


def test_a_run_stopped_anywhere_ends_with_the_same_points(split: Split, whole: Run, tmp_path: Path) -> None:
    lines = whole.log_file.read_text().splitlines(keepends=True)
    for place, left in enumerate(["scorer", "choice", 0, 1, 3]):
        folder = tmp_path / f"{place}"
        shutil.copytree(whole.folder, folder)
        run = Run.open(folder)
        if left in ("scorer", "choice"):  # stopped before the first point, with or without what was tried
            run.log_file.unlink()
            if left == "scorer":
                run.models_file.unlink()
        else:
            assert isinstance(left, int)
            run.log_file.write_text("".join(lines[:left]))
        list(fit(run, split, CONFIG))
        assert numbers(run) == numbers(whole)
        kept = [Run.open(path).read_chosen(run.read_curve().points[-1]) for path in (folder, whole.folder)]
        assert kept[0] is not None
        assert kept[1] is not None
        np.testing.assert_array_equal(kept[0].lists["all"], kept[1].lists["all"])


def test_one_kind_of_model_has_its_settings_chosen_and_what_is_given_stays(split: Split, tmp_path: Path) -> None:
    for given in ({"model": "ials", "dim": 6}, {"model": "ease", "l2": 50.0}, {"model": "softmax", "dim": 6}):
        config = TrainConfig(k=4, diversity_epochs=1, **given)
        run = Run.start(tmp_path / str(given["model"]), split, config)
        list(fit(run, split, config))
        assert run.read_choice() is not None
        assert {row["model"] for row in run.read_choice()["tried"]} == {given["model"]}
        assert {name: run.read_choice()["settings"][name] for name in given if name != "model"} == {
            name: value for name, value in given.items() if name != "model"
        }


def test_progress_is_told_of_every_trial(split: Split, tmp_path: Path) -> None:
    told: list[str] = []
    config = TrainConfig(k=4, diversity_epochs=0, model="ease")
    run = Run.start(tmp_path / "run", split, config)
    assert [point.phase for point in fit(run, split, config, progress=told.append)] == ["accuracy"]
    assert run.read_choice() is not None
    assert len(told) == len(run.read_choice()["tried"])
    assert told[0].startswith("ease: validation nDCG 0.")


@pytest.mark.parametrize("model", ["auto", "ease", "ials"])
def test_several_processes_are_told_what_they_can_train(
    split: Split, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.setattr(comm, "size", lambda: 2)
    with pytest.raises(ValueError, match=f"model {model} is fitted by one process, and there are 2; .* softmax, bpr"):
        check_fits(split, TrainConfig(model=model))  # type: ignore[arg-type]


def test_a_choice_that_was_tampered_with_is_named(whole: Run, tmp_path: Path) -> None:
    shutil.copytree(whole.folder, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    held = json.loads(run.models_file.read_text())
    for name, value in (("model", "svd"), ("settings", {"l2": "much"}), ("tried", 3)):
        run.models_file.write_text(json.dumps(held | {name: value}))
        with pytest.raises(ValueError, match=rf"models.json is damaged.*{name}"):
            _ = run.read_choice()


def test_the_command_says_what_was_tried_and_by_how_much_the_choice_is_ahead(divmf: Any, tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    marketplace(users=150, items=70, interactions=2500, seed=2).frame.write_csv(path)
    done = divmf("train", path, "-o", tmp_path / "run", "--k", 4, "--diversity-epochs", 2, "--budget", "60s")
    assert done.code == 0
    for name in ("ials", "ease", "softmax"):
        assert any(line.startswith(name) for line in done.out.splitlines())
    assert "chosen: " in done.out
    assert ", the model" in done.out
    again = divmf("train", path, "-o", tmp_path / "run", "--k", 4, "--diversity-epochs", 2, "--budget", "1m", "--json")
    assert again.json["model"]["model"] in ("ials", "ease", "softmax")
    assert again.json["accuracy_epochs"] == 0


def test_a_budget_too_small_for_any_model_is_one_line(divmf: Any, tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    marketplace(users=150, items=70, interactions=2500, seed=2).frame.write_csv(path)
    done = divmf("train", path, "-o", tmp_path / "run", "--budget", "0.0000001s")
    assert done.code == 2
    assert "budget=1e-07 s is too short for any model: the fastest" in done.err
    assert not (tmp_path / "run").exists()
