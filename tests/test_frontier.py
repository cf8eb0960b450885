"""How a method's settings are chosen for the results, worked by hand; and that a curve goes as far as is asked."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import frontier
from benchmarks.frontier import (
    BASES,
    DEEPEST,
    METHODS,
    STRONG,
    Place,
    Points,
    best_of,
    chosen,
    curve,
    jobs,
    make_curves,
    methods_on,
    over_losses,
    trained,
    worth,
)

from divmf.data.datasets import marketplace
from divmf.engine.files import read_json, write_json
from divmf.estimator import DivMF, Recommender
from divmf.models.ease import ease
from divmf.ranking.metrics import evaluate


def test_the_best_that_each_loss_allows_is_averaged() -> None:
    # losses of 0, 1, … 40%: up to 4% the first two points, then three or four, the last never
    kept = np.array([1.0, 1.01, 0.95, 0.85, 0.5])
    metric = np.array([0.1, 0.2, 0.4, 0.3, 0.9])
    assert over_losses(kept, metric) == pytest.approx((5 * 0.2 + 36 * 0.4) / 41)
    # up to 20%: sixteen of twenty-one
    assert over_losses(kept, metric, np.linspace(0, 0.2, 21)) == pytest.approx((5 * 0.2 + 16 * 0.4) / 21)


def test_settings_are_judged_by_the_mean_of_the_three_metrics_on_validation(
    model: Recommender, monkeypatch: pytest.MonkeyPatch
) -> None:
    # two points, the second at a loss of 10%: it counts for the losses of 10 to 40%, 31 of 41
    nats = np.array([0.5, 0.75]) * np.log(model.split.n_items)
    made = Points(np.arange(2), np.array([0.2, 0.4]), nats, np.array([0.9, 0.6]),
                  np.array([[1.0, 1.0], [0.9, 0.9]]), 0.0, {})  # fmt: skip
    asked = []
    monkeypatch.setattr(frontier, "curve", lambda *given, **named: (asked.append((given[3:], named)), made)[1])
    first, second = (0.2 + 0.5 + 0.1) / 3, (0.4 + 0.75 + 0.4) / 3
    assert worth("kwon", model, model.split, {"candidates": 7}) == pytest.approx((10 * first + 31 * second) / 41)
    assert asked == [((5, {"candidates": 7}), {"part": "valid"})]


def test_settings_are_chosen_once_for_a_dataset_and_base(
    model: Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place("lastfm-15", "softmax", 0, tmp_path)
    monkeypatch.setattr(frontier, "worth", lambda name, model, split, settings: settings["candidates"])
    assert chosen(place, "bayes_rule", model, model.split) == {"candidates": 1000}
    monkeypatch.setattr(frontier, "worth", pytest.fail)
    for seed in (0, 1):
        assert chosen(replace(place, seed=seed), "bayes_rule", model, model.split) == {"candidates": 1000}
    assert read_json(place.settings) == {"bayes_rule": {"candidates": 1000}}


def test_what_is_held_out_is_what_the_folder_is_named_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontier, "load", lambda name: marketplace())
    one, fifth = (Place("ml-1m", "softmax", 3, tmp_path / held).split() for held in ("one", "fifth"))
    assert len(one.test) == one.n_users
    assert len(fifth.test) / len(marketplace()) == pytest.approx(0.2, abs=0.01)


def by_width(values: Mapping[int, float]) -> Any:
    return lambda settings: values[settings["candidates"]] + 0.01 * (settings.get("ranking") == "liked")


@pytest.mark.parametrize(
    ("values", "width"),
    [
        ({100: 0.3, 300: 0.2, 1000: 0.29}, 100),
        ({100: 0.3, 300: 0.4, 1000: 0.4}, 300),
        ({100: 0.3, 300: 0.2, 1000: 0.5}, 1000),
    ],
)
def test_as_many_candidates_are_taken_as_are_best(values: dict[int, float], width: int) -> None:
    assert best_of("kwon", by_width(values)) == {"ranking": "liked", "candidates": width}


def test_fairrec_is_given_the_most_candidates() -> None:
    assert best_of("fairrec", by_width({100: 0.1, 300: 0.2, 1000: 0.3, 3000: 0.4})) == {"candidates": 3000}


@pytest.mark.parametrize(
    ("name", "settings"), [("sinkhorn", {"candidates": 300}), ("divmf", {"unmask": 500}), ("market", {})]
)
def test_what_takes_long_is_not_tried(name: str, settings: dict[str, Any]) -> None:
    assert best_of(name, pytest.fail) == settings


def test_every_curve_is_a_job_and_those_that_say_most_come_first(tmp_path: Path) -> None:
    asked = list(jobs(tmp_path, ("lastfm-15", "gowalla-15"), (0, 1)))
    assert len(set(asked)) == len(asked) == 2 * 2 * 2 * sum(len(methods_on(base)) for base in BASES)
    assert [job.method for job in asked[: 1 + len(STRONG)]] == ["market", *STRONG]
    first = asked.index((Place("gowalla-15", "ease", 0, tmp_path), 5, "market"))
    assert {(job.place.dataset, job.k, job.place.seed) for job in asked[:first]} == {("lastfm-15", 5, 0)}
    assert max(map(asked.index, (job for job in asked if job.method in STRONG))) < asked.index(
        (Place("lastfm-15", "ease", 0, tmp_path), 5, "kwon")
    )


def test_the_market_is_no_reranker_here_and_divmf_trains_vectors_alone() -> None:
    assert all(methods_on(base).count("market") == 1 for base in BASES)
    assert [base for base in BASES if "divmf" in methods_on(base)] == ["softmax", "bpr"]


@pytest.fixture(scope="module")
def model() -> Recommender:
    split = marketplace().leave_one_out(seed=0)
    return DivMF(l2=8.0, learning_rate=0.2, diversity_epochs=0, accuracy_epochs=15).fit(split).at(epoch=0)


@pytest.mark.parametrize("name", ["market", "divmf"])
def test_a_curve_without_a_grid_ends_with_the_first_point_that_has_lost_enough(model: Recommender, name: str) -> None:
    settings = {"divmf": {"diversity_rate": 0.05}, "market": {}}[name]
    first, *others = curve(name, model, model.split, 5, settings, part="valid").ndcg.mean(axis=1)
    assert min(others[:-1], default=first) >= (1 - DEEPEST) * first > others[-1]


def test_the_market_goes_on_any_scores_and_begins_with_the_models_own_lists(model: Recommender) -> None:
    split = model.split
    scored = replace(model, scorer=ease(split.train.matrix, 50.0))
    made = curve("market", scored, split, 5, {})
    own = evaluate(scored.lists(k=5, seen="train+valid"), split)
    assert made.ndcg[0].mean() == pytest.approx(own["ndcg"])
    assert made.gini[0] == pytest.approx(own["gini"])
    assert made.gini[-1] < 0.5 * made.gini[0]


def test_a_base_model_is_trained_once_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontier, "load", lambda name: marketplace(users=200, items=90, interactions=4000, seed=5))
    place = Place("ml-1m", "ease", 0, tmp_path / "fifth")
    split = place.split()
    made = trained(place, split).lists(k=5)
    monkeypatch.setattr(frontier, "DivMF", pytest.fail)
    assert np.array_equal(trained(place, split).lists(k=5).items, made.items)


def test_what_is_missing_is_made_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontier, "load", lambda name: marketplace(users=200, items=90, interactions=4000, seed=5))
    place, said = Place("ml-1m", "ease", 0, tmp_path / "fifth"), []
    asked = [frontier.Job(place, 5, "market"), frontier.Job(place, 5, "sinkhorn")]
    make_curves(iter(asked), said.append)
    assert [line.partition(":")[0] for line in said] == [
        f"ml-1m seed 0 ease k=5 {method}" for method in ("market", "sinkhorn")
    ]
    assert all(place.has(method, 5) for method in ("market", "sinkhorn"))
    make_curves(iter(asked), pytest.fail)


def test_a_curve_is_made_again_only_where_other_settings_were_chosen(model: Recommender, tmp_path: Path) -> None:
    place = Place("lastfm-15", "softmax", 0, tmp_path)
    made = curve("bayes_rule", model, model.split, 5, {"candidates": 10})
    made.save(place.file("bayes_rule", 5))
    kept = Points.load(place.file("bayes_rule", 5))
    assert (kept.settings, kept.seconds) == ({"candidates": 10}, made.seconds)
    assert np.array_equal(kept.ndcg, made.ndcg)
    assert not place.has("bayes_rule", 5)  # nothing says yet what was chosen
    for settings, there in (({"candidates": 10}, True), ({"candidates": 20}, False)):
        write_json(place.settings, {"bayes_rule": settings})
        assert place.has("bayes_rule", 5) == there
    assert not place.has("bayes_rule", 10)


def test_a_reranker_goes_through_its_grid_with_the_candidates_it_is_given(model: Recommender) -> None:
    made = {width: curve("bayes_rule", model, model.split, 5, {"candidates": width}) for width in (10, 100)}
    assert all(list(each.knob) == list(METHODS["bayes_rule"].grid) for each in made.values())
    assert made[100].coverage[-1] > made[10].coverage[-1]
