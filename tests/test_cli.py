"""Every command as a user calls it: what it prints, writes and returns, and how it says that a call was wrong."""

import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file

from divmf.cli import main
from divmf.cli.console import strict
from divmf.cli.demo import own_command
from divmf.cli.errors import explain
from divmf.cli.inputs import read_users
from divmf.cli.train import smaller_than_best
from divmf.data.datasets import marketplace
from divmf.data.interactions import Interactions
from divmf.engine.clock import Clock
from divmf.ranking.lists import TopK

QUICK = ["--k", "3", "--dim", "8", "--unmask", "10", "--accuracy-epochs", "3", "--diversity-epochs", "4",
         "--learning-rate", "0.02", "--diversity-rate", "0.02", "--preset", "paper"]  # fmt: skip
PRICES = ["--k", "3", "--dim", "8", "--accuracy-epochs", "6", "--diversity-epochs", "12"]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "events.csv"
    marketplace(users=120, items=60, interactions=1500, seed=1).frame.write_csv(path)
    return path


def test_the_whole_path_from_a_log_to_measured_lists(divmf: Any, log: Path, tmp_path: Path) -> None:
    run, lists, parts = tmp_path / "run", tmp_path / "lists.parquet", tmp_path / "parts"
    trained = divmf("train", log, "-o", run, *QUICK, "--json")
    assert trained.code == 0
    assert set(trained.json) >= {"run", "accuracy_epochs", "diversity_epochs", "base", "picked"}
    assert trained.json["diversity_epochs"] == 4
    assert trained.json["tuned"] == {}  # λ is chosen for softmax alone
    assert "120 users, 60 items, 1,500 interactions" in trained.err

    curve = divmf("curve", run, "--json").json
    assert len(curve) == trained.json["accuracy_epochs"] + 4
    assert set(curve[-1]) >= {"phase", "epoch", "valid", "test"}
    assert divmf("curve", run, "-o", tmp_path / "curve.csv", "-q").out == ""
    assert pl.read_csv(tmp_path / "curve.csv").height == len(curve)

    assert divmf("pick", run, "--epoch", "4", "--json").json["epoch"] == 4
    assert [line.split()[0] for line in divmf("curve", run, "--all").out.splitlines()[2:]] == list("01234")
    assert "picked diversity epoch 4" in divmf("pick", run, "--epoch", 4).out

    assert divmf("recommend", run, "-o", lists, "--seen", "train+valid", "--json").json == {
        "output": str(lists),
        "users": 120,
        "k": 3,
        "epoch": 4,
    }
    assert pl.read_parquet(lists).columns == ["user_id", "item_id", "score", "rank"]

    assert divmf("data", "split", log, "-o", parts).code == 0
    evaluated = divmf(
        "evaluate", lists, "--test", parts / "test.parquet", "--catalog", parts / "catalog.parquet",
        "--train", parts / "train.parquet", "--json",
    ).json  # fmt: skip
    assert (evaluated["k"], evaluated["users"], evaluated["catalog"]) == (3, 120, 60)
    for name, value in curve[-1]["test"].items():
        assert evaluated[name] == pytest.approx(value), name
        low, high = evaluated["intervals"][name]
        assert low <= value <= high


