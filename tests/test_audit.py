"""The audit: what is counted is what stands in the lists; rerankers are set by what they replace, not by the test."""

import html
import json
import re
import shlex
from collections import Counter
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divmf.data.interactions import Interactions
from divmf.data.split import Split
from divmf.ranking.bootstrap import mean_estimates
from divmf.ranking.curve import Point
from divmf.ranking.lists import TopK
from divmf.ranking.metrics import Estimate, compare, evaluate
from divmf.reports.audit import cost, figures, sections
from divmf.reports.audit_files import document_of, exposure_table, reranker_table
from divmf.reports.audit_numbers import LeftOut, Subject, Trial, accuracy, in_words, kept, knobs, trials
from divmf.reports.findings import NEAR, Findings
from divmf.reports.page import write_page
from divmf.rerank import METHODS
from divmf.rerank.candidates import in_given_order, in_order

K, WIDTH = 3, 12


def lists_of(items: Any, scores: Any = None, n_items: int = 6) -> TopK:
    items = np.array(items)
    scores = -np.arange(items.size, dtype=float).reshape(items.shape) if scores is None else scores
    return TopK.from_arrays(items, scores, np.arange(len(items)), np.arange(n_items))


def wide_lists(split: Split, width: int = WIDTH) -> TopK:
    """Unseen items of each person, popular ones first, with scores that differ from person to person."""
    rng = np.random.default_rng(3)
    popularity = split.train.popularity + 6 * rng.random((split.n_users, split.n_items))
    scores = np.where(split.seen.toarray() > 0, -np.inf, popularity)
    items = np.argsort(-scores, axis=1)[:, :width]
    return TopK.from_arrays(items, np.take_along_axis(scores, items, 1), split.user_ids, split.item_ids)


@pytest.fixture(scope="module")
def subject(split: Split) -> Subject:
    return Subject(wide_lists(split), K, split.train, split.test)


@pytest.fixture(scope="module")
def tried(subject: Subject) -> list[Trial]:
    return [each for each in trials(subject, [0, 5], budget=1e6) if isinstance(each, Trial)]


# ---- counting


def test_the_share_of_the_places_kept_worked_by_hand() -> None:
    shown = lists_of([[0, 1, 2], [3, 4, -1], [5, 0, 1]])
    assert kept(shown, shown) == 1
    assert kept(lists_of([[2, 3, 0], [4, 5, -1], [2, 3, 4]]), shown) == 3 / 8  # 2 and 0; 4; none
    assert kept(lists_of([[-1, -1, -1]] * 3), shown) == 0


@given(st.lists(st.permutations(range(6)), min_size=1, max_size=5), st.lists(st.permutations(range(6)), min_size=5))
def test_the_share_kept_is_that_of_a_plain_loop(old: Any, new: Any) -> None:
    old, new = [row[:3] for row in old], [row[:3] for row in new[: len(old)]]
    expected = sum(len(set(a) & set(b)) for a, b in zip(old, new, strict=True)) / (3 * len(old))
    assert kept(lists_of(new), lists_of(old)) == pytest.approx(expected)


