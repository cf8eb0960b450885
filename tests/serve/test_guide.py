"""The guide from log to service runs, and the files for those who deploy name what there is."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from served import Service, free_port

ROOT = Path(__file__).parents[2]


def test_the_guide_runs(divmf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi", reason="needs FastAPI (pip install 'divmf[serve]')")
    monkeypatch.chdir(tmp_path)
    guide = (ROOT / "docs" / "serve.md").read_text()
    for line in re.findall(r"^\$ divmf ((?:train|pick) .*)$", guide, re.MULTILINE):
        assert divmf(*line.split()).code == 0, line
    (code,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    exec(compile(code, "docs/serve.md", "exec"), {})
    service = Service(tmp_path / "run", free_port())
    (body,) = re.findall(r"-d '(.*?)'", guide)
    status, page = service.ask("POST", "/recommend", json.loads(body))
    assert (status, len(page["items"])) == (200, 5)
    described = service.ask("GET", "/openapi.json")[1]["paths"]
    named = set(re.findall(r"`(GET|POST) (/[a-z]+)", guide))
    known = {(method.upper(), path) for path, methods in described.items() for method in methods}
    assert named <= known | {("GET", "/openapi")}
    assert service.ask("GET", "/health")[1]["requests"] == 3
    service.stop()


def test_files_for_deployment_call_the_command_as_it_is(divmf: Any) -> None:
    unit, container = ((ROOT / "deploy" / name).read_text() for name in ("divmf.service", "Containerfile"))
    help_text = divmf("serve", "--help").out
    for flag in re.findall(r" (--[a-z-]+)", re.search(r"ExecStart=.*", unit)[0]):  # type: ignore[index]
        assert flag in help_text
    from divmf.serve.settings import ServeSettings

    names = re.findall(r"DIVMF_SERVE_([A-Z_]+)", unit + container)
    assert names
    assert {name.lower() for name in names} <= set(ServeSettings.model_fields)