@pytest.fixture(scope="module")
def market_run(log: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A run with the usual loss and method, and what `train --json` said of it."""
    run = tmp_path_factory.mktemp("market") / "run"
    command = [sys.executable, "-m", "divmf", "train", str(log), "-o", str(run), *PRICES, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return run, json.loads(done.stdout, parse_constant=pytest.fail)


@pytest.fixture
def market(market_run: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """A copy of it to change."""
    return Path(shutil.copytree(market_run[0], tmp_path / "market"))


def test_the_defaults_choose_lambda_and_rate_and_make_a_curve_of_the_market(
    divmf: Any, market_run: tuple[Path, dict[str, Any]], market: Path, log: Path, tmp_path: Path
) -> None:
    said = market_run[1]
    chosen = said["tuned"]
    tried = {(row["l2"], row["learning_rate"]): row["valid_ndcg"] for row in chosen["tried"]}
    usual = {l2: reached for (l2, rate), reached in tried.items() if rate == 0.2}
    assert (chosen["l2"], chosen["learning_rate"]) in tried
    assert usual[chosen["l2"]] == max(usual.values())
    assert {(chosen["l2"], rate) for rate in (0.1, 0.2, 0.4)} <= set(tried)
    assert said["accuracy_epochs"] == 6
    curve = divmf("curve", market, "--json").json
    points = [point for point in curve if point["phase"] == "diversity"]
    assert len(points) == said["diversity_epochs"] >= 12
    assert all(point["knob"] > 0 and point["gap"] >= 0 for point in points)
    assert all("knob" not in point for point in curve if point["phase"] == "accuracy")
    lines = divmf("curve", market, "--all").out.splitlines()[2:]  # the number in front is the one that --epoch takes
    assert {int(line.split()[0]) for line in lines} == {0, *(point["epoch"] for point in points)}
    for line in lines[1:]:
        epoch, name = line.split()[0], " ".join(line.split()[1:4])
        assert next(f"ρ = {point['knob']:.4g}" for point in points if point["epoch"] == int(epoch)) == name
    assert said["picked"]["valid"]["ndcg"] >= 0.95 * said["base"]["valid"]["ndcg"]

    lists, parts = tmp_path / "lists.parquet", tmp_path / "parts"
    picked = divmf("pick", market, "--epoch", points[-1]["epoch"], "--json").json
    assert divmf("recommend", market, "-o", lists, "--seen", "train+valid", "-q").code == 0
    divmf("data", "split", log, "-o", parts)
    evaluated = divmf(
        "evaluate", lists, "--test", parts / "test.parquet", "--catalog", parts / "catalog.parquet",
        "--train", parts / "train.parquet", "--json",
    ).json  # fmt: skip
    for name, value in picked["test"].items():
        assert evaluated[name] == pytest.approx(value), name


def test_pick_solves_for_just_the_rho_asked_and_only_once(divmf: Any, market: Path) -> None:
    before = divmf("curve", market, "--json").json
    knobs = sorted(point["knob"] for point in before if "knob" in point)
    rho = 0.3 * knobs[3] + 0.7 * knobs[4]
    for _ in range(2):
        picked = divmf("pick", market, "--rho", rho, "--json").json
        assert picked["knob"] == rho
        assert len(divmf("curve", market, "--json").json) == len(before) + 1
    assert f"picked ρ = {rho:.4g}" in divmf("pick", market, "--rho", rho).out
    assert divmf("pick", market, "--rho", 0, "--json").json["phase"] == "accuracy"
    assert len(divmf("curve", market, "--json").json) == len(before) + 1
    for wrong in ("-1", "inf", "nan"):
        done = divmf("pick", market, "--rho", wrong)
        assert (done.code, done.out) == (2, ""), wrong
        assert len(done.err.splitlines()) == 1
    assert len(divmf("curve", market, "--json").json) == len(before) + 1


def test_picking_by_a_criterion_twice_adds_points_only_the_first_time(divmf: Any, market: Path) -> None:
    first = divmf("pick", market, "--ndcg-drop", "3%", "--json").json
    size = len(divmf("curve", market, "--json").json)
    assert divmf("pick", market, "--ndcg-drop", "3%", "--json").json == first
    assert len(divmf("curve", market, "--json").json) == size


def test_rho_is_refused_for_a_run_of_the_papers_method(divmf: Any, text_run: Path) -> None:
    done = divmf("pick", text_run, "--rho", "0.1")
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        "divmf: rho=0.1 cannot be chosen: its points have none (--method divmf); name an epoch"
    ]


@pytest.mark.parametrize("flags", [[], ["--method", "divmf"], ["--model", "bpr"]])
def test_the_alternating_schedule_asks_for_the_papers_method(
    divmf: Any, log: Path, tmp_path: Path, flags: list[str]
) -> None:
    done = divmf("train", log, "-o", tmp_path / "run", "--schedule", "alternating", *flags)
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1
    assert "alternating schedule is the paper's; set model to bpr or mse, and method to divmf" in done.err
    assert not (tmp_path / "run").exists()


def test_the_papers_method_can_be_named_by_its_parts(divmf: Any, log: Path, tmp_path: Path) -> None:
    named = divmf(
        "train",
        log,
        "-o",
        tmp_path / "named",
        *QUICK[:-2],
        "--method",
        "divmf",
        "--model",
        "bpr",
        "--shuffle",
        "triples",
        "--no-mask-seen",
        "--json",
    )
    preset = divmf("train", log, "-o", tmp_path / "preset", *QUICK, "--json")
    assert named.json["base"]["valid"] == preset.json["base"]["valid"]
    assert named.json["picked"]["test"] == preset.json["picked"]["test"]


@pytest.mark.parametrize("way", [["--preset", "paper"], ["--l2", "2", "--deepest", "1"]], ids=["paper", "market"])
def test_the_same_command_goes_on_where_it_was_interrupted(log: Path, tmp_path: Path, way: list[str]) -> None:
    run = tmp_path / "run"
    slow = [*way, "--k", "3", "--accuracy-epochs", "3", "--patience", "3", "--diversity-epochs", "2000"]
    command = [sys.executable, "-m", "divmf", "train", str(log), "-o", str(run), *slow]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    log_file = run / "epochs.jsonl"
    for _ in range(1200):
        if log_file.exists() and len(log_file.read_text().splitlines()) > 5:
            break
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130  # as shells expect of a command stopped by Ctrl-C
    assert "The same command goes on from there" in errors
    assert "Traceback" not in errors
    lines = log_file.read_text().splitlines()
    kept = len(lines)
    again = subprocess.run(
        [*command[:-1], str(kept), "--json"], capture_output=True, text=True, check=True, env=environment
    )
    assert f"going on after {kept} epochs" in again.stderr

    def numbers(line: str) -> dict[str, Any]:
        """A line without its seconds: stopped between two writes, its epoch is trained again, to the same numbers."""
        return {name: value for name, value in json.loads(line).items() if name != "seconds"}

    assert [numbers(line) for line in log_file.read_text().splitlines()[:kept]] == [numbers(line) for line in lines]
    made = json.loads(again.stdout)["diversity_epochs"]
    assert made == kept if "paper" in way else made >= kept  # market: and what the pick needed


def test_lists_for_some_users_in_other_formats(divmf: Any, log: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    divmf("train", log, "-o", run, *QUICK, "-q")
    wanted = pl.read_csv(log)["user_id"].unique().sort().head(7)
    wanted.to_frame().write_csv(tmp_path / "users.csv")
    for ending in ("csv", "tsv", "jsonl", "parquet"):
        path = tmp_path / f"lists.{ending}"
        assert divmf("recommend", run, "-o", path, "--users", tmp_path / "users.csv", "--k", 2, "--epoch", 0).code == 0
        from divmf.data.tables import read_table

        assert read_table(path)["user_id"].unique().sort().to_list() == wanted.to_list()


@pytest.mark.parametrize("settings", [QUICK, PRICES], ids=["divmf", "market"])
def test_the_phases_of_a_profile_add_up_to_the_time_the_command_took(
    divmf: Any, log: Path, tmp_path: Path, settings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count()  # a clock that goes on by a second whenever it is looked at
    monkeypatch.setattr("divmf.cli.train.Clock", lambda: Clock(lambda: float(next(ticks))))
    profile = divmf("train", log, "-o", tmp_path / "run", *settings, "--json", "--profile").json["profile"]
    *phases, together = profile
    names = {row["phase"] for row in phases}
    assert names >= {"reading", "splitting", "accuracy epochs", "validation metrics", "writing", "other"}
    assert names & {"diversity epochs", "market"} == ({"diversity epochs"} if settings is QUICK else {"market"})
    assert "choosing λ" in names
    assert all(row["seconds"] >= 0 for row in phases)
    assert together["seconds"] == pytest.approx(sum(row["seconds"] for row in phases))
    assert sum(row["share"] for row in phases) == pytest.approx(1)
    assert together["seconds"] == next(ticks) - 1  # from the first look to the last


def test_a_profile_is_printed_as_a_table(divmf: Any, log: Path, tmp_path: Path) -> None:
    printed = divmf("train", log, "-o", tmp_path / "run", *QUICK, "--profile").out
    table = printed[printed.index("where the time went") :].splitlines()
    assert table[1].split() == ["phase", "seconds", "share"]
    assert any(line.split()[0] == "together" and line.endswith("100.0%") for line in table)


def test_describe_prints_the_row_of_table_1(divmf: Any, log: Path, tmp_path: Path) -> None:
    done = divmf("data", "describe", log, "-o", tmp_path / "skew.png")
    assert "1,500" in done.out
    assert (tmp_path / "skew.png").read_bytes().startswith(b"\x89PNG")
    assert "repeated pairs merged: 0" in done.out
    found = divmf("data", "describe", log, "--json").json
    assert (found["users"], found["items"], found["interactions"]) == (120, 60, 1500)
    assert found["density"] == pytest.approx(1500 / 7200)


def test_the_help_names_the_commands_in_the_order_of_the_job(divmf: Any) -> None:
    said = divmf("--help").out
    places = [said.index(f"│ {name} ") for name in ("train", "curve", "pick", "recommend", "evaluate", "audit", "demo")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("chosen", "told"), [({"dim": 32}, "smaller than its best and within 0.2% of it"), ({"dim": 64}, "")]
)
def test_a_smaller_model_that_is_chosen_is_said_to_be_one(chosen: dict[str, int], told: str) -> None:
    tried = [
        {"model": "ials", "settings": {"dim": 32}, "valid_ndcg": 0.1999},
        {"model": "ials", "settings": {"dim": 64}, "valid_ndcg": 0.2},
        {"model": "ease", "settings": {"l2": 1}, "valid_ndcg": 0.3},
    ]
    said = smaller_than_best({"model": "ials", "settings": chosen, "tried": tried})
    assert said == (f", {told}" if told else "")


def test_the_demo_says_how_to_call_what_is_not_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    assert own_command() == "divmf"
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    monkeypatch.setattr("sys.executable", str(tmp_path / ".venv/bin/python"))
    assert own_command().endswith("python -m divmf")
    (tmp_path / ".venv/bin/divmf").write_text("")
    assert own_command() == ".venv/bin/divmf"


def test_doctor_and_the_list_of_datasets_answer_in_json_too(divmf: Any) -> None:
    assert divmf("doctor", "--json").json["numba"]
    names = [row["name"] for row in divmf("data", "list", "--json").json]
    assert names == ["ml-100k", "ml-1m", "ml-10m", "gowalla", "yelp", "epinions"]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "flags", "says"),
    [
        (None, [], "no such file"),
        ("", [], "is empty"),
        ("user_id,item_id\n", [], "no rows"),
        ("user_id;item_id\n1;2\n", [], "separator"),
        ("who,what\n1,2\n", [], "--user"),
        ("user_id,item_id\n1,2\n,3\n", [], "empty ids"),
        ("user_id,item_id\n1,2\n1,3\n", [], "1 user"),
        ("user_id,item_id\n1,2\n3,2\n", [], "1 item"),
        ("user_id,item_id\n1,2\n3,4\n", ["--k", "2"], "three interactions"),
        ("user_id,item_id\n1,2\n3,4\n", ["--k-core", "5"], "k_core=5 leaves no user"),
        ("user_id,item_id\n1,2\n3,4\n", ["--k-core", "-1"], "negative"),
        ("user_id,item_id\n1,2\n1,3\n1,4\n3,4\n", ["--k", "50"], "k=50 is longer than the 3 items"),
        ("user_id,item_id\n1,2\n3,4\n", ["--k", "0"], "k=0"),
        ("user_id,item_id\n1,2\n3,4\n", ["--dim", "-5"], "dim=-5"),
        ("user_id,item_id\n1,2\n3,4\n", ["--unmask-policy", "best"], "--unmask-policy"),
        ("user_id,item_id\n1,2\n3,4\n", ["--pick", "much"], "--pick much"),
        ("user_id,item_id\n1,2\n3,4\n", ["--user", "nobody"], "'nobody'"),
        ("user_id,item_id\n1,2\n3,4\n", ["--nonsense"], "--nonsense"),
    ],
)
def test_bad_input_gets_one_line_exit_code_2_and_writes_nothing(
    divmf: Any, tmp_path: Path, text: str | None, flags: list[str], says: str
) -> None:
    path = tmp_path / "events.csv"
    if text is not None:
        path.write_text(text)
    run = tmp_path / "run"
    done = divmf("train", path, "-o", run, *flags)
    assert done.code == 2
    assert done.out == ""
    assert says in done.err
    assert done.err.count("divmf:") == 1
    assert len(done.err.strip().splitlines()[-1]) > 20
    assert not run.exists()


def test_other_wrong_calls_say_what_to_do(divmf: Any, log: Path, tmp_path: Path) -> None:
    assert "not a run folder" in divmf("curve", tmp_path).err
    assert "neither a saved model nor a run" in divmf("recommend", tmp_path, "-o", tmp_path / "x.parquet").err
    run = tmp_path / "run"
    divmf("train", log, "-o", run, *QUICK, "-q")
    assert "run with other settings" in divmf("train", log, "-o", run, *QUICK, "--seed", 5).err
    other = tmp_path / "other.csv"
    marketplace(users=100, items=60, interactions=1500, seed=2).frame.write_csv(other)
    assert "run of other data" in divmf("train", other, "-o", run, *QUICK).err
    assert "no folder" in divmf("recommend", run, "-o", tmp_path / "absent" / "lists.parquet").err
    assert "unknown kind of file" in divmf("recommend", run, "-o", tmp_path / "lists.xlsx").err
    assert "exactly one" in divmf("pick", run).err
    assert "ml-1m" in divmf("train", "ml-1", "-o", tmp_path / "new").err
    blocked = write(tmp_path / "file", "")
    done = divmf("train", log, "-o", blocked / "run", *QUICK)
    assert (done.code, "file" in done.err) == (2, True)


def test_help_teaches_every_command(divmf: Any) -> None:
    for command in ("demo", "train", "curve", "pick", "recommend", "evaluate", "doctor", "data"):
        done = divmf(command, "--help")
        assert done.code == 0
        assert len(done.out) > 200
    assert "--unmask-policy" in divmf("train", "--help").out


def test_rerank_takes_any_lists_and_says_what_it_changed(divmf: Any, log: Path, tmp_path: Path) -> None:
    run, wide, out = tmp_path / "run", tmp_path / "wide.csv", tmp_path / "lists.parquet"
    divmf("train", log, "-o", run, *QUICK, "-q")
    divmf("recommend", run, "-o", wide, "--k", 20, "-q")
    done = divmf("rerank", wide, "--method", "dual_prices", "--k", 3, "-o", out, "--set", "c=1.5", "--json")
    assert done.json["settings"] == {"c": 1.5}
    assert done.json["gini"] < done.json["before"]["gini"]
    made = pl.read_parquet(out)
    assert made.group_by("user_id").len()["len"].unique().to_list() == [3]
    assert made.join(pl.read_csv(wide), on=["user_id", "item_id"]).height == made.height
    names = [row["name"] for row in divmf("rerank", "--list", "--json").json]
    assert {"kwon", "karakaya", "fairmatch", "uimatch", "bayes_rule"} <= set(names)
    assert "c (knob)" in divmf("rerank", "--list", "--method", "uimatch").out
    for arguments, says in [
        (["--method", "kwan"], "no reranker 'kwan'"),
        (["--method", "kwon", "--set", "t_r=2"], "t_r='2' is not allowed"),
        (["--method", "kwon", "--set", "x=2"], "no setting 'x'"),
        (["--method", "karakaya"], "--train"),
    ]:
        wrong = divmf("rerank", wide, "-o", tmp_path / "no.parquet", *arguments)
        assert (wrong.code, says in wrong.err) == (2, True), wrong.err
        assert not (tmp_path / "no.parquet").exists()
    write(tmp_path / "bad.csv", "user_id,item_id,score\n1,2,nan\n")
    assert "NaN" in divmf("rerank", tmp_path / "bad.csv", "--method", "kwon", "-o", out).err
    assert "LISTS is missing" in divmf("rerank").err
    # of twenty candidates, a third of the slots at the most go to other items
    done = divmf("rerank", wide, "--replace", "30%", "--k", 3, "-o", out, "--json")
    assert (done.json["method"], done.json["settings"]) == ("market", {"replace": 0.3})
    own = pl.read_csv(wide).filter(pl.col("rank") <= 3)
    kept = pl.read_parquet(out).join(own, on=["user_id", "item_id"]).height / own.height
    assert 0.7 <= kept < 1
    wrong = divmf("rerank", wide, "--method", "kwon", "--replace", "30%", "-o", tmp_path / "no.parquet")
    assert (wrong.code, "--replace 30% goes with --method market" in wrong.err) == (2, True)


def test_json_is_strict_also_where_a_setting_is_infinite(divmf: Any, tmp_path: Path) -> None:
    wide = write(tmp_path / "wide.csv", "user_id,item_id,score\n1,1,3\n1,2,2\n2,1,3\n2,3,1\n")
    done = divmf("rerank", wide, "--method", "uimatch", "--set", "c=inf", "--k", 1, "-o", tmp_path / "o.csv", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out, parse_constant=pytest.fail)["settings"] == {"c": "inf"}
    assert strict({"a": [float("nan"), -math.inf, 1.5], "b": (1, None)}) == {"a": [None, "-inf", 1.5], "b": [1, None]}


@pytest.fixture(scope="module")
def text_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run whose user ids are strings that look like numbers."""
    folder = tmp_path_factory.mktemp("text")
    frame = marketplace(users=40, items=30, interactions=400, seed=1).frame
    frame.with_columns(pl.col("user_id").rank("dense").cast(pl.String)).write_parquet(folder / "events.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["divmf", "train", str(folder / "events.parquet"), "-o", str(folder / "run"), "-q",
                                    *QUICK])  # fmt: skip
        with pytest.raises(SystemExit):
            main()
    return folder / "run"


