"""The curve: worked by hand, and the laws of its frontier and its matched-loss readings."""

import json
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divmf.ranking.curve import Curve, Point


def point(phase, epoch, ndcg, gini, coverage=0.5, test=None, **more):
    valid = {"ndcg": ndcg, "gini": gini, "coverage": coverage}
    return Point(phase, epoch, valid, valid if test is None else test, **more)


# nDCG and Gini of a run: it learns, then gives up accuracy for diversity, not quite steadily
RUN = Curve(
    (
        point("accuracy", 1, 0.50, 0.20, 0.99),  # barely trained: diverse, but nothing one would choose
        point("accuracy", 2, 1.00, 0.90, 0.40),
        point("accuracy", 3, 0.98, 0.91, 0.39),
        point("diversity", 4, 0.99, 0.80, 0.50),
        point("diversity", 5, 0.95, 0.82, 0.48),  # a bad epoch: worse than the one before in both
        point("diversity", 6, 0.96, 0.60, 0.70),
        point("diversity", 7, 0.80, 0.50, 0.80),
        point("diversity", 8, 0.70, 0.55, 0.75),  # worse in both again
    )
)


def epochs(curve):
    return [chosen.epoch for chosen in curve.points]


# ---- the points


def test_the_base_is_the_best_accuracy_epoch_on_validation():
    assert RUN.base.epoch == 2
    turned = Curve(
        (Point("accuracy", 1, {"ndcg": 2.0}, {"ndcg": 0.0}), Point("accuracy", 2, {"ndcg": 1.0}, {"ndcg": 9.0}))
    )
    assert turned.base.epoch == 1
    assert Curve((point("diversity", 5, 0.1, 0.1), point("diversity", 6, 0.9, 0.9))).base.epoch == 5
    with pytest.raises(ValueError, match="the curve has no points"):
        _ = Curve(()).base


def test_one_may_choose_the_base_and_what_comes_after_the_accuracy_phase():
    assert [chosen.epoch for chosen in RUN.operating] == [2, 4, 5, 6, 7, 8]
    rerank = Curve(tuple(point("fairmatch", 0, 1 - knob, 1 - knob, knob=knob) for knob in (0.0, 0.5)))
    assert [chosen.knob for chosen in rerank.operating] == [0.0, 0.5]


def test_the_frame_has_a_row_a_point_and_a_column_a_number():
    points = (
        point("accuracy", 1, 0.5, 0.9, loss=3.0),
        Point("market", 0, {"ndcg": 0.4}, {"ndcg": 0.3, "hit": 1.0}, knob=0.5, gap=0.01),
    )
    frame = Curve(points).frame
    assert frame.columns == [
        "phase", "epoch", "knob", "loss", "seconds", "gap", "valid_ndcg", "valid_gini", "valid_coverage",
        "test_ndcg", "test_gini", "test_coverage", "test_hit",
    ]  # fmt: skip
    assert frame["phase"].to_list() == ["accuracy", "market"]
    assert frame["knob"].to_list() == [None, 0.5]
    assert frame["gap"].to_list() == [None, 0.01]
    assert frame["valid_gini"].to_list() == [0.9, None]
    assert frame["test_ndcg"].to_list() == [0.5, 0.3]
    assert frame["seconds"].dtype == pl.Float64
    assert Curve(()).frame.columns == ["phase", "epoch", "knob", "loss", "seconds", "gap"]
    assert repr(RUN) == "Curve(3 accuracy, 5 diversity)"
    assert len(RUN) == 8


def test_points_survive_json_without_what_they_do_not_have():
    full = Point("market", 3, {"ndcg": 0.5}, {"gini": 0.25}, knob=0.1, loss=2.0, seconds=1.5)
    bare = Point("diversity", 4, {"ndcg": 0.5}, {"gini": 0.25})
    assert bare.to_json() == {"phase": "diversity", "epoch": 4, "valid": {"ndcg": 0.5}, "test": {"gini": 0.25}}
    for original in (full, bare):
        row = json.loads(json.dumps(original.to_json() | {"something": "else"}))
        assert Point.from_json(row) == original


