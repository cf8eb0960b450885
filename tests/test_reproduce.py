"""divmf reproduce: recipes that name real things, nothing trained twice, and a page a browser draws."""

import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from divmf.data.datasets import KNOWN, marketplace, resolve
from divmf.data.interactions import Interactions
from divmf.data.split import Split
from divmf.models.config import TrainConfig
from divmf.models.diversity import Lengths
from divmf.ranking.curve import Curve
from divmf.reports.experiments import lab as lab_room
from divmf.reports.experiments.lab import Lab
from divmf.reports.experiments.recipe import QUESTIONS, Recipe, Sweep, read_question, read_recipe, recipe_names
from divmf.reports.experiments.reproduce import (
    Answer,
    claim_folder,
    point_of,
    read_answers,
    work,
    write_answer,
)
from divmf.rerank import METHODS
from divmf.train.fitting import fit
from divmf.train.runs import Run

RECIPE = """
title = "a tiny marketplace"
core = 0
[settings]
k = 3
dim = 8
unmask = 10
learning_rate = 0.02
diversity_rate = 0.02
accuracy_epochs = 6
diversity_epochs = 10
[blocks]
diversity_epochs = 3
[alternating]
diversity_epochs = 4
accuracy_epochs = 4
"""
DATA = "synthetic:120x60x1500:1"


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture(scope="module")
def recipe(recipe_file: Path) -> Recipe:
    return read_recipe("tiny", recipe_file)


@pytest.fixture(scope="module")
def data() -> Interactions:
    return marketplace(users=120, items=60, interactions=1500, seed=1)


def finished(working: Any) -> tuple[int, Any]:
    """How many steps a generator makes, and what it returns."""
    steps = 0
    while True:
        try:
            next(working)
        except StopIteration as end:
            return steps, end.value
        steps += 1


@pytest.fixture(scope="module")
def done(
    tmp_path_factory: pytest.TempPathFactory, recipe_file: Path, recipe: Recipe, data: Interactions
) -> tuple[Path, dict[str, Any]]:
    """All questions by the command, in this process: its folder and what --json gave."""
    folder = tmp_path_factory.mktemp("reproduce") / "out"
    arguments = ["reproduce", "all", "--dataset", DATA, "-o", folder, "--seeds", "2", "--recipe", recipe_file, "--json"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["divmf", *map(str, arguments)])
        return folder, json.loads(call())


def call() -> str:
    """`divmf …` as sys.argv says it: what it printed."""
    import contextlib
    import io

    from divmf.cli import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    return printed.getvalue()


# ---- recipes


@pytest.mark.parametrize("name", [*recipe_names(), "default"])
def test_every_recipe_names_real_settings_of_real_data(name: str, split: Split) -> None:
    recipe = read_recipe(name)
    standing_in = "stand-in" in recipe.title
    assert resolve(name)[0] in KNOWN or standing_in or name == "default"
    for question in QUESTIONS:
        for settings in read_question(question).runs.values():
            config = recipe.config(2, split, settings)
            assert isinstance(config, TrainConfig)
            assert (config.seed, config.model, config.k) == (2, "bpr", 5)
    assert recipe.base(2).diversity_epochs == 0


def test_the_papers_settings_stand_in_the_recipes() -> None:
    # Sec. 4.1
    unmasked = {name: read_recipe(name).settings["unmask"] for name in KNOWN if name != "ml-100k"}
    assert unmasked == {"epinions": 50, "ml-1m": 100, "ml-10m": 100, "gowalla": 500, "yelp": 500}
    cores = {name: read_recipe(name).core for name in unmasked}
    assert cores == {"epinions": 15, "ml-1m": 0, "ml-10m": 0, "gowalla": 15, "yelp": 15}
    for name in ("ml-10m", "gowalla", "yelp"):
        settings = read_recipe(name).settings
        assert (settings["rows"], settings["columns"]) == (5000, 5000)
    # Sec. 4.6: Q5 is asked on the 20-core of Yelp, with fewer items unmasked
    smaller = read_recipe("yelp-20")
    assert (smaller.core, smaller.settings["unmask"], smaller.blocks["columns"]) == (20, 100, 5000)