def test_user_ids_of_a_text_file_are_taken_as_the_run_has_them(divmf: Any, text_run: Path, tmp_path: Path) -> None:
    users = write(tmp_path / "users.csv", "user_id\n3\n1\n")
    done = divmf("recommend", text_run, "-o", tmp_path / "lists.parquet", "--users", users)
    assert done.code == 0, done.err
    assert pl.read_parquet(tmp_path / "lists.parquet")["user_id"].unique(maintain_order=True).to_list() == ["3", "1"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("user_id\n", "there are no rows"),
        ("user_id\n3\n99999\n", "1 of the 2 users were not in the training data (such as '99999')"),
        ("who\n3\n", "no column looks like the user"),
        ("user_id\n3.5\n", "not in the training data"),
    ],
)
def test_a_bad_file_of_users_is_named_and_nothing_is_written(
    divmf: Any, text_run: Path, tmp_path: Path, text: str, says: str
) -> None:
    users, lists = write(tmp_path / "users.csv", text), tmp_path / "lists.parquet"
    done = divmf("recommend", text_run, "-o", lists, "--users", users)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"divmf: {users}: ")
    assert says in done.err
    assert not lists.exists()


def test_user_ids_are_cast_only_where_that_loses_nothing(tmp_path: Path) -> None:
    known = Interactions.from_frame(pl.DataFrame({"user_id": [7, 8], "item_id": [1, 2]}))
    assert read_users(write(tmp_path / "a.csv", "user_id\n8\n"), known).to_list() == [8]
    with pytest.raises(ValueError, match=r"b.csv: the given ids are strings .such as '007'"):
        read_users(write(tmp_path / "b.csv", "user_id\n007\n"), known)
    pl.DataFrame({"user_id": ["7"]}).write_parquet(tmp_path / "c.parquet")  # says that these are strings
    with pytest.raises(ValueError, match=r"c.parquet: the given ids are strings"):
        read_users(tmp_path / "c.parquet", known)


