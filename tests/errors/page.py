"""docs/errors.md from the table of malformed inputs: python tests/errors/page.py"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from cases import CASES, SECTIONS
from table import DATA, Case, Seen, make_standard, see

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
OPENING = """# Errors

What is seen of {number} malformed inputs. Each row is a test (`tests/errors`), which also holds that the call writes
nothing. A command ends with the exit code 2 where the call or its input is wrong, and with 1 where the work failed; it
says why in one line on stderr. From Python, the same is an exception. `--debug` shows where it came from. Requests are
to a service of the run with `shop.csv` as its catalog: the end is the status, and what is said the problem's detail.

The calls are made in a folder with `events.csv` (60 users, 40 items), a `run` of it, a saved `model`, `lists.csv`
(5 items each) and `wide.csv` (20), `train.csv`, `test.csv` and `catalog.csv`. The page is made by
`python tests/errors/page.py`.
"""


def cell(content: str) -> str:
    """A text as it stands in a cell of a table."""
    return content.replace("|", "\\|").replace("\n", " ⏎ ")


def row(case: Case, seen: Seen) -> str:
    """The row of a case."""
    said = cell(seen.said.removeprefix("divmf: "))
    return f"| {case.about} | `{cell(case.call)}` | {seen.end} | {said.replace('<', '&lt;')} |"


def page(seen: dict[tuple[str, str], Seen]) -> str:
    """The whole page."""
    parts = [OPENING.format(number=len(CASES))]
    for section, cases in SECTIONS.items():
        rows = [row(case, seen[section, case.about]) for case in cases]
        parts.append("\n".join([f"## {section}\n", "| given | call | end | said |", "|---|---|---|---|", *rows, ""]))
    return "\n".join(parts)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        short = ["--accuracy-epochs", "4", "--diversity-epochs", "6", "-q"]
        command = [sys.executable, "-m", "divmf", "train", DATA, "-o", str(folder / "made"), *short]
        subprocess.run(command, check=True)
        (folder / "standard").mkdir()
        make_standard(folder / "standard", folder / "made")
        seen = {}
        for section, case in CASES:
            shutil.copytree(folder / "standard", folder / "case")
            seen[section, case.about] = see(case, folder / "case")
            shutil.rmtree(folder / "case")
            if seen[section, case.about].wrote or not seen[section, case.about].said:
                print(f"NOT REFUSED {case.call}: {seen[section, case.about]}")
        PAGE.write_text(page(seen), encoding="utf-8")
    print(f"{PAGE.name}: {len(CASES)} malformed inputs")


if __name__ == "__main__":
    main()