@pytest.mark.parametrize(
    ("name", "n_items"), [("ml-1m", 3706), ("epinions", 4287), ("yelp-nfa", 3878), ("ml-100k", 1682), ("default", 999)]
)
def test_a_fifth_of_the_items_holds_one_of_five_places(name: str, n_items: int, split: Split) -> None:
    # 5·c_b/|I| is a little above 1 in four of five blocks: rounded up, they would list two items each
    used = read_recipe(name).used(
        "blocks", replace(split, train=replace(split.train, item_ids=pl.Series(range(n_items))))
    )
    config = TrainConfig(preset="paper", **used)
    assert config.columns is not None
    assert config.columns * 5 >= n_items
    sizes = [min(config.columns, n_items - first) for first in range(0, n_items, config.columns)]
    assert [Lengths.of(config, n_items, size).listed for size in sizes] == [1] * 5


def test_rerankers_of_the_first_question_exist_with_knobs_in_range() -> None:
    question = read_question("q1")
    assert list(question.paper) == ["kwon", "karakaya", "fairmatch", "uimatch"]
    for name, sweep in question.sweeps.items():
        method = METHODS[name]
        assert sweep.grid[0] == method.neutral
        for variant in sweep.variants:
            for value in sweep.grid:
                method.settings.model_validate({**variant, method.knob: value})
    assert {30, 50, 75, 100} <= set(question.paper["fairmatch"].grid)  # the paper's t
    assert 0.9 in question.paper["kwon"].grid  # the paper's T_R


def test_mini_batches_are_all_that_the_fifth_question_changes(split: Split) -> None:
    recipe = read_recipe("gowalla")
    whole, mini = (recipe.config(0, split, run) for run in read_question("q5").runs.values())
    assert (whole.rows, whole.columns, mini.rows, mini.columns) == (None, None, 5000, 5000)
    default = read_recipe("default").config(0, split, {"use": "blocks"})
    assert (default.rows, default.columns) == (18, 12)  # a seventh of 120 users, a fifth of 60 items


def test_a_name_with_its_core_finds_the_recipe() -> None:
    assert read_recipe("epinions-20") == Recipe(**vars(read_recipe("epinions")) | {"core": 20})
    assert read_recipe("epinions", core=5).core == 5
    assert read_recipe("shop/events.csv").title == "events"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("title = ", "Invalid value"),
        ("title = 'x'\ncore = 0", "settings: Field required"),
        (RECIPE.replace("unmask", "unmsk"), "unmsk: Unexpected keyword argument"),
        (RECIPE.replace("k = 3", "k = 0"), "k: Input should be greater than or equal to 1"),
    ],
)
def test_a_recipe_that_is_wrong_says_where(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"mine.toml is not a recipe: .*{says}"):
        read_recipe("tiny", path)


# ---- the lab


def test_divmf_from_the_base_model_is_the_whole_training_at_once(tmp_path: Path, split: Split, recipe: Recipe) -> None:
    lab = Lab(tmp_path / "cache", split)
    finished(lab.base(recipe.base(1)))
    _, curve = finished(lab.trained(recipe.config(1, split, {}), lab.base_run(recipe.base(1)), []))
    settings: dict[str, Any] = {"preset": "paper", "seed": 1} | recipe.settings
    config = TrainConfig(**settings)
    run = Run.start(tmp_path / "run", split, config)
    for _ in fit(run, split, config):
        pass
    assert [point.test for point in curve.operating] == [point.test for point in run.read_curve().operating]
    assert not any((tmp_path / "cache" / "runs").iterdir())  # only the curve is kept


def test_what_is_made_from_something_else_has_another_hash(tmp_path: Path, split: Split, recipe: Recipe) -> None:
    lab = Lab(tmp_path, split)
    keys = {
        lab.key({"seed": 0}), lab.key({"seed": 1}), lab.key({"seed": 0, "k": 5}),
        Lab(tmp_path, marketplace(users=120, items=60, interactions=1500, seed=2).leave_one_out(0)).key({"seed": 0}),
    }  # fmt: skip
    assert len(keys) == 4
    assert lab.key({"a": 1, "b": 2}) == lab.key({"b": 2, "a": 1})


