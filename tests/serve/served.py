"""A service as a process of its own, and what asks it."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Service:
    """`divmf serve` on a free port; `kill` ends it without a word, `stop` as one should."""

    def __init__(self, run: Path, port: int, *options: str, **environment: str) -> None:
        self.port = port
        command = [sys.executable, "-m", "divmf", "serve", str(run), "--port", str(port), "--rate", "0", *options]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True,
            env=os.environ | {"DIVMF_THREADS": "1"} | environment,
        )  # fmt: skip
        began = time.monotonic()
        while time.monotonic() - began < 60:
            if self.process.poll() is not None:
                raise RuntimeError((self.process.stderr.read() if self.process.stderr else b"").decode())
            try:
                if self.ask("GET", "/ready")[0] == 200:
                    break
            except OSError:
                time.sleep(0.02)
        self.seconds = time.monotonic() - began

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
            kind = answer.headers.get_content_type()
            return answer.status, json.loads(content) if kind.endswith("json") else content.decode()
        finally:
            connection.close()

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)  # the group that this service leads
        self.process.wait()
        if self.process.stderr:
            self.process.stderr.close()

    def stop(self) -> str:
        self.process.send_signal(signal.SIGTERM)
        said = self.process.communicate(timeout=30)[1]
        return said.decode()


class Load:
    """Threads that ask one service until it is gone, and what was acknowledged to them."""

    def __init__(self, service: Service, threads: int = 3) -> None:
        self.shown: list[list[str]] = []
        self.events: list[tuple[str, str]] = []
        self.odd: list[Any] = []
        self.failed: list[str] = []
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(service, number)) for number in range(threads)]
        for thread in self._threads:
            thread.start()

    def _ask(self, service: Service, number: int) -> None:
        turn = 0
        while not self._stopped.is_set():
            turn += 1
            try:
                status, page = service.ask("POST", "/recommend", {"user": f"u{(7 * turn + number) % 60:05d}"})
                if status != 200:
                    self.odd.append(page)
                    continue
                items = [slot["item"] for slot in page["items"]]
                self.shown.append(items)
                person = f"p{number}-{turn}"
                told = {"events": [{"user": person, "item": items[0]}]}
                if service.ask("POST", "/events", told)[0] == 200:
                    self.events.append((person, items[0]))
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.failed.append(repr(error))
                if service.process.poll() is not None or self._stopped.is_set():
                    return

    def end(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()
