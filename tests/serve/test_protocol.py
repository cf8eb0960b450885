"""Below the API: heads that do not end, what is no HTTP, workers that cannot start, and which worker was asked."""

import asyncio
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs FastAPI (pip install 'divmf[serve]')")

from served import Service, free_port

from divmf.serve import protocol


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Where the protocol serves an application that says what it was sent."""
    import threading

    import uvicorn

    async def app(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    found = free_port()
    config = uvicorn.Config(app, port=found, http=protocol.Protocol, lifespan="off", log_level="critical")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    while not server.started:
        assert thread.is_alive()
    yield found
    server.should_exit = True
    thread.join()


def said(port: int, *parts: bytes) -> bytes:
    """All that is answered until the connection ends."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        try:
            for part in parts:
                connection.sendall(part)
        except OSError:
            pass  # it is refused while it is sent
        found = b""
        try:
            while more := connection.recv(1 << 16):
                found += more
        except ConnectionResetError:
            pass
        return found


def is_problem(answer: bytes, status: int) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.startswith(b"HTTP/1.1 %d " % status) and json.loads(body)["status"] == status


REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
LAST = REQUEST.replace(b"Host: x", b"Host: x\r\nConnection: close")


def test_requests_one_after_the_other_or_in_pieces_are_answered(port: int) -> None:
    assert said(port, REQUEST * 3 + LAST).count(b"body") == 4
    assert said(port, *(LAST[at : at + 1] for at in range(len(LAST)))).endswith(b"body")
    large = b"a" * 900_000
    assert said(port, LAST.replace(b": 4", b": 900000").removesuffix(b"body"), large).endswith(large)
    almost = b"X: " + b"a" * 60_000 + b"\r\n"
    assert said(port, LAST.replace(b"Host", almost + b"Host")).endswith(b"body")


@pytest.mark.parametrize("before", [b"", REQUEST])
def test_a_head_that_does_not_end_is_refused(port: int, before: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = b"GET / HTTP/1.1\r\nHost: x\r\nX: "
    answer = said(port, before + begun, *[b"a" * 50_000] * 9)
    assert not answer or is_problem(answer[answer.rindex(b"HTTP/1.1") :], 431)  # or hung up before it could be read
    monkeypatch.setattr(protocol, "SECONDS", 0.2)
    answer = said(port, before + begun)
    assert answer.startswith(b"HTTP/1.1 200") == bool(before)
    assert is_problem(answer[answer.rindex(b"HTTP/1.1") :], 408)
    assert is_problem(said(port), 408)


@pytest.mark.parametrize("sent", [b"\x16\x03\x01hello", b"GET\r\n\r\n", REQUEST.replace(b": 4", b": 9" + b"9" * 5000)])
def test_what_is_no_http_is_a_problem(port: int, sent: bytes) -> None:
    assert is_problem(said(port, sent), 400)


def test_workers_that_cannot_start_say_so_once(run_folder: Path, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/live.sqlite"
    command = [sys.executable, "-m", "divmf", "serve", str(run_folder), "--port", "0", "--workers", "3"]
    done = subprocess.run(
        [*command, "--store", store, "--group", "colour", "-q"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert done.stderr == (
        "divmf: group='colour' is not an attribute of the catalog; there are none: give a catalog that has it\n"
    )
    assert not (tmp_path / "live.sqlite").exists()


def test_each_worker_counts_its_own_requests(run_folder: Path, tmp_path: Path) -> None:
    service = Service(run_folder, free_port(), "--workers", "2", "--store", f"sqlite:///{tmp_path}/live.sqlite")
    try:
        counted: dict[str, str] = {}
        until = time.monotonic() + 60  # the second one may start later
        while len(counted) < 2 and time.monotonic() < until:
            text = service.ask("GET", "/metrics")[1]
            counted |= dict(re.findall(r'divmf_requests_total\{route="/metrics",.*worker="(\d+)"\} (\d+)', text))
        assert len(counted) == 2
    finally:
        assert "Traceback" not in service.stop()


def listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def test_workers_end_with_the_process_that_started_them(run_folder: Path, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/live.sqlite"
    service = Service(run_folder, free_port(), "--workers", "2", "--store", store)
    assert service.ask("POST", "/recommend", {})[0] == 200
    service.process.kill()  # it alone, not its group
    until = time.monotonic() + 60
    while listens(service.port) and time.monotonic() < until:
        time.sleep(0.1)
    again = Service(run_folder, service.port, "--store", store)
    assert again.ask("GET", "/health")[1]["requests"] == 1
    again.stop()
