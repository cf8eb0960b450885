"""Runs of the softmax and the prices: what is chosen on validation, the path along ρ, and points added to it."""

import json
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import divmf
from divmf.data.datasets import marketplace
from divmf.data.split import Split
from divmf.engine.files import write_json
from divmf.market import prices
from divmf.market.prices import TOLERANCE
from divmf.models.config import TrainConfig, TrainingDiverged
from divmf.ranking.curve import Curve, Point
from divmf.train import tuning
from divmf.train.fitting import FINEST, GROWTH, Stall, end_of, measure_both, refine, rho_between
from divmf.train.runs import Run
from divmf.train.tuning import better, mean_of, trial, tuned

CONFIG = TrainConfig(method="prices", k=3, dim=8, l2=2.0, learning_rate=0.2, accuracy_epochs=15)


def finished(folder: Path, split: Split, config: TrainConfig) -> Run:
    return divmf.DivMF(**asdict(config)).fit(split, folder).run


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, split: Split) -> Run:
    """A run with its whole path of prices."""
    return finished(tmp_path_factory.mktemp("path") / "run", split, CONFIG)


# ---- λ and the learning rate


def trial_of(l2: float = 8.0, rate: float = 0.2, n_users: int = 100) -> Any:
    """A trial in which all users fare the worse, the further λ and the learning rate are from their best."""

    def users(_: Any, config: TrainConfig) -> Any:
        away = abs(np.log2(config.l2 / l2)) + abs(np.log2(config.learning_rate / rate))
        return np.full(n_users, 1.0 - away / 100)

    return users


def settings_of(row: dict[str, float]) -> tuple[float, float]:
    return row["l2"], row["learning_rate"]


@pytest.mark.parametrize("l2", [0.3, 1.0, 5.0, 6.0, 8.0, 11.0, 16.0, 60.0, 400.0])
@pytest.mark.parametrize("rate", [0.02, 0.1, 0.2, 0.35, 0.8])
def test_the_best_of_what_was_tried_is_taken_and_lies_within_half_a_step_of_the_peak(
    tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch, l2: float, rate: float
) -> None:
    monkeypatch.setattr(tuning, "trial", trial_of(l2, rate))
    config = TrainConfig()
    run = Run.start(tmp_path / "run", split, config)
    found = tuned(run, split, config)
    tried = {settings_of(row): row["valid_ndcg"] for row in run.tuned["tried"]}
    assert len(tried) == len(run.tuned["tried"])  # nothing is tried twice
    assert tried[settings_of(run.tuned)] == max(tried.values())
    assert found == replace(config, l2=run.tuned["l2"], learning_rate=run.tuned["learning_rate"])
    assert abs(np.log2(found.l2 / l2)) <= 0.25 + 1e-9
    assert abs(np.log2(found.learning_rate / rate)) <= 0.5 + 1e-9


@pytest.mark.parametrize("far", [1e-9, 1e9])
def test_the_search_ends_where_there_is_no_peak(
    tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch, far: float
) -> None:
    monkeypatch.setattr(tuning, "trial", trial_of(far, far))
    run = Run.start(tmp_path / "run", split, TrainConfig())
    found = tuned(run, split, TrainConfig())
    assert 0.01 <= found.l2 <= 1000
    assert 0.01 <= found.learning_rate <= 1
    last = min if far < 1 else max
    columns = zip(*map(settings_of, run.tuned["tried"]), strict=True)
    assert settings_of(run.tuned) == tuple(map(last, columns))


def test_where_nothing_is_better_the_usual_settings_are_taken(
    tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "trial", lambda *_: np.zeros(100))
    run = Run.start(tmp_path / "run", split, TrainConfig())
    found = tuned(run, split, TrainConfig())
    assert (found.l2, found.learning_rate) == (8.0, 0.2)
    assert len(run.tuned["tried"]) == 5  # λ of 5.7, 8 and 11, then rates of 0.1 and 0.4


