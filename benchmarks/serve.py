"""The live service: latency, load and memory by HTTP on loopback."""

import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

DIM, USERS, K = 64, 2000, 10
REQUESTS, PAGES = 2000, int(os.environ.get("DIVMF_BENCH_PAGES", "20000"))
SIZES = tuple(map(int, os.environ.get("DIVMF_BENCH_ITEMS", "10000 100000").split()))


def main() -> None:
    """Print the table; `DIVMF_BENCH_PAGES=200000` for the long look at memory, `DIVMF_BENCH_ITEMS=10000` for a part."""
    with tempfile.TemporaryDirectory() as folder:
        speed(Path(folder))


def speed(folder: Path) -> None:
    """p50 and p99 of one client, requests a second of four, and memory before and after many pages."""
    print("| items × dimensions | p50 ms | p99 ms | requests a second, 4 clients | MiB before | after pages | MiB |")
    print("|---|---|---|---|---|---|---|")
    for n_items in SIZES:
        run = random_run(folder / str(n_items), n_items)
        server, port = started(run)
        try:
            asked(port, 300)
            seconds = np.sort(asked(port, REQUESTS))
            began = time.perf_counter()
            loads = [subprocess.Popen([sys.executable, __file__, str(port), str(REQUESTS // 4)]) for _ in range(4)]
            for load in loads:
                load.wait()
            rate = REQUESTS / (time.perf_counter() - began - START)
            before = memory(server.pid)
            asked(port, PAGES)
            p50, p99 = 1000 * seconds[len(seconds) // 2], 1000 * seconds[int(0.99 * len(seconds))]
            after = f"{PAGES:,} | {memory(server.pid):.0f}"
            print(f"| {n_items:,} × {DIM} | {p50:.2f} | {p99:.2f} | {rate:,.0f} | {before:.0f} | {after} |", flush=True)
        finally:
            server.terminate()
            server.wait()


START = 0.15  # seconds that a client takes to start


def random_run(folder: Path, n_items: int) -> Path:
    """A run with random vectors: speed does not depend on what they mean."""
    import divmf

    rng = np.random.default_rng(0)
    split = divmf.datasets.marketplace(USERS, n_items, 20 * USERS + 2 * n_items, 0).leave_one_out(0)
    users, items = (rng.normal(size=(n, DIM)).astype(np.float32) / 8 for n in (USERS, n_items))
    model = divmf.diversify(users, items, split, run=folder, k=K, diversity_epochs=2)
    model.run.pick(epoch=2)
    return folder


def started(run: Path) -> tuple[subprocess.Popen[bytes], int]:
    """A service of one worker."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "divmf", "serve", str(run), "--port", str(port), "--rate", "0", "-q"]
    server = subprocess.Popen(command)
    for _ in range(600):
        try:
            asked(port, 1)
            break
        except OSError:
            time.sleep(0.1)
    return server, port


def asked(port: int, count: int) -> list[float]:
    """Seconds that each of some requests took, over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    seconds = []
    for number in range(count):
        body = json.dumps({"user": f"u{number * 7919 % USERS:05d}"})
        began = time.perf_counter()
        connection.request("POST", "/recommend", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        seconds.append(time.perf_counter() - began)
        assert answer.status == 200, content
    return seconds


def memory(process: int) -> float:
    """Resident MiB of a process."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


if __name__ == "__main__":
    asked(int(sys.argv[1]), int(sys.argv[2]))
