"""`divmf data fetch` against a server that drops connections, and killed on the way: never a half file.

As a script (URL MD5), it is the command itself with ml-100k to be had at another address.
"""

import hashlib
import io
import os
import random
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ARCHIVE, PIECE, LIMIT = "ml-100k.zip", 4096, 120


def archive(rng: random.Random) -> bytes:
    """A small archive of the right form, of numbers that do not pack well."""
    rows = [f"{rng.randrange(900)}\t{rng.randrange(1600)}\t3\t{rng.randrange(10**9)}" for _ in range(9000)]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("ml-100k/u.data", "\n".join(rows))
    return packed.getvalue()


class Handler(BaseHTTPRequestHandler):
    """Sends as many bytes as the server's plan says, slowly, then hangs up."""

    def do_GET(self) -> None:
        plan: list[int] = self.server.plan  # type: ignore[attr-defined]
        body: bytes = self.server.body  # type: ignore[attr-defined]
        sent = plan.pop(0) if plan else len(body)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        for start in range(0, sent, PIECE):
            self.wfile.write(body[start : min(sent, start + PIECE)])
            time.sleep(0.002)

    def log_message(self, *words: Any) -> None:
        """Nothing."""


@contextmanager
def served(body: bytes, plan: list[int]) -> Iterator[str]:
    """The address of a server of these bytes; plan: how many it sends to the first who ask."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.body, server.plan = body, plan  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/{ARCHIVE}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def broken(place: Any, number: int, rng: random.Random) -> None:
    """A download that is dropped or killed one to three times: each says so and keeps nothing; the next is whole."""
    body = archive(rng)
    folder = place.folder / "outputs" / f"fetch-{number}"
    folder.mkdir(parents=True)
    path, tries = folder / "raw" / ARCHIVE, rng.randint(1, 3)
    with served(body, [rng.randrange(len(body)) for _ in range(tries)]) as url:
        words = [sys.executable, __file__, url, hashlib.md5(body).hexdigest()]
        for _ in range(tries):
            process = started(words, folder)
            killed = rng.random() < 0.5
            if killed:
                time.sleep(rng.uniform(0.2, 2))
                process.send_signal(signal.SIGKILL)
            _, errors = process.communicate(timeout=LIMIT)
            place.expect(not path.exists(), f"fetch {number}: half a file was kept")
            said = [line for line in errors.splitlines() if line.startswith("divmf: ml-100k could not be downloaded")]
            clean = (process.returncode, len(said), errors.count("\n")) == (1, 1, 1)
            place.expect(killed or clean, f"fetch {number}: exit {process.returncode}: {errors}")
        process = started(words, folder)
        _, errors = process.communicate(timeout=LIMIT)
    # a killed call may not have asked yet, so the plan may not be over: one more may be dropped, and says so
    place.expect(process.returncode in (0, 1), f"fetch {number}, at last: exit {process.returncode}: {errors}")
    with served(body, []) as url:
        process = started([sys.executable, __file__, url, words[-1]], folder)
        _, errors = process.communicate(timeout=LIMIT)
    place.expect(process.returncode == 0, f"fetch {number}, whole: exit {process.returncode}: {errors}")
    place.expect(path.exists() and path.read_bytes() == body, f"fetch {number}: not what the server has")
    strays = [each.name for each in path.parent.iterdir() if each != path]
    place.expect(not strays, f"fetch {number}: {strays} are left")


def started(words: list[str], folder: Path) -> "subprocess.Popen[str]":
    """The command, with a data directory of its own."""
    own = os.environ | {"DIVMF_DATA": str(folder), "DIVMF_THREADS": "1"}
    return subprocess.Popen(words, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


if __name__ == "__main__":
    from divmf.cli import main
    from divmf.data import datasets

    datasets.KNOWN["ml-100k"] = replace(datasets.KNOWN["ml-100k"], url=sys.argv[1], md5=sys.argv[2])
    sys.argv = ["divmf", "data", "fetch", "ml-100k", "-q"]
    main()
