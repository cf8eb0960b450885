"""Real stores: SQLite in a folder, PostgreSQL and Redis as servers of the tests' own on loopback."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from served import free_port


def wait_for(port: int, process: subprocess.Popen[bytes], seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"{process.args!r} did not listen on port {port}")


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a PostgreSQL server, without a database."""
    pytest.importorskip("psycopg", reason="needs psycopg (pip install 'divmf[postgresql]')")
    found = shutil.which("initdb") or next(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")), None)
    if found is None:
        pytest.skip("needs PostgreSQL (apt-get install postgresql)")
    # a folder of its own: those of pytest are closed to other users, and PostgreSQL does not run as root
    folder, port = Path(tempfile.mkdtemp(prefix="divmf-postgresql-")), free_port()
    runner: list[str] = []
    if os.geteuid() == 0:
        if shutil.which("runuser") is None or subprocess.run(["id", "postgres"], capture_output=True).returncode:
            pytest.skip("needs a user postgres to run PostgreSQL as, and runuser")
        runner = ["runuser", "-u", "postgres", "--"]
        shutil.chown(folder, "postgres")
    binary, data = Path(found).parent, folder / "data"
    made = [*runner, str(binary / "initdb"), "-D", str(data), "-U", "divmf", "-A", "trust", "-E", "UTF8", "-N"]
    subprocess.run(made, check=True, capture_output=True, cwd="/")
    options = ["-p", str(port), "-k", "", "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
    server = subprocess.Popen(
        [*runner, str(binary / "postgres"), "-D", str(data), *options], cwd="/",
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(port, server)
        wait_until_up(f"postgresql://divmf@127.0.0.1:{port}/postgres")
        yield f"postgresql://divmf@127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def wait_until_up(url: str, seconds: float = 30) -> None:
    import psycopg

    until = time.monotonic() + seconds
    while True:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Redis server."""
    pytest.importorskip("redis", reason="needs redis-py (pip install 'divmf[redis]')")
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("needs Redis (apt-get install redis-server)")
    port = free_port()
    folder = tmp_path_factory.mktemp("redis")
    server = subprocess.Popen(
        [binary, "--port", str(port), "--bind", "127.0.0.1", "--appendonly", "yes", "--dir", str(folder)],
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_for(port, server)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.kill()
        server.wait(30)


@pytest.fixture
def new_database(postgresql: str) -> str:
    """The URL of an empty database."""
    import psycopg

    name = f"t{uuid4().hex[:12]}"
    with psycopg.connect(f"{postgresql}/postgres", autocommit=True) as database:
        database.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
    return f"{postgresql}/{name}"


KINDS = ("sqlite", "postgresql", "redis")


@pytest.fixture(params=KINDS)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store of each kind."""
    makers: dict[str, Callable[[], str]] = {
        "sqlite": lambda: f"sqlite:///{tmp_path}/live.sqlite",
        "postgresql": lambda: str(request.getfixturevalue("new_database")),
        "redis": lambda: f"{request.getfixturevalue('redis_server')}?prefix={uuid4().hex}",
    }
    return makers[request.param]()
