"""Claims: the arithmetic by hand, and a verdict that follows from the interval alone."""

from math import exp, inf, log, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divmf.ranking.curve import Curve, Point
from divmf.reports.experiments.claims import (
    FAILED,
    HELD,
    PART,
    UNCLEAR,
    Claim,
    Effect,
    at_loss,
    best_rival,
    distance_to_best,
    effect,
    gain,
    ndcg_at,
    over_seeds,
)
from divmf.reports.experiments.questions import CLAIMS, better_version, higher_ndcg, lower_gini, meeting
from divmf.reports.experiments.recipe import QUESTIONS, read_question

numbers = st.floats(-100, 100, allow_nan=False)


def point(
    ndcg: float, gini: float, coverage: float = 0.5, entropy: float = 1.0, *, phase: str = "diversity", epoch: int = 1,
    test: float | None = None,
) -> Point:  # fmt: skip
    """A point whose test nDCG may differ from the one of validation."""
    measures = {"ndcg": ndcg, "gini": gini, "coverage": coverage, "entropy": entropy}
    return Point(phase, epoch, measures, measures | {"ndcg": ndcg if test is None else test}, seconds=2.0)


def mf(ndcg: float = 1.0, gini: float = 0.9) -> Point:
    return point(ndcg, gini, 0.2, phase="accuracy", epoch=0)


def effect_of(low: float, high: float, bar: float = 0.0) -> Effect:
    return Effect("Gini", "somewhere", "someone", (low + high) / 2, low, high, bar)


def test_the_interval_over_three_seeds_by_hand() -> None:
    # mean 2, standard deviation 1, Student's t with 2 degrees of freedom at 97.5%: 4.30265
    found = over_seeds([1.0, 2.0, 3.0])
    assert float(found) == pytest.approx(2)
    assert found.high - 2 == pytest.approx(4.30265 / sqrt(3), rel=1e-5)
    assert 2 - found.low == pytest.approx(found.high - 2)


def test_one_seed_gives_no_interval() -> None:
    with pytest.raises(ValueError, match="take at least 2"):
        over_seeds([1.0])


@given(st.lists(numbers, min_size=2, max_size=6), numbers)
def test_the_interval_moves_with_the_values(values: list[float], by: float) -> None:
    here, there = over_seeds(values), over_seeds([value + by for value in values])
    assert there.low - here.low == pytest.approx(by, abs=1e-6)
    assert there.high - here.high == pytest.approx(by, abs=1e-6)


def test_a_gain_is_a_share_of_theirs_and_less_gini_is_a_gain() -> None:
    assert gain("ndcg", 1.276, 1.0) == pytest.approx(0.276)  # the paper's 27.6%
    assert gain("gini", 0.653, 1.0) == pytest.approx(0.347)  # the paper's 34.7%
    assert gain("coverage", 0.3, 0.4) == pytest.approx(-0.25)
    assert gain("gini", 0.0, 0.0) == 0


@pytest.mark.parametrize(
    ("low", "high", "bar", "verdict"),
    [(0.1, 0.3, 0, HELD), (-0.1, 0.3, 0, UNCLEAR), (-0.3, -0.1, 0, FAILED), (0, 1, 0, UNCLEAR), (9, 30, 10, UNCLEAR)],
)
def test_an_effect_holds_where_its_whole_interval_is_above_the_bar(
    low: float, high: float, bar: float, verdict: str
) -> None:
    assert effect_of(low, high, bar).verdict == verdict


@pytest.mark.parametrize(
    ("effects", "verdict"),
    [
        ([(1, 2), (1, 2)], HELD),
        ([(1, 2), (-1, 2)], PART),
        ([(1, 2), (-2, -1)], PART),
        ([(-1, 2), (-1, 2)], UNCLEAR),
        ([(-1, 2), (-2, -1)], FAILED),
        ([(-2, -1), (-2, -1)], FAILED),
    ],
)
def test_a_claim_is_judged_by_all_its_effects(effects: list[tuple[float, float]], verdict: str) -> None:
    claim = Claim("q1", "name", "claim", None, tuple(effect_of(*each) for each in effects))
    assert claim.verdict == verdict
    assert Claim.from_json(claim.to_json()) == claim


def test_a_seed_without_a_number_leaves_nothing_to_compare() -> None:
    found = effect("nDCG", "there", "someone", [0.1, None, 0.2])
    assert (found.value, found.verdict, found.shown) == (None, UNCLEAR, "not reached")


def test_ratios_are_averaged_as_ratios() -> None:
    found = effect("epochs", "there", "someone", [2.0, 0.5], unit="×")
    assert found.value == pytest.approx(1.0)
    assert found.low == pytest.approx(1 / (found.high or inf))
    half = 12.7062 * sqrt(2) * log(2) / sqrt(2)
    assert found.high == pytest.approx(exp(half), rel=1e-4)
    assert found.shown == "1.0× (0.0× to over 1,000×)"


def test_a_metric_at_a_loss_is_chosen_on_validation_and_read_on_test() -> None:
    # on validation the second point keeps 96%, the third only 90%; on test it would be the other way round
    curve = Curve((mf(), point(0.96, 0.7, test=0.5), point(0.9, 0.5, test=1.0)))
    assert at_loss(curve, curve.base, 0.05, "gini") == 0.7
    assert at_loss(curve, curve.base, 0.1, "gini") == 0.5
    assert at_loss(curve, curve.base, 0.01, "gini") == 0.9


