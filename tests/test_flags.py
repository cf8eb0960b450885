"""The same flag for the same thing in every command."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import typer

from divmf.cli import audit, compare, data, demo, doctor, lists, plan, reproduce, rerank, train
from divmf.cli.app import app

MODULES = (audit, compare, data, demo, doctor, lists, plan, reproduce, rerank, train)  # each registers its commands


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


@pytest.mark.parametrize("name", ["evaluate", "rerank", "audit"])
def test_the_columns_of_lists_can_be_named(name: str) -> None:
    assert {"user", "item", "catalog", "train"} <= set(flags_of(commands()[name]))


def test_every_command_has_a_help_that_says_what_it_does() -> None:
    for name, command in commands().items():
        assert len((command.help or "").split()) >= 6, name
        assert all(parameter.help for parameter in command.params if parameter.param_type_name == "option"), name


def test_the_version_is_printed(divmf: Any) -> None:
    from importlib.metadata import version

    done = divmf("--version")
    assert (done.code, done.out.strip()) == (0, version("divmf"))


@pytest.mark.parametrize("command", ["evaluate", "rerank"])
def test_lists_with_odd_column_names_are_read(divmf: Any, tmp_path: Path, command: str) -> None:
    wide = pl.DataFrame({"who": ["a", "a", "b", "b"], "what": [1, 2, 1, 3], "score": [2.0, 1.0, 2.0, 1.0]})
    wide.write_csv(tmp_path / "lists.csv")
    pl.DataFrame({"item_id": [1, 2, 3, 4]}).write_csv(tmp_path / "items.csv")
    pl.DataFrame({"user_id": ["a", "b"], "item_id": [2, 1]}).write_csv(tmp_path / "test.csv")
    more = {"evaluate": ["--test", tmp_path / "test.csv"], "rerank": ["-o", tmp_path / "out.csv"]}[command]
    call = [command, tmp_path / "lists.csv", "--catalog", tmp_path / "items.csv", "-k", 1, *more, "--json"]
    done = divmf(*call)
    assert done.code == 2
    assert "no column looks like the user" in done.err
    done = divmf(*call, "--user", "who", "--item", "what")
    assert done.code == 0, done.err
    assert done.json["coverage_ceiling"] == 0.5  # two lists of one, four items
