"""Runs: schedules, early stopping, and that a run stopped anywhere ends as one never stopped."""

import json
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from divmf.data.datasets import marketplace
from divmf.data.split import Split
from divmf.models.config import TrainConfig, TrainingDiverged
from divmf.ranking.curve import Point
from divmf.train import tuning
from divmf.train.fitting import Training, converged, fit, measure_both
from divmf.train.runs import Run

SHARED: dict[str, Any] = {"k": 3, "dim": 8, "accuracy_epochs": 6, "diversity_epochs": 5}
SETTINGS: dict[str, Any] = SHARED | {"model": "bpr", "method": "divmf", "unmask": 10, "patience": 2,
                                     "learning_rate": 0.02, "diversity_rate": 0.01}  # fmt: skip
MARKET: dict[str, Any] = SHARED | {"l2": 2.0, "learning_rate": 0.2}
MIXED: dict[str, Any] = SETTINGS | {"method": "market"}
OTHER: dict[str, Any] = MARKET | {"method": "divmf", "unmask": 10, "diversity_rate": 0.01}
every_way = pytest.mark.parametrize(
    "settings", [SETTINGS, MARKET, MIXED, OTHER], ids=["bpr divmf", "softmax market", "bpr market", "softmax divmf"]
)


def finished(folder: Path, split: Split, config: TrainConfig) -> Run:
    run = Run.start(folder, split, config)
    for _ in fit(run, split, config):
        pass
    return run


def numbers(run: Run) -> list[Any]:
    """All that a run says, but for how long it took."""
    rows = [point.to_json() for point in run.read_curve().points]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


@every_way
def test_the_accuracy_phase_comes_first_and_its_best_weights_are_restored(
    tmp_path: Path, split: Split, settings: dict[str, Any]
) -> None:
    run = finished(tmp_path / "run", split, TrainConfig(**settings))
    phases = [point.phase for point in run.read_curve().points]
    assert phases == sorted(phases)  # "accuracy" before "diversity"
    assert phases.count("diversity") == 5
    base = run.read_curve().base
    accuracy = [point for point in run.read_curve().points if point.phase == "accuracy"]
    assert base.valid["ndcg"] == max(point.valid["ndcg"] for point in accuracy)
    again = Training(run, split, run.read_config(), run.read_model(base), {}, [])
    assert measure_both(again.model, split, 3) == (base.valid, base.test)


@pytest.mark.parametrize(
    ("history", "done"),
    [([], False), ([0.1], False), ([0.1, 0.2, 0.1], False), ([0.1, 0.2, 0.1, 0.2], True), ([0.1] * 3, True),
     ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], True)],
)  # fmt: skip
def test_accuracy_has_converged_after_patience_epochs_without_a_better_one(history: list[float], done: bool) -> None:
    points = [Point("accuracy", epoch, {"ndcg": value}, {}) for epoch, value in enumerate(history, 1)]
    config = TrainConfig(model="bpr", patience=2, accuracy_epochs=6)
    assert converged(Training(None, None, config, None, {}, points)) is done  # type: ignore[arg-type]
    # the step size of the softmax goes to zero, so it goes on to its end
    config = TrainConfig(patience=2, accuracy_epochs=6)
    assert converged(Training(None, None, config, None, {}, points)) is (len(history) == 6)  # type: ignore[arg-type]


def test_alternating_takes_turns(tmp_path: Path, split: Split) -> None:
    run = finished(
        tmp_path / "run", split, TrainConfig(**SETTINGS | {"schedule": "alternating", "diversity_epochs": 3})
    )
    assert [(point.phase, point.epoch) for point in run.read_curve().points] == [
        (phase, epoch) for epoch in (1, 2, 3) for phase in ("accuracy", "diversity")
    ]


@pytest.mark.parametrize("schedule", ["sequential", "alternating"])
@pytest.mark.parametrize("stop", [1, 3, 6, 7, 8])
def test_a_run_stopped_anywhere_ends_with_the_numbers_of_one_never_stopped(
    tmp_path: Path, split: Split, stop: int, schedule: str
) -> None:
    config = TrainConfig(**SETTINGS | {"schedule": schedule, "rows": 50, "columns": 25})
    whole = finished(tmp_path / "whole", split, config)
    run = Run.start(tmp_path / "part", split, config)
    for _ in islice(fit(run, split, config), stop):
        pass
    assert numbers(finished(tmp_path / "part", split, config)) == numbers(whole)
    for name in ("000", "005"):
        weights = [Run(tmp_path / which).folder / "points" / f"{name}.safetensors" for which in ("whole", "part")]
        assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.fixture(scope="module")