def test_evaluate_names_the_file_that_is_wrong_and_counts_users_without_a_list(divmf: Any, tmp_path: Path) -> None:
    lists = write(tmp_path / "lists.csv", "user_id,item_id,rank\n1,1,1\n1,2,2\n")
    catalog = write(tmp_path / "catalog.csv", "item_id\n1\n2\n3\n")

    def call(text: str, *flags: Any) -> Any:
        test = write(tmp_path / "test.csv", text)
        return divmf("evaluate", lists, "--test", test, "--catalog", catalog, "--json", *flags)

    done = call("user_id,item_id\n1,1\n2,3\n3,3\n")
    assert done.code == 0, done.err
    assert done.err.splitlines() == [f"2 users of {tmp_path / 'test.csv'} have no list; they count as misses"]
    assert done.json["hit"] == pytest.approx(1 / 3)
    assert call("user_id,item_id\n1,1\n").err == ""
    for text, says in [
        ("user_id,item_id\n1,9\n", "1 items (such as 9) are not in the catalog of 3"),
        ("user_id,item_id\nann,1\n", "ids are"),
        ("user_id,item_id\n1,x\n", "ids are"),
    ]:
        wrong = call(text)
        assert (wrong.code, wrong.out) == (2, "")
        assert wrong.err.startswith(f"divmf: {tmp_path / 'test.csv'}: ")
        assert says in wrong.err
        assert len(wrong.err.splitlines()) == 1
    train = write(tmp_path / "train.csv", "user_id,item_id\n7,1\n8,1\n9,2\n")  # also of users without a list
    assert call("user_id,item_id\n1,1\n", "--train", train).json["popularity"] == pytest.approx(1.5)
    write(train, "user_id,item_id\n7,8\n")
    assert f"{train}: train knows none" in call("user_id,item_id\n1,1\n", "--train", train).err


