"""What works on lists starts without torch, which takes a second and more to load."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

CODE = """
import sys
from divmf.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("torch" in sys.modules, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lists of six for forty users over thirty items, a test and a catalog."""
    path = tmp_path_factory.mktemp("lists")
    rows = [(f"u{user}", (user * user + 3 * place) % 30, float(9 - place)) for user in range(40) for place in range(6)]
    pl.DataFrame(rows, ["user_id", "item_id", "score"], orient="row").write_csv(path / "wide.csv")
    pl.DataFrame({"item_id": range(30)}).write_csv(path / "items.csv")
    later = [(f"u{user}", (user * user + 3) % 30) for user in range(40)]
    pl.DataFrame(later, ["user_id", "item_id"], orient="row").write_csv(path / "later.csv")
    return path


@pytest.mark.parametrize(
    "words",
    ["--version", "evaluate wide.csv --test later.csv --catalog items.csv -k 2",
     "rerank wide.csv -k 2 -o lists.csv --method bayes_rule --catalog items.csv",
     "rerank wide.csv -k 2 -o market.csv --replace 30% --catalog items.csv",
     "audit wide.csv --catalog items.csv -k 2 --test later.csv --train later.csv -o report.html"],
    ids=lambda words: words.split()[0],
)  # fmt: skip
def test_torch_is_not_loaded_for_lists(folder: Path, words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, *words.split()], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip().splitlines()[-1] == "False"
