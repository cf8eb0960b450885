"""What the nouns look like in a shell and in a notebook: short, true, and safe."""

import json
from html.parser import HTMLParser

import polars as pl
import pytest

import divmf
from divmf.data.display import html_table
from divmf.data.split import Split
from divmf.ranking.curve import Curve, Point

EVIL = "<script>alert(1)</script>"


class Cells(HTMLParser):
    """The texts of a table, row by row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.tags[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def small() -> divmf.Interactions:
    frame = pl.DataFrame({"user_id": ["a", "a", "a", "b", "b", "b"], "item_id": [EVIL, "y", "z", "x", "y", "z"]})
    return divmf.Interactions.from_frame(frame)


def point(phase: str, epoch: int, ndcg: float, knob: float | None = None) -> Point:
    found = {"ndcg": ndcg, "coverage": 0.5, "entropy": 1.0, "gini": 0.25}
    return Point(phase, epoch, found, found, knob=knob)


def test_a_table_escapes_words_and_rounds_numbers() -> None:
    made = Cells(html_table("t", ["a", "b"], [[EVIL, 0.123456], ["x", 12345], ["y", None]]))
    assert made.rows == [["a", "b"], [EVIL, "0.1235"], ["x", "12,345"], ["y", "–"]]
    assert "script" not in made.tags


def test_interactions_and_splits_show_what_they_hold() -> None:
    data = small()
    assert repr(data) == "Interactions(2 users, 4 items, 6 interactions, no times)"
    assert Cells(data._repr_html_()).rows[1] == ["a", EVIL]
    split = divmf.Split(data, data.where([False] * 6), data.where([True] + [False] * 5))  # type: ignore[arg-type]
    assert Cells(split._repr_html_()).rows[1:] == [
        ["train", "2", "4", "6"], ["valid", "0", "0", "0"], ["test", "1", "1", "1"],
    ]  # fmt: skip


def test_lists_show_the_first_of_them() -> None:
    frame = pl.DataFrame({"user_id": [1, 1, 2], "item_id": [5, 6, 5], "score": [2.0, 1.0, 3.0]})
    lists = divmf.TopK.from_frame(frame)
    assert repr(lists) == "TopK(2 lists of 2, catalog of 2 items)"
    assert Cells(lists._repr_html_()).rows == [
        ["user_id", "item_id", "score", "rank"], ["1", "5", "2.0", "1"], ["1", "6", "1.0", "2"], ["2", "5", "3.0", "1"],
    ]  # fmt: skip


def test_an_estimate_shows_its_interval_and_prints_as_its_number() -> None:
    value = divmf.Estimate(0.25, 0.2, 0.3)
    assert repr(value) == "0.25 (0.2 to 0.3)"
    assert str(value) == f"{value}" == "0.25"
    assert json.dumps({"value": value}) == '{"value": 0.25}'


def test_a_curve_shows_its_operating_points_and_the_last_one() -> None:
    accuracy = [point("accuracy", epoch, 0.1 * epoch) for epoch in range(1, 4)]
    later = [point("diversity", epoch, 0.3 - epoch / 1000, float(epoch)) for epoch in range(1, 41)]
    curve = Curve((*accuracy, *later))
    rows = Cells(curve._repr_html_()).rows[1:]
    assert rows[0][:2] == ["the model itself", "0.3"]
    assert rows[-1][0] == "ρ = 40"
    assert len(rows) <= 13
    assert repr(later[0]) == "Point(ρ = 1; validation ndcg 0.299, coverage 0.5, gini 0.25)"
    assert Cells(later[0]._repr_html_()).rows[1] == ["nDCG", "0.299", "0.299"]


def test_a_curve_draws_itself_without_a_network(tmp_path: object) -> None:
    drawing = Curve((point("accuracy", 1, 0.3), point("diversity", 1, 0.2, 0.5))).chart("market", k=7)
    picture = drawing._repr_svg_()
    assert picture.startswith("<svg")
    assert "nDCG@7" in picture
    assert "http" not in picture.replace("http://www.w3.org", "")
    assert repr(drawing) == "Drawing(market: 2 points)"


def test_a_model_says_what_was_set_and_whether_it_was_fitted(split: Split) -> None:
    assert repr(divmf.DivMF()) == "DivMF(not fitted)"
    model = divmf.DivMF(k=3, dim=4, accuracy_epochs=2, diversity_epochs=2, l2=8.0, learning_rate=0.2)
    assert repr(model).endswith("; not fitted)")
    assert repr(model).startswith("DivMF(k=3, dim=4, ")
    assert model._repr_html_().startswith("DivMF(k=3")
    for unfitted in (lambda: model.curve, lambda: model.at(epoch=0), lambda: model.recommend([1])):
        with pytest.raises(ValueError, match=r"not fitted yet; call fit\(split\) first"):
            unfitted()
    model.fit(split)
    assert "; fitted, " in repr(model)
    assert Cells(model._repr_html_()).rows[1][0] == "the model itself"
    chosen = model.at(epoch=0)
    assert repr(chosen).startswith("Recommender(the model itself; validation ndcg ")
    assert Cells(chosen._repr_html_()).rows[0] == ["", "validation", "test"]


def test_users_come_first_and_one_value_is_no_sequence_of_users(split: Split) -> None:
    model = divmf.DivMF(k=3, dim=4, accuracy_epochs=2, diversity_epochs=1, l2=8.0, learning_rate=0.2).fit(split)
    chosen = model.at(epoch=0)
    some = split.user_ids[:2]
    assert chosen.lists(some, 2).items.shape == chosen.recommend(some, 2)[0].shape == (2, 2)
    assert chosen.recommend_frame(some, 2).height == 4
    with pytest.raises(ValueError, match=r"users=5 is one value; give a sequence of user ids, and the length as k=…"):
        chosen.lists(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"unmask": 5}, "unmask=5 is a setting of method='divmf' and does nothing with method='market'"),
     ({"method": "divmf", "level": 0.5}, "level=0.5 is a setting of method='market'"),
     ({"preset": "paper", "method": "market", "eps": 0.5}, "eps=0.5 is a setting of method='divmf'")],
)  # fmt: skip
def test_settings_of_another_method_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        divmf.DivMF(**settings)  # type: ignore[arg-type]


def test_a_preset_with_another_method_and_usual_values_are_accepted() -> None:
    assert divmf.DivMF(preset="paper", method="market").mask_seen is False
    assert divmf.DivMF(k=5, dim=32, unmask=100, seed=0).method == "market"