def test_rerank_with_a_run_scales_over_all_that_its_users_have_not_met(divmf: Any, log: Path, tmp_path: Path) -> None:
    from divmf.ranking.lists import TopK
    from divmf.rerank import kwon, lowest_scores
    from divmf.train.runs import Run

    folder, wide = tmp_path / "run", tmp_path / "wide.parquet"
    divmf("train", log, "-o", folder, *QUICK, "-q")
    divmf("recommend", folder, "-o", wide, "--epoch", 0, "--k", 12, "--seen", "all", "-q")
    for name, more in (("with", ["--run", folder]), ("without", [])):
        divmf("rerank", wide, "--method", "kwon", "--k", 3, "-o", tmp_path / f"{name}.parquet", *more, "-q")
    run = Run.open(folder)
    split, given = run.read_split(), TopK.read(wide)
    lowest = lowest_scores(run.read_model(run.read_curve().base), split.known)[split.train.user_numbers(given.user_ids)]
    found = {name: pl.read_parquet(tmp_path / f"{name}.parquet") for name in ("with", "without")}
    assert found["with"].equals(kwon(given, 3, lowest=lowest).frame)
    assert found["without"].equals(kwon(given, 3).frame)
    assert not found["with"].equals(found["without"])


def test_rerank_says_once_that_lists_are_short_and_refuses_those_longer_than_the_catalog(
    divmf: Any, tmp_path: Path
) -> None:
    wide = write(tmp_path / "wide.csv", "user_id,item_id,score\n1,1,3\n1,2,2\n2,3,1\n")
    done = divmf("rerank", wide, "--method", "kwon", "--k", 2, "-o", tmp_path / "lists.csv")
    assert done.code == 0
    assert (done.out + done.err).count("shorter") == 1
    wrong = divmf("rerank", wide, "--method", "kwon", "--k", 500, "-o", tmp_path / "no.csv")
    assert (wrong.code, "k=500 is longer than the 3 items there are; choose k <= 3" in wrong.err) == (2, True)
    assert not (tmp_path / "no.csv").exists()


