"""The same flag for the same thing in every command."""

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import typer

from divmf.cli import (
    audit,
    compare,
    curve,
    data,
    demo,
    doctor,
    lists,
    plan,
    replay,
    reproduce,
    rerank,
    rerun,
    serve,
    train,
)
from divmf.cli.app import app
from divmf.models.config import EPOCH_SETTINGS, OF_METHOD, TrainConfig

# each registers its commands
MODULES = (
    audit,
    compare,
    curve,
    data,
    demo,
    doctor,
    lists,
    plan,
    replay,
    reproduce,
    rerank,
    rerun,
    serve,
    train,
)


def commands() -> dict[str, Any]:
    """Every command by its words, as click sees it."""
    found: dict[str, Any] = {}

    def walk(command: Any, words: str) -> None:
        if hasattr(command, "commands"):
            for name, inner in command.commands.items():
                walk(inner, f"{words} {name}".strip())
        else:
            found[words] = command

    walk(typer.main.get_command(app), "")
    return found


def flags_of(command: Any) -> dict[str, set[str]]:
    return {parameter.name: {*parameter.opts, *parameter.secondary_opts} for parameter in command.params}


def test_k_is_k_everywhere() -> None:
    with_k = {name: flags for name, command in commands().items() if "k" in (flags := flags_of(command))}
    assert {"train", "recommend", "rerank", "evaluate", "audit", "plan"} <= set(with_k)
    assert all(flags["k"] == {"--k", "-k"} for flags in with_k.values())


@pytest.mark.parametrize(
    "name", ["output", "catalog", "test", "train", "user", "item", "time", "seed", "json", "quiet"]
)
def test_what_is_called_alike_is_flagged_alike(name: str) -> None:
    found = {frozenset(flags[name]) for command in commands().values() if name in (flags := flags_of(command))}
    assert len(found) == 1


def test_a_split_is_made_by_the_same_options_in_every_command() -> None:
    train, split = (flags_of(commands()[name]) for name in ("train", "data split"))
    made_by = ("k_core", "user", "item", "time", "query", "split_column", "hold_out", "by_time", "min_rating", "rating")
    assert all(train[name] == split[name] for name in (*made_by, "weight", "seed"))


@pytest.mark.parametrize("name", ["evaluate", "rerank", "audit"])
def test_the_columns_of_lists_can_be_named(name: str) -> None:
    assert {"user", "item", "score", "rank", "catalog", "train"} <= set(flags_of(commands()[name]))


def test_every_command_has_a_help_that_says_what_it_does() -> None:
    for name, command in commands().items():
        assert len((command.help or "").split()) >= 6, name
        assert all(parameter.help for parameter in command.params if parameter.param_type_name == "option"), name


def test_the_version_is_printed(divmf: Any) -> None:
    from importlib.metadata import version

    done = divmf("--version")
    assert (done.code, done.out.strip()) == (0, version("divmf"))


@pytest.mark.parametrize("command", ["evaluate", "rerank", "audit"])
@pytest.mark.parametrize("everywhere", [False, True], ids=["in the lists alone", "in every file"])
def test_files_with_odd_column_names_are_read(divmf: Any, tmp_path: Path, command: str, everywhere: bool) -> None:
    wide = pl.DataFrame({"who": ["a", "a", "b", "b"], "what": [2, 1, 3, 1], "rel": [1.0, 2.0, 1.0, 2.0]})
    wide.write_csv(tmp_path / "lists.csv")
    user, item = ("who", "what") if everywhere else ("user_id", "item_id")
    pl.DataFrame({item: [1, 2, 3, 4]}).write_csv(tmp_path / "items.csv")
    pl.DataFrame({user: ["a", "b"], item: [2, 1]}).write_csv(tmp_path / "test.csv")
    pl.DataFrame({user: ["a", "b"], item: [3, 3]}).write_parquet(tmp_path / "train.parquet")
    more = {
        "evaluate": ["--test", tmp_path / "test.csv"],
        "rerank": ["-o", tmp_path / "out.csv", "--ndcg-drop", "0%", "--valid", tmp_path / "test.csv"],
        "audit": ["--test", tmp_path / "test.csv", "-o", tmp_path / "page.html"],
    }[command]
    more += ["--train", tmp_path / "train.parquet"]
    call = [command, tmp_path / "lists.csv", "--catalog", tmp_path / "items.csv", "-k", 1, *more, "--json"]
    done = divmf(*call)
    assert done.code == 2
    assert "no column looks like the" in done.err
    assert "or name it with --" in done.err
    done = divmf(*call, "--user", "who", "--item", "what", "--score", "rel")
    assert done.code == 0, done.err
    assert done.json["coverage_ceiling"] == 0.5  # two lists of one, four items
    assert done.json.get("before", done.json)["coverage"] == 0.25  # item 1 scores most with both
    wrong = divmf(*call, "--user", "who", "--item", "what", "--score", "relevance")
    assert wrong.code == 2
    assert "there is no column 'relevance'; the columns are 'who', 'what', 'rel'" in wrong.err


