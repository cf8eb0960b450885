"""Docs describe the software as it is: no history, nothing about what was wanted of it."""

import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)
CODE = sorted((ROOT / "src").rglob("*.py"))
HISTORY = re.compile(
    r"\b(asked for in|was asked|were asked|no longer than before|is no more\b|used to be|as before|than before\b"
    r"|than it was|where it was \d|in the run before|other jobs? ran|until (?:January|February|March|April|May"
    r"|June|July|August|September|October|November|December)|(?:October|November|December) 20\d\d"
    r"|earlier versions?|formerly"
    r"|previously|nowadays|we first|at first we|was kept then|in an earlier|old behaviou?r"
    r"|target (?:was )?(?:met|missed)"
    r"|issue #?\d+|TODO|FIXME)\b",
    re.IGNORECASE,
)
ALLOWED = {"docs/errors.md"}  # made of messages


def hits(text: str) -> list[str]:
    return [f"{text[: found.start()].count(chr(10)) + 1}: {found[0]}" for found in HISTORY.finditer(text)]


def comments(path: Path) -> str:
    with path.open("rb") as file:
        return "\n".join(token.string for token in tokenize.tokenize(file.readline) if token.type == tokenize.COMMENT)


def test_the_usual_words_of_history_are_found() -> None:
    assert hits("Gini .26, better than before.\nIt is no more.") == ["1: than before", "2: is no more"]
    assert not hits("The point before it, and one more.")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_tell_no_history(page: Path) -> None:
    if str(page.relative_to(ROOT)) not in ALLOWED:
        assert not hits(page.read_text())


def test_comments_tell_no_history() -> None:
    found = {str(path.relative_to(ROOT)): hits(comments(path)) for path in CODE}
    assert not {name: lines for name, lines in found.items() if lines}
