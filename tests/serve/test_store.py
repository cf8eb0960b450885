"""Every kind of store keeps what it was given, counts exactly, and is followed without a gap."""

import threading
from collections import Counter
from pathlib import Path

import pytest

from divmf.serve.store import Document, Event, Limit, Limits, Outcome, Showing, Snapshot, StoreDown
from divmf.serve.stores import open_store
from divmf.serve.writer import Writer


def showing(*items: str, request: str | None = None, worker: str = "w") -> Showing:
    return Showing(items, "ann", 1.5, worker, request)


def test_what_was_written_is_there_when_the_store_is_opened_again(store_url: str) -> None:
    store = open_store(store_url)
    store.write([
        showing("a", "ü'\";--", "<b>"), Event("ann", "a", "click", 2.0, "w"), Document("item", "a", '{"title": "A"}'),
        Snapshot(b"\x00\xff"), showing("a", request="r1"),
    ])  # fmt: skip
    store.close()
    again = open_store(store_url)
    assert [row for _, row in again.showings(0)] == [showing("a", "ü'\";--", "<b>"), showing("a", request="r1")]
    assert [row for _, row in again.events(0)] == [Event("ann", "a", "click", 2.0, "w")]
    assert [row for _, row in again.documents(0)] == [Document("item", "a", '{"title": "A"}')]
    assert again.counts() == {"a": 2, "ü'\";--": 1, "<b>": 1}
    assert again.snapshot() == Snapshot(b"\x00\xff", again.showings(0)[0][0])
    again.close()


def test_a_showing_with_a_full_item_is_refused_whole(store_url: str) -> None:
    store = open_store(store_url)
    store.write([Document("item", "a", "{}", capacity=2)])
    outcomes = store.write([showing("a", "b"), showing("b", "a"), showing("b", "a"), showing("b")])
    assert [outcome.full for outcome in outcomes] == [(), (), ("a",), ()]
    assert store.counts() == {"a": 2, "b": 3}
    assert len(store.showings(0)) == 3
    store.write([Document("item", "a", "{}", capacity=3)])
    assert store.write([showing("a"), showing("a")]) == [Outcome(store.showings(0)[-1][0]), Outcome(full=("a",))]
    store.write([Document("item", "a", "{}", capacity=-1)])
    assert store.write([showing("a")])[0].full == ()
    store.close()


def test_a_named_request_is_counted_once(store_url: str) -> None:
    store = open_store(store_url)
    first, again = store.write([showing("a", request="one"), showing("a", request="one")])
    assert not first.repeated
    assert again == Outcome(first.number, repeated=True)
    assert store.counts() == {"a": 1}
    store.close()


def test_documents_come_again_when_they_change(store_url: str) -> None:
    store = open_store(store_url)
    store.write([Document("item", "a", "1"), Document("setting", "a", "2"), Document("item", "b", "3", capacity=5)])
    last = store.documents(0)[-1][0]
    assert store.documents(last) == []
    store.write([Document("item", "a", "4")])
    assert [row for _, row in store.documents(last)] == [Document("item", "a", "4")]
    assert {row.text for _, row in store.documents(0)} == {"2", "3", "4"}
    store.close()


def test_what_is_forgotten_stays_counted(store_url: str) -> None:
    store = open_store(store_url)
    numbers = [outcome.number for outcome in store.write([showing("a"), showing("a"), showing("b")])]
    store.forget(numbers[2])
    assert [number for number, _ in store.showings(0)] == [numbers[2]]
    assert store.counts() == {"a": 2, "b": 1}
    store.close()


