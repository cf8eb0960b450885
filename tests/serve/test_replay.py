"""Replays: in the order of time, counted right, in process and by HTTP; how far pages are from the best there were."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from served import Service, free_port

from divmf.serve.engine import Engine, Options, Query
from divmf.serve.hindsight import hindsight
from divmf.serve.replay import met_before, play, requests_of


@pytest.fixture
def log(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({
        "user_id": [f"u{number:05d}" for number in rng.integers(0, 60, 80)],
        "item_id": [f"i{number:05d}" for number in rng.integers(0, 40, 80)],
        "timestamp": rng.permutation(80),
    })  # fmt: skip
    frame.write_parquet(tmp_path / "log.parquet")
    return tmp_path / "log.parquet"


def test_requests_come_in_the_order_of_time() -> None:
    frame = pl.DataFrame({"user_id": ["b", "a", "c"], "item_id": ["x", "y", "z"], "timestamp": [2, 1, 3]})
    assert requests_of(frame) == [("a", "y"), ("b", "x"), ("c", "z")]
    assert requests_of(frame.drop("timestamp"), 2) == [("b", "x"), ("a", "y")]


def test_what_was_played_is_counted_by_hand() -> None:
    pages = iter([["x", "y"], ["y", "z"], ["x", "z"]])
    met = []
    played = play([("a", "y"), ("b", "q"), ("a", "x")], lambda _: next(pages), lambda user, item: met.append(item))
    assert played.hits == [2, 0, 1]
    assert met == ["y", "q", "x"]
    told = played.summary(6)
    assert told["hit"] == pytest.approx(2 / 3)
    assert told["ndcg"] == pytest.approx((1 / np.log2(3) + 0 + 1) / 3)
    assert told["coverage"] == told["of_ceiling"] == 0.5
    assert [period["requests"] for period in played.periods(6, 3)] == [1, 2, 3]


def test_what_a_run_knows_to_be_met_is_counted_by_hand(split) -> None:  # type: ignore[no-untyped-def]
    known = split.known
    met, user, item = set(), split.user_ids.to_list(), split.item_ids.to_list()
    for row in range(split.n_users):
        met |= {(user[row], item[column]) for column in known.indices[known.indptr[row] : known.indptr[row + 1]]}
    requests = [(one, other) for one in [*user[:9], "somebody"] for other in [*item, "something"]]
    assert met_before(split, requests) == len(met & set(requests)) > 0
    assert met_before(split, [("somebody", "something")]) == 0


def test_replay_in_process_and_against_a_service(divmf: Any, run_folder: Path, log: Path, tmp_path: Path) -> None:
    done = divmf("replay", run_folder, log, "--json", "-o", tmp_path / "replay.svg")
    assert done.code == 0, done.err
    assert (done.json["requests"], done.json["failures"], done.json["items"]) == (80, 0, 40)
    assert len(done.json["periods"]) == 20
    assert "<svg" in (tmp_path / "replay.svg").read_text()
    assert not run_folder.with_name("run.live.sqlite").exists()
    service = Service(run_folder, free_port())
    url = f"http://127.0.0.1:{service.port}"
    again = divmf("replay", run_folder, log, "--url", url, "--json")
    assert again.json["ndcg"] == pytest.approx(done.json["ndcg"])
    assert again.json["gini"] == pytest.approx(done.json["gini"])
    loaded = divmf("replay", run_folder, log, "--url", url, "--clients", 3, "--no-learn", "--json")
    assert (loaded.json["requests"], loaded.json["failures"]) == (80, 0)
    assert service.ask("GET", "/health")[1]["requests"] == 160
    service.stop()


@pytest.mark.parametrize(
    ("arguments", "match"), [(["--clients", "2"], "--url"), (["--url", "ftp://x"], "url="), (["-o", "x.gif"], "x.gif")]
)
def test_a_replay_that_cannot_be_is_one_line(
    divmf: Any, run_folder: Path, log: Path, arguments: Any, match: str
) -> None:
    done = divmf("replay", run_folder, log, *arguments)
    assert done.code == 2
    assert match in done.err
    assert done.err.count("\n") == 1 or "requests" in done.err


def test_hindsight_bounds_what_pages_are_worth(run_folder: Path) -> None:
    ways, requests = [], [user % 12 for user in range(60)]  # the same few people ask again and again
    for discount in (None, np.zeros(40)):
        engine = Engine(run_folder, Options(horizon=60))
        pages, tastes, out = np.full((60, 5), -1, dtype=np.int32), [], []
        for number, user in enumerate(requests):
            query = Query(5, user, discount=discount)
            page, taste = engine.answer(query)
            engine.count(page, taste)
            pages[number, : len(page.items)] = page.items
            tastes.append(taste)
            out.append(engine.left_out(query))
        ways.append(pages)
    ledger, none = hindsight(engine.people, tastes, out, ways, engine.ledger.terms)
    assert ledger.best == none.best >= ledger.live
    assert ledger.best <= ledger.bound + 1e-9
    assert 0 <= ledger.distance < none.distance
