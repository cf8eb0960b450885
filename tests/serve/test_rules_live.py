"""Rules of a shop while requests come: caps exact between workers, floors within a horizon, filters, changes."""

import json
import threading
from collections import Counter
from itertools import permutations
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import divmf
from divmf.market.response import Within, best_response
from divmf.market.rules import Rules
from divmf.market.values import slot_weights
from divmf.serve.live import Live
from divmf.serve.pages import Full
from divmf.serve.ruling import rules_of, tables_of

SELLERS = ["A", "B", "C", "D"]


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    path = tmp_path / "items.parquet"
    pl.DataFrame({
        "item_id": [f"i{number:05d}" for number in range(60)], "seller": [SELLERS[number % 4] for number in range(60)],
        "seats": [30 if number % 3 else None for number in range(60)], "gone": [number == 7 for number in range(60)],
    }).write_parquet(path)  # fmt: skip
    return path


def seller(item: int | str) -> str:
    return SELLERS[int(str(item)[1:]) % 4]


def ids(page: object) -> list[str]:
    return [str(line.item) for line in page.items]  # type: ignore[attr-defined]


def ask(live: Live, pages: int, shown: Counter[str], k: int = 5) -> None:
    for turn in range(pages):
        shown.update(ids(live.recommend(f"u{turn % 60:05d}", k=k)))