def test_accuracy_at_the_same_diversity_lies_between_two_points_of_the_frontier() -> None:
    curve = Curve((mf(), point(0.7, 0.8, test=0.6), point(0.8, 0.6, test=0.8), point(0.4, 0.2, test=0.4)))
    # (0.7, 0.8) is beaten by (0.8, 0.6); from Gini 0.6 to 0.2 test nDCG falls from 0.8 to 0.4
    assert ndcg_at(curve, "gini", 0.5) == pytest.approx(0.7)
    assert ndcg_at(curve, "gini", 0.75) == pytest.approx(0.9)
    assert ndcg_at(curve, "gini", 0.95) == pytest.approx(1.0)
    assert ndcg_at(curve, "gini", 0.1) is None


def test_the_distance_to_the_best_point_by_hand() -> None:
    # best: nDCG 1, Gini 0.4. The nearest point is (0.8, 0.4): down 0.2, left 0. (0.4, 0.1) lost too much to count
    curve, other = Curve((mf(), point(0.8, 0.4))), Curve((mf(), point(0.9, 0.65), point(0.4, 0.1)))
    both = [curve, other]
    assert distance_to_best(curve, both, mf(), "gini") == pytest.approx(0.2)
    assert distance_to_best(other, both, mf(), "gini") == pytest.approx(sqrt(0.1**2 + 0.5**2))


def test_the_best_rival_is_the_one_with_the_most_and_none_without_any() -> None:
    assert best_rival(["a", "b", "c"], {"a": 1.0, "b": 3.0, "c": None}.get) == "b"
    assert best_rival(["a"], lambda name: None) is None


def test_divmf_is_compared_with_the_most_even_baseline_over_the_seeds() -> None:
    curves = {
        "MF": [Curve((mf(),)), Curve((mf(),))],
        "DivMF": [Curve((mf(), point(0.96, 0.6))), Curve((mf(), point(0.96, 0.6)))],
        "kwon": [Curve((mf(), point(0.96, 0.7))), Curve((mf(), point(0.96, 0.9)))],
        "uimatch": [Curve((mf(), point(0.96, 0.75))), Curve((mf(), point(0.96, 0.75)))],
    }
    found = lower_gini(curves, ["kwon", "uimatch"], 0.05)
    assert found.rival == "uimatch"  # 0.75 on average, kwon 0.8
    assert found.value == pytest.approx(0.2)  # 1 − 0.6 / 0.75 with each seed
    assert found.verdict == HELD
    accuracy = higher_ndcg(curves, ["kwon", "uimatch"], 0.05)
    assert accuracy.value is None  # nobody else is ever at 0.6
    assert accuracy.verdict == HELD


def test_where_mini_batches_meet_the_whole_matrix_by_hand() -> None:
    whole = [point(1 - 0.01 * epoch, 0.9, entropy=1 + 0.1 * epoch, epoch=epoch) for epoch in range(1, 31)]
    mini = [point(1 - 0.1 * epoch, 0.9, entropy=1 + 0.8 * epoch, epoch=epoch) for epoch in range(1, 4)]
    met = meeting(Curve((mf(), *whole)), Curve((mf(), *mini)))
    assert met is not None
    assert met.epochs == (10, 2)  # entropy 2 after ten epochs at 10% loss; mini-batches have 1.8, then 2.6
    assert met.seconds == (20.0, 4.0)
    # a quarter of the way from (1.8, 0.9) to (2.6, 0.8)
    assert met.ndcg == (pytest.approx(0.9), pytest.approx(0.875))
    assert meeting(Curve((mf(), *whole)), Curve((mf(), mini[0]))) is None


def test_alternating_is_read_after_mfs_epochs_and_at_its_end() -> None:
    # MF trained two epochs; alternating has entropy 2 after as many and 4 at its end, where it is less accurate
    base = [point(0.5, 0.9, phase="accuracy", epoch=1), point(1.0, 0.9, phase="accuracy", epoch=2)]
    turns = [point(0.9 - 0.2 * epoch, 0.9, entropy=float(epoch), epoch=epoch) for epoch in (1, 2, 3, 4)]
    other = [point(0.5, 0.9, phase="accuracy", epoch=epoch) for epoch in (1, 2, 3, 4)]
    mixed = Curve(tuple(each for pair in zip(other, turns, strict=True) for each in pair))
    divmf = Curve((mf(), point(0.6, 0.8, entropy=3.0), point(0.2, 0.7, entropy=5.0, epoch=2)))
    # joint training ends at an nDCG of 0.5 and an entropy of 2.5; the most diverse of DivMF that keeps 0.5 has 3
    both = Curve((point(0.9, 0.9, entropy=1.0), point(0.5, 0.9, entropy=2.5, epoch=2)))
    curves = {"MF": [Curve(tuple(base))] * 2, "DivMF": [divmf] * 2, "alternating": [mixed] * 2, "joint": [both] * 2}
    claim, direct = CLAIMS["q3"](curves, read_question("q3"))
    assert [each.value for each in claim.effects] == [pytest.approx(0.5), pytest.approx(0.25)]
    assert [each.value for each in direct.effects] == [pytest.approx(0.2)]


def test_of_two_versions_of_divmf_the_one_more_even_on_validation_is_taken() -> None:
    # at 5% loss the paper's is more even, at 10 and 20% the tuned one, and by more
    paper = Curve((mf(), point(0.96, 0.70), point(0.92, 0.69), point(0.85, 0.68)))
    tuned = Curve((mf(), point(0.96, 0.75), point(0.92, 0.60), point(0.85, 0.50)))
    curves = {"MF": [Curve((mf(),))] * 2, "DivMF (paper)": [paper] * 2, "DivMF (tuned)": [tuned] * 2}
    assert better_version(curves, [0.05]) == "DivMF (paper)"
    assert better_version(curves, [0.05, 0.1, 0.2]) == "DivMF (tuned)"


def test_every_question_has_its_claims() -> None:
    assert tuple(CLAIMS) == QUESTIONS
    assert all(read_question(name).runs for name in QUESTIONS)