def test_a_log_is_pruned_while_others_write(store_url: str) -> None:
    store, pruned, done = open_store(store_url), 0, threading.Event()

    def write() -> None:
        for _ in range(100):
            outcomes.extend(store.write([showing("a"), showing("a", "b")]))
        done.set()

    outcomes: list[Outcome] = []
    thread = threading.Thread(target=write)
    thread.start()
    while not done.is_set():
        store.forget(len(outcomes) // 2)
        pruned += 1
    thread.join()
    assert pruned > 3
    assert len(outcomes) == 200
    assert store.counts() == {"a": 200, "b": 100}
    store.close()


def test_many_writers_never_exceed_a_capacity_and_are_followed_without_a_gap(store_url: str) -> None:
    stores = [open_store(store_url) for _ in range(4)]
    stores[0].write([Document("item", "seat", "{}", capacity=40)])
    counted: Counter[int] = Counter()
    followed: dict[int, str] = {}
    done = threading.Event()

    def write(number: int) -> None:
        for turn in range(30):
            outcomes = stores[number].write([showing("seat", worker=f"w{number}"), showing(f"own{turn}")])
            counted[number] += not outcomes[0].full

    def follow() -> None:
        reader, cursor, last = open_store(store_url), 0, False
        while True:
            for number, row in reader.showings(cursor, limit=7):
                assert number not in followed
                followed[number], cursor = row.items[0], number
            if last and not reader.showings(cursor):
                break
            last = done.is_set()
        reader.close()

    follower = threading.Thread(target=follow)
    writers = [threading.Thread(target=write, args=(number,)) for number in range(len(stores))]
    follower.start()
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    follower.join()
    assert sum(counted.values()) == 40
    assert stores[0].counts()["seat"] == 40
    assert Counter(followed.values())["seat"] == 40
    assert len(followed) == 40 + 4 * 30
    for store in stores:
        store.close()


def test_the_writer_puts_what_waits_into_one_transaction(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/live.sqlite")
    sizes, gate = [], threading.Event()
    write = store.write

    def slow(entries):  # type: ignore[no-untyped-def]
        sizes.append(len(entries))
        gate.wait(10)
        return write(entries)

    store.write = slow  # type: ignore[method-assign]
    writer = Writer(store)
    first = writer.submit([showing("a")])
    while not sizes:
        pass
    rest = [writer.submit([showing("b"), showing("c")]) for _ in range(5)]
    gate.set()
    assert [len(done.result(10)) for done in (first, *rest)] == [1, 2, 2, 2, 2, 2]
    assert sizes == [1, 10]
    writer.close()
    assert len(store.showings(0)) == 11
    with pytest.raises(StoreDown, match="shutting down"):
        writer.submit([showing("a")]).result(1)
    store.close()


def test_a_store_that_fails_acknowledges_nothing(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/live.sqlite")
    writer = Writer(store)
    store.close()
    with pytest.raises(StoreDown):
        writer.submit([showing("a")]).result(10)
    writer.close()


def test_a_redis_that_forgets_is_refused(redis_server: str) -> None:
    import redis

    database = redis.Redis.from_url(redis_server)
    database.config_set("appendonly", "no")
    try:
        with pytest.raises(ValueError, match="appendonly"):
            open_store(redis_server)
    finally:
        database.config_set("appendonly", "yes")


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("mysql://me:secret@host/db", "not understood"),
        ("sqlite:///", "not understood"),
        ("sqlite:///live.sqlite?mode=ro", "not understood"),
        ("sqlite:////nowhere/at/all/live.sqlite", "no folder"),
        ("redis://127.0.0.1:1/0", "cannot be opened"),
        ("postgresql://127.0.0.1:1/x", "cannot be opened"),
    ],
)
def test_a_url_that_names_no_store_is_refused_without_its_password(url: str, match: str) -> None:
    with pytest.raises(ValueError, match=match) as error:
        open_store(url)
    assert "secret" not in str(error.value)


def ruled(*items: str, totals: dict[str, int], version: str = "v1") -> Showing:
    return Showing(items, "ann", 1.5, "w", None, version, tuple(totals.items()))


def test_limits_of_totals_hold_exactly_and_showings_under_other_rules_are_refused(store_url: str) -> None:
    store = open_store(store_url)
    store.write([showing("a"), showing("b")])  # before there are rules
    seller, fifth = Limit(3, 0.0, ("a", "b")), Limit(None, 0.2, ("c",))
    store.write([Limits("v1", {"seller 'A'": seller, "seller 'C'": fifth})])
    assert store.totals() == {"seller 'A'": (2, 0), "seller 'C'": (0, 0)}
    assert store.write([showing("a")])[0].stale
    over = store.write([ruled("a", "b", totals={"seller 'A'": 2})])[0]
    assert (over.over, over.kept) == (("seller 'A'",), False)
    assert store.counts() == {"a": 1, "b": 1}  # nothing of it was kept
    assert store.write([ruled("c", "d", "e", "f", totals={"seller 'C'": 1})])[0].kept  # a fifth of 4, rounded up
    assert store.write([ruled("c", totals={"seller 'C'": 1})])[0].over == ("seller 'C'",)  # 2 of 5
    assert store.write([ruled("e", totals={})])[0].kept
    assert store.write([ruled("a", totals={"seller 'A'": 1})])[0].kept
    assert store.totals() == {"seller 'A'": (3, 6), "seller 'C'": (1, 6)}
    store.write([Limits("v2", {"seller 'A'": seller._replace(cap=4), "seller 'C'": fifth})])
    assert store.write([ruled("d", totals={})])[0].stale
    assert store.totals() == {"seller 'A'": (3, 0), "seller 'C'": (1, 6)}  # a limit that stays goes on counting
    both = [ruled("a", totals={"seller 'A'": 1}, version="v2") for _ in range(2)]
    assert [outcome.kept for outcome in store.write(both)] == [True, False]
    store.write([Limits("v3", {})])
    assert store.totals() == {}
    store.close()
