"""The documentation builds strictly: links resolve, every page is reachable, the references are made."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    if find_spec("mkdocs") is None or find_spec("mkdocstrings") is None:
        pytest.skip("needs mkdocs (pip install 'divmf[docs]')")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    commands = (tmp_path / "reference" / "cli" / "index.html").read_text()
    assert all(f"divmf {name}" in commands for name in ("train", "pick", "recommend", "rerank", "audit", "data split"))
    assert "--ndcg-drop" in commands
    api = (tmp_path / "reference" / "api" / "index.html").read_text()
    assert "leave_one_out" in api
    index = (tmp_path / "index.html").read_text()
    assert "fonts.googleapis" not in index