def test_a_reranker_is_tried_where_a_loss_is_met(tmp_path: Path, split: Split, recipe: Recipe) -> None:
    lab = Lab(tmp_path, split)
    finished(lab.base(recipe.base(0)))
    sweep = Sweep(grid=[1, 41], refine=2)
    steps, curve = finished(lab.swept("random_top", sweep, lab.base_run(recipe.base(0)), 41, [0.2]))
    first, low, high, last = curve.points
    assert (first.knob, last.knob, steps) == (1, 41, 4)
    least = 0.8 * first.valid["ndcg"]
    assert last.valid["ndcg"] < least  # so the loss is met between them: first half-way, then in the half where it is
    half, quarter = (low, high) if low.knob == 21 else (high, low)
    assert quarter.knob == (31 if half.valid["ndcg"] >= least else 11)


def test_nothing_is_trained_or_reranked_twice(
    done: tuple[Path, dict[str, Any]], data: Interactions, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = done

    def never(*arguments: Any, **settings: Any) -> Any:
        raise AssertionError("made again")

    monkeypatch.setattr("divmf.models.epochs.accuracy_epoch", never)
    monkeypatch.setattr("divmf.train.fitting.EPOCHS", {"accuracy": never, "diversity": never})
    monkeypatch.setattr("divmf.market.solve.solve", never)
    monkeypatch.setattr(lab_room, "sweep_points", never)
    steps, answers = finished(work(folder, data, recipe, QUESTIONS, 2))
    assert steps == 0
    assert [answer.claims for answer in answers] == [answer.claims for answer in read_answers(folder)]


@pytest.mark.parametrize("steps", [4, 9, 23])
def test_a_stopped_run_goes_on_and_ends_with_the_same_numbers(
    done: tuple[Path, dict[str, Any]], data: Interactions, recipe: Recipe, tmp_path: Path, steps: int
) -> None:
    working = work(tmp_path, data, recipe, ["q2"], 2)
    for _ in range(steps):  # in the base model, in the first run, in the second
        next(working)
    working.close()
    left, (answer,) = finished(work(tmp_path, data, recipe, ["q2"], 2))
    whole, _ = finished(work(tmp_path / "whole", data, recipe, ["q2"], 2))
    assert left == whole - steps
    assert answer.claims == read_answers(done[0])[1].claims


@pytest.mark.slow
def test_a_killed_command_goes_on_and_makes_nothing_again(
    done: tuple[Path, dict[str, Any]], recipe_file: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "divmf", "reproduce", "q2", "--dataset", DATA, "-o", str(tmp_path / "again"),
               "--seeds", "2", "--recipe", str(recipe_file), "-q"]  # fmt: skip
    process = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("again/cache/curves/*.json")) and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("again/cache/curves/*.json")}
    assert kept
    subprocess.run(command, check=True)
    assert all(path.stat().st_mtime_ns == then for path, then in kept.items())
    numbers = [
        pl.read_parquet(place / "q2" / "points.parquet").drop("seconds") for place in (done[0], tmp_path / "again")
    ]
    assert numbers[0].equals(numbers[1])


# ---- what the command leaves


def test_the_command_prints_the_claims_of_all_questions(done: tuple[Path, dict[str, Any]]) -> None:
    _, printed = done
    claims = printed["claims"]
    assert [claim["question"] for claim in claims] == [
        "q1", "q1", "q1", "q1", "q2", "q2", "q3", "q3", "q4", "q4", "q5", "q5", "q5", "q5",
    ]  # fmt: skip
    for claim in claims:
        assert claim["verdict"] in ("held", "held in part", "not clear", "did not hold")
        for each in claim["effects"]:
            if each["value"] is not None:
                assert each["low"] <= each["value"] <= each["high"]


def test_the_numbers_beside_the_page_are_those_of_the_claims(done: tuple[Path, dict[str, Any]]) -> None:
    folder, printed = done
    points = pl.read_parquet(folder / "q2" / "points.parquet")
    assert points.shape == pl.read_csv(folder / "q2" / "points.csv").shape
    gains = []
    for seed in (0, 1):
        curves = {
            name: Curve(tuple(map(point_of, rows.iter_rows(named=True))))
            for (name,), rows in points.filter(pl.col("seed") == seed).group_by("curve", maintain_order=True)
        }
        both, alone = (curves[name].best_within(0.05, "coverage") for name in ("DivMF", "DivMF − Reg_skew"))
        gains.append(both.test["coverage"] / alone.test["coverage"] - 1)
    (effect,) = [
        each
        for claim in printed["claims"]
        if claim["name"] == "both regularizers"
        for each in claim["effects"]
        if (each["metric"], each["rival"]) == ("Coverage", "DivMF − Reg_skew")
    ]
    assert effect["value"] == pytest.approx(sum(gains) / 2)