@pytest.mark.parametrize(("spread", "taken"), [(0.4, 0.2), (0.3, 0.4)])
def test_another_learning_rate_is_taken_only_if_it_is_clearly_better(
    tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch, spread: float, taken: float
) -> None:
    # 0.1 better on average, the gains differing by ± spread: an error of spread / √100, and 0.1 is 2.5 or 3.3 of them;
    # how much users differ among themselves does not count
    sides, own = np.tile([-1.0, 1.0], 50), np.linspace(0, 50, 100)

    def users(_: Any, config: TrainConfig) -> Any:
        return own + 0.1 + spread * sides if config.learning_rate == 0.4 else own

    monkeypatch.setattr(tuning, "trial", users)
    found = tuned(Run.start(tmp_path / "run", split, TrainConfig()), split, TrainConfig())
    assert found.learning_rate == taken


def test_of_two_rates_that_are_clearly_better_the_better_is_taken(
    tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    # both lead by more than four errors, but differ from each other by less than one
    gains = {0.1: 0.1 + 0.2 * np.tile([-1.0, 1.0], 50), 0.4: 0.11 + 0.2 * np.tile([1.0, -1.0], 50)}
    monkeypatch.setattr(tuning, "trial", lambda _, config: gains.get(config.learning_rate, np.zeros(100)))
    found = tuned(Run.start(tmp_path / "run", split, TrainConfig()), split, TrainConfig())
    assert found.learning_rate == 0.4


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_the_same_mean_is_never_better(users: list[float], random: Any) -> None:
    others = users.copy()
    random.shuffle(others)
    # summed in another order, as by more processes, it may differ in the last bit
    assert not better(np.array(users), np.array(others), 0.0)
    assert better(np.array(users) + 1e-6, np.array(others), 0.0)


def test_settings_are_chosen_once_and_kept(tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "trial", trial_of())
    config = TrainConfig()
    run = Run.start(tmp_path / "run", split, config)
    found = tuned(run, split, config)
    written = run.tuned_file.read_bytes()
    assert set(json.loads(written)) == {"l2", "learning_rate", "tried"}
    monkeypatch.setattr(tuning, "trial", pytest.fail)
    assert tuned(run, split, config) == found
    assert run.tuned_file.read_bytes() == written


def test_a_run_begun_before_learning_rates_were_chosen_goes_on_as_it_began(
    tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "trial", pytest.fail)
    run = Run.start(tmp_path / "run", split, TrainConfig())
    write_json(run.tuned_file, {"l2": 4.0, "tried": [{"l2": 4.0, "valid_ndcg": 0.1}]})
    assert tuned(run, split, TrainConfig()) == TrainConfig(l2=4.0)
    # where λ was given, nothing was chosen then
    begun = replace(CONFIG, learning_rate=None, accuracy_epochs=2, diversity_epochs=0)
    with monkeypatch.context() as before:
        before.setattr(tuning, "searched", lambda *_: {})
        run = finished(tmp_path / "given", split, begun)
    run.tuned_file.unlink()
    assert tuned(run, split, begun) == begun
    assert not run.tuned_file.exists()


@pytest.mark.parametrize(("given", "other"), [({"l2": 3.0}, "learning_rate"), ({"learning_rate": 0.05}, "l2")])
def test_of_two_settings_only_the_one_not_given_is_chosen(
    tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], other: str
) -> None:
    monkeypatch.setattr(tuning, "trial", trial_of(rate=0.4))
    config = TrainConfig(**given)
    run = Run.start(tmp_path / "run", split, config)
    assert tuned(run, split, config) == replace(config, **{other: run.tuned[other]})
    assert set(run.tuned) == {other, "tried"}
    ((name, value),) = given.items()
    assert {row[name] for row in run.tuned["tried"]} == {value}