@pytest.mark.parametrize("arguments", [[], ["data"]])
def test_a_call_without_arguments_shows_the_help_and_nothing_else(divmf: Any, arguments: list[str]) -> None:
    done = divmf(*arguments)
    assert done.code == 2
    assert "Usage" in done.out
    assert done.err == ""


def test_ctrl_c_while_the_commands_are_loaded_leaves_no_traceback(divmf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stop:
        def find_spec(self, name: str, *_: Any) -> None:
            if name == "divmf.cli.doctor":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "divmf.cli.doctor", raising=False)
    monkeypatch.delattr("divmf.cli.doctor", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Stop(), *sys.meta_path])
    assert divmf("doctor").err == "divmf: stopped\n"


@pytest.mark.parametrize("error", [RuntimeError(), ImportError(""), OSError()])
def test_an_error_without_a_message_is_told_by_its_name(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(error) == 1
    assert capsys.readouterr().err == f"divmf: {type(error).__name__}\n"


@pytest.mark.parametrize(("name", "says"), [("x.pdf", "unknown kind of file"), ("absent/x.png", "there is no folder")])
def test_describe_refuses_a_picture_it_cannot_write_before_any_work(
    divmf: Any, tmp_path: Path, name: str, says: str
) -> None:
    done = divmf("data", "describe", tmp_path / "not-even-there.csv", "-o", tmp_path / name)
    assert (done.code, done.out, says in done.err) == (2, "", True), done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "lists.csv", "--test", "t.csv", "--catalog", "c.csv"],
        ["data", "split", "synthetic", "-o", "parts"],
        ["rerank", "lists.csv", "--method", "random_top", "-o", "o.csv"],
    ],
)
def test_a_negative_seed_is_refused(divmf: Any, arguments: list[str]) -> None:
    done = divmf(*arguments, "--seed", "-1")
    assert (done.code, "--seed" in done.err) == (2, True)
    assert len(done.err.splitlines()) == 1


