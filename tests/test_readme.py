"""The README runs from top to bottom: its Python and every command in it."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from divmf.data.datasets import marketplace

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
QUICKSTART = (ROOT / "docs" / "quickstart.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def commands(text: str) -> list[list[str]]:
    lines = [line for block in blocks(text, "bash") for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.startswith("divmf ")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: a small log in the formats the texts name."""
    path = tmp_path_factory.mktemp("user")
    frame = marketplace(users=200, items=90, interactions=4000, seed=5).frame
    frame.write_csv(path / "events.csv")
    frame.write_parquet(path / "events.parquet")
    (path / "events").mkdir()
    for number, part in enumerate((frame[:2500], frame[2500:])):
        part.write_parquet(path / "events" / f"part-{number}.parquet")
    return path


def run(words: list[str], folder: Path) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stderr}"


def test_the_python_of_the_readme_and_the_quickstart_runs(folder: Path) -> None:
    for text in (README, QUICKSTART):
        found = blocks(text, "python")
        assert found
        for code in found:
            run([sys.executable, "-c", code], folder)


def test_every_command_of_the_readme_and_the_quickstart_runs(folder: Path) -> None:
    found = [words for text in (README, QUICKSTART) for words in commands(text) if "postgresql" not in " ".join(words)]
    assert len(found) >= 8
    for number, words in enumerate(found):
        if "ml-1m" in words or "epinions" in words:  # the commands of the results table: `slow` tests run those
            continue
        place = folder / ("readme" if number < len(commands(README)) else "quickstart")
        place.mkdir(exist_ok=True)
        for name in ("events.csv", "events.parquet", "events"):
            if not (place / name).exists():
                (place / name).symlink_to(folder / name)
        run([sys.executable, "-m", *words], place)


def test_the_readme_names_exactly_the_two_commands_that_do_everything() -> None:
    assert sorted(set(re.findall(r"^make \w+", README, flags=re.MULTILINE))) == ["make demo", "make test"]