def test_what_was_shown_is_measured_as_a_plain_loop_would(subject: Subject, split: Split) -> None:
    lists = subject.lists.frame.filter(pl.col("rank") <= K)
    counts = Counter(lists["item_id"].to_list())
    places, n_items = sum(counts.values()), split.n_items
    own = subject.own
    assert own["coverage"] == len(counts) / n_items
    assert own["entropy"] == pytest.approx(-sum(n / places * log(n / places) for n in counts.values()))
    by_train = Counter(split.train.item_ids.gather(split.train.items).to_list())
    head = sorted(split.item_ids.to_list(), key=lambda item: (-by_train[item], item))[: n_items // 10]
    assert own["head_share"] == pytest.approx(sum(counts[item] for item in head) / places)
    assert own["kept"] == 1
    assert own["ndcg"] == pytest.approx(float(evaluate(subject.shown, split)["ndcg"]))


def test_without_train_the_head_is_what_is_shown_most_and_without_test_nothing_is_said_of_accuracy() -> None:
    subject = Subject(lists_of([[0, 1], [0, 2], [0, 1]], n_items=10), 2)
    assert subject.popularity.tolist() == [3, 2, 1, 0, 0, 0, 0, 0, 0, 0]
    assert subject.own["head_share"] == 3 / 6
    assert set(subject.own) == {"coverage", "entropy", "gini", "head_share", "tail_share", "kept"}
    assert accuracy(subject, []) == ({}, {})


def test_people_of_the_test_without_a_list_count_as_misses() -> None:
    test = Interactions.from_frame(pl.DataFrame({"user_id": [0, 1, 7], "item_id": [0, 5, 3]}))
    subject = Subject(lists_of([[0, 1], [0, 2]]), 2, test=test)
    assert subject.without_list == 1
    assert subject.own["hit"] == pytest.approx(1 / 3)
    levels, _ = accuracy(subject, [])
    assert float(levels["ndcg"]) == pytest.approx(1 / 3)


def test_k_must_fit_the_lists() -> None:
    with pytest.raises(ValueError, match="k=3 does not fit lists of 2; choose 1 to 2"):
        Subject(lists_of([[0, 1]]), 3)


# ---- order and scores


def test_lists_ordered_against_their_scores_keep_their_order() -> None:
    frame = pl.DataFrame({"user_id": [1] * 3, "item_id": [5, 6, 7], "score": [0.1, 0.9, 0.5], "rank": [1, 2, 3]})
    subject = Subject(TopK.from_frame(frame), 1)
    assert subject.candidates.scores.tolist() == [[0, -1, -2]]
    assert subject.by_place
    neutral = METHODS["bayes_rule"].run(subject.candidates, 1, {"a": 0.0})
    assert neutral.items.tolist() == subject.shown.items.tolist()


def test_equal_scores_keep_their_places_and_all_scores_stay_scores(subject: Subject) -> None:
    frame = subject.lists.frame.with_columns(pl.col("score").round(0))  # many ties, the rank says the order
    rounded = Subject(TopK.from_frame(frame, subject.lists.item_ids), K)
    assert (np.diff(rounded.lists.scores) == 0).any()
    assert not rounded.by_place
    assert rounded.candidates.items.tolist() == rounded.lists.items.tolist()
    assert (np.diff(rounded.candidates.scores) < 0).all()
    np.testing.assert_allclose(rounded.candidates.scores, rounded.lists.scores, atol=1e-4)
    neutral = METHODS["bayes_rule"].run(rounded.candidates, K, {"a": 0.0})
    assert neutral.items.tolist() == rounded.shown.items.tolist()


def test_scores_that_are_all_alike_say_nothing() -> None:
    frame = pl.DataFrame({"user_id": [1, 1, 2], "item_id": [6, 5, 6], "score": [1.0] * 3, "rank": [1, 2, 1]})
    alike = Subject(TopK.from_frame(frame), 1)
    assert alike.by_place
    assert alike.candidates.items.tolist() == alike.lists.items.tolist()


@given(st.integers(1, 4), st.lists(st.lists(st.integers(0, 3), max_size=6), min_size=1, max_size=4))
def test_candidates_stand_in_the_order_of_their_scores_and_the_first_k_are_the_lists_own(
    k: int, scores: list[list[int]]
) -> None:
    rows = [(user, (3 * slot + user) % 7, float(score), slot) for user, own in enumerate(scores)
            for slot, score in enumerate(own)]  # fmt: skip
    if not rows:
        return
    lists = TopK.from_frame(pl.DataFrame(rows, ["user_id", "item_id", "score", "rank"], orient="row"))
    made = in_given_order(lists, k)
    assert in_order(made) is made
    assert made.items[:, :k].tolist() == lists.items[:, :k].tolist()
    assert np.isfinite(made.scores).tolist() == (made.items >= 0).tolist()


def test_lists_with_ranks_alone_go_by_place_and_lists_with_scores_do_not(subject: Subject) -> None:
    ranked = pl.DataFrame({"user_id": [1, 1, 2], "item_id": [5, 6, 7], "rank": [1, 2, 1]})
    assert Subject(TopK.from_frame(ranked), 1).by_place
    assert not subject.by_place
    assert subject.candidates is subject.lists


# ---- intervals


def test_the_interval_of_a_difference_is_that_of_compare(split: Split, subject: Subject, tried: list[Trial]) -> None:
    levels, losses = accuracy(subject, tried, resamples=50, seed=4)
    plain = evaluate(subject.shown, split, resamples=50, seed=4)
    for name in ("ndcg", "hit"):
        assert (levels[name], levels[name].low, levels[name].high) == pytest.approx(
            (plain[name], plain[name].low, plain[name].high)
        )
    for trial in tried:
        knob = {**trial.settings, METHODS[trial.method].knob: trial.picked.knob}
        made = METHODS[trial.method].run(subject.candidates, K, knob, split.train, 0)
        expected, found = compare(made, subject.shown, split, resamples=50, seed=4)["ndcg"], losses[trial.method]
        assert (found, found.low, found.high) == pytest.approx((expected, expected.low, expected.high), abs=1e-12)


def test_users_that_do_not_count_do_not_move_a_mean() -> None:
    values = np.array([[1.0, 0.0], [0.0, 0.0], [99.0, 5.0]])
    first, second = mean_estimates(values, np.array([True, True, False]), [(0, 1)] * 2)
    assert (first, second) == (0.5, 0.0)
    assert first.low < 0.5 < first.high
    assert (second.low, second.high) == (0, 0)


# ---- the rerankers


def test_every_reranker_is_as_even_as_it_gets_within_what_it_may_replace(subject: Subject, tried: list[Trial]) -> None:
    assert {trial.method for trial in tried} >= {"bayes_rule", "uimatch", "sinkhorn", "kwon", "fairrec", "xquad"}
    for trial in tried:
        assert trial.curve.points[0].test == subject.own
        within = [point for point in trial.curve.points if point.test["kept"] >= 0.8]
        assert trial.picked.test["gini"] == min(point.test["gini"] for point in within)
        assert trial.picked.test["coverage"] == np.count_nonzero(trial.counts) / subject.lists.n_items
    assert min(trial.picked.test["gini"] for trial in tried) < subject.own["gini"]


def test_the_test_has_no_say_in_the_settings(split: Split, tried: list[Trial]) -> None:
    blind = trials(Subject(wide_lists(split), K, split.train), [0, 5], budget=1e6)
    picked = {each.method: each.picked.knob for each in blind if isinstance(each, Trial)}
    assert picked == {trial.method: trial.picked.knob for trial in tried}


def test_without_train_the_methods_that_need_it_are_named_and_uimatch_does_without(split: Split) -> None:
    found = list(trials(Subject(wide_lists(split), K), [], budget=1e6))
    out = {each.method: each.why for each in found if isinstance(each, LeftOut)}
    assert "needs the training interactions; give them with --train" in out["xquad"]
    (uimatch,) = [each for each in found if each.method == "uimatch"]
    assert isinstance(uimatch, Trial)
    assert uimatch.settings == {"gamma": 0.0}


def test_the_market_is_tried_first_where_its_time_is_within_the_budget(tried: list[Trial]) -> None:
    assert tried[0].method == "market"


def test_a_spent_budget_leaves_all_but_one_method_out_and_says_how_long_they_would_take(subject: Subject) -> None:
    found = list(trials(subject, [], budget=1e-9))
    assert sum(isinstance(each, Trial) for each in found) == 1
    assert isinstance(found[-1], LeftOut)
    assert "more than was left of the 1 seconds for all rerankers; give them more time with --budget" in found[-1].why


@given(crossing=st.integers(1, 10))
def test_a_bisection_finds_the_setting_that_a_whole_sweep_finds(crossing: int) -> None:
    method = METHODS["bayes_rule"]  # ten settings; from `crossing` on, too much is replaced

    def strongest(whole: bool) -> tuple[float, int]:
        points = [point(method.neutral)]
        for knob in knobs(method, points, 0.8, whole):
            points.append(point(knob))  # noqa: PERF401 (the generator looks at what is there)
        on_grid = [p for p in points if p.knob in method.grid and p.valid["kept"] >= 0.8]
        return max(p.knob or 0.0 for p in on_grid), len(points)

    def point(knob: float) -> Point:
        beyond = crossing < len(method.grid) and knob >= method.grid[crossing]
        return Point("m", 0, {"kept": 0.5 if beyond else 0.9}, {"kept": 0.5 if beyond else 0.9}, knob=knob)

    (by_sweep, many), (by_bisection, few) = strongest(True), strongest(False)
    assert by_sweep == by_bisection == method.grid[crossing - 1]
    assert few <= 1 + 4 + 1 < many


def test_a_reranker_that_costs_a_tenth_of_the_accuracy_is_proposed_only_where_all_do(found: Findings) -> None:
    evenest, second, *_ = [trial for trial in found.by_evenness if trial.picked.test["kept"] < 1]
    cheap = dict.fromkeys((trial.method for trial in found.trials), Estimate(0.0, 0.0, 0.0))
    dear = Estimate(-0.5, -0.6, -0.4)
    levels = {"ndcg": Estimate(1.0, 0.9, 1.1), "hit": Estimate(1.0, 0.9, 1.1)}
    priced = replace(found, accuracy=levels, losses=cheap | {evenest.method: dear})
    assert replace(priced, losses=cheap).best is evenest
    assert priced.best is second
    all_dear = replace(priced, losses=dict.fromkeys(cheap, dear))
    assert all_dear.best is evenest
    assert "Every reranker loses more than 10% of the accuracy here" in cost(all_dear, evenest.method)


@pytest.mark.parametrize(("seconds", "words"), [(0.2, "1 seconds"), (42, "42 seconds"), (600, "10 minutes"),
                                                (9000, "2 hours")])  # fmt: skip
def test_durations_are_written_for_people(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


# ---- the files


@pytest.fixture(scope="module")
def found(subject: Subject, tried: list[Trial]) -> Findings:
    levels, losses = accuracy(subject, tried)
    left = [LeftOut("karakaya", "it is slow")]
    titles = {subject.lists.item_ids[0]: "The <first>"}
    return Findings(subject, tried, left, levels, losses, 0.2, titles, [0, 5], "lists.csv", "items.csv")


def test_the_exposure_file_holds_every_item_with_its_count(found: Findings, subject: Subject) -> None:
    table = exposure_table(found)
    assert table.height == subject.lists.n_items
    assert table["lists"].to_list() == sorted(subject.shown.counts.tolist(), reverse=True)
    assert table["lists"].sum() == len(subject.lists) * K
    assert table.filter(pl.col("lists") == 0).height == len(found.never)
    by_tenth = dict(table.group_by("tenth").agg(pl.col("share").sum()).iter_rows())
    assert [by_tenth[tenth] for tenth in range(1, 11)] == pytest.approx(document_of(found)["tenths"])


def test_the_document_says_what_the_trials_found(found: Findings) -> None:
    document = document_of(found)
    assert document["never_shown"] == round((1 - document["coverage"]) * document["catalog"])
    assert list(document["rerankers"]) == [trial.method for trial in found.by_evenness]
    ginis = [numbers["gini"] for numbers in document["rerankers"].values()]
    assert ginis == sorted(ginis)
    assert document["left_out"] == {"karakaya": "it is slow"}
    table = reranker_table(found)
    assert table.filter("picked").height == len(found.trials)


# ---- the command


def write_files(folder: Path) -> tuple[Path, Path]:
    """Lists as someone else's system might write them: five people, three places each, eight items, one unknown."""
    rows = [(f"p{person}", item, place) for person, items in enumerate(["abc", "abd", "acb", "abe", "baf"])
            for place, item in enumerate(items, 1)]  # fmt: skip
    pl.DataFrame(rows, ["customer_id", "sku", "position"], orient="row").write_csv(folder / "theirs.csv")
    names = {"a": "Anvil", "b": "Bellows & <b>co</b>", "g": "Gimlet", "h": "Hammer"}
    items = pl.DataFrame({"sku": list("abcdefgh"), "name": [names.get(item) for item in "abcdefgh"]})
    items.write_csv(folder / "items.csv")
    return folder / "theirs.csv", folder / "items.csv"


def test_a_csv_of_someone_elses_system_is_audited(divmf: Any, tmp_path: Path) -> None:
    lists, items = write_files(tmp_path)
    done = divmf("audit", lists, "--catalog", items, "-o", tmp_path / "report.html", "--json")
    assert done.code == 0
    assert done.json["coverage"] == 6 / 8
    assert done.json["never_shown"] == 2
    assert done.json["popularity_from"] == "lists"
    assert done.json["rerankers"] == {}
    assert json.loads((tmp_path / "report" / "numbers.json").read_text()) == done.json
    page = (tmp_path / "report.html").read_text()
    assert "Of 8 items, these lists show 6; 2 (25%) are never shown to anybody." in page
    assert "Gimlet" in page
    assert "Hammer" in page
    assert "Bellows &amp; &lt;b&gt;co&lt;/b&gt;" in page
    assert "no reranker can change a list without candidates" in page
    assert "<code>-k 3</code>" in page
    assert {path.name for path in (tmp_path / "report").iterdir()} == {
        "exposure.csv", "exposure.parquet", "numbers.json", *(f"{name}.{ending}" for name in ("lorenz", "exposure")
                                                              for ending in ("png", "svg")),
    }  # fmt: skip


def test_what_sellers_get_and_which_rules_are_broken_is_said(divmf: Any, tmp_path: Path) -> None:
    lists, items = write_files(tmp_path)
    sellers = pl.read_csv(items).with_columns(seller=pl.Series(["x", "x", "x", "y", "y", "z", "z", "z & <b>"]))
    sellers.write_csv(items)
    rules = tmp_path / "rules.toml"
    rules.write_text('[capacity]\nitems = {"a" = 3}\n[groups.seller]\nfloor = {"y" = 4}\nper_list = 2\n')
    page = tmp_path / "report.html"
    done = divmf("audit", lists, "--catalog", items, "-o", page, "--groups", "seller", "--rules", rules, "--json")
    assert done.code == 0
    # a stands in five lists, b in five, c in two, d, e and f in one each; x has 12 of 15, y 2, z 1, the last none
    assert done.json["groups"] == {
        "column": "seller", "groups": 4, "group_coverage": 0.75, "group_gini": pytest.approx(37 / 45), "worst_off": 0.0,
        "max_min": 0.0, "starved": 2.0, "most_starved": ["z", "z & <b>"],
    }  # fmt: skip
    assert done.json["rules"] == {
        "totals": 5, "floors": 1, "unmet": 1, "missing": 2, "over": 2, "lists_broken": 2, "impossible": 0,
    }  # fmt: skip
    text = page.read_text()
    assert "Groups by seller" in text
    assert "z &amp; &lt;b&gt;" in text
    assert "The lists break 2 of 2 bounds on showings: 2 showings are missing, 2 are too many." in text


def test_what_is_left_out_by_rules_counts_in_the_totals_of_lists_that_show_it(divmf: Any, tmp_path: Path) -> None:
    lists, items = write_files(tmp_path)
    pl.read_csv(items).with_columns(seller=pl.Series(list("xxxyyzzz"))).write_csv(items)
    (tmp_path / "out.csv").write_text("sku\na\n")
    (tmp_path / "rules.toml").write_text('[groups.seller]\ncap = {"x" = 6}\n[filter]\nexclude = "out.csv"\n')
    call = ["audit", lists, "--catalog", items, "-o", tmp_path / "r.html", "--rules", tmp_path / "rules.toml"]
    told = divmf(*call, "--json").json["rules"]
    assert (told["over"], told["lists_broken"]) == (6, 5)  # x, whose a is left out, has 12 showings; a is in all lists
    said = divmf(*call).out
    assert "rules: 0 showings missing, 6 too many; 5 of 5 lists hold what is left out" in said


def test_the_command_that_the_page_proposes_makes_the_lists_of_the_page(divmf: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    scores = np.round(rng.random((60, 25)) + np.linspace(1, 0, 25), 1)  # with ties, which the rank decides
    items = np.argsort(-scores + 1e-3 * rng.random(scores.shape), axis=1)[:, :8]
    rows = [(user, int(item), float(scores[user, item]), slot) for user in range(60) for slot, item
            in enumerate(items[user])]  # fmt: skip
    lists, catalog = tmp_path / "the lists.csv", tmp_path / "items.csv"
    pl.DataFrame(rows, ["who", "what", "rel", "pos"], orient="row").write_csv(lists)
    pl.DataFrame({"item_id": range(25)}).sample(fraction=1, shuffle=True, seed=1).write_csv(catalog)
    own = ["--user", "who", "--item", "what", "--score", "rel", "--rank", "pos"]
    done = divmf("audit", lists, "--catalog", catalog, "-k", 3, "-o", tmp_path / "r.html", *own, "--json")
    assert done.code == 0, done.err
    page = html.unescape(re.sub("<[^>]*>", "", (tmp_path / "r.html").read_text()))
    (proposed,) = set(re.findall(r"divmf (rerank .*? -o) better\.parquet", page))
    made = divmf(*shlex.split(proposed), tmp_path / "better.parquet", "--json")
    assert made.code == 0, made.err
    shown = done.json["rerankers"][made.json["method"]]
    assert {name: made.json[name] for name in ("coverage", "gini", "entropy")} == pytest.approx(
        {name: shown[name] for name in ("coverage", "gini", "entropy")}
    )


def test_of_methods_that_are_nearly_as_even_the_most_accurate_is_proposed(found: Findings) -> None:
    evenest, *others = [trial for trial in found.by_evenness if trial.picked.test["kept"] < 1]
    least = evenest.picked.test["gini"]
    near = [trial for trial in others if trial.picked.test["gini"] <= least + NEAR]
    if not near:  # make the second one so
        as_even = replace(others[0].picked, test={**others[0].picked.test, "gini": least + NEAR / 2})
        near = [replace(others[0], picked=as_even)]
    levels = {"ndcg": Estimate(1.0, 0.9, 1.1), "hit": Estimate(1.0, 0.9, 1.1)}
    losses = {trial.method: Estimate(-0.05, -0.06, -0.04) for trial in (evenest, *others)}
    losses[near[0].method] = Estimate(-0.01, -0.02, 0.0)
    two = replace(found, trials=[near[0], evenest], accuracy=levels, losses=losses)
    assert two.best is near[0]
    far = replace(near[0], picked=replace(near[0].picked, test={**near[0].picked.test, "gini": least + 2 * NEAR}))
    assert replace(two, trials=[evenest, far]).best is evenest


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_the_catalog_is_of_no_account(divmf: Any, tmp_path: Path, seed: int) -> None:
    lists, items = write_files(tmp_path)
    pl.DataFrame({"sku": list("abcdefgh"), "seller": list("xxxyyzzw")}).sample(
        fraction=1, shuffle=True, seed=seed
    ).write_csv(items)
    done = divmf("audit", lists, "--catalog", items, "-o", tmp_path / "r.html", "--groups", "seller", "--json")
    assert done.code == 0
    # x has 12 of the 15 slots, y 2, z 1, w none; by items they would have 3, 2, 2 and 1 of 8
    assert done.json["groups"]["most_starved"] == ["z", "w"]
    assert done.json["groups"]["group_coverage"] == 0.75
    measured = divmf("evaluate", lists, "--catalog", items, "--test", lists, "--groups", "seller", "--json")
    assert measured.json["groups"] == done.json["groups"]


def test_with_candidates_and_a_test_the_page_says_what_reranking_costs(divmf: Any, tmp_path: Path) -> None:
    lists, items = write_files(tmp_path)
    test = tmp_path / "later.csv"
    test.write_text("customer_id,sku\np0,c\np1,a\np9,h\n")
    arguments = ["audit", lists, "--catalog", items, "-o", tmp_path / "r.html", "-k", 1, "--test", test]
    done = divmf(*arguments, "--replace", "100%", "--budget", 1000, "--json")
    assert done.code == 0
    assert "1 users" in done.err
    assert done.json["hit"] == pytest.approx(1 / 3)
    best = next(iter(done.json["rerankers"].values()))
    assert best["gini"] < done.json["gini"]
    low, high = best["ndcg_change_interval"]
    assert low <= best["ndcg_change"] <= high
    page = (tmp_path / "r.html").read_text()
    assert "On the test, nDCG@1 changes by" in page
    assert "each slot is worth one step less" in page.replace("\n", " ")
    assert "1 users of the test have no list" in page
    assert (tmp_path / "r" / "rerankers.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-k", "9"], "-k 9: no list of {lists} holds more than 3; choose -k 3 or less"),
        (["-o", "{folder}/report.pdf"], "unknown kind of file; use one of .html"),
        (["-o", "{folder}/none/report.html"], "there is no folder"),
        (["--replace", "lots"], "--replace lots is not a share; write 5% or 0.05"),
        (["--catalog", "{lists}"], "2 items (such as"),
        (["--train", "{folder}/bad.csv"], "train knows none of the catalog's 8 items"),
        (["--test", "{folder}/bad.csv"], "bad.csv: 1 items (such as 'zzz') are not in the catalog"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_one_line_that_says_how_to_mend_it(
    divmf: Any, tmp_path: Path, arguments: list[str], message: str
) -> None:
    lists, items = write_files(tmp_path)
    (tmp_path / "bad.csv").write_text("customer_id,sku\np0,zzz\n")
    if "2 items" in message:
        pl.read_csv(lists).filter(~pl.col("sku").is_in(["a", "b"])).write_csv(tmp_path / "few.csv")
        arguments = ["--catalog", str(tmp_path / "few.csv")]
    base = {"--catalog": str(items), "-o": str(tmp_path / "report.html")}
    given = [text.format(folder=tmp_path, lists=lists) for text in arguments]
    base |= dict(zip(given[::2], given[1::2], strict=True))
    done = divmf("audit", lists, *(text for pair in base.items() for text in pair))
    assert done.code == 2
    assert message.format(lists=lists, folder=tmp_path) in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "report.html").exists()


def test_rows_without_score_or_rank_rank_as_they_stand(divmf: Any, tmp_path: Path) -> None:
    _, items = write_files(tmp_path)
    (tmp_path / "bare.csv").write_text("customer_id,sku\np1,c\np2,a\np1,b\np2,c\n")
    done = divmf("audit", tmp_path / "bare.csv", "--catalog", items, "-k", 1, "-o", tmp_path / "r.html", "--budget", 0)
    assert done.code == 0
    assert "neither a score nor a rank" in done.err
    page = (tmp_path / "r.html").read_text()
    assert "No reranker was tried" in page
    assert "No reranker made" not in page
    assert "--replace 10%" not in page  # nothing is proposed of what was not tried
    shown = pl.read_csv(tmp_path / "r" / "exposure.csv").filter(pl.col("lists") > 0)
    assert sorted(shown["item_id"]) == ["a", "c"]


def test_movielens_titles_are_read_as_a_catalog(divmf: Any, tmp_path: Path) -> None:
    (tmp_path / "movies.dat").write_bytes(
        "1::Misérables, Les (1995)::Drama\n2::Heat (1995)::Action\n".encode("latin-1")
    )
    (tmp_path / "lists.csv").write_text("user_id,item_id,score\n7,2,0.5\n")
    done = divmf("audit", tmp_path / "lists.csv", "--catalog", tmp_path / "movies.dat", "-o", tmp_path / "r.html", "-q")
    assert done.code == 0
    page = (tmp_path / "r.html").read_text()
    assert "Misérables, Les (1995)" in page
    (tmp_path / "movies.dat").write_text("not movies")
    wrong = divmf("audit", tmp_path / "lists.csv", "--catalog", tmp_path / "movies.dat", "-o", tmp_path / "r.html")
    assert "movies.dat: no line reads movie::title::genres" in wrong.err


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 390)])
def test_a_browser_draws_the_audit(found: Findings, look_at: Any, tmp_path: Path, scheme: str, width: int) -> None:
    write_page(tmp_path / "page.html", "Audit", sections(found, figures(found)))
    look_at(tmp_path / "page.html", 3, scheme, width)
