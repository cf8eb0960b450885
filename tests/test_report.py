"""Reports: the charts draw the right numbers, and a page is one safe file that needs nothing else."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from markupsafe import Markup

from divmf.data.interactions import Interactions
from divmf.data.split import leave_one_out
from divmf.ranking.curve import Curve, Point
from divmf.ranking.lists import TopK
from divmf.ranking.metrics import METRICS, Estimate, coverage_ceiling, evaluate, gini, head_share, measure
from divmf.reports import chart_files, charts
from divmf.reports.colours import REST
from divmf.reports.drawing import draw_curve
from divmf.reports.examples import new_slots, telling_users
from divmf.reports.matched import matched_tables
from divmf.reports.page import run_report, write_page
from divmf.reports.rows import lorenz, shares_by_tenth
from divmf.reports.section import Figure, Section, Table, cell, number, signed
from divmf.reports.story import headline, places

EVIL = "<script>alert(1)</script>"
K = 2
counts_of_items = arrays(np.int64, st.integers(2, 400), elements=st.integers(0, 50))


# ---- a small marketplace, all by hand: six items, one with a bad name, and lists that go from one item to all


def make_split():
    rows = [
        (f"u{user}", item) for user in range(9) for item in (EVIL, "b", "c", "d", "e", "f")[user % 3 : user % 3 + 4]
    ]
    return leave_one_out(Interactions.from_frame(pl.DataFrame(rows, ["user_id", "item_id"], orient="row")), rng())


def rng():
    return np.random.default_rng(0)


def make_lists(split, spread):
    """K unseen items a user: the first ones by number, or spread over the catalog."""
    rows = []
    for user in range(split.n_users):
        seen = split.seen[[user]].indices
        unseen = np.setdiff1d(np.arange(split.n_items), seen)
        rows.append(np.roll(unseen, -user if spread else 0)[:K])
    return TopK.from_arrays(np.array(rows), np.tile([2.0, 1.0], (len(rows), 1)), split.user_ids, split.item_ids)


def point_of(phase, epoch, lists, split, **more):
    measured = measure(lists, split.test.matrix, split.train.popularity)
    return Point(phase, epoch, measured, measured, **more)


@pytest.fixture(scope="module")
def split():
    return make_split()


@pytest.fixture(scope="module")
def lists(split):
    return {"model": make_lists(split, False), "market": make_lists(split, True)}


@pytest.fixture(scope="module")
def curve(split, lists):
    return Curve((point_of("accuracy", 1, lists["model"], split), point_of("diversity", 1, lists["market"], split)))


@pytest.fixture(scope="module")
def page(tmp_path_factory, split, lists, curve):
    """The report of the small marketplace, with everything that can be given, and names that try to break out."""
    path = tmp_path_factory.mktemp("report") / "new" / "report.html"
    extra = {EVIL: Curve((curve.base, replace(curve.points[1], phase="evil", knob=0.5)))}
    run_report(
        path, curve, curve.points[1], {**lists, EVIL: lists["market"]}, split, K, f"divmf demo {EVIL}", extra,
        valid_lists=lists, titles={"b": f"{EVIL} & co"}, run=EVIL,
    )  # fmt: skip
    return path


class Page(HTMLParser):
    """What a browser would make of a page: its elements, the text of its scripts and tables; unclosed tags fail."""

    VOID = ("meta", "link", "br", "img", "input", "hr")

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.tables, self.open, self.words = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attributes), ""))
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data
        self.words.append(data if "script" not in self.open and "style" not in self.open else "")

    def specs(self):
        return [json.loads(text) for attributes, text in self.scripts if attributes.get("type") == "application/json"]

    def table(self, first):
        return next(table for table in self.tables if table[0][0] == first)


@pytest.fixture(scope="module")
def parsed(page):
    return Page(page.read_text(encoding="utf-8"))


def loaded(page):
    """Every address a browser would fetch on its own while showing the page."""
    addresses = [
        attributes[name] for _, attributes in page.elements for name in ("src", "srcset", "data") if name in attributes
    ]
    addresses += [attributes["href"] for tag, attributes in page.elements if tag in ("link", "base", "use", "image")]
    return addresses


# ---- the numbers behind the charts


def test_the_lorenz_curve_of_a_small_catalog_worked_by_hand():
    items, places = lorenz(np.array([6, 3, 2, 1, 0, 0, 0, 0]))
    assert items.tolist() == [0, 1 / 8, 2 / 8, 3 / 8, 4 / 8, 5 / 8, 6 / 8, 7 / 8, 1]
    assert (places * 12).round(9).tolist() == [0, 0, 0, 0, 0, 1, 3, 6, 12]
    area = (1 + 3 + 6 + 12 / 2) / 12 / 8  # trapezoids of width 1/8
    assert np.trapezoid(places, items) == pytest.approx(area)
    assert (1 - 2 * area) * 8 / 7 == pytest.approx(0.762, abs=5e-4)  # the Gini of the project's own example


@given(counts=counts_of_items.filter(lambda counts: counts.any()))
def test_the_area_under_the_lorenz_curve_gives_the_gini_index(counts):
    items, places = lorenz(counts)
    assert (1 - 2 * np.trapezoid(places, items)) * len(counts) / (len(counts) - 1) == pytest.approx(gini(counts))


def test_the_lorenz_curve_of_a_large_catalog_is_thinned_and_stays_true():
    counts = rng().pareto(1.2, 30_000).astype(np.int64)
    items, places = lorenz(counts)
    assert len(items) == 500
    assert (items[0], places[0], items[-1], places[-1]) == (0, 0, 1, 1)
    assert (1 - 2 * np.trapezoid(places, items)) == pytest.approx(gini(counts), abs=2e-3)


def test_lists_that_recommend_nothing_have_a_flat_lorenz_curve():
    assert lorenz(np.zeros(3, dtype=np.int64))[1].tolist() == [0, 0, 0, 0]


def test_shares_by_tenth_worked_by_hand():
    popularity = np.array(
        [1, 20, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    )  # item 1, then 10, lead; eleven items: a first tenth of two
    counts = np.array([0, 5, 0, 0, 0, 0, 0, 0, 0, 1, 2])
    assert shares_by_tenth(counts, popularity).tolist() == [7 / 8, 1 / 8, 0, 0, 0, 0, 0, 0, 0, 0]


@given(counts=counts_of_items.filter(lambda counts: counts.any()), seed=st.integers(0, 99))
def test_the_first_tenth_is_the_head_and_all_tenths_are_everything(counts, seed):
    popularity = np.random.default_rng(seed).integers(0, 9, len(counts))
    shares = shares_by_tenth(counts, popularity)
    assert shares.sum() == pytest.approx(1)
    assert shares[0] == pytest.approx(head_share(counts, np.argsort(-popularity, kind="stable")))


# ---- the charts


def chart_rows(chart):
    spec = chart.to_dict()
    return [row for rows in spec["datasets"].values() for row in rows] if "datasets" in spec else spec["data"]["values"]


def test_the_curve_chart_draws_gini_negative_and_leaves_the_accuracy_epochs_out(curve):
    early = Point("accuracy", 0, {"ndcg": 0.0, "gini": 1.0}, {"ndcg": 0.0, "gini": 1.0})
    chart = charts.curve_chart({"market": Curve((early, *curve.points))}, metrics=("gini",), k=K)
    rows = chart_rows(chart)
    assert [row["role"] for row in rows] == ["base", "point"]
    for row, point in zip(rows, curve.points, strict=True):
        assert row["x_gini"] == -row["gini"] == pytest.approx(-point.test["gini"], rel=1e-5)
    (panel,) = chart.to_dict()["concat"]
    assert panel["layer"][0]["encoding"]["x"]["title"] == ["negative Gini index", "(right is more even)"]
    assert panel["layer"][0]["encoding"]["y"]["title"] == f"nDCG@{K} on test"


def test_the_picked_point_is_drawn_at_its_test_numbers(curve):
    picked = curve.points[1]
    rows = chart_rows(charts.curve_chart({"market": curve}, picked=picked))
    (row,) = [row for row in rows if row["role"] == "picked"]
    assert (row["label"], row["x_coverage"]) == ("chosen", pytest.approx(picked.test["coverage"], rel=1e-5))
    assert rows[0]["label"] == "model"


def test_a_base_that_was_picked_has_one_name(curve):
    rows = chart_rows(charts.curve_chart({"market": curve}, picked=curve.base))
    assert [row["label"] for row in rows if row.get("label")] == ["model, chosen"]


def test_methods_that_start_from_one_model_share_its_diamond(curve):
    rows = chart_rows(charts.curve_chart({"market": curve, "other": curve}))
    assert [row["role"] for row in rows] == ["base", "point", "point", "point"]


def test_at_most_five_methods_are_highlighted_and_many_points_are_not_too_many_for_altair(curve):
    many = Curve((curve.base, *(curve.points[1],) * 250))  # 20 methods × 251 points: altair's own limit is 5,000 rows
    names = [f"method {number}" for number in range(20)]
    spec = charts.curve_chart(dict.fromkeys(names, many)).to_dict()
    encoding = spec["concat"][0]["layer"][1]["encoding"]
    tones, marks = (encoding[channel]["scale"]["range"] for channel in ("color", "shape"))
    assert len(set(tones[:5])) == len(set(marks[:5])) == 5
    assert set(tones[5:]) == {REST[0]}
    assert encoding["color"]["scale"]["domain"] == names  # grey ones stand in the legend, where a click selects them
    drawn = [row["method"] for row in chart_rows(charts.curve_chart(dict.fromkeys(names, many)))]
    assert drawn.index("method 5") < drawn.index("method 0")  # and lie below the highlighted ones


def test_the_ceiling_of_coverage_is_drawn_and_in_view(curve):
    spec = charts.curve_chart({"market": curve}, ceiling=0.75).to_dict()
    coverage, entropy, _ = spec["concat"]
    (own, *_) = [spec["datasets"][layer["data"]["name"]] for layer in coverage["layer"] if "data" in layer]
    assert own == [{"ceiling": 0.75, "name": "most possible"}]
    assert not any("data" in layer for layer in entropy["layer"])
    curved = next(layer for layer in coverage["layer"] if layer["mark"]["type"] == "line")
    least, most = curved["encoding"]["x"]["scale"]["domain"]
    assert least < 0.75 < most


@pytest.mark.parametrize(("slots", "items", "most"), [(1500, 4000, 0.375), (4000, 1500, 1.0), (0, 7, 0.0)])
def test_more_items_than_slots_cannot_be_covered(slots, items, most):
    assert coverage_ceiling(slots, items) == most


def test_no_curve_is_an_error_in_words():
    with pytest.raises(ValueError, match="no curve to draw"):
        charts.curve_chart({})


def every_chart(split, lists, curve):
    counts = {name: some.counts for name, some in lists.items()}
    return {
        "curve": charts.curve_chart({"market": curve}, picked=curve.points[1], k=K),
        "lorenz": charts.lorenz_chart(counts),
        "training": charts.training_chart(curve, k=K),
        "exposure": charts.exposure_chart(counts, split.train.popularity),
    }


@pytest.mark.parametrize("name", ["curve", "lorenz", "training", "exposure"])
def test_every_chart_renders_as_a_picture(name, split, lists, curve, tmp_path):
    chart = every_chart(split, lists, curve)[name]
    chart_files.save_chart(chart, tmp_path / "chart.png")
    picture = (tmp_path / "chart.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    width, height = (int.from_bytes(picture[at : at + 4]) for at in (16, 20))
    assert width > 700  # twice the size
    assert height > 400
    assert len(picture) > 10_000


def test_a_chart_is_saved_by_its_suffix(split, lists, curve, tmp_path):
    chart = every_chart(split, lists, curve)["lorenz"]
    for suffix in ("html", "svg", "json"):
        chart_files.save_chart(chart, tmp_path / f"chart.{suffix}")
    page = Page((tmp_path / "chart.html").read_text(encoding="utf-8"))
    assert loaded(page) == []
    assert (tmp_path / "chart.svg").read_text().startswith("<svg")
    assert json.loads((tmp_path / "chart.json").read_text())["height"] == 340


def test_an_unknown_suffix_is_an_error_that_names_the_known_ones(split, lists, curve, tmp_path):
    with pytest.raises(ValueError, match=r"'.gif' is not a format of a chart; choose .html, .png, .svg or .json"):
        chart_files.save_chart(every_chart(split, lists, curve)["lorenz"], tmp_path / "chart.gif")
    assert list(tmp_path.iterdir()) == []


def test_only_the_charts_module_loads_altair():
    code = "import sys, divmf.reports.page, divmf.reports.story; sys.exit('altair' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- numbers as people read them


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.04931952, "0.0493"), (4.8233, "4.823"), (-15.2534, "−15.25"), (314.8848, "314.9"), (12345, "12,345"),
     (1234.56, "1,234.6"), (-0.00001, "0.0000"), (0.0, "0.0000")],
)  # fmt: skip
def test_numbers_are_written_for_people(value, text):
    assert number(value) == text


def test_signs_are_written_where_there_is_a_difference():
    assert [signed(value) for value in (0.5, -0.5, 0.0, 1e-9)] == ["+0.5000", "−0.5000", "0.0000", "0.0000"]


def test_a_cell_escapes_words_and_shows_an_interval():
    assert cell("a < b") == "a &lt; b"
    assert cell(Markup("<b>a</b>")) == "<b>a</b>"
    assert cell(None) == "–"
    assert cell(Estimate(0.5, 0.4, 0.6)) == "0.5000 <small>0.4000–0.6000</small>"


@pytest.mark.parametrize(
    ("ndcg", "coverage", "text"),
    [
        (0.0476, 0.63, "Giving up 4.8% of nDCG@5 shows 2.1 times as many items: 630 instead of 300"),
        (0.0475, 0.36, "Giving up 5.0% of nDCG@5 shows 20% more items: 360 instead of 300"),
        (0.06, 0.27, "Without giving up any nDCG@5, diversifying shows 10% fewer items: 270 instead of 300"),
        (0.0, 0.3, "Giving up 100.0% of nDCG@5 shows as many items: 300 instead of 300"),
    ],
)
def test_the_headline_says_what_was_given_and_what_was_got(ndcg, coverage, text):
    before, after = {"ndcg": 0.05, "coverage": 0.3}, {"ndcg": ndcg, "coverage": coverage}
    assert headline(before, after, 1000, "nDCG@5") == f"{text} of the 1,000 there are."


def test_a_model_that_never_hits_has_a_headline_too():
    assert headline({"ndcg": 0.0, "coverage": 0.0}, {"ndcg": 0.0, "coverage": 0.1}, 10, "nDCG@5").startswith("Without")


# ---- at matched loss


def on_curve(*pairs):
    numbers = [{"ndcg": ndcg, "coverage": coverage, "entropy": 1.0, "gini": 1 - coverage} for ndcg, coverage in pairs]
    return Curve(tuple(Point("m", number, values, values) for number, values in enumerate(numbers)))


def test_the_setting_of_each_method_is_chosen_on_validation_and_its_test_is_shown():
    curves = {"one": on_curve((1.0, 0.2), (0.9, 0.4), (0.5, 0.8)), "two": on_curve((1.0, 0.2), (0.95, 0.3))}
    coverage, _, evenness = matched_tables(curves, drops=(0.05, 0.1))
    assert coverage.header == ["Method", "model", "5%", "10%"]
    assert [list(map(cell, row)) for row in coverage.rows] == [
        ["one", "0.2000", "0.2000", "<b>0.4000</b>"],
        ["two", "0.2000", "<b>0.3000</b>", "0.3000"],
    ]
    assert cell(evenness.rows[0][3]) == "<b>0.6000</b>"
    valid = {"ndcg": 1.0, "coverage": 0.5, "entropy": 1.0, "gini": 0.5}
    low, high = valid | {"ndcg": 0.8, "coverage": 0.9}, valid | {"ndcg": 0.99, "coverage": 0.6}
    test = valid | {"coverage": 0.1}
    curve = Curve(
        (Point("m", 0, valid, test), Point("m", 1, low, valid), Point("m", 2, high, test | {"coverage": 0.2}))
    )
    (table,) = matched_tables({"one": curve}, drops=(0.05,))
    assert table.rows[1][1] == 0.2


def test_one_method_has_one_table_with_a_row_for_each_loss():
    curve = on_curve((1.0, 0.2), (0.9, 0.4))
    (table,) = matched_tables({"one": curve}, drops=(0.05, 0.2))
    assert [row[0] for row in table.rows] == ["none: the model", "5%", "20%"]
    assert table.rows[1][1:] == [0.2, 1.0, 0.8]
    assert table.rows[2][1:] == [0.4, 1.0, 0.6]


# ---- the page


def test_the_page_is_well_formed_and_loads_nothing(parsed):
    assert loaded(parsed) == []
    policy = next(attributes["content"] for tag, attributes in parsed.elements if attributes.get("http-equiv"))
    assert policy.startswith("default-src 'none'")
    assert not re.search(r"@import|url\(", "".join(data for data in parsed.words))


def test_the_page_holds_every_chart_as_json_and_the_drawing_code_once(parsed):
    specs = parsed.specs()
    assert len(specs) == 4
    assert all(spec["$schema"].startswith("https://vega.github.io/schema/vega-lite/v") for spec in specs)
    assert sum("vegaEmbed" in text and len(text) > 500_000 for _, text in parsed.scripts) == 1


def test_what_the_data_is_called_cannot_become_code(parsed):
    # ids, titles, method names, the command and the run folder all tried
    assert len(parsed.scripts) == 4 + 2
    assert not any("alert(1)" in text for attributes, text in parsed.scripts if not attributes)
    shown = "".join(parsed.words)
    assert EVIL in shown
    assert f"{EVIL} & co" in shown
    assert f"divmf demo {EVIL}" in shown
    assert f"divmf pick {EVIL} --ndcg-drop 5%" in shown


def test_the_numbers_of_the_tables_are_those_of_the_curve_and_the_lists(parsed, split, lists, curve):
    base, picked = curve.points
    estimates = evaluate(lists["market"], split, K)
    test, valid = parsed.table("On test"), parsed.table("On validation")
    labels = [row[0] for row in test[1:]]
    assert labels == ["nDCG@2", "Hit rate@2", *(metric.label for metric in list(METRICS.values())[2:])]
    for row, name in zip(test[1:], METRICS, strict=True):
        assert row[1].split()[0] == number(base.test[name])
        assert row[2] == f"{number(picked.test[name])} {number(estimates[name].low)}–{number(estimates[name].high)}"
        assert row[3].split()[0] == signed(picked.test[name] - base.test[name])
    expected = evaluate(lists["model"], split, K, "valid")
    assert valid[1][1].split()[0] == number(expected["ndcg"])


def test_tables_of_numbers_are_folded_and_come_after_the_pictures(parsed):
    tags = [tag for tag, _ in parsed.elements]
    folds = [attributes for tag, attributes in parsed.elements if tag == "details"]
    assert all(attributes == {"class": "fold"} for attributes in folds)  # closed
    assert tags.count("table") == len(folds) + 4 + 1  # not folded: four users' lists, the commands
    last_chart = max(place for place, (_, found) in enumerate(parsed.elements) if found.get("class") == "chart")
    assert tags.index("details") < last_chart  # each section has its own


def test_the_page_says_how_much_coverage_is_possible_and_who_made_the_curve(parsed):
    words = "".join(parsed.words)
    assert "9 lists of 2 have 18 slots for 6 items" in words
    assert "is shown to someone; 100% is possible" in words
    drawn = [layer["encoding"]["color"]["scale"]["domain"] for layer in parsed.specs()[0]["concat"][0]["layer"]
             if "color" in layer["encoding"]]  # fmt: skip
    assert drawn == [["market", EVIL]] * 2
    assert "DivMF" not in words


def test_lists_beside_the_two_have_their_own_table(parsed, curve):
    header, row = parsed.table("Other methods, on test")
    assert header[1:4] == ["nDCG@2", "Hit rate@2", "Coverage"]
    assert row[0] == EVIL
    assert row[3].split()[0] == number(curve.points[1].test["coverage"])


def test_validation_numbers_come_from_the_curve_where_no_lists_are_given(tmp_path, split, lists, curve):
    run_report(tmp_path / "report.html", curve, curve.base, lists, split, K, "divmf demo")
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert page.table("On validation")[1][1:3] == [number(curve.base.valid["ndcg"])] * 2
    assert "nothing has changed" in "".join(page.words)


def test_people_see_their_lists_side_by_side(parsed, split, lists):
    tables = [table for table in parsed.tables if table[0] == ["", "before (model)", "after (market)"]]
    assert len(tables) == 4
    people = [word.removeprefix("User ") for word in parsed.words if word.startswith("User ")]
    user = split.user_ids.to_list().index(people[0])
    for column, name in ((1, "model"), (2, "market")):
        for row, item in zip(tables[0][1:], lists[name].items[user], strict=True):
            item_id = split.item_ids[int(item)]
            met = f"{split.train.popularity[item]} users"
            assert row[column].startswith(f"{EVIL} & co" if item_id == "b" else item_id)
            assert row[column].endswith(met)
            assert ("✓" in row[column]) == bool(split.test.matrix[user, item])


def test_the_people_shown_are_those_whose_lists_change_most_middling_and_least_and_one_that_kept_all():
    ids = pl.Series("item_id", range(12))
    users = pl.Series("user_id", range(7))
    before = TopK(np.tile([0, 1, 2], (7, 1)), np.zeros((7, 3), np.float32), users, ids)
    changed = [[2, 1, 0], [0, 1, 3], [0, 1, 2], [3, 4, 5], [0, 3, 4], [6, 1, 2], [0, 1, 2]]  # new: 0 1 0 3 2 1 0
    after = TopK(np.array(changed), np.zeros((7, 3), np.float32), users, ids)
    assert new_slots(before, after).sum(axis=1).tolist() == [0, 1, 0, 3, 2, 1, 0]
    assert telling_users(before, after) == [3, 1, 5, 2]  # 3 slots, 1 (the middle of 3 2 1 1), 1, none
    assert telling_users(before, before) == [3]
    assert telling_users(after, after, people=2) == [3]


def test_a_sentence_says_in_which_slots_the_newly_shown_items_stand():
    ids = pl.Series("item_id", list("abcdef"))
    users = pl.Series("user_id", range(4))
    model = TopK(np.tile([0, 1, 2], (4, 1)), np.zeros((4, 3), np.float32), users, ids)
    made = TopK(np.array([[0, 1, 3], [0, 4, 3], [3, 1, 2], [0, 1, 4]]), np.zeros((4, 3), np.float32), users, ids)
    told = places(model, made)
    # d stands thrice, e twice: one of the five showings in slot 1, one in slot 2, three in the last
    assert told.startswith("The 2 newly shown items stand low in the lists: 20% of their 5 showings are in the first")
    assert "60% in the last" in told
    assert "33.3% of the catalog, before 16.7%" in told  # first slots: a and d, before a alone
    assert places(model, model) == ""


def test_lists_without_the_two_names_are_an_error(tmp_path, split, lists, curve):
    with pytest.raises(ValueError, match="lists holds market; the report needs those of the model and of a method"):
        run_report(tmp_path / "report.html", curve, curve.base, {"market": lists["market"]}, split, K, "divmf demo")


def test_the_footer_names_command_and_versions(parsed):
    footer = "".join(parsed.words[-12:])
    assert "Made by divmf demo" in footer
    assert re.search(r"python \d.*divmf \d.*altair \d", footer)


def test_a_page_that_fails_leaves_nothing_behind(tmp_path):
    with pytest.raises(AttributeError):
        write_page(tmp_path / "page.html", "title", [Section("heading", charts=[Figure("not a chart")])])
    assert list(tmp_path.iterdir()) == []


def test_a_page_may_be_words_and_tables_only(tmp_path):
    table = Table(["name", "value"], [["a", 1], ["b", None]], "numbers")
    write_page(
        tmp_path / "page.html",
        "A & B",
        [Section("heading", ["plain <words>", Markup("<em>rich</em>")], tables=[table])],
    )
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert page.tables == [[["name", "value"], ["a", "1"], ["b", "–"]]]
    assert "plain <words>" in page.words
    assert ("em", {}) in page.elements
    alignment = [attributes for tag, attributes in page.elements if tag == "td"]
    assert alignment == [{"class": "left"}, {}] * 2


# ---- in a real browser


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 390)])
def test_a_browser_draws_the_charts_and_the_page_fits_its_width(page, look_at, scheme, width):
    look_at(page, 4, scheme, width)


HOSTILE = "</script><script>alert(1)</script>"


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 400)])
def test_a_browser_draws_the_page_of_a_curve_and_it_fits_its_width(curve, tmp_path, look_at, scheme, width):
    many = Curve((curve.base, *(replace(curve.points[1], epoch=epoch) for epoch in range(1, 12))))
    draw_curve(many, "market", K, many.points[1], "ials").save(tmp_path / "curve.html")
    look_at(tmp_path / "curve.html", 1, scheme, width)


def test_the_page_of_a_curve_names_its_axis_and_marks_the_picked_point(curve, tmp_path):
    draw_curve(curve, "market", K, curve.points[1], "ials").save(tmp_path / "curve.html")
    made = (tmp_path / "curve.html").read_text(encoding="utf-8")
    assert f"nDCG@{K} on test" in made
    assert '"label":"chosen"' in made
    assert "The ring is the point picked by its numbers on validation: diversity epoch 1" in made
    draw_curve(curve, "market").save(tmp_path / "bare.html")
    assert "The ring" not in (tmp_path / "bare.html").read_text(encoding="utf-8")


def test_a_script_in_a_label_does_not_run_in_a_chart(curve, tmp_path):
    chart_files.save_chart(charts.curve_chart({HOSTILE: curve}), tmp_path / "c.html")
    page = (tmp_path / "c.html").read_text()
    assert HOSTILE not in page
    assert page.count("alert(1)") == page.count(r"\u003cscript\u003ealert(1)\u003c/script\u003e") > 0


@pytest.mark.parametrize("place", ["valid", "epoch", "knob"])
def test_a_script_in_the_log_of_a_run_does_not_reach_its_chart(place, run_folder, divmf):
    # epochs.jsonl may be anybody's: what stood there stood in c.html, and ran
    log = run_folder / "epochs.jsonl"
    *lines, last = log.read_text().splitlines()
    row = json.loads(last)
    row[place] = {**row[place], "gini": HOSTILE} if place == "valid" else HOSTILE
    log.write_text("\n".join([*lines, json.dumps(row)]) + "\n")
    done = divmf("curve", run_folder, "-o", run_folder.parent / "c.html")
    assert done.code == 2
    assert "epochs.jsonl is damaged (line" in done.err
    assert not (run_folder.parent / "c.html").exists()
