"""The comparison's page: the choice is made on validation, the words follow from the test numbers."""

from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

from divmf.data.split import Split
from divmf.ranking.curve import Curve, Point
from divmf.reports.charts import curve_chart
from divmf.reports.compared import Comparison
from divmf.reports.comparison import answer, at_losses, choosing, next_steps, reason, sections
from divmf.reports.methods import IN_SHORT, in_short, rerank_command
from divmf.reports.page import write_page
from divmf.reports.section import cell, duration, listing, relative
from divmf.rerank import METHODS

# (validation nDCG, validation Gini, test Gini) at three settings, from the model itself to the strongest
NUMBERS = {
    "market": [(1.0, 0.9, 0.9), (0.96, 0.60, 0.62), (0.8, 0.3, 0.3)],
    "bayes_rule": [(1.0, 0.9, 0.9), (0.96, 0.55, 0.58), (0.7, 0.4, 0.4)],
    "uimatch": [(1.0, 0.9, 0.9), (0.97, 0.65, 0.57), (0.9, 0.6, 0.6)],
    "kwon": [(1.0, 0.9, 0.9), (0.5, 0.2, 0.2), (0.4, 0.1, 0.1)],
}


def measures(ndcg: float, gini: float) -> dict[str, float]:
    return {"ndcg": ndcg, "gini": gini, "coverage": 1 - gini, "entropy": 5 - gini}


def curve_of(name: str) -> Curve:
    return Curve(
        tuple(
            Point(name, place, measures(ndcg, valid), measures(ndcg / 2, test), knob=float(place))
            for place, (ndcg, valid, test) in enumerate(NUMBERS[name])
        )
    )


def row_of(name: str, loss: float, width: float = 0.03) -> dict[str, Any]:
    point = curve_of(name).best_within(loss, "gini")
    row: dict[str, Any] = {"method": name, "loss": loss, "knob": point.knob, "epoch": point.epoch, "seconds": 2.0}
    for metric in ("gini", "coverage", "entropy"):
        value = point.test[metric]
        row |= {metric: value, f"{metric}_low": value - width, f"{metric}_high": value + width}
    change = point.test["ndcg"] / 0.5 - 1
    return row | {"ndcg_change": change, "ndcg_change_low": change - 0.01, "ndcg_change_high": change + 0.01}


@pytest.fixture
def story(split: Split) -> Comparison:
    rows = [row_of(name, loss) for name in NUMBERS for loss in (0.01, 0.05, 0.2)]
    curves = {name: curve_of(name) for name in NUMBERS}
    settings = {("bayes_rule", 0.05): {"a": 1.0}}
    return Comparison(rows, curves, settings, split, 5, "RUN", 100)


def words(section: Any) -> str:
    tables = [str(cell(value)) for table in section.tables for row in table.rows for value in row]
    return Markup(" ".join([*map(str, section.prose), *tables])).striptags()


def test_the_choice_is_made_on_validation_and_not_on_the_test(story: Comparison) -> None:
    assert story.choice(0.05) == "bayes_rule"  # on the test, uimatch's 0.57 is lower than its 0.58
    assert story.choice(0.2) == "market"
    assert story.usual == 0.05


def test_the_words_name_the_choice_the_gain_and_who_comes_as_close(story: Comparison) -> None:
    short = answer(story)
    first = str(short.prose[0])
    assert "choose bayes_rule: on test it takes the Gini index from 0.90 to 0.58" in first
    assert "the lowest of the 4 methods on validation, by which it was chosen; on test uimatch has 0.57" in first
    assert "within its interval" in first
    assert ("−4.0%", "nDCG@5 on test (−5.0% to −3.0%)") in short.cards
    assert story.as_good(0.05) == ["market", "uimatch"]  # 0.55 … 0.61 meets 0.59 … 0.65 and 0.54 … 0.60, not 0.87 …
    text = reason(story, 0.05)
    assert "In evenness, market and uimatch cannot be told apart from it: the intervals overlap." in text
    assert "no other method comes within its 95% interval" in reason(story, 0.2)


