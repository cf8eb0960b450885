"""The live service: latency, load and memory by HTTP on loopback, and exposure under drift beside the batch optimum."""

import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

DIM, USERS, K = 64, 2000, 10
REQUESTS, PAGES = 2000, int(os.environ.get("DIVMF_BENCH_PAGES", "20000"))


def main() -> None:
    """Print the tables; `DIVMF_BENCH_PAGES=200000` for the long look at memory."""
    with tempfile.TemporaryDirectory() as folder:
        speed(Path(folder))
    drift()


def speed(folder: Path) -> None:
    """p50 and p99 of one client, requests a second of four, and memory before and after many pages."""
    print("| items × dimensions | p50 ms | p99 ms | requests a second, 4 clients | MiB before | after pages | MiB |")
    print("|---|---|---|---|---|---|---|")
    for n_items in (10_000, 100_000):
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
            pages = PAGES if n_items == 10_000 else 0
            asked(port, pages)
            p50, p99 = 1000 * seconds[len(seconds) // 2], 1000 * seconds[int(0.99 * len(seconds))]
            after = f"{pages:,} | {memory(server.pid):.0f}"
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


def drift() -> None:
    """MovieLens-1M in time order and the marketplace with a tenth of the items new: the ledger, static, none."""
    import divmf
    from benchmarks.data import real_split
    from divmf.data.datasets import find, load

    print("\n| requests | discounts | coverage of the ceiling | Gini | per slot from the best, in ρ (± 95%) |")
    print("|---|---|---|---|---|")
    data = load("ml-1m") if find("ml-1m") else None
    split = real_split("ml-1m") if data is None else data.by_time(test=0.2)
    compare("MovieLens-1M, in time order", split, new=False)
    compare("marketplace, a tenth of the items new", divmf.datasets.marketplace(seed=1).by_time(test=0.3), new=True)


def compare(name: str, split: Any, new: bool) -> None:
    """The same requests with the ledger, with the run's discounts, and with none."""
    import divmf
    from divmf.serve.engine import Engine, Options

    with tempfile.TemporaryDirectory() as folder:
        model = divmf.DivMF(k=K, seed=0).fit(split, Path(folder) / "run")
        model.run.pick(gini=0.7)
        order = np.argsort(split.test.times, kind="stable")
        order = order[np.linspace(0, len(order) - 1, min(6000, len(order))).astype(int)]
        for way in ("ledger", "static", "none"):
            engine = Engine(Path(folder) / "run", Options(horizon=len(order)))
            coverage, gini, distances = played(engine, split.test.users[order], way, new)
            error = 1.96 * np.std(distances, ddof=1) / np.sqrt(len(distances))
            told = f"{np.mean(distances):.4f} ± {error:.4f}"
            print(f"| {name}: {len(order):,} | {way} | {coverage:.4f} | {gini:.3f} | {told} |", flush=True)


def played(engine: Any, users: Any, way: str, new: bool) -> tuple[float, float, list[float]]:
    """Coverage and Gini over the horizon, and the distance from hindsight, of quarters of the requests apart."""
    from divmf.ranking.metrics import gini
    from divmf.serve.engine import Asked
    from divmf.serve.hindsight import hindsight

    if new:
        rng = np.random.default_rng(0)
        count = len(engine.items) // 10
        similar = [rng.integers(0, engine.n_trained, 5) for _ in range(count)]
        engine.add_items([f"new{number}" for number in range(count)], similar, np.ones(count))
    static = engine.ledger.now().copy()
    pages = np.full((len(users), K), -1, dtype=np.int32)
    tastes, out = [], []
    for number, user in enumerate(users.tolist()):
        given = {"ledger": None, "static": static, "none": np.zeros_like(static)}[way]
        asked = Asked(K, user, discount=given)
        page, taste = engine.answer(asked)
        engine.count(page, taste)
        pages[number, : len(page.items)] = page.items
        tastes.append(taste)
        out.append(engine.left_out(asked))
    counts = engine.ledger.shown
    covered = float((counts > 0).sum() / min(len(counts), counts.sum()))
    whole = hindsight(engine.people, tastes, out, pages, engine.ledger.terms)
    rng = np.random.default_rng(0)
    spread = [whole.distance]
    for part in np.array_split(rng.permutation(len(users)), 4):
        made = hindsight(
            engine.people, [tastes[row] for row in part], [out[row] for row in part], pages[part], engine.ledger.terms
        )
        spread.append(made.distance)
    return covered, gini(counts), [whole.distance + each - np.mean(spread[1:]) for each in spread[1:]]


if __name__ == "__main__":
    asked(int(sys.argv[1]), int(sys.argv[2]))