# ---- the frontier


def test_the_frontier_leaves_out_what_is_beaten_and_what_cannot_be_chosen():
    assert epochs(RUN.frontier()) == [2, 4, 6, 7]
    assert epochs(RUN.frontier("coverage")) == [2, 4, 6, 7]


def test_of_equal_points_the_frontier_keeps_the_first():
    curve = Curve(tuple(point("diversity", epoch, 0.5, gini) for epoch, gini in ((1, 0.6), (2, 0.5), (3, 0.5))))
    assert epochs(curve.frontier()) == [2]


def test_the_frontier_reads_the_part_it_is_asked_for():
    curve = Curve(
        (
            point("diversity", 1, 0.9, 0.5, test={"ndcg": 0.1, "gini": 0.5}),
            point("diversity", 2, 0.8, 0.6, test={"ndcg": 0.2, "gini": 0.4}),
        )
    )
    assert epochs(curve.frontier()) == [1]
    assert epochs(curve.frontier(part="test")) == [2]


def test_hypervolume_worked_by_hand():
    # rectangles from (0, Gini 1): 1.00 × 0.1, then what each next one adds: 0.99 × 0.1, 0.96 × 0.2, 0.80 × 0.1
    assert RUN.hypervolume() == pytest.approx(0.1 + 0.099 + 0.192 + 0.08)
    assert RUN.hypervolume("coverage") == pytest.approx(1.00 * 0.4 + 0.99 * 0.1 + 0.96 * 0.2 + 0.80 * 0.1)
    # from (0.9, Gini 0.7): only epoch 6 is better in both
    assert RUN.hypervolume(reference=(0.9, 0.7)) == pytest.approx(0.06 * 0.1)


def test_a_metric_without_a_worst_value_needs_a_reference():
    curve = Curve((Point("diversity", 1, {"ndcg": 0.5, "popularity": 30.0}, {}),))
    with pytest.raises(ValueError, match="'popularity' has no worst value; give reference"):
        curve.hypervolume("popularity")
    assert curve.hypervolume("popularity", reference=(0.0, 50.0)) == 10


# ---- matched comparisons


def test_diversity_at_a_matched_loss_worked_by_hand():
    # the frontier is (1.00, 0.90) (0.99, 0.80) (0.96, 0.60) (0.80, 0.50); the bad epochs are passed over
    for drop, gini in (
        (0.0, 0.90),
        (0.005, 0.85),
        (0.01, 0.80),
        (0.025, 0.70),
        (0.04, 0.60),
        (0.12, 0.55),
        (0.20, 0.50),
    ):
        assert RUN.at_loss(drop, "gini") == pytest.approx(gini)
    assert RUN.at_loss(0.025, "coverage") == pytest.approx(0.60)


def test_a_loss_reached_only_by_beaten_points_gives_the_best_before_it():
    assert RUN.at_loss(0.25, "gini") == 0.50  # epoch 8 lost 30%, with a worse Gini than epoch 7


def test_a_loss_the_curve_never_reached_gives_none():
    assert RUN.at_loss(0.31, "gini") is None
    assert Curve(RUN.points[:3]).at_loss(0.05, "gini") is None
    assert Curve(RUN.points[:3]).at_loss(0.0, "gini") == 0.90


def test_a_base_that_is_beaten_in_both_gives_the_better_value_at_no_loss():
    curve = Curve((point("accuracy", 1, 0.5, 0.9), point("diversity", 2, 0.6, 0.8)))
    assert curve.at_loss(0.0, "gini") == 0.8


def test_the_loss_is_taken_on_the_part_asked_for_against_the_base_of_validation():
    curve = Curve(
        (
            point("accuracy", 1, 0.5, 0.9, test={"ndcg": 0.30, "gini": 0.9}),
            point("accuracy", 2, 0.4, 0.9, test={"ndcg": 0.90, "gini": 0.9}),
            point("diversity", 3, 0.4, 0.7, test={"ndcg": 0.15, "gini": 0.6}),
        )
    )
    assert curve.at_loss(0.25, "gini", "test") == pytest.approx(0.75)
    assert curve.at_loss(0.10, "gini", "valid") == pytest.approx(0.80)