@pytest.mark.parametrize(
    "settings",
    [
        {"l2": 3.0, "learning_rate": 0.1},
        {"accuracy": "bpr"},
        {"accuracy": "mse"},
        {"accuracy_epochs": 0},
        {"preset": "paper"},
    ],
)
def test_what_is_given_or_not_needed_is_not_chosen(
    tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    monkeypatch.setattr(tuning, "trial", pytest.fail)
    config = TrainConfig(**settings)
    run = Run.start(tmp_path / "run", split, config)
    assert tuned(run, split, config) is config
    assert run.tuned == {}
    assert not run.tuned_file.exists()


def test_a_trial_is_a_fit_of_its_own_read_on_validation_alone(tmp_path: Path, split: Split) -> None:
    blind = Split(split.train, split.valid, split.train)
    assert np.array_equal(trial(blind, CONFIG), trial(split, CONFIG))
    assert mean_of(trial(split, replace(CONFIG, l2=1.0))) > mean_of(trial(split, replace(CONFIG, l2=500.0)))
    # from small vectors, it is the accuracy phase of a run
    whole = finished(tmp_path / "run", split, replace(CONFIG, diversity_epochs=0))
    assert mean_of(trial(split, CONFIG, grown=1)) == whole.curve.points[-1].valid["ndcg"]


def test_a_trial_that_diverges_loses_and_ends_nothing(
    tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = tuning.EPOCHS["accuracy"]

    def fragile(model: Any, train: Any, config: TrainConfig, *rest: Any) -> float:
        if (config.learning_rate or 0) > 0.2:
            raise TrainingDiverged("too far")
        return step(model, train, config, *rest)

    monkeypatch.setitem(tuning.EPOCHS, "accuracy", fragile)
    config = replace(CONFIG, learning_rate=None, accuracy_epochs=2)
    run = Run.start(tmp_path / "run", split, config)
    tuned(run, split, config)
    reached = {row["learning_rate"]: row["valid_ndcg"] for row in run.tuned["tried"]}
    assert reached[0.4] == 0.0 < reached[run.tuned["learning_rate"]]


def test_a_run_uses_the_settings_it_chose(tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "trial", trial_of(5.0, 0.1))
    config = replace(CONFIG, l2=None, learning_rate=None, accuracy_epochs=3, diversity_epochs=1)
    chosen = finished(tmp_path / "chosen", split, config)
    l2, rate = settings_of(chosen.tuned)
    assert (l2, rate) != (8.0, 0.2)
    given = finished(tmp_path / "given", split, replace(config, l2=l2, learning_rate=rate))
    assert [point.loss for point in chosen.curve.points] == [point.loss for point in given.curve.points]
    assert chosen.config.l2 is None  # the same command goes on in this folder


# ---- the path


def test_the_path_grows_by_a_fixed_factor_and_ends_where_the_deepest_loss_is_passed(path: Run) -> None:
    curve = path.curve
    priced = [point for point in curve.points if point.knob is not None]
    assert curve.has_rho
    assert [point.epoch for point in priced] == list(range(1, len(priced) + 1))
    for one, other in pairwise(priced):
        assert other.knob == pytest.approx(GROWTH * one.knob)
    floor = (1 - CONFIG.deepest) * curve.base.valid["ndcg"]
    assert priced[-1].valid["ndcg"] < floor
    assert all(point.valid["ndcg"] >= floor for point in priced[:-1])
    assert all(point.gap is not None and point.gap >= 0 for point in priced)
    assert max(point.gap for point in priced[2:]) < 0.05  # of the smallest ρ, one user at a price is more than that


@pytest.mark.parametrize("seed", [1, 3])
def test_one_rho_without_better_lists_does_not_end_the_path(tmp_path: Path, seed: int) -> None:
    # it ended at a Gini of 0.6 and 2% of nDCG lost, 0.015 nats from the optimum
    split = marketplace(users=120, items=60, interactions=1500, seed=seed).leave_one_out(0)
    curve = finished(tmp_path / "run", split, replace(CONFIG, deepest=0.4)).curve
    assert curve.operating[-1].valid["ndcg"] < 0.6 * curve.base.valid["ndcg"]
    assert curve.operating[-1].valid["gini"] < 0.4


def test_a_resumed_path_goes_on_from_the_rho_it_began_with(
    tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    # on another machine the spread of the scores may differ in its last bit, and no point was found again
    finished(tmp_path / "run", split, replace(CONFIG, diversity_epochs=3))
    spread_of = prices.spread_of
    monkeypatch.setattr(prices, "spread_of", lambda scores: float(np.nextafter(spread_of(scores), np.inf)))
    longer = finished(tmp_path / "run", split, replace(CONFIG, diversity_epochs=5))
    assert [point.epoch for point in longer.curve.operating[1:]] == [1, 2, 3, 4, 5]


def test_a_path_may_end_earlier(tmp_path: Path, split: Split, path: Run) -> None:
    run = finished(tmp_path / "run", split, replace(CONFIG, deepest=0.1))
    found = [(point.knob, point.valid) for point in run.curve.points]
    assert found == [(point.knob, point.valid) for point in path.curve.points][: len(found)]
    ndcg = [point.valid["ndcg"] / run.curve.base.valid["ndcg"] for point in run.curve.operating]
    assert ndcg[-1] < 0.9 <= min(ndcg[:-1])
    again = [point.to_json() for point in run.curve.points]
    assert [point.to_json() for point in finished(tmp_path / "run", split, run.config).curve.points] == again


def test_a_point_of_the_path_is_the_base_model_with_prices(path: Run, split: Split) -> None:
    base = path.model(path.curve.base)
    for point in path.curve.operating[1::6]:
        model, at = path.model(point), path.standing(point)
        assert model.price is not None
        assert np.array_equal(model.price, at.price)
        assert model.users.equal(base.users * torch.from_numpy(at.scale)[:, None])
        assert model.items.equal(base.items)
        assert measure_both(model, split, CONFIG.k) == (point.valid, point.test)


def test_diversity_grows_along_the_path(path: Run) -> None:
    curve = path.curve.operating
    for metric, rises in (("entropy", True), ("gini", False)):
        values = np.array([point.valid[metric] for point in curve])
        steps = np.diff(values) if rises else -np.diff(values)
        assert steps.min() > -0.01  # a gap within the tolerance
        assert steps.sum() > 0.1
    assert curve[-1].valid["coverage"] > curve[0].valid["coverage"] + 0.3


def test_a_path_is_over_where_nothing_better_is_found_or_too_much_is_lost() -> None:
    def at(ndcg: float, gap: float) -> Point:
        return Point("diversity", 1, {"ndcg": ndcg, "gini": 0.5}, {}, knob=1.0, gap=gap)

    def path(*points: tuple[float, float]) -> list[Point]:
        return [at(ndcg, gap) for ndcg, gap in points]

    far = 2 * TOLERANCE
    assert end_of(path((0.61, 0), (0.59, 0)), 0.6, CONFIG)
    assert not end_of(path((0.7, 0), (0.6, 0)), 0.6, CONFIG)
    # the same lists again, and far from the best: larger ρ may find better ones, but not after four in vain
    assert not end_of(path((0.7, 0), *[(0.7, far)] * 3), 0.6, CONFIG)
    assert end_of(path((0.7, 0), *[(0.7, far)] * 4), 0.6, CONFIG)
    assert not end_of(path((0.7, 0), (0.7, far), *[(0.69, far)] * 4), 0.6, CONFIG)
    assert end_of(path((0.7, 0), (0.7, far), *[(0.69, far)] * 5), 0.6, CONFIG)
    assert not end_of(
        path((0.7, 0), *[(0.7, far)] * 3, (0.7, TOLERANCE)), 0.6, CONFIG
    )  # near the best: nothing to find


@pytest.mark.parametrize("apart", [0.02, 0.1])
def test_exposure_becomes_even_also_where_users_want_much_the_same(split: Split, apart: float) -> None:
    # all like the same items, but for a little: with steps of any length all users came or went at once, and paths
    # ended at a Gini of .88 and .68
    rng = np.random.default_rng(5)
    users = rng.normal(size=(split.n_users, 3)) * [apart, apart, 0] + [0, 0, 1]
    curve = divmf.diversify(users, rng.normal(size=(split.n_items, 3)), split, k=3, deepest=1.0).curve
    assert curve.base.valid["gini"] > 0.9
    assert curve.operating[-1].valid["gini"] < 0.4


def test_a_model_without_preferences_has_a_path_too(split: Split) -> None:
    # ρ is measured in spreads of the scores: of none, it was zero, and so was the divisor of the gap
    model = divmf.diversify(np.zeros((split.n_users, 2)), np.zeros((split.n_items, 2)), split, k=3)
    assert all(point.knob > 0 and np.isfinite(point.gap) for point in model.curve.operating[1:])
    assert model.curve.operating[-1].valid["gini"] < model.curve.base.valid["gini"]


def test_the_path_of_scaled_scores_is_the_same_at_a_scaled_rho(split: Split) -> None:
    rng = np.random.default_rng(0)
    users, items = rng.normal(size=(split.n_users, 4)), rng.normal(size=(split.n_items, 4))
    one, other = (divmf.diversify(scale * users, items, split, k=3, diversity_epochs=8) for scale in (1, 1024))
    for mine, theirs in zip(one.curve.operating[1:], other.curve.operating[1:], strict=True):
        assert theirs.knob == pytest.approx(1024 * mine.knob)
        assert theirs.valid == mine.valid  # a power of two: not a bit of rounding


# ---- points between


def a_curve(*points: tuple[float, float, float]) -> Curve:
    """A base with nDCG 1 and Gini 1, and points (ρ, nDCG, Gini); coverage is 1 − Gini."""
    base = Point("accuracy", 1, {"ndcg": 1.0, "gini": 1.0, "coverage": 0.0}, {})
    made = (
        Point("diversity", number, {"ndcg": ndcg, "gini": gini, "coverage": 1 - gini}, {}, knob=rho)
        for number, (rho, ndcg, gini) in enumerate(points, 1)
    )
    return Curve((base, *made))


def test_a_point_is_added_between_the_neighbours_where_the_criterion_changes() -> None:
    curve = a_curve((1.0, 0.99, 0.9), (2.0, 0.9, 0.7), (4.0, 0.8, 0.5), (8.0, 0.5, 0.2))
    assert rho_between(curve, "ndcg_drop", 0.05) == 1.5
    assert rho_between(curve, "ndcg_drop", 0.1) == 3.0  # 2 keeps it just
    assert rho_between(curve, "ndcg_drop", 0.0) == 0.5  # between the model itself and the first ρ
    assert rho_between(curve, "ndcg_drop", 0.9) is None  # nothing loses so much
    assert rho_between(curve, "gini", 0.6) == 3.0
    assert rho_between(curve, "gini", 0.5) == 3.0  # the point of 4 meets it; one before might, too
    assert rho_between(curve, "gini", 0.1) is None
    assert rho_between(curve, "coverage", 0.6) == 6.0
    assert rho_between(curve, "coverage", 0.0) is None  # the model itself does


def test_where_losses_are_noisy_the_last_change_counts() -> None:
    curve = a_curve((1.0, 0.94, 0.9), (2.0, 0.96, 0.8), (4.0, 0.9, 0.7))
    assert rho_between(curve, "ndcg_drop", 0.05) == 3.0


def test_neighbours_are_not_parted_beyond_what_is_worth_it() -> None:
    assert rho_between(a_curve((1.0, 0.96, 0.9), (1 + 2 * FINEST, 0.94, 0.8)), "ndcg_drop", 0.05) == 1 + FINEST
    assert rho_between(a_curve((1.0, 0.96, 0.9), (1 + FINEST, 0.94, 0.8)), "ndcg_drop", 0.05) is None
    # below the first ρ of the path its own size counts: shares of ever smaller ρ would never end
    below = a_curve((1.0, 0.5, 0.5), (FINEST, 0.5, 0.5))
    assert rho_between(below, "ndcg_drop", 0.05) is None


@pytest.fixture
def copy_of_path(path: Run, tmp_path: Path) -> Run:
    import shutil

    shutil.copytree(path.folder, tmp_path / "run")
    return Run.open(tmp_path / "run")


@pytest.mark.parametrize("name", ["ndcg_drop", "gini", "coverage"])
def test_refining_keeps_what_is_there_and_halves_one_interval(copy_of_path: Run, split: Split, name: str) -> None:
    run = copy_of_path
    before = run.curve.points
    last = run.curve.operating[-1].valid  # just short of what the last point reaches
    criterion = {name: 0.1 if name == "ndcg_drop" else last[name] + (0.001 if name == "gini" else -0.001)}
    weights = {file.name: file.read_bytes() for file in (run.folder / "points").iterdir()}
    grid = [0.0, *(point.knob for point in before if point.knob is not None)]
    refine(run, split, CONFIG, **criterion)
    after = run.curve.points
    assert after[: len(before)] == before
    assert all((run.folder / "points" / name).read_bytes() == data for name, data in weights.items())
    added = [point.knob for point in after[len(before) :]]
    assert 1 <= len(added) <= 6
    ((low, high),) = {pair for pair in pairwise(grid) for rho in added if pair[0] < rho < pair[1]}
    assert added[0] == (low + high) / 2
    assert rho_between(run.curve, *next(iter(criterion.items()))) is None
    refine(run, split, CONFIG, **criterion)
    assert run.curve.points == after


def test_a_point_added_between_is_at_least_as_good_as_the_lists_of_its_neighbour(
    copy_of_path: Run, split: Split
) -> None:
    # both judged at the ρ of the new point: worth + ρ·bonus of the lists, but for the tolerance
    run = copy_of_path
    refine(run, split, CONFIG, ndcg_drop=0.1)
    new = run.curve.points[-1]
    neighbour = max((p for p in run.curve.operating if p.knob and p.knob < new.knob), key=lambda point: point.knob)
    stall = Stall(run, split, CONFIG)
    values = []
    for point in (new, neighbour):
        counts = stall.market.visit(run.standing(point))[:, 0]
        values.append(stall.market.worth.sum() + new.knob * stall.bonus.sums[counts].sum())
    assert values[0] >= values[1] - TOLERANCE * new.knob * split.n_users * CONFIG.k - 1e-3


def test_only_prices_are_refined(tmp_path: Path, split: Split) -> None:
    config = TrainConfig(preset="paper", k=3, dim=4, accuracy_epochs=2, diversity_epochs=2)
    run = finished(tmp_path / "run", split, config)
    for criterion in ({"ndcg_drop": 0.0}, {"rho": 1.0}, {"gini": 0.9}):
        refine(run, split, config, **criterion)
    assert len(run.curve) == 4
    assert not run.curve.has_rho
    refine(run, split, config)


def test_a_refined_run_can_be_made_longer(tmp_path: Path, split: Split) -> None:
    short = replace(CONFIG, diversity_epochs=6)
    run = finished(tmp_path / "run", split, short)
    refine(run, split, short, rho=0.9 * run.curve.operating[-1].knob)
    longer = finished(tmp_path / "run", split, replace(CONFIG, diversity_epochs=9))
    unrefined = finished(tmp_path / "other", split, replace(CONFIG, diversity_epochs=9))
    path = {point.knob: dict(point.valid) for point in unrefined.curve.operating[1:]}
    assert len(path) == 9
    assert {point.knob: dict(point.valid) for point in longer.curve.points if point.knob in path} == path
    assert [point.epoch for point in longer.curve.points if point.knob] == list(range(1, 11))
