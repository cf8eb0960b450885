from dataclasses import replace
from functools import wraps
from math import inf

import numpy as np
import pytest
import torch
from rerank_market import market, market_split
from scipy import sparse

from divmf.models.mf import MF
from divmf.models.scorer import Blocks
from divmf.ranking.curve import Point
from divmf.ranking.metrics import coverage, entropy, gini, measure
from divmf.rerank import METHODS, bayes_rule, kwon, lowest_scores, sweep
from divmf.rerank.sweep import grid_place, knob_between, sweep_points, unseen


def test_a_sweep_is_one_point_a_value_with_both_parts_measured():
    curve = sweep(market(), "bayes_rule", market_split(), 5)
    split, wide = market_split(), market()
    assert [point.knob for point in curve.points] == list(METHODS["bayes_rule"].grid)
    assert [point.epoch for point in curve.points] == list(range(len(curve)))
    last = curve.points[-1]
    assert last.phase == "bayes_rule"
    lists = bayes_rule(wide, 5, a=1)
    assert last.valid == measure(lists, split.valid.matrix, split.train.popularity, 5)
    later = bayes_rule(unseen(wide, split.valid.matrix), 5, a=1)
    assert last.test == measure(later, split.test.matrix, split.train.popularity, 5)
    assert curve.base is curve.points[0]


def test_lists_for_the_test_never_hold_what_was_seen_by_then():
    split, wide = market_split(), market()
    kept = unseen(wide, split.seen)
    rows = np.repeat(np.arange(len(wide)), kept.width)
    items = kept.items.ravel()
    listed = items >= 0
    assert not split.seen.toarray()[rows[listed], items[listed]].any()
    dropped = (wide.items >= 0).sum() - listed.sum()
    assert dropped == split.valid.matrix.toarray()[np.arange(len(wide))[:, None], wide.items].sum()


def test_a_sweep_takes_its_own_grid_and_settings():
    curve = sweep(market(), "kwon", market_split(), 5, grid=[1, 0.5], settings={"ranking": "popularity"})
    split = market_split()
    lists = kwon(market(), 5, t_r=0.5, ranking="popularity", train=split.train)
    assert curve.points[1].valid == measure(lists, split.valid.matrix, split.train.popularity, 5)


@pytest.mark.parametrize("name", ["kwon", "karakaya", "popcon", "market"])
def test_lists_are_chosen_once_for_either_order(name):
    runs = []

    @wraps(METHODS[name].function)
    def counted(*args, **settings):
        runs.append(settings["order"])
        return METHODS[name].function(*args, **settings)

    method, known, orders = replace(METHODS[name], function=counted), {}, ({}, {"order": "method"}, {"order": "score"})
    grid = (method.grid[0], method.grid[-1])
    together = [
        list(sweep_points(market(), method, market_split(), 5, grid=grid, settings=each, known=known))
        for each in orders
    ]
    assert runs == ["method"] * 2 * len(grid)
    for settings, points in zip(orders, together, strict=True):
        for value, point in zip(grid, points, strict=True):
            for part, seen, held in (
                ("valid", None, market_split().valid),
                ("test", market_split().seen, market_split().test),
            ):
                wide = market() if seen is None else unseen(market(), seen)
                lists = METHODS[name].run(wide, 5, settings | {method.knob: value}, market_split().train, 0)
                expected = measure(lists, held.matrix, market_split().train.popularity, 5)
                assert getattr(point, part) == expected


def test_candidates_made_without_the_validation_items_are_refused():
    wide = unseen(market(), market_split().seen)
    with pytest.raises(ValueError, match="only the training items taken out"):
        sweep(wide, "kwon", market_split(), 5)


def test_candidates_of_some_users_in_another_order_are_aligned():
    wide, split = market(), market_split()
    turned = replace(
        wide, items=wide.items[::-1].copy(), scores=wide.scores[::-1].copy(), user_ids=wide.user_ids.reverse()
    )
    one, two = (sweep(each, "bayes_rule", split, 5, grid=[0.1]) for each in (wide, turned))
    assert one.points[0].test == two.points[0].test


def test_without_a_split_a_sweep_measures_the_diversity_of_the_candidates_as_they_are():
    curve = sweep(market(), "bayes_rule")
    assert [point.knob for point in curve.points] == list(METHODS["bayes_rule"].grid)
    counts = bayes_rule(market(), 5, a=1).counts
    meant = {"coverage": coverage(counts), "entropy": entropy(counts), "gini": gini(counts)}
    assert curve.points[-1].valid == curve.points[-1].test == meant
    assert curve.base.valid["gini"] == gini(market().head(5).counts)
    assert "valid_ndcg" not in curve.frame.columns
    with pytest.raises(ValueError, match="karakaya needs the training interactions; give split="):
        sweep(market(), "karakaya")