def test_accuracy_at_a_matched_diversity_worked_by_hand():
    for gini, ndcg in ((0.95, 1.00), (0.90, 1.00), (0.85, 0.995), (0.70, 0.975), (0.55, 0.88), (0.50, 0.80)):
        assert RUN.ndcg_at("gini", gini) == pytest.approx(ndcg)
    assert RUN.ndcg_at("gini", 0.49) is None
    assert RUN.ndcg_at("coverage", 0.60) == pytest.approx(0.975)
    assert RUN.ndcg_at("coverage", 0.81) is None


SHARES = st.integers(1, 1000).map(lambda number: number / 1000)
CURVES = st.lists(st.tuples(st.sampled_from(["accuracy", "diversity"]), SHARES, SHARES, SHARES), min_size=1).map(
    lambda rows: Curve(tuple(point(phase, epoch, *values) for epoch, (phase, *values) in enumerate(rows)))
)
METRICS_OF_CURVES = st.sampled_from(["gini", "coverage"])


def goodness(metric, value):
    return -value if metric == "gini" else value


@given(CURVES, METRICS_OF_CURVES)
def test_every_operating_point_is_equalled_or_beaten_by_the_frontier_and_no_frontier_point_is(curve, metric):
    def pair(chosen):
        return chosen.valid["ndcg"], goodness(metric, chosen.valid[metric])

    frontier = [pair(chosen) for chosen in curve.frontier(metric).points]
    for ndcg, value in map(pair, curve.operating):
        assert any(other[0] >= ndcg and other[1] >= value for other in frontier)
    for ndcg, value in frontier:
        assert not any(other[0] >= ndcg and other[1] >= value and other != (ndcg, value) for other in frontier)
    assert frontier == sorted(set(frontier), reverse=True)


@given(CURVES, METRICS_OF_CURVES, SHARES, SHARES)
def test_more_loss_never_buys_less_diversity(curve, metric, one, other):
    less, more = sorted([one, other])
    values = [curve.at_loss(drop, metric) for drop in (0.0, less, more)]
    reached = [goodness(metric, value) for value in values if value is not None]
    assert all(later >= earlier - 1e-12 for earlier, later in pairwise(reached))
    assert values == sorted(values, key=lambda value: value is None)  # once out of reach, always out of reach


@given(CURVES, METRICS_OF_CURVES, SHARES)
def test_matched_loss_is_between_the_base_and_the_best_point(curve, metric, drop):
    best = max(goodness(metric, chosen.test[metric]) for chosen in curve.operating)
    at_no_loss = curve.at_loss(0.0, metric)
    assert goodness(metric, at_no_loss) >= goodness(metric, curve.base.test[metric]) - 1e-12
    value = curve.at_loss(drop, metric)
    assert value is None or goodness(metric, value) <= best + 1e-12


@given(CURVES, METRICS_OF_CURVES)
def test_a_matched_loss_is_at_least_what_every_point_offers_at_its_own(curve, metric):
    base = curve.base.test["ndcg"]
    for chosen in curve.operating:
        drop = 1 - chosen.test["ndcg"] / base
        if drop >= 0:
            value = curve.at_loss(drop, metric)
            # rounding may put the loss of the last point just out of reach
            assert value is None or goodness(metric, value) >= goodness(metric, chosen.test[metric]) - 1e-9


@given(CURVES, METRICS_OF_CURVES, SHARES)
def test_both_matched_readings_are_of_one_line(curve, metric, value):
    ndcg = curve.ndcg_at(metric, value)
    best = max(goodness(metric, chosen.test[metric]) for chosen in curve.operating)
    assert (ndcg is None) == (goodness(metric, value) > best)
    drop = 0 if ndcg is None else 1 - ndcg / curve.base.test["ndcg"]
    if drop > 0 and (back := curve.at_loss(drop, metric)) is not None:
        assert goodness(metric, back) >= goodness(metric, value) - 1e-9


