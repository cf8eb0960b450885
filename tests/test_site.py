"""The documentation builds strictly: links resolve, every page is reachable, the references are made."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    if not all(map(find_spec, ("mkdocs", "mkdocstrings", "latex2mathml"))):
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
    method = (tmp_path / "method" / "index.html").read_text()
    assert "<math" in method
    for page in tmp_path.rglob("*.html"):  # no formula is left to a script, and no script comes from elsewhere
        text = page.read_text()
        assert "arithmatex" not in text, page
        assert not re.search(r"""(?:src|href)="https?://[^"]*\.(?:js|css|woff2?)["?]""", text), page