def test_a_loss_that_is_no_number_ends_with_one_line_and_keeps_what_was_done(
    divmf: Any, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    monkeypatch.setattr("divmf.models.epochs.diversity_gradient", lambda *_: math.nan)
    done = divmf("train", log, "-o", run, *QUICK)
    assert done.code == 1
    assert "diversity loss became nan; choose a smaller learning rate" in done.err.splitlines()[-1]
    kept = divmf("curve", run, "--json").json
    assert {point["phase"] for point in kept} == {"accuracy"}
    assert divmf("pick", run, "--ndcg-drop", "5%").code == 0


def test_a_share_of_everybody_is_held_out_and_active_users_count_more(divmf: Any, log: Path, tmp_path: Path) -> None:
    sizes = divmf("data", "split", log, "-o", tmp_path / "split", "--hold-out", "20%", "--json").json
    total = sizes["train"] + sizes["valid"] + sizes["test"]
    assert sizes["test"] / total == pytest.approx(0.2, abs=0.02)
    assert sizes["valid"] / total == pytest.approx(0.1, abs=0.02)
    fast = [
        "--accuracy-epochs",
        5,
        "--l2",
        8,
        "--learning-rate",
        0.2,
        "--diversity-epochs",
        12,
        "-q",
    ]
    ways = {"whole": ["--hold-out", 0.2], "alike": ["--hold-out", 0.2, "--stake", 0]}
    for run, how in ways.items():
        assert divmf("train", log, "-o", tmp_path / run, *how, *fast).code == 0
    kept = [load_file(tmp_path / run / "points" / "012.safetensors")["users.valid"] for run in ways]
    assert (kept[0] != kept[1]).any()  # whose lists give way depends on what users have at stake
    lists = tmp_path / "lists.parquet"
    assert divmf("recommend", tmp_path / "whole", "-o", lists).code == 0
    assert pl.read_parquet(lists).height


@pytest.mark.parametrize("share", ["0", "70%", "a fifth"])
def test_a_share_that_cannot_be_held_out_is_refused(divmf: Any, log: Path, tmp_path: Path, share: str) -> None:
    done = divmf("train", log, "-o", tmp_path / "run", "--hold-out", share)
    assert (done.code, f"--hold-out {share}" in done.err) == (2, True)
    assert "such as 20%" in done.err or "write 5%" in done.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (["pick", "RUN", "--rho", "1e308"], "rho=1e+308 cannot be chosen: ρ is a number, 0 or more, up to 1e+09"),
        (["train", "synthetic:60x40x900", "-o", "NEW", "--delta", "1e-308"], "delta=1e-308 is not possible"),
        (
            ["evaluate", "x", "--test", "x", "--catalog", "x", "--resamples", "100000000"],
            "less than or equal to 100000",
        ),
    ],
)
def test_work_without_end_is_refused(divmf: Any, run_folder: Path, tmp_path: Path, call: list[str], said: str) -> None:
    places = {"RUN": run_folder, "NEW": tmp_path / "new"}
    done = divmf(*(places.get(word, word) for word in call))
    assert done.code == 2
    assert said in done.err
    assert not (tmp_path / "new").exists()


def test_settings_that_do_not_go_together_are_one_sentence(divmf: Any, tmp_path: Path) -> None:
    # it said "=ArgsKwargs((), {…}) is not possible: it the joint schedule is the paper's"
    done = divmf("train", "synthetic:60x40x900", "-o", tmp_path / "run", "--schedule", "joint")
    assert done.code == 2
    assert done.err.startswith("divmf: the joint schedule is the paper's; ")
    assert not (tmp_path / "run").exists()


