"""What is there for those who deploy: the container file and the systemd unit are read, and what they say is done."""

import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
from served import Service, free_port

pytest.importorskip("fastapi", reason="needs FastAPI (pip install 'divmf[serve]')")

ROOT = Path(__file__).parents[2]
TOKEN = "a-long-enough-token"
DIVMF = [sys.executable, "-m", "divmf"]


def steps() -> list[tuple[str, str]]:
    """The instructions of the container file, in order."""
    text = (ROOT / "deploy" / "Containerfile").read_text()
    joined = re.sub(r"\\\n", " ", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def unit() -> ConfigParser:
    read = ConfigParser(strict=False, interpolation=None, delimiters="=", comment_prefixes="#")
    read.optionxform = str  # type: ignore[assignment, method-assign]
    read.read(ROOT / "deploy" / "divmf.service")
    return read


def ready(port: int, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    service = object.__new__(Service)
    service.port = port
    while time.monotonic() < until:
        try:
            if service.ask("GET", "/ready")[0] == 200:
                assert service.ask("GET", "/exposure")[0] == 401
                assert service.ask("POST", "/recommend", {"k": 3}, TOKEN)[0] == 200
                return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("it was not ready in time")


def test_what_the_container_is_built_from_is_there() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name, rest in steps():
        if name == "COPY":
            assert all((ROOT / source).exists() for source in rest.split()[:-1]), rest
    install, prepare = (rest for name, rest in steps() if name == "RUN")
    (named,) = re.findall(r"'\.\[(.*?)\]'", install)
    assert set(named.split(",")) <= extras.keys()
    assert (ROOT / re.search(r"-c (\S+)", install)[1]).exists()  # type: ignore[index]
    users = [rest for name, rest in steps() if name == "USER"]
    assert users == re.findall(r"useradd [^&]* (\w+)\s*&&", install) == ["divmf"]
    order = [name for name, _ in steps()]
    assert order.index("USER") < order.index("RUN", order.index("RUN") + 1)  # what it compiles is the user's own
    assert "-o divmf /var/cache/divmf" in install
    assert "divmf train" in prepare


def test_the_unit_starts_what_it_says_and_ends_it_in_time(run_folder: Path, tmp_path: Path) -> None:
    read = unit()["Service"]
    state, cache, port = tmp_path / "state", tmp_path / "cache", free_port()
    state.mkdir()
    assert (read["StateDirectory"], read["CacheDirectory"], read["DynamicUser"]) == ("divmf", "divmf", "yes")
    current = tmp_path / "current"
    current.symlink_to(run_folder)
    places = {"/var/lib/divmf": state, "/var/cache/divmf": cache, "/srv/divmf/current": current}
    program, *words = read["ExecStart"].split()
    assert program == "/opt/divmf/bin/divmf"
    for there, place in places.items():
        words = [word.replace(there, str(place)) for word in words]
    (setting,) = [read["Environment"]]
    name, _, where = setting.partition("=")
    assert (name, where) == ("NUMBA_CACHE_DIR", "/var/cache/divmf")
    environment: dict[str, Any] = {
        "PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "DIVMF_SERVE_TOKEN": TOKEN,
        "DIVMF_SERVE_PORT": str(port),
    }  # fmt: skip
    process = subprocess.Popen([*DIVMF, *words], env=environment, cwd="/", stderr=subprocess.PIPE)
    try:
        ready(port)
    finally:
        process.send_signal(getattr(signal, read["KillSignal"]))
    said = process.communicate(timeout=int(read["TimeoutStopSec"]))[1].decode()
    assert process.returncode in (0, -signal.SIGTERM)
    assert "Traceback" not in said
    assert (state / "live.sqlite").exists()