def wide() -> Split:
    """More items than a market remembers of each user: k + 64."""
    return marketplace(users=150, items=200, interactions=2500, seed=1).leave_one_out(0)


@pytest.mark.parametrize("settings", [MARKET, MIXED, OTHER], ids=["softmax market", "bpr market", "softmax divmf"])
@pytest.mark.parametrize("stop", [1, 5, 6, 7, 9])
def test_so_does_one_of_any_other_loss_and_method(
    tmp_path: Path, wide: Split, stop: int, settings: dict[str, Any]
) -> None:
    # a market that was resumed had other candidates than one that was not, and so took other steps
    config = TrainConfig(**settings)
    whole = finished(tmp_path / "whole", wide, config)
    run = Run.start(tmp_path / "part", wide, config)
    for _ in islice(fit(run, wide, config), stop):
        pass
    assert numbers(finished(tmp_path / "part", wide, config)) == numbers(whole)
    for path in (tmp_path / "whole" / "points").iterdir():
        assert path.read_bytes() == (tmp_path / "part" / "points" / path.name).read_bytes()


def test_stopping_while_lambda_is_chosen_or_right_after_changes_nothing(
    tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainConfig(**SHARED | {"diversity_epochs": 2})
    whole = finished(tmp_path / "whole", split, config)
    run = Run.start(tmp_path / "part", split, config)
    calls = 0

    def stopped(*arguments: Any) -> float:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return trial(*arguments)

    trial = tuning.trial
    with monkeypatch.context() as patch:
        patch.setattr(tuning, "trial", stopped)
        with pytest.raises(KeyboardInterrupt):
            next(fit(run, split, config))
    assert not run.read_tuned()
    next(fit(run, split, config))
    assert run.read_tuned() == whole.read_tuned()
    assert numbers(finished(tmp_path / "part", split, config)) == numbers(whole)


@every_way
def test_a_kill_between_two_writes_is_mended(tmp_path: Path, split: Split, settings: dict[str, Any]) -> None:
    config = TrainConfig(**settings)
    whole = finished(tmp_path / "whole", split, config)
    run = Run.start(tmp_path / "run", split, config)
    for _ in islice(fit(run, split, config), 3):
        pass
    state = run.state_file.read_bytes()
    for _ in islice(fit(run, split, config), 1):
        pass
    run.state_file.write_bytes(state)  # as if the line of epoch 4 was written, its state not
    with run.log_file.open("a") as file:
        file.write('{"phase": "accu')  # and the next line cut off
    assert numbers(finished(tmp_path / "run", split, config)) == numbers(whole)


def test_a_line_of_the_market_cut_off_by_a_kill_is_made_again(tmp_path: Path, split: Split) -> None:
    config = TrainConfig(**MARKET)
    whole = finished(tmp_path / "whole", split, config)
    run = Run.start(tmp_path / "run", split, config)
    for _ in islice(fit(run, split, config), 8):
        pass
    text = run.log_file.read_text()
    run.log_file.write_text(text[:-20])
    assert len(run.read_curve()) == 7
    assert numbers(finished(tmp_path / "run", split, config)) == numbers(whole)


@every_way
def test_a_finished_run_can_be_made_longer(tmp_path: Path, split: Split, settings: dict[str, Any]) -> None:
    short = TrainConfig(**settings | {"diversity_epochs": 2})
    finished(tmp_path / "run", split, short)
    longer = finished(tmp_path / "run", split, TrainConfig(**settings))
    assert numbers(longer) == numbers(finished(tmp_path / "whole", split, TrainConfig(**settings)))


@every_way
def test_the_seed_is_the_only_thing_results_depend_on(tmp_path: Path, split: Split, settings: dict[str, Any]) -> None:
    runs = [finished(tmp_path / str(n), split, TrainConfig(**settings | {"seed": s})) for n, s in enumerate((0, 0, 1))]
    assert numbers(runs[0]) == numbers(runs[1])
    assert numbers(runs[0]) != numbers(runs[2])


def test_a_run_folder_of_other_data_or_settings_is_refused(tmp_path: Path, split: Split) -> None:
    config = TrainConfig(**SETTINGS)
    Run.start(tmp_path / "run", split, config)
    other = marketplace(users=100, items=60, interactions=1500, seed=2).leave_one_out(0)
    with pytest.raises(ValueError, match="run of other data"):
        Run.start(tmp_path / "run", other, config)
    with pytest.raises(ValueError, match="dim was 8, now 9"):
        Run.start(tmp_path / "run", split, TrainConfig(**SETTINGS | {"dim": 9}))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(ValueError, match="not a run folder"):
        Run.start(tmp_path / "mine", split, config)


def test_divergence_keeps_the_points_before_it(tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrainConfig(**SETTINGS)
    run = Run.start(tmp_path / "run", split, config)
    points = fit(run, split, config)
    for point in points:
        if point.phase == "diversity":
            break
    before = numbers(run)
    monkeypatch.setattr("divmf.models.epochs.diversity_gradient", lambda *_: torch.nan)
    with pytest.raises(TrainingDiverged):
        next(points)
    assert numbers(run) == before
    assert run.pick(ndcg_drop=1.0).phase in ("accuracy", "diversity")


def test_the_folder_reads_back_what_was_written(tmp_path: Path, split: Split) -> None:
    config = TrainConfig(**SETTINGS)
    run = finished(tmp_path / "run", split, config)
    opened = Run.open(tmp_path / "run")
    assert opened.read_config() == config
    for name in ("train", "valid", "test"):
        assert getattr(opened.read_split(), name).frame.equals(getattr(split, name).frame)
    assert json.loads(opened.config_file.read_text())["versions"]["torch"] == version("torch")
    assert not list(run.folder.rglob("*.tmp"))
    with pytest.raises(ValueError, match="no operating point was picked"):
        _ = opened.read_picked()
    assert opened.pick(epoch=2).epoch == opened.read_picked().epoch == 2
    with pytest.raises(ValueError, match="not a run folder"):
        Run.open(tmp_path)


def test_too_little_data_is_refused_before_training(tmp_path: Path, split: Split) -> None:
    config = TrainConfig(k=61)
    with pytest.raises(ValueError, match="k=61 is longer than the 60 items"):
        next(fit(Run.start(tmp_path / "run", split, config), split, config))


def test_a_run_killed_before_its_config_was_written_starts_again(tmp_path: Path, split: Split) -> None:
    config = TrainConfig(**SETTINGS)
    run = Run.start(tmp_path / "run", split, config)
    run.config_file.unlink()
    (run.folder / ".config.json.1.tmp").write_text("{")
    assert len(finished(tmp_path / "run", split, config).read_curve())


def test_two_processes_do_not_share_a_run_folder(tmp_path: Path, split: Split) -> None:
    # two trains in one folder gave 24 lines for a 12-epoch run
    config = TrainConfig(**SETTINGS)
    run = Run.start(tmp_path / "run", split, config)
    points = fit(run, split, config)
    next(points)
    with pytest.raises(ValueError, match="in use by another process"):
        next(fit(run, split, config))
    points.close()
    next(fit(run, split, config))


@pytest.mark.parametrize(
    "name", ["config.json", "epochs.jsonl", "state.safetensors", "ids.parquet", "points/000.safetensors"]
)
def test_a_damaged_file_is_named(tmp_path: Path, split: Split, name: str) -> None:
    config = TrainConfig(**SETTINGS)
    run = finished(tmp_path / "run", split, config)
    (run.folder / name).write_text("{}\n" if name == "config.json" else "nonsense\n")

    def read_everything() -> None:
        again = Run.start(tmp_path / "run", split, config)
        _ = (
            again.read_curve(),
            again.read_split(),
            again.resume(split.n_users),
            again.read_model(again.read_curve().base),
        )

    with pytest.raises(ValueError, match=rf"{name} is damaged .* train again"):
        read_everything()