def test_discounts_of_today_adjust_the_lists_of_tomorrow(divmf: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(60, 30)) + 2 * rng.normal(size=30)
    rows = [(f"u{user}", f"i{item}", scores[user, item]) for user in range(60) for item in range(30)]
    wide, kept = tmp_path / "wide.csv", tmp_path / "discounts.csv"
    pl.DataFrame(rows, schema=["user_id", "item_id", "score"], orient="row").write_csv(wide)
    solved = divmf("rerank", wide, "--replace", "30%", "-o", tmp_path / "a.csv", "--discounts", kept, "--json").json
    assert solved["gini"] < solved["before"]["gini"]
    assert 0 <= solved["gap"] < 0.2
    adjusted = divmf("rerank", wide, "--use", kept, "-o", tmp_path / "b.csv", "--json").json
    assert adjusted["gini"] == pytest.approx(solved["gini"], abs=0.05)
    assert list(pl.read_csv(kept).columns) == ["item_id", "discount"]
    rho = divmf("rerank", wide, "--rho", solved["rho"], "-o", tmp_path / "c.csv", "--json").json
    assert rho["rho"] == solved["rho"]
    valid = tmp_path / "valid.csv"
    pl.DataFrame({"user_id": ["u1", "u2"], "item_id": ["i1", "i2"]}).write_csv(valid)
    found = divmf("rerank", wide, "--ndcg-drop", "5%", "--valid", valid, "-o", tmp_path / "d.csv", "--json").json
    assert found["gini"] <= found["before"]["gini"]
    assert 0.95 * found["before"]["ndcg"] <= found["ndcg"] <= 1
    assert 0 < solved["replaced"] <= 0.3
    for wrong, says in (
        (["--use", kept, "--rho", 1], "--rho and --use both say"),
        (["--ndcg-drop", "5%"], "--ndcg-drop and --valid go together"),
        (["--method", "kwon", "--discounts", kept], "goes with --method market"),
        (["--use", valid], "no column discount"),
    ):
        done = divmf("rerank", wide, "-o", tmp_path / "e.csv", *wrong)
        assert (done.code, says in done.err) == (2, True), done.err
    assert not (tmp_path / "e.csv").exists()


def test_lists_that_hold_nothing_of_what_was_held_out_are_said_to(divmf: Any, tmp_path: Path) -> None:
    wide = write(tmp_path / "wide.csv", "user_id,item_id,score\n1,1,3\n1,2,2\n2,1,3\n2,3,1\n")
    later = write(tmp_path / "later.csv", "user_id,item_id\n1,3\n2,2\n")
    wrong = divmf("rerank", wide, "-k", 1, "--ndcg-drop", "5%", "--valid", later, "-o", tmp_path / "o.csv")
    assert wrong.code == 2
    assert "later.csv: valid: the lists hold nothing of it, so their nDCG is 0" in wrong.err
    items = write(tmp_path / "items.csv", "item_id\n1\n2\n3\n")
    measured = divmf("evaluate", wide, "--test", later, "--catalog", items)
    assert measured.code == 0
    assert "no list holds anything of" in measured.err


def test_the_setting_of_any_reranker_is_printed(divmf: Any, tmp_path: Path) -> None:
    wide = write(tmp_path / "wide.csv", "user_id,item_id,score\n1,1,3\n1,2,2\n2,1,3\n2,3,1\n")
    assert "alpha = 0.5" in divmf("rerank", wide, "--method", "fairrec", "--set", "alpha=0.5", "-k", 1, "-o",
                                    tmp_path / "o.csv").out  # fmt: skip
    from divmf.rerank import METHODS

    usual = METHODS["bayes_rule"].settings.model_fields["a"].default
    assert f"a = {usual:g}, 0 is" in divmf("rerank", wide, "--method", "bayes_rule", "-k", 1, "-o",
                                           tmp_path / "p.csv").out  # fmt: skip


def test_what_the_candidates_hold_bounds_coverage_and_short_lists_are_told(divmf: Any, tmp_path: Path) -> None:
    wide = write(tmp_path / "wide.csv", "user_id,item_id,score\n1,01,3\n1,02,2\n2,01,3\n")
    items = write(tmp_path / "items.csv", "item_id\n01\n02\n03\n04\n")
    done = divmf("rerank", wide, "-k", 2, "--catalog", items, "-o", tmp_path / "o.csv")
    assert "2 lists of up to 2, 1.5 on average; coverage at most 0.5000: the candidates hold 2 of 4 items" in done.out
    assert TopK.read(wide, items).item_ids.to_list() == ["01", "02", "03", "04"]
