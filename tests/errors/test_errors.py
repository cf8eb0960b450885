"""Every row of docs/errors.md: one line that says what is wrong, the exit code, and nothing written."""

import re
import shutil
from pathlib import Path

import pytest
from cases import CASES, SECTIONS
from page import OPENING, PAGE, row
from table import Case, Seen, make_standard, see


@pytest.fixture(scope="module")
def standard(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("standard")
    make_standard(folder, finished_run)
    return folder


@pytest.fixture
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(("section", "case"), [pytest.param(*each, id=f"{each[0]}: {each[1].about}") for each in CASES])
def test_a_malformed_input_is_refused_as_the_page_says(
    section: str, case: Case, standard: Path, page: str, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(standard, tmp_path / "case"))
    seen = see(case, folder)
    hold(case, seen)
    part = page.partition(f"## {section}\n")[2].partition("\n## ")[0]
    assert row(case, seen) in part.splitlines(), "run `python tests/errors/page.py` and read what has changed"


def hold(case: Case, seen: Seen) -> None:
    """What is true of every row."""
    ends = ("ValueError", "ValidationError", "OSError") if case.in_python else ("1", "2")
    assert seen.end in (("400", "404", "409", "422") if case.is_request else ends), seen
    assert not re.search(r"unexpected \w+:|report it|Traceback|PanicException|ArgsKwargs|secret", seen.said), seen
    assert len(seen.said) < 700, seen
    assert seen.wrote == (), seen
    if not case.in_python:
        assert case.is_request or seen.said.startswith("divmf: ")
        assert "\n" not in seen.said, seen
    if case.names is not None:
        assert case.names in seen.said, seen


def test_the_page_holds_the_rows_of_the_table_and_no_others(page: str) -> None:
    assert len(CASES) >= 120
    assert page.startswith(OPENING.format(number=len(CASES)))
    assert page.count("\n| ") == len(CASES) + len(SECTIONS)
    assert len({(section, case.about) for section, case in CASES}) == len(CASES)