def test_pictures_tables_and_words_are_all_there(done: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = done
    figures = {path.name for path in (folder / "figures").iterdir()}
    names = ("figure-1", "figure-2", "q1-paper", "q1-others", "q2", "q3", "q4", "q5", "q5-epochs")
    assert figures == {f"{name}.{ending}" for name in names for ending in ("png", "svg")}
    words = (folder / "results.md").read_text(encoding="utf-8")
    page = (folder / "report.html").read_text(encoding="utf-8")
    for text in ("What held", "Regularizers (Q2)", "a tiny marketplace", "How it was measured"):
        assert text in words
        assert text in page
    assert all(f"](figures/{name}.png)" in words for name in names)
    assert "<" not in words.replace("<0", "")  # Markdown, no markup left
    assert f"divmf reproduce q1 q2 q3 q4 q5 --dataset {DATA}" in re.sub("<[^>]*>", "", page[page.index("<footer>") :])


def test_questions_come_one_by_one_onto_the_same_page(
    data: Interactions, recipe: Recipe, done: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    shutil.copytree(done[0], tmp_path / "out")
    for name in ("q1", "q3"):
        shutil.rmtree(tmp_path / "out" / name)
    assert [answer.name for answer in read_answers(tmp_path / "out")] == ["q2", "q4", "q5"]
    _, answers = finished(work(tmp_path / "out", data, recipe, ["q3"], 2))
    write_answer(tmp_path / "out", answers[0])
    back = read_answers(tmp_path / "out")
    assert [answer.name for answer in back] == ["q2", "q3", "q4", "q5"]
    same: Answer = back[1]
    assert same.question == answers[0].question
    assert same.curves.keys() == answers[0].curves.keys()
    assert [curve.points[-1].test for curve in same.curves["DivMF"]] == [
        curve.points[-1].test for curve in answers[0].curves["DivMF"]
    ]


def test_a_folder_of_other_data_or_things_is_refused(
    tmp_path: Path, data: Interactions, recipe: Recipe, split: Split
) -> None:
    claim_folder(tmp_path / "out", DATA, recipe, data)
    claim_folder(tmp_path / "out", DATA, recipe, data)
    with pytest.raises(ValueError, match=r"holds the results of other data or settings \(dataset was 'synthetic"):
        claim_folder(tmp_path / "out", "ml-1m", recipe, data)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").touch()
    with pytest.raises(ValueError, match="not empty and not a folder of `divmf reproduce`"):
        claim_folder(tmp_path / "photos", DATA, recipe, data)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["q6", "--dataset", DATA], "there is no question 'q6'"),
        (["q1", "--dataset", "ml-2m"], "ml-2m: there is no such file or dataset"),
        (["q1", "--dataset", DATA, "--seeds", "1"], "greater than or equal to 2"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from divmf.cli import main

    monkeypatch.setattr(sys, "argv", ["divmf", "reproduce", *arguments, "-o", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


# ---- in a real browser


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 390)])
def test_a_browser_draws_every_figure(done: tuple[Path, dict[str, Any]], look_at: Any, scheme: str, width: int) -> None:
    look_at(done[0] / "report.html", 9, scheme, width)


def test_figure_2_is_of_the_data_before_the_core() -> None:
    from divmf.data.describe import describe
    from divmf.reports.reproduce import Reproduction, background

    raw = marketplace(users=300, items=200, interactions=3000, seed=3)
    core = raw.k_core(5)
    shares = [f"{describe(data).head_share:.0%}" for data in (raw, core)]
    assert shares[0] != shares[1]
    about = {"title": "a shop", "users": core.n_users, "items": core.n_items, "interactions": len(core)}
    told = Reproduction([], raw, about, 5)
    told.__dict__["figures"] = {"figure-1": {}, "figure-2": {}}  # the captions are asked for, not the charts
    section = background(told)
    assert f"{shares[0]} of the {len(raw):,} interactions" in str(section.charts[1].caption)
    assert section.tables[0].rows[0][3] == len(core)  # the row of Table 1 stays that of the core
