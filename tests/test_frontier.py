"""How a method's settings are chosen for the results, worked by hand; and that a curve goes as far as is asked."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks import frontier
from benchmarks.frontier import (
    DEEPEST,
    METHODS,
    Place,
    Points,
    best_of,
    chosen,
    curve,
    floor_of,
    over_losses,
    worth,
)

from divmf.data.datasets import marketplace
from divmf.engine.files import read_json, write_json
from divmf.estimator import DivMF, Recommender
from divmf.models.mf import MF


def test_the_best_that_each_loss_allows_is_averaged() -> None:
    # losses of 0, 1, … 20%: up to 4% the first two points, up to 14% three, then all but the last
    kept = np.array([1.0, 1.01, 0.95, 0.85, 0.7])
    metric = np.array([0.1, 0.2, 0.4, 0.3, 0.9])
    assert over_losses(kept, metric) == pytest.approx((5 * 0.2 + 16 * 0.4) / 21)


def test_settings_are_judged_by_the_mean_of_the_three_metrics_on_validation(
    model: Recommender, monkeypatch: pytest.MonkeyPatch
) -> None:
    # two points, the second at a loss of 10%: it counts for the losses of 10 to 20%, eleven of twenty-one
    nats = np.array([0.5, 0.75]) * np.log(model.split.n_items)
    made = Points(np.arange(2), np.array([0.2, 0.4]), nats, np.array([0.9, 0.6]),
                  np.array([[1.0, 1.0], [0.9, 0.9]]), np.zeros(2), 0.0, {})  # fmt: skip
    asked = []
    monkeypatch.setattr(frontier, "curve", lambda *given, **named: (asked.append((given[3:], named)), made)[1])
    first, second = (0.2 + 0.5 + 0.1) / 3, (0.4 + 0.75 + 0.4) / 3
    assert worth("kwon", model, model.split, {"candidates": 7}) == pytest.approx((10 * first + 11 * second) / 21)
    assert asked == [((5, {"candidates": 7}), {"part": "valid"})]


def test_settings_are_chosen_once_for_a_dataset_and_base(
    model: Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place("lastfm-15", "softmax", 0, tmp_path)
    monkeypatch.setattr(frontier, "worth", lambda name, model, split, settings: settings["candidates"])
    assert chosen(place, "sinkhorn", model, model.split) == {"candidates": 300}
    monkeypatch.setattr(frontier, "worth", pytest.fail)
    for seed in (0, 1):
        assert chosen(replace(place, seed=seed), "sinkhorn", model, model.split) == {"candidates": 300}
    assert read_json(place.settings) == {"sinkhorn": {"candidates": 300}}


def test_what_is_held_out_is_what_the_folder_is_named_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontier, "load", lambda name: marketplace())
    one, fifth = (Place("ml-1m", "softmax", 3, tmp_path / held).split() for held in ("one", "fifth"))
    assert len(one.test) == one.n_users
    assert len(fifth.test) / len(marketplace()) == pytest.approx(0.2, abs=0.01)


def test_a_curve_may_end_where_enough_is_lost_from_the_less_accurate_model(
    model: Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_users, dim = model.split.n_users, 2
    ignorant = MF(torch.zeros(n_users, dim), torch.zeros(model.split.n_items, dim), torch.zeros(model.split.n_items))
    models = {"softmax": model, "bpr": Recommender(ignorant, model.split, model.point, 5)}
    monkeypatch.setattr(frontier, "trained", lambda place, split: models[place.base])
    lists = models["bpr"].lists(k=5, seen="train+valid")
    held, reached = model.split.test.matrix, []
    for user in range(n_users):  # one test item a user
        ranks = [rank for rank, item in enumerate(lists.items[user].tolist()) if held[user, item]]
        reached.append(1 / np.log2(ranks[0] + 2) if ranks else 0.0)
    floor = floor_of(Place("lastfm-15", "softmax", 0, tmp_path), model.split, 5)
    assert floor == pytest.approx((1 - DEEPEST) * np.mean(reached))
    assert 0 < floor < (1 - DEEPEST) * curve("bayes_rule", model, model.split, 5, {"candidates": 10}).ndcg[0].mean()


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


def test_slow_methods_are_not_given_the_most_candidates() -> None:
    assert best_of("sinkhorn", by_width({100: 0.1, 300: 0.2})) == {"candidates": 300}
    assert best_of("fairrec", by_width({100: 0.1, 300: 0.2, 1000: 0.3, 3000: 0.4})) == {"candidates": 3000}


def test_of_what_is_trained_the_best_variant_is_taken() -> None:
    assert best_of("divmf", lambda settings: settings.get("unmask", 0)) == {"unmask": 500}
    assert best_of("divmf", lambda settings: sum(settings.values())) == {"diversity_rate": 0.003, "unmask": 500}
    assert best_of("market", pytest.fail) == {}


@pytest.fixture(scope="module")
def model() -> Recommender:
    split = marketplace().leave_one_out(seed=0)
    return DivMF(l2=8.0, learning_rate=0.2, diversity_epochs=0, accuracy_epochs=15).fit(split).at(epoch=0)


@pytest.mark.parametrize("name", ["market", "divmf"])
def test_a_trained_curve_ends_with_the_first_point_below_the_floor(model: Recommender, name: str) -> None:
    settings = {"divmf": {"diversity_rate": 0.02}, "market": {}}[name]
    first, *others = curve(name, model, model.split, 5, settings, part="valid").ndcg.mean(axis=1)
    assert min(others[:-1], default=first) >= (1 - DEEPEST) * first > others[-1]
    deeper = curve(name, model, model.split, 5, settings, floor=0.5 * first, part="valid").ndcg.mean(axis=1)
    assert deeper[: len(others) + 1] == pytest.approx([first, *others])
    assert deeper[-1] < 0.5 * first <= deeper[-2]


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