def test_what_is_recommended_does_not_contradict_the_number_beside_it(story: Comparison) -> None:
    at_20 = Comparison(**vars(story) | {"rows": [row for row in story.rows if row["loss"] == 0.2]})
    assert "to 0.30, the lowest of the 4 methods compared" in str(answer(at_20).prose[0])
    worse = [dict(row) | {"gini": 0.95, "gini_low": 0.94, "gini_high": 0.96} for row in at_20.rows]
    short = answer(Comparison(**vars(at_20) | {"rows": worse}))  # more even on validation, less even on test
    assert "no method makes the lists more even: keep the model" in str(short.prose[0])
    assert not short.cards


def test_a_loss_at_which_nothing_helps_keeps_the_model(story: Comparison) -> None:
    table = choosing(story).tables[0]
    assert [row[0] for row in table.rows] == ["1%", "5%", "20%"]
    assert table.rows[0][1] == "the model itself"
    assert "bayes_rule" in str(table.rows[1][1])
    assert "no other method within its interval" in str(table.rows[2][2])


def test_what_hardly_helps_is_named(story: Comparison) -> None:
    assert "At a 5% loss, less than a tenth of the best improvement: kwon." in words(choosing(story))


def test_there_is_a_table_a_loss_the_most_even_first_and_the_best_bold(story: Comparison) -> None:
    section = at_losses(story)
    assert len(section.tables) == 3
    at_5 = section.tables[1]
    assert [str(row[0]).split(" ")[0] for row in at_5.rows[1:]] == ["uimatch", "bayes_rule", "market", "kwon"]
    assert "<b>0.5700</b>" in str(cell(at_5.rows[1][1]))
    assert "<b>" not in str(cell(at_5.rows[2][1]))
    assert cell(at_5.rows[0][1]) == "0.9000"


def test_a_test_that_lost_more_than_was_allowed_is_said(story: Comparison) -> None:
    row = story.row("bayes_rule", 0.05)
    row["ndcg_change"] = -0.067  # type: ignore[index]
    assert "There it cost 6.7%, more than the 5% of validation." in reason(story, 0.05)


def test_the_commands_make_the_lists_that_were_chosen(story: Comparison) -> None:
    text = words(next_steps(story))
    assert "divmf recommend RUN --epoch 0 -k 100 -o wide.parquet" in text
    assert "divmf rerank wide.parquet --method bayes_rule --set a=1 -k 5 -o lists.parquet" in text
    assert "divmf pick RUN --ndcg-drop 5%" in text
    settings = {"ranking": "liked", "t_r": 0.53125}
    assert rerank_command("w", "kwon", settings, "-o x") == (
        "divmf rerank w --method kwon --set ranking=liked --set t_r=0.53125 -o x"
    )


def test_every_method_is_explained_in_a_line() -> None:
    assert in_short("bayes_rule") == "discount an item by how much everyone wants it"
    assert set(IN_SHORT) == {*METHODS, "DivMF"}
    assert all(10 < len(in_short(name)) < 120 for name in IN_SHORT)


def test_small_words() -> None:
    assert [relative(share) for share in (0.021, -0.021, 0.0)] == ["+2.1%", "−2.1%", "0.0%"]
    assert [duration(seconds) for seconds in (0.114, 7.5, 300)] == ["0.11 s", "7.5 s", "5 min"]
    assert [listing(list(names)) for names in ("a", "ab", "abc")] == ["a", "a and b", "a, b and c"]


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 390)])
def test_a_browser_draws_the_comparison(
    story: Comparison, look_at: Any, tmp_path: Path, scheme: str, width: int
) -> None:
    chart = curve_chart(dict(story.curves), k=5, ceiling=story.ceiling)
    write_page(tmp_path / "page.html", "Which?", sections(story, chart))
    look_at(tmp_path / "page.html", 1, scheme, width, method=2)
