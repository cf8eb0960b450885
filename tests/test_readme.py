"""The README, the quickstart and the guide run from top to bottom: their Python and every command in them."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from divmf.data.datasets import marketplace

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "docs" / "quickstart.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))
BLOCK = re.compile(r"```(bash|python)\n(.*?)```", re.DOTALL)
NOT_HERE = ("make ", "pip ", "torchrun ", "postgresql://")  # other tests run those, or a server of the reader's does


def steps(text: str) -> list[list[str]]:
    """What a page has its reader do, in order: a command, or a block of Python."""
    found = []
    for language, code in BLOCK.findall(text):
        if language == "python":
            found.append([sys.executable, "-c", code])
            continue
        for line in code.splitlines():
            words = shlex.split(line, comments=True)
            if words and not any(part in line for part in NOT_HERE):
                assert words[0] == "divmf", line
                found.append([sys.executable, "-m", *words])
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder: a small log, and what another system wrote, in the formats the texts name."""
    data = marketplace(users=200, items=90, interactions=4000, seed=5)
    frame = data.frame
    frame.write_csv(tmp_path / "events.csv")
    frame.write_parquet(tmp_path / "events.parquet")
    (tmp_path / "events").mkdir()
    for number, part in enumerate((frame[:2500], frame[2500:])):
        part.write_parquet(tmp_path / "events" / f"part-{number}.parquet")
    ids = data.item_ids
    sellers = [f"seller {number % 9}" for number in range(len(ids))]
    pl.DataFrame({"item_id": ids, "title": ids, "seller": sellers}).write_csv(tmp_path / "items.csv")
    rng, rows = np.random.default_rng(0), []
    for user in data.user_ids:
        items = rng.choice(len(ids), 30, replace=False)
        rows += [(user, ids[int(item)], float(-place)) for place, item in enumerate(items)]
    wide = pl.DataFrame(rows, ["user_id", "item_id", "score"], orient="row")
    wide.write_csv(tmp_path / "wide.csv")
    wide.group_by("user_id", maintain_order=True).head(5).write_csv(tmp_path / "lists.csv")
    frame.group_by("user_id", maintain_order=True).tail(1).write_csv(tmp_path / "later.csv")
    return tmp_path


def run(words: list[str], folder: Path) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stderr}"


# each step is a process: quick for the first page, and marked slow for the rest
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.stem, marks=[] if page.stem in ("README", "numbers") else pytest.mark.slow)
     for page in PAGES],
)  # fmt: skip
def test_everything_on_the_page_runs(page: Path, folder: Path) -> None:
    found = steps(page.read_text())
    assert found
    for words in found:
        run(words, folder)


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebooks_run(notebook: Path, tmp_path: Path) -> None:
    run([sys.executable, str(notebook)], tmp_path)


def test_there_are_five_notebooks_in_percent_format_and_all_are_shown() -> None:
    assert len(NOTEBOOKS) == 5
    index = (ROOT / "docs" / "notebooks" / "index.md").read_text()
    for notebook in NOTEBOOKS:
        assert notebook.read_text().startswith("# %% [markdown]\n# # ")
        assert f'--8<-- "docs/notebooks/{notebook.name}"' in index


def test_the_readme_names_exactly_the_two_commands_that_do_everything() -> None:
    assert sorted(set(re.findall(r"^make \w+", README, flags=re.MULTILINE))) == ["make demo", "make test"]


def test_the_readme_is_for_a_first_visit() -> None:
    python = next(code for language, code in BLOCK.findall(README) if language == "python")
    assert len([line for line in python.splitlines() if line.strip()]) <= 10
    assert README.count("![") == 1
    images = re.findall(r"!\[[^]]*\]\(([^)]*)\)", README)
    assert all(image.startswith("https://") for image in images)  # a package index shows no relative ones