@given(CURVES, METRICS_OF_CURVES)
def test_hypervolume_counts_the_area_of_a_fine_grid(curve, metric):
    grid = [(step + 0.5) / 40 for step in range(40)]
    worst = 1.0 if metric == "gini" else 0.0
    pairs = [(chosen.valid["ndcg"], abs(chosen.valid[metric] - worst)) for chosen in curve.operating]
    inside = sum(any(x < ndcg and y < value for ndcg, value in pairs) for x in grid for y in grid)
    assert curve.hypervolume(metric) == pytest.approx(inside / 1600, abs=0.04)


@given(CURVES, st.tuples(SHARES, SHARES))
def test_another_point_never_shrinks_the_hypervolume(curve, values):
    more = Curve((*curve.points, point("diversity", 99, *values)))
    assert more.hypervolume() >= curve.hypervolume() - 1e-12


# ---- the choice


def test_within_a_loss_the_most_even_point_is_chosen():
    assert RUN.choose(ndcg_drop=0.0).epoch == 2
    assert RUN.choose(ndcg_drop=0.03).epoch == 4
    assert RUN.choose(ndcg_drop=0.04).epoch == 6
    assert RUN.choose(ndcg_drop=0.05).epoch == 6
    assert RUN.choose(ndcg_drop=1).epoch == 7


def test_a_target_is_reached_at_the_highest_accuracy():
    assert RUN.choose(gini=0.95).epoch == 2
    assert RUN.choose(gini=0.80).epoch == 4
    assert RUN.choose(gini=0.79).epoch == 6
    assert RUN.choose(coverage=0.75).epoch == 7


def test_an_unreached_target_says_the_best_there_is_and_the_way_out():
    with pytest.raises(ValueError, match=r"gini=0.3 is not reached .* best is 0.5000; .* more diversity epochs"):
        RUN.choose(gini=0.3)
    with pytest.raises(ValueError, match=r"coverage=0.9 is not reached .* best is 0.8000"):
        RUN.choose(coverage=0.9)


def test_an_epoch_is_exact_and_an_unknown_one_names_the_range():
    assert RUN.choose(epoch=5).epoch == 5
    assert RUN.choose(epoch=0) is RUN.base
    with pytest.raises(ValueError, match=r"epoch=3 cannot be chosen; choose 0 \(before diversifying\), or 4 to 8"):
        RUN.choose(epoch=3)
    restarted = Curve((point("accuracy", 1, 0.5, 0.9), point("diversity", 1, 0.4, 0.8)))
    assert restarted.choose(epoch=1).phase == "diversity"


def test_the_knee_is_where_the_frontier_bends_most():
    # scaled, the frontier is (1, 0) (0.95, 0.25) (0.8, 0.75) (0, 1): epoch 6 is farthest above the line
    assert RUN.choose("knee").epoch == 6
    straight = Curve(tuple(point("diversity", epoch, 1 - epoch / 10, 1 - epoch / 10) for epoch in range(5)))
    assert straight.choose("knee").epoch == 0
    hollow = Curve(tuple(point("diversity", epoch, x, x * x) for epoch, x in enumerate((0.9, 0.5, 0.1))))
    bent = Curve(tuple(point("diversity", epoch, x, x**0.5) for epoch, x in enumerate((0.9, 0.5, 0.1))))
    assert hollow.choose("knee").epoch == 1
    assert bent.choose("knee").epoch == 0
    assert Curve(RUN.points[:2]).choose("knee").epoch == 2


def test_choices_are_made_on_validation():
    flattering = {"ndcg": 9.0, "gini": 0.0, "coverage": 1.0}
    curve = Curve((*RUN.points, point("diversity", 9, 0.10, 0.95, 0.1, test=flattering)))
    curve = Curve((*curve.points, point("diversity", 10, 0.10, 0.01, 0.1, test=flattering)))
    picks = [{"ndcg_drop": 0.05}, {"gini": 0.7}, {"coverage": 0.6}, {"rule": "knee"}]
    assert [curve.choose(**pick).epoch for pick in picks] == [6, 6, 6, 6]