def test_a_command_without_a_flag_for_a_column_names_none(divmf: Any, tmp_path: Path) -> None:
    (tmp_path / "lists.csv").write_text("who,item_id,score\n1,2,3\n")
    assert divmf("train", tmp_path / "lists.csv", "-o", tmp_path / "run").err.count("or name it with --user") == 1
    (tmp_path / "new.csv").write_text("what,user_id\n1,2\n")
    wrong = divmf("rerank", tmp_path / "lists.csv", "-o", tmp_path / "out.csv", "--user", "who", "--catalog",
                  tmp_path / "new.csv")  # fmt: skip
    assert "call it item_id, or name it with --item" in wrong.err


def test_a_run_knows_what_its_log_calls_its_columns(divmf: Any, tmp_path: Path) -> None:
    from divmf.data.synthetic import synthetic

    log = synthetic("synthetic:60x40x900").frame
    names = {"user_id": "who", "item_id": "what", "timestamp": "moment"}
    log = log.rename({old: new for old, new in names.items() if old in log.columns})
    log.write_csv(tmp_path / "log.csv")
    own = ["--user", "who", "--item", "what", *(["--time", "moment"] if "moment" in log.columns else [])]
    run = tmp_path / "run"
    done = divmf("train", tmp_path / "log.csv", "-o", run, "--model", "ease", "--k", 3, *own, "-q")
    assert done.code == 0, done.err
    log.head(20).with_columns(who=pl.lit("new")).unique("what").write_csv(tmp_path / "baskets.csv")
    log.select("who").head(5).write_csv(tmp_path / "users.csv")
    for call in (["recommend", run, "-o", tmp_path / "new.csv", "--histories", tmp_path / "baskets.csv"],
                 ["recommend", run, "-o", tmp_path / "some.csv", "--users", tmp_path / "users.csv"],
                 ["replay", run, tmp_path / "log.csv", "--limit", 5]):  # fmt: skip
        done = divmf(*call, "--json")
        assert done.code == 0, done.err
        wrong = divmf(*call, "--user", "nobody")
        assert wrong.code == 2
        assert "there is no column 'nobody'" in wrong.err
    other = pl.read_csv(tmp_path / "users.csv").rename({"who": "somebody"})
    other.write_csv(tmp_path / "users.csv")
    named = divmf("recommend", run, "-o", tmp_path / "s.csv", "--users", tmp_path / "users.csv", "--user", "somebody")
    assert named.code == 0, named.err


@pytest.mark.parametrize("name", ["train", "plan"])
def test_the_settings_of_a_method_stand_in_its_panel(name: str) -> None:
    panels = {parameter.name: parameter.rich_help_panel for parameter in commands()[name].params}
    for method, settings in OF_METHOD.items():
        assert len({panels[setting] for setting in settings}) == 1
        assert f"--method {method}" in panels[settings[0]]
    if name == "train":
        alone = {option for option, panel in panels.items() if panel is None}
        assert alone == {"data", "output", "preset", "seed", "device", "profile", "json", "quiet", "debug"}
    assert {panels[setting] for setting in EPOCH_SETTINGS} == {"Models trained by epochs (--model softmax, bpr or mse)"}


@pytest.mark.parametrize("call", [["--eps", "0.01"], ["--method", "divmf", "--level", "0.9"]])
def test_a_setting_of_another_method_is_refused_also_at_its_usual_value(call: list[str], divmf: Any) -> None:
    done = divmf("train", "events.csv", "-o", "run", *call)
    assert done.code == 2
    assert "is a setting of method=" in done.err


def test_a_setting_of_epochs_is_refused_where_the_model_has_none(divmf: Any) -> None:
    done = divmf("train", "events.csv", "-o", "run", "--model", "ease", "--batch", 4096)
    assert done.code == 2
    assert "batch is a setting of models trained by epochs" in done.err


def test_no_help_has_words_in_brackets_that_the_terminal_takes_for_a_style() -> None:
    for name, command in commands().items():
        for parameter in command.params:
            words = (getattr(parameter, "help", "") or "").replace("[dim]", "").replace("[/dim]", "")
            assert not re.search(r"(?<!\\)\[", words), (name, words)


@pytest.mark.parametrize("given", [0.25, "0.25", "25%"])
def test_a_fraction_may_be_written_as_per_cent(given: Any) -> None:
    assert TrainConfig(deepest=given).deepest == 0.25


@pytest.mark.parametrize("given", ["x%", "120%", "-1%"])
def test_what_is_no_fraction_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="deepest"):
        TrainConfig(deepest=given)
