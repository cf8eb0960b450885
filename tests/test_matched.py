"""What a curve reaches at a loss of accuracy (benchmarks/matched.py): the table of results stands on it."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.frontier import STRONG, Place, Points
from benchmarks.levels import beaten, best, to_draw
from benchmarks.matched import (
    LOSSES,
    METRICS,
    Cells,
    at_accuracy,
    cells,
    place_of,
    seeds_of,
    table_of,
    verdict,
    weights_of,
)
from benchmarks.results import behind, made, standings, summary
from benchmarks.strangers import row


def curve(ndcg: list[list[float]], coverage: list[float]) -> Points:
    n = len(coverage)
    values = np.array(coverage)
    return Points(np.arange(n), values, 10 * values, 1 - values, np.array(ndcg, np.float32), 0.0, {})


@pytest.mark.parametrize(("target", "place"), [(1.0, 0), (0.8, 1.5), (0.7, 2), (2.0, 0), (0.1, 2)])
def test_the_place_of_a_loss_lies_between_its_neighbours_or_at_an_end(target: float, place: float) -> None:
    assert place_of(np.array([1.0, 0.9, 0.7]), target) == pytest.approx(place)


def test_a_cell_is_the_best_value_up_to_the_loss_by_hand() -> None:
    # two users: mean nDCG 1, .95, .85, .75; coverage falls once, which a chooser need not follow
    made = curve([[1, 1], [1, 0.9], [0.9, 0.8], [0.8, 0.7]], [0.2, 0.6, 0.4, 0.8])
    found = cells([made], np.ones((1, 2), np.float32))
    by_loss = dict(zip(LOSSES, found.value, strict=True))
    assert by_loss[0.05] == pytest.approx([0.6, 6.0, 0.4], abs=1e-5)
    assert by_loss[0.10] == pytest.approx([0.6, 6.0, 0.4], abs=1e-5)  # not .5: the .6 before is kept
    assert by_loss[0.20] == pytest.approx([0.7, 7.0, 0.3], abs=1e-5)
    assert by_loss[0.40] == pytest.approx([0.8, 8.0, 0.2], abs=1e-5)  # never lost: the end of the curve


def test_noise_that_rises_is_averaged_before_the_loss_is_looked_for() -> None:
    # 1, .8, 1, .5: the middle two count as .9 each, so a loss of 10% is at the third, one of 5% half way to the second
    made = curve([[1.0], [0.8], [1.0], [0.5]], [0.0, 0.4, 0.6, 1.0])
    found = cells([made], np.ones((1, 1), np.float32))
    assert found.value[LOSSES.index(0.1), 0] == pytest.approx(0.6, abs=1e-5)
    assert found.value[LOSSES.index(0.05), 0] == pytest.approx(0.2, abs=1e-5)


def test_the_first_weighting_counts_everybody_once_and_the_others_as_many_draws() -> None:
    weights = weights_of(50, seed=3, resamples=7)
    assert weights.shape == (8, 50)
    assert (weights[0] == 1).all()
    assert (weights.sum(axis=1) == 50).all()


def drawn(low: float, high: float) -> Cells:
    draws = np.broadcast_to(np.linspace(low, high, 100)[:, None, None], (100, len(LOSSES), len(METRICS)))
    return Cells(draws.mean(axis=0), draws)


@pytest.mark.parametrize(
    ("metric", "mine", "expected"),
    [("coverage", (0.7, 0.8), "best"), ("coverage", (0.1, 0.2), "behind"), ("coverage", (0.4, 0.66), "tied"),
     ("gini", (0.7, 0.8), "behind"), ("gini", (0.1, 0.2), "best")],
)  # fmt: skip
def test_a_verdict_needs_the_whole_interval_of_the_difference_on_one_side(
    metric: str, mine: tuple[float, float], expected: str
) -> None:
    others = {"one": drawn(0.5, 0.6), "other": drawn(0.45, 0.55)}
    assert verdict(drawn(*mine), others, 1, list(METRICS).index(metric))[0] == expected


def test_at_an_accuracy_stand_those_that_are_so_accurate_by_hand() -> None:
    pairs = {
        ("ease", "market"): curve([[1.0], [0.8], [0.4]], [0.2, 0.4, 1.0]),
        ("bpr", "fairrec"): curve([[0.5], [0.4]], [0.1, 0.9]),
    }
    found = at_accuracy(pairs, 0.6)  # half way from the second point to the third
    assert list(found) == [("ease", "market")]
    assert found["ease", "market"] == pytest.approx([0.7, 7.0, 0.3])
    assert at_accuracy(pairs, 0.45)["bpr", "fairrec"] == pytest.approx([0.5, 5.0, 0.5])


def test_the_best_pair_is_named_with_how_many_have_the_same() -> None:
    values = {
        ("ease", "market"): np.array([1.0, 6.0, 0.5]),
        ("ials", "fairrec"): np.array([1.0, 6.5, 0.6]),
        ("bpr", "divmf"): np.array([0.3, 5.0, 0.9]),
    }
    assert best(values, 0) == "1.000: market on ease and 1 more"
    assert best(values, 1) == "6.500: fairrec on ials"
    assert best(values, 2) == "0.500: market on ease"
    assert best({}, 2) == "–"
    assert to_draw({1.0: values}) == [("ease", "market"), ("ials", "fairrec")]
    (said,) = beaten({1.0: values}, 0.4)  # a coverage that is the same counts for neither
    assert said.startswith("The market is not the best in entropy at 0.4000 (6.0000 against 6.5000), by")
    assert beaten({1.0: {("ease", "market"): values["ease", "market"]}}, 0.4) == []


def test_a_model_of_another_library_in_a_few_numbers_by_hand() -> None:
    # nDCG 1, .9, .7, .6 and Gini .9, .5, .3, .35: at a loss of 20% half way to the third point, and a rise at the end
    points = curve([[1.0], [0.9], [0.7], [0.6]], [0.1, 0.5, 0.7, 0.65])
    assert row("one", points) == "| one | 1.0000 | 0.900 | 0.500 | 0.400 | 0.300 | 0.7000 | 4 | 0.0500 |"


def test_what_is_made_is_said_and_counted(tmp_path: Path) -> None:
    ndcg = [[1.0, 1.0], [0.5, 0.5]]
    for method in ("market", *STRONG):
        even = [0.2, 0.8] if method == "market" else [0.2, 0.4]
        curve(ndcg, even).save(Place("ml-1m", "ease", 0, tmp_path).file(method, 5))
    said = made(tmp_path)
    assert "| MovieLens-1M | ease | 5 | 0 | kwon, " in said
    assert "- MovieLens-1M: ease with k = 10, ials with k = 5, " in said
    found = list(standings(tmp_path))
    assert len(found) == len(LOSSES) * len(METRICS)
    assert {cell.standing for cell in found} == {"best"}
    text = summary(tmp_path)
    assert text.startswith("Of 12 comparisons with all other methods on the same model, ")
    assert "40% of nDCG; k = 5: MovieLens-1M; models ease; 1 seed." in text
    assert "in 12, not distinguishable from the best in 0 and behind in 0" in text
    assert behind(found).startswith("The market is behind no rival")
    assert "| MovieLens-1M | ease | 5 | 5% | gini | 0.8000 | fairrec 0.7000 |" in behind(
        [found[2]._replace(standing="behind", value=0.8, rival_value=0.7)]
    )


def test_a_table_is_of_the_seeds_for_which_the_market_and_its_strongest_rivals_are_made(tmp_path: Path) -> None:
    kept = curve([[1.0, 1.0], [0.5, 0.5]], [0.2, 0.4])
    for seed in (0, 2):
        for method in ("market", *STRONG):
            kept.save(Place("ml-1m", "ease", seed, tmp_path).file(method, 5))
    kept.save(Place("ml-1m", "ease", 1, tmp_path).file("market", 5))
    kept.save(Place("ml-1m", "ease", 0, tmp_path).file("kwon", 5))  # of one seed alone: not in the table
    assert seeds_of("ml-1m", "ease", tmp_path, 5) == [0, 2]
    assert list(table_of("ml-1m", "ease", tmp_path, 5)) == ["market", *STRONG]
    assert table_of("ml-1m", "ease", tmp_path, 10) == {}