def test_the_lowest_score_of_a_user_is_that_of_the_worst_item_not_seen():
    rng = np.random.default_rng(0)
    tables = [torch.from_numpy(rng.normal(size=(n, 3))) for n in (7, 11)]
    model, seen = MF(tables[0], tables[1], torch.from_numpy(rng.normal(size=11))), rng.random((7, 11)) < 0.5
    seen[3] = True
    scores = tables[0].numpy() @ tables[1].numpy().T + model.bias.numpy()
    expected = [
        min((s for s, met in zip(*row, strict=True) if not met), default=0.0) for row in zip(scores, seen, strict=True)
    ]
    np.testing.assert_allclose(lowest_scores(model, sparse.csr_array(seen.astype(np.float32))), expected)


def test_a_sweep_with_the_model_scales_over_all_its_unseen_items():
    wide, split = market(), market_split()
    model = MF(
        torch.ones(split.n_users, 1),
        -torch.arange(split.n_items, dtype=torch.float32)[:, None],
        torch.zeros(split.n_items),
    )
    by_model, by_candidates = (
        sweep(wide, "kwon", split, 5, grid=[0.8], model=each).points[0] for each in (model, None)
    )
    low = lowest_scores(model, split.seen)
    lists = kwon(unseen(wide, split.seen), 5, t_r=0.8, lowest=low)
    assert by_model.test["gini"] == gini(lists.counts)
    assert by_model.test["gini"] != by_candidates.test["gini"]


def points_at(knobs, values):
    """Points of a metric at some knobs, the first of them neutral."""
    rows = [{"gini": value} for value in values]
    return [Point("x", at, row, row, knob=knob) for at, (knob, row) in enumerate(zip(knobs, rows, strict=True))]


def test_a_knob_is_tried_between_the_last_that_keeps_a_floor_and_the_next_by_hand():
    assert knob_between(points_at([0.0, 0.2, 0.6], [0.9, 0.8, 0.3]), "gini", 0.5, whole=False) == pytest.approx(0.4)
    assert knob_between(points_at([0.0, 0.6, 0.2], [0.9, 0.3, 0.8]), "gini", 0.8, whole=False) == pytest.approx(0.4)
    assert knob_between(points_at([0.0, 0.6, 0.2], [0.9, 0.3, 0.8]), "gini", 0.3, whole=False) is None  # all keep it
    assert knob_between(points_at([0.0, 0.6, 0.2], [0.9, 0.3, 0.8]), "gini", 0.95, whole=False) is None  # none does
    # the neutral one is the largest: from there on downwards; beyond infinity it is twice the first number
    assert knob_between(points_at([1.0, 0.5, 0.0], [0.9, 0.8, 0.3]), "gini", 0.5, whole=False) == pytest.approx(0.25)
    assert knob_between(points_at([inf, 10.0, 4.0], [0.9, 0.3, 0.2]), "gini", 0.5, whole=False) == 20.0
    assert knob_between(points_at([inf, 10.0, 4.0], [0.9, 0.8, 0.2]), "gini", 0.5, whole=False) == 7.0
    # whole numbers have nothing between neighbours
    assert knob_between(points_at([1, 10, 21], [0.9, 0.8, 0.2]), "gini", 0.5, whole=True) == 16
    assert knob_between(points_at([1, 10, 11], [0.9, 0.8, 0.2]), "gini", 0.5, whole=True) is None
    assert knob_between([], "gini", 0.5, whole=True) is None


def test_knobs_stand_from_neutral_to_strongest():
    assert [grid_place(knob, (0, 0.5, 1)) for knob in (0.0, 0.7, None)] == [0.0, 0.7, inf]
    assert [grid_place(knob, (1, 0.5, 0)) for knob in (1.0, 0.7, None)] == [-1.0, -0.7, -inf]


def test_the_lowest_scores_of_many_users_are_those_of_each():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(5, 6)).astype(np.float32)
    seen = sparse.csr_array((rng.random((5, 6)) < 0.4).astype(np.float32))
    expected = [scores[user][seen.toarray()[user] == 0].min() for user in range(5)]
    found = lowest_scores(Blocks(lambda users: scores[users].copy(), 5, 6), seen)
    np.testing.assert_allclose(found, expected)
