"""A service that is killed at any moment: all that was acknowledged is kept, no capacity is exceeded."""

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs FastAPI (pip install 'divmf[serve]')")

from served import Load, Service, free_port

from divmf.serve.stores import open_store

WHOLE = os.environ.get("DIVMF_TRIAL") == "whole"  # as `make faults` sets it


def killed(run: Path, url: str, kills: int, seed: int, services: int = 1, workers: int = 1) -> None:
    """Kill services under load, again and again; then look into the store."""
    rng, ports = random.Random(seed), [free_port() for _ in range(services)]
    options = ["--store", url, *(["--workers", str(workers)] if workers > 1 else [])]
    store = open_store(url)
    shown: list[list[str]] = []
    events: list[tuple[str, str]] = []
    capacity, slowest = 25 * kills, 0.0
    for turn in range(kills):
        running = [Service(run, port, *options) for port in ports]
        slowest = max(slowest, *(each.seconds for each in running))
        if not turn:
            seats = [
                slot["item"]
                for slot in running[0].ask("POST", "/recommend", {"accuracy": 1.0, "dry_run": True})[1]["items"]
            ]
            told = [{"item": item, "capacity": capacity} for item in seats[:2]]
            told += [{"item": item, "attributes": {"seller": "A"}} for item in seats[2:4]]
            assert running[0].ask("POST", "/items", {"items": told})[0] == 200
            rules = {"groups": {"seller": {"cap": {"A": capacity}}}}
            assert running[0].ask("PUT", "/rules", rules)[0] == 200
        loads = [Load(each) for each in running]
        time.sleep(rng.uniform(0.2, 0.8))
        for each in running:
            each.kill()
        for load in loads:
            load.end()
            assert load.odd == []
            shown += load.shown
            events += load.events
    counts = store.counts()
    acknowledged = Counter(item for page in shown for item in page)
    assert len(shown) > 5 * kills
    assert all(counts[item] >= count for item, count in acknowledged.items())
    assert all(counts.get(item, 0) <= capacity for item in seats[:2])
    of_seller = sum(counts.get(item, 0) for item in seats[2:4])
    assert store.totals()["seller 'A'"][0] == of_seller <= capacity
    kept = {(event.person, event.item) for _, event in store.events(0)}
    assert set(events) <= kept
    rows = Counter(item for _, row in store.showings(0, 1_000_000) for item in row.items)
    assert rows == Counter({item: count for item, count in counts.items() if count})
    last = Service(run, ports[0], *options)
    assert last.ask("GET", "/health")[1]["requests"] == len(store.showings(0, 1_000_000))
    assert store.snapshot() is None or workers > 1 or kills > 1
    assert "Traceback" not in last.stop()
    kept_whole = store.snapshot()  # as one should end
    assert kept_whole is not None
    assert kept_whole.showing == store.showings(0, 1_000_000)[-1][0]
    store.close()
    print(f"{url.split(':')[0]}: {kills} kills, {len(shown):,} pages, {len(events):,} events, {slowest:.1f} s to start")


def test_what_was_acknowledged_survives_kills(run_folder: Path, store_url: str) -> None:
    killed(run_folder, store_url, kills=1, seed=0)


@pytest.mark.slow
def test_kills_at_random_moments_lose_nothing(run_folder: Path, tmp_path: Path) -> None:
    killed(run_folder, f"sqlite:///{tmp_path}/live.sqlite", kills=30 if WHOLE else 5, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("store_url", ["postgresql", "redis"], indirect=True)
def test_two_hosts_of_two_workers_lose_nothing(run_folder: Path, store_url: str) -> None:
    killed(run_folder, store_url, kills=30 if WHOLE else 2, seed=2, services=2, workers=2)


def test_a_reload_drops_no_request_and_a_stop_finishes_what_was_begun(run_folder: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/live.sqlite"
    service = Service(run_folder, free_port(), "--store", url)
    load = Load(service)
    for _ in range(3):
        before = len(load.shown)
        assert service.ask("POST", "/reload")[0] == 200
        while len(load.shown) < before + 5:
            time.sleep(0.01)
    assert (load.odd, load.failed) == ([], [])
    said = service.stop()
    load.end()
    assert "Traceback" not in said
    assert all("shutting down" in str(each) for each in load.odd)
    store = open_store(url)
    counts, acknowledged = store.counts(), Counter(item for page in load.shown for item in page)
    assert all(counts[item] >= count for item, count in acknowledged.items())
    assert store.snapshot() is not None
    store.close()