@given(seed=st.integers(0, 10_000), k=st.integers(1, 4))
def test_the_response_within_limits_is_the_best_of_all_lists_that_keep_them(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    n_items, n_totals = 7, 3
    scores, discounts = rng.normal(size=n_items).astype(np.float32), rng.random(n_items) * 2
    member, room = rng.random((n_items, n_totals)) < 0.4, rng.integers(0, 3, n_totals)

    def of(items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows, totals = np.nonzero(member[items])
        return rows, totals

    page = best_response(
        scores[None].copy(), 1.0, np.zeros(0, dtype=np.int64), discounts.astype(np.float32), discounts.__getitem__, k,
        np.ones(k), Within(of, room),
    )  # fmt: skip
    slots = slot_weights(k)
    allowed = [
        items
        for size in range(k, -1, -1)
        for items in permutations(range(n_items), size)
        if (member[list(items)].sum(axis=0) <= room).all()
    ]
    longest = len(allowed[0])

    def worth(items: tuple[int, ...]) -> float:
        return float(sum(slots[r] * scores[item] + discounts[item] for r, item in enumerate(items)))

    best = max(worth(items) for items in allowed if len(items) == longest)
    assert len(page.items) == longest
    assert (member[page.items].sum(axis=0) <= room).all()
    assert worth(tuple(page.items)) == pytest.approx(best, rel=1e-5, abs=1e-5)


def test_what_a_list_may_hold_and_what_is_left_out(run_folder: Path, catalog: Path) -> None:
    rules = Rules(groups={"seller": {"per_list": 2}}, filter={"exclude": "gone"}, catalog=catalog)
    with Live(run_folder, rules=rules) as live:
        for user in range(60):
            page = ids(live.recommend(f"u{user:05d}", accuracy=user % 2))
            assert len(page) == 5
            assert max(Counter(map(seller, page)).values()) <= 2
            assert "i00007" not in page
        assert live.rules()["totals"][0]["per_list"] == 2


def test_caps_of_groups_and_items_hold_between_threads_and_workers(
    run_folder: Path, catalog: Path, store_url: str
) -> None:
    rules = Rules(capacity={"column": "seats"}, groups={"seller": {"cap": {"A": 40, "B": "10%"}}}, catalog=catalog)
    workers = [Live(run_folder, store=store_url, rules=rules) for _ in range(2)]
    shown: Counter[str] = Counter()
    threads = [threading.Thread(target=ask, args=(live, 20, shown)) for live in workers for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    workers[0].sync()
    ask(workers[0], 20, shown)
    counts = workers[0].store.counts()
    assert sum(counts.values()) == sum(shown.values()) == 5 * 20 * 5
    by_seller: Counter[str] = Counter()
    for item, count in counts.items():
        by_seller[seller(item)] += count
        assert count <= 30 or int(item[1:]) % 3 == 0
    assert by_seller["A"] == 40  # popular enough to be full
    assert 0.05 * 500 <= by_seller["B"] <= 0.1 * 500
    totals = workers[0].store.totals()
    assert totals["seller 'A'"] == (40, 500)
    assert totals["seller 'B'"][0] == by_seller["B"]
    workers[1].sync()
    told = {(row["rule"], row["name"]): row for row in workers[1].rules()["totals"]}
    assert told["seller", "'A'"]["full"]
    with pytest.raises(Full, match="seller 'A' is at its cap"):
        workers[1].shown(["i00000"])
    for live in workers:
        live.close()
    with Live(run_folder, store=store_url, rules=rules) as again:
        assert "A" not in {seller(item) for item in ids(again.recommend("u00001"))}
        assert again.store.totals()["seller 'A'"][0] == 40


def test_floors_are_reached_within_the_horizon(run_folder: Path, catalog: Path) -> None:
    for floors in ({}, {"D": "40%", "C": 90}):
        rules = Rules(groups={"seller": {"floor": floors, "per_list": 5}}, catalog=catalog)
        with Live(run_folder, rules=rules, store=f"sqlite:///{catalog.parent}/{len(floors)}.sqlite") as live:
            for _horizon in range(2):
                shown: Counter[str] = Counter()
                ask(live, 60, shown)
                by_seller = Counter(seller(item) for item in shown.elements())
                if floors:
                    assert by_seller["D"] >= 0.4 * 300
                    assert by_seller["C"] >= 90
                else:
                    assert by_seller["D"] < 0.4 * 300
            summary = live.exposure()["rules"]
            assert summary["floors"] == len(floors)


def test_a_run_trained_with_rules_brings_them_along(run_folder: Path, catalog: Path, split, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    rules = Rules(groups={"seller": {"floor": {"D": "40%"}, "per_list": 3}}, catalog=catalog)
    model = divmf.DivMF(k=5, model="ease", diversity_epochs=4).fit(split, tmp_path / "ruled", rules=rules)
    model.run.pick(epoch=2)
    with Live(tmp_path / "ruled", catalog=catalog) as live:
        assert live.engine.totals is not None
        pay = {live.engine.totals.bound.called(at): pay for at, pay in enumerate(live.engine.totals.pay)}
        assert pay["seller 'D'"] > max(pay[f"seller '{name}'"] for name in "ABC")  # as in the lists of the run
        shown: Counter[str] = Counter()
        ask(live, 120, shown)
        assert Counter(seller(item) for item in shown.elements())["D"] >= 0.4 * 600
        live.reload().result()
        live.recommend("u00001")
        live.set_rules({})
        assert live.rules() == {"set": {}, "from": "request", "impossible": [], "totals": [], "n_totals": 0}
        live.set_rules(None)
        assert live.rules()["from"] == "start"


def test_rules_are_changed_in_all_workers_and_survive_a_start(run_folder: Path, catalog: Path, store_url: str) -> None:
    one, two = (Live(run_folder, store=store_url, catalog=catalog) for _ in range(2))
    ask(one, 4, Counter())
    before = Counter(map(seller, Counter(one.store.counts()).elements()))["A"]
    one.put_items([{"item": "new", "similar": ["i00000"], "attributes": {"seller": "A", "seats": "2"}}])
    one.set_rules({"groups": {"seller": {"cap": {"A": before + 3}}}, "capacity": {"column": "seats"}})
    shown: Counter[str] = Counter()
    ask(two, 30, shown)  # it had not heard of them: the store said so
    assert two.shared.version == one.shared.version != ""
    own = sum(count for item, count in shown.items() if item == "new" or seller(item) == "A")
    assert own == 3
    assert one.store.totals()["seller 'A'"][0] == before + 3
    two.put_items([{"item": "newer", "similar": ["i00000"], "attributes": {"seller": "A"}}])
    assert "newer" not in ids(two.recommend(history=["i00000"]))  # a new item of a seller who is at his cap
    one.close()
    two.close()
    with Live(run_folder, store=store_url, catalog=catalog) as again:
        assert again.rules()["set"]["groups"]["seller"]["cap"] == {"A": before + 3}
        assert again.store.totals()["seller 'A'"][0] == before + 3


def test_rules_may_name_what_another_worker_was_told_of_just_now(run_folder: Path, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/live.sqlite"
    with Live(run_folder, store=store) as one, Live(run_folder, store=store) as two:
        one.put_items([{"item": "i00001", "attributes": {"colour": "red"}}])
        two.set_rules({"groups": {"colour": {"cap": {"red": 3}}}})
        assert [row["name"] for row in two.rules()["totals"]] == ["'red'"]


def test_a_worker_that_was_started_with_other_rules_answers_nothing_instead_of_breaking_them(
    run_folder: Path, catalog: Path, tmp_path: Path
) -> None:
    first, second = (Rules(groups={"seller": {"cap": {"A": cap}}}, catalog=catalog) for cap in (100, 50))
    url = f"sqlite:///{tmp_path}/s.sqlite"
    with Live(run_folder, store=url, rules=first) as old:
        old.recommend("u00001")
        with Live(run_folder, store=url, rules=second) as new:
            new.recommend("u00001")
            with pytest.raises(RuntimeError, match="the same --rules"):
                old.recommend("u00001")


@pytest.mark.parametrize(
    ("tables", "match"),
    [
        ({"groups": {"colour": {"cap": 3}}}, "no such column"), ({"filter": {"exclude": "/etc/passwd"}}, "is a file"),
        ({"filter": {"allow": "items.csv"}}, "is a file"), ({"capacities": {}}, "no such rule"),
        ({"groups": {"seller": {"floor": "40%"}}}, "160%"), ({"catalog": "x.parquet"}, "not a rule"),
    ],
)  # fmt: skip
def test_rules_that_cannot_be_change_nothing(
    run_folder: Path, catalog: Path, tables: dict[str, object], match: str
) -> None:
    with Live(run_folder, catalog=catalog) as live:
        with pytest.raises(ValueError, match=match):
            live.set_rules(tables)
        assert live.rules()["from"] == "none"
        assert live.store.documents(0) == []


def test_rules_are_sent_as_they_are_written() -> None:
    rules = Rules(
        capacity={"items": {"A17": 40}}, groups={"seller": {"floor": "2.5%", "cap": {"X": 7}, "per_list": 2}},
        promote={"where": "campaign", "share": "10%"},
    )  # fmt: skip
    assert rules_of(json.loads(json.dumps(tables_of(rules)))) == rules