@given(CURVES, SHARES)
def test_what_is_chosen_keeps_its_promise_and_nothing_that_does_is_better(curve, drop):
    chosen = curve.choose(ndcg_drop=drop)
    least = (1 - drop) * curve.base.valid["ndcg"]
    assert chosen.valid["ndcg"] >= least
    assert all(other.valid["gini"] >= chosen.valid["gini"] for other in curve.operating if other.valid["ndcg"] >= least)
    assert curve.choose("knee") in curve.frontier().points


# a run of the market: two points were added between those of the path, after it
PRICED = Curve(
    (
        point("accuracy", 1, 0.9, 0.9),
        point("accuracy", 2, 1.0, 0.9),
        point("diversity", 1, 0.99, 0.8, knob=0.1, gap=0.002),
        point("diversity", 2, 0.90, 0.6, knob=0.2, gap=0.003),
        point("diversity", 3, 0.70, 0.4, knob=0.4, gap=0.02),
        point("diversity", 4, 0.95, 0.7, knob=0.15, gap=0.001),
        point("diversity", 5, 0.80, 0.5, knob=0.3, gap=0.004),
    )
)


def test_points_of_the_market_stand_in_the_order_of_rho_whenever_they_were_made():
    assert [chosen.knob for chosen in PRICED.operating] == [None, 0.1, 0.15, 0.2, 0.3, 0.4]
    assert [chosen.name for chosen in PRICED.operating[:3]] == ["the model itself", "ρ = 0.1", "ρ = 0.15"]
    assert RUN.choose(epoch=6).name == "diversity epoch 6"
    # a reranker's points keep the order of its sweep, in which small need not be mild
    rerank = Curve((PRICED.base, point("kwon", 1, 0.9, 0.8, knob=0.5), point("kwon", 2, 0.8, 0.7, knob=0.2)))
    assert [chosen.knob for chosen in rerank.operating] == [None, 0.5, 0.2]


def test_a_point_of_the_market_is_chosen_by_its_rho():
    assert [PRICED.choose(rho=rho).epoch for rho in (1e-9, 0.12, 0.13, 0.2, 5.0)] == [1, 1, 4, 2, 3]
    assert PRICED.choose(rho=0) is PRICED.base
    assert Point.from_json(json.loads(json.dumps(PRICED.points[3].to_json()))) == PRICED.points[3]
    for wrong in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=rf"rho={wrong:g} cannot be chosen: ρ is a number, 0 or more"):
            PRICED.choose(rho=wrong)
    with pytest.raises(ValueError, match=r"rho=1 cannot be chosen: its points have none"):
        RUN.choose(rho=1.0)


def test_the_loss_may_be_measured_from_another_models_ndcg():
    assert RUN.best_within(0.05, "gini").epoch == 6
    assert RUN.best_within(0.0, "coverage").epoch == 2
    assert RUN.best_within(0.05, "gini", ndcg=0.80).epoch == 7  # what keeps 0.76
    assert RUN.best_within(0.01, "gini", ndcg=1.0).epoch == 4
    assert RUN.best_within(0.05, "gini", ndcg=2.0) is RUN.base  # nothing keeps 1.9


BAD_CHOICES = [
    ({}, "exactly one of .* given: nothing"),
    ({"gini": 0.5, "epoch": 3}, "exactly one of .* given: gini=0.5, epoch=3"),
    ({"rule": "elbow"}, "rule='elbow' is unknown; .* 'knee'"),
    ({"ndcg_drop": 5}, "ndcg_drop=5 is not a share; choose 0 to 1, such as 0.05 for five per cent"),
    ({"ndcg_drop": -0.1}, "ndcg_drop=-0.1 is not a share"),
    ({"gini": float("nan")}, "gini=nan is not a share"),
    ({"coverage": 80}, "coverage=80 is not a share"),
]


@pytest.mark.parametrize(("pick", "message"), BAD_CHOICES)
def test_bad_choices_are_refused_with_what_is_wrong(pick, message):
    with pytest.raises(ValueError, match=message):
        RUN.choose(**pick)


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="metric='novelty' is unknown; choose one of ndcg, hit, coverage"):
        RUN.frontier("novelty")
    with pytest.raises(ValueError, match="metric='entropy' was not measured; choose one of ndcg, gini, coverage"):
        RUN.at_loss(0.05, "entropy")
    with pytest.raises(ValueError, match="part='train' is not a part of a curve"):
        RUN.hypervolume(part="train")
    with pytest.raises(ValueError, match="drop=5 is not a share of the nDCG"):
        RUN.at_loss(5, "gini")


def test_a_knob_that_is_neutral_at_infinity_survives_strict_json() -> None:
    import json

    point = Point("uimatch", 0, {"ndcg": 0.5}, {"ndcg": 0.4}, knob=float("inf"))
    text = json.dumps(point.to_json(), allow_nan=False)
    assert Point.from_json(json.loads(text)) == point


# ---- points that are told apart by a little


def test_a_curve_without_a_model_begins_with_its_first_point_which_has_its_epoch() -> None:
    curve = Curve(tuple(point("diversity", epoch, 1 - epoch / 10, 1 - epoch / 10) for epoch in (3, 4, 5)))
    assert curve.choose(epoch=3) is curve.points[0]
    assert curve.choose(epoch=0) is curve.points[0]
    assert curve.choose(epoch=5) is curve.points[2]
    assert curve.has_rho is False


def test_with_rules_the_point_at_rho_zero_is_the_base_and_a_rho_of_its_own() -> None:
    own, kept = point("accuracy", 1, 1.0, 0.9), point("diversity", 1, 0.9, 0.8, knob=0.0)
    curve = Curve((own, kept, point("diversity", 2, 0.7, 0.5, knob=0.6), point("diversity", 3, 0.5, 0.4, knob=1.2)))
    assert curve.base is kept
    assert curve.without_rules is own
    assert curve.has_rho
    assert [chosen.knob for chosen in curve.operating] == [0.0, 0.6, 1.2]
    assert curve.choose(rho=0.0) is kept
    assert [curve.choose(rho=rho).knob for rho in (0.2, 0.31, 0.89, 0.91, 1e9)] == [0.0, 0.6, 0.6, 1.2, 1.2]
    assert curve.choose(epoch=1) is kept
    assert Curve(curve.points[1:]).without_rules is kept


def test_of_points_that_tie_the_more_diverse_is_chosen_then_the_earliest() -> None:
    curve = Curve((
        point("accuracy", 1, 1.0, 0.9, 0.1), point("diversity", 2, 0.8, 0.5, 0.6), point("diversity", 3, 0.8, 0.4, 0.7),
        point("diversity", 4, 0.8, 0.4, 0.7), point("diversity", 5, 0.7, 0.4, 0.7),
    ))  # fmt: skip
    assert curve.choose(gini=0.6).epoch == 3
    assert curve.choose(coverage=0.6).epoch == 3
    assert curve.choose(ndcg_drop=0.3).epoch == 3
    assert curve.best_within(0.3, "gini").epoch == 3
    assert curve.best_within(0.3, "coverage").epoch == 3


def test_shares_go_from_nothing_to_all() -> None:
    assert RUN.choose(gini=1).epoch == 2
    assert RUN.choose(coverage=0).epoch == 2
    assert RUN.at_loss(1.0, "gini") is None
    zero = Curve((*RUN.points, point("diversity", 9, 0.0, 0.3)))
    assert zero.at_loss(1.0, "gini") == 0.3
    assert RUN.ndcg_at("coverage", 0.8) == pytest.approx(0.8)  # the most there is


def test_an_area_of_nothing_is_nothing() -> None:
    assert RUN.hypervolume(reference=(1.0, 0.95)) == 0.0  # nothing is more accurate
    assert RUN.hypervolume(reference=(0.0, 0.5)) == 0.0  # nothing is more even
    assert RUN.hypervolume(reference=(0.0, 0.0)) == 0.0
