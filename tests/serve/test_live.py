"""Live in one process: whom it knows, what it counts, what it keeps, and several of them on one store."""

import json
import shutil
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import divmf
from divmf.data.histories import Histories
from divmf.market.ledger import Terms
from divmf.serve.catalog import Names
from divmf.serve.engine import Engine, Options
from divmf.serve.live import Full, Live
from divmf.serve.shared import Shared
from divmf.serve.store import Document, StoreDown
from divmf.train.people import folded
from divmf.train.runs import Run


@pytest.fixture
def live(run_folder: Path):  # type: ignore[no-untyped-def]
    with Live(run_folder) as made:
        yield made


def ids(page) -> list[str]:  # type: ignore[no-untyped-def]
    return [line.item for line in page.items]


def test_a_known_user_gets_a_full_page_of_items_not_met(live: Live) -> None:
    page = live.recommend("u00003", k=6)
    known = live.engine.split.known
    met = {f"i{item:05d}" for item in known.indices[known.indptr[3] : known.indptr[4]]}
    assert len(page.items) == 6
    assert page.basis == "user"
    assert page.counted
    assert not met & set(ids(page))
    assert [line.score for line in page.items] == sorted((line.score for line in page.items), reverse=True)
    assert live.store.counts() == dict.fromkeys(ids(page), 1)


def test_at_the_run_s_discounts_a_first_page_is_the_best_response_to_them(run_folder: Path, live: Live) -> None:
    run = Run.open(run_folder)
    chosen = run.read_chosen(run.read_picked())
    assert chosen is not None
    page = live.recommend("u00007", dry_run=True)
    scores = live.engine.people.scores(live.engine.people.known_user(7))[0]
    for line in page.items:
        number = int(line.item[1:])
        assert line.discount == pytest.approx(
            min(chosen.discount[number], live.engine.ledger.discount[number]), rel=1e-6
        )
        assert line.score == pytest.approx(scores[number], rel=1e-5)


def test_accuracy_of_one_is_the_model_s_own_list(live: Live) -> None:
    page = live.recommend("u00004", accuracy=1.0, dry_run=True)
    scores = live.engine.people.scores(live.engine.people.known_user(4))[0].copy()
    scores[live.engine.people.met_by(4)] = -np.inf
    best = np.argsort(-scores, kind="stable")[:5]
    assert ids(page) == [f"i{item:05d}" for item in best]
    assert all(line.discount == 0 for line in page.items)


def test_a_dry_run_counts_nothing(live: Live) -> None:
    before = live.engine.ledger.arrays()
    live.recommend("u00001", dry_run=True)
    live.recommend(history=["i00001", "i00002"], dry_run=True)
    for name, array in live.engine.ledger.arrays().items():
        np.testing.assert_array_equal(array, before[name])
    assert live.store.counts() == {}


def test_histories_users_and_nobody(live: Live) -> None:
    folded = live.recommend(history=["i00001", "i00005", "not there"], dry_run=True)
    nobody = live.recommend(dry_run=True)
    stranger = live.recommend("somebody new", dry_run=True)
    assert (folded.basis, nobody.basis, stranger.basis) == ("history", "nothing", "nothing")
    assert not {"i00001", "i00005"} & set(ids(folded))
    assert ids(nobody) == ids(stranger)
    assert ids(folded) != ids(nobody)


def test_an_event_is_in_the_history_at_once_and_after_a_start(run_folder: Path) -> None:
    with Live(run_folder) as live:
        first = ids(live.recommend("new one", dry_run=True))
        live.event("new one", first[0], "purchase")
        page = live.recommend("new one", dry_run=True)
        assert page.basis == "history"
        assert first[0] not in ids(page)
        known = live.recommend("u00002", dry_run=True)
        live.event("u00002", ids(known)[0])
        assert ids(known)[0] not in ids(live.recommend("u00002", dry_run=True))
    with Live(run_folder) as again:
        assert ids(again.recommend("new one", dry_run=True)) == ids(page)
        kinds = [(event.person, event.item, event.kind) for _, event in again.store.events(0)]
        assert kinds == [("new one", first[0], "purchase"), ("u00002", ids(known)[0], "click")]


def test_the_ledger_is_the_same_after_a_start(run_folder: Path, store_url: str) -> None:
    rng = np.random.default_rng(0)
    users = [f"u{number:05d}" for number in rng.integers(0, 60, 40)]
    live = Live(run_folder, store=store_url, horizon=30)
    for user in users[:25]:
        live.recommend(user)
    live.snapshot()
    for user in users[25:]:
        live.recommend(user, k=3)
    killed = Live(run_folder, store=store_url, horizon=30)  # while the other has not closed anything
    for name, array in live.engine.ledger.arrays().items():
        if name not in ("settled", "discount"):
            np.testing.assert_array_equal(
                getattr(killed.engine.ledger, name, killed.engine.ledger.arrays()[name]), array
            )
    np.testing.assert_allclose(killed.engine.ledger.now(), live.engine.ledger.now(), rtol=1e-12)
    assert ids(killed.recommend("u00011", dry_run=True)) == ids(live.recommend("u00011", dry_run=True))
    live.close()
    killed.close()


def test_two_workers_follow_each_other(run_folder: Path, store_url: str) -> None:
    one, two = Live(run_folder, store=store_url), Live(run_folder, store=store_url)
    for number in range(10):
        one.recommend(f"u{number:05d}")
    for number in range(10, 15):
        two.recommend(f"u{number:05d}")
    one.event("u00001", "i00009")
    assert (one.sync(), two.sync()) == (5, 10)
    assert one.sync() == two.sync() == 0
    np.testing.assert_array_equal(one.engine.ledger.shown, two.engine.ledger.shown)
    assert one.engine.ledger.requests == two.engine.ledger.requests == 15
    np.testing.assert_array_equal(one.engine.ledger.now(), two.engine.ledger.now())
    assert two.shared.met_by("u00001") == [9]
    one.put_items([{"item": "new", "similar": ["i00001"], "title": "New"}])
    one.set_point(0).result()
    two.sync()
    assert two.engine.items.number("new", "item") == 40
    assert two.engine.point.knob is None
    one.close()
    two.close()


def test_a_capacity_holds_between_threads_and_workers(run_folder: Path, store_url: str) -> None:
    workers = [Live(run_folder, store=store_url) for _ in range(2)]
    wanted = ids(workers[0].recommend(accuracy=1.0, dry_run=True))[:2]
    workers[0].put_items([{"item": item, "capacity": 40} for item in wanted])
    shown: Counter[str] = Counter()

    def ask(live: Live) -> None:
        for _ in range(20):
            shown.update(ids(live.recommend(accuracy=1.0)))

    threads = [threading.Thread(target=ask, args=(live,)) for live in workers for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = workers[0].store.counts()
    assert {item: shown[item] for item in wanted} == dict.fromkeys(wanted, 40)
    assert {item: counts[item] for item in wanted} == dict.fromkeys(wanted, 40)
    assert sum(counts.values()) == 4 * 20 * 5
    for live in workers:
        live.close()


def test_seats_that_are_added_after_an_item_was_full_are_taken_too(run_folder: Path, store_url: str) -> None:
    with Live(run_folder, store=store_url) as one, Live(run_folder, store=store_url) as two:
        (item,) = ids(one.recommend("u00001", k=1, accuracy=1.0, dry_run=True))
        one.put_items([{"item": item, "capacity": 3}])
        for _ in range(3):
            one.shown([item])
        two.sync()
        two.engine.ledger.shown[:] = 0  # as if the others had shown it since
        assert item not in ids(two.recommend("u00001", accuracy=1.0))
        assert two.item(item)["shown"] == 0
        two.engine.ledger.shown[two.engine.items.of_text(item)] = 3
        one.put_items([{"item": item, "capacity": 4}])
        two.sync()
        assert item in ids(two.recommend("u00001", accuracy=1.0))
        assert item not in ids(two.recommend("u00001", accuracy=1.0))
        assert two.store.counts()[item] == 4


def test_a_page_made_while_a_run_is_taken_over_keeps_the_rules(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Live(run_folder, store=f"sqlite:///{tmp_path}/live.sqlite") as live:
        (item,) = ids(live.recommend("u00001", k=1, accuracy=1.0, dry_run=True))
        live.put_items([{"item": item, "attributes": {"seller": "A"}}])
        live.set_rules({"groups": {"seller": {"cap": {"A": 1}}}})
        asked: list[threading.Thread] = []
        put_rules = Shared.put_rules

        def slowly(self: Shared, *arguments: object) -> object:
            asked.append(threading.Thread(target=lambda: live.recommend("u00001", accuracy=1.0)))
            asked[-1].start()
            asked[-1].join(0.3)
            return put_rules(self, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(Shared, "put_rules", slowly)
        live.reload().result()
        for thread in asked:
            thread.join()
        assert len(asked) == 1
        assert live.store.totals()["seller 'A'"][0] == live.store.counts()[item] == 1


def test_histories_are_bounded_and_those_who_did_last_are_remembered(
    run_folder: Path, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("divmf.serve.shared.MOST_MET", 3)
    monkeypatch.setattr("divmf.serve.shared.MOST_PEOPLE", 2)
    monkeypatch.setattr("divmf.serve.shared.LAST_EVENTS", 5)
    with Live(run_folder, store=store_url) as live:
        live.events([("a", f"i0000{number}", "click") for number in (1, 2, 3, 1, 4)]).result()
        assert list(live.shared.histories["a"]) == ["i00003", "i00001", "i00004"]
        live.events([(person, "i00001", "click") for person in "bac"]).result()
        assert list(live.shared.histories) == ["a", "c"]
        live.recommend("u00001")
        assert len(live.store.events(0)) == 8
    with Live(run_folder, store=store_url) as again:
        assert [row.person for row in again.shared.latest] == ["u00001"]
        assert {name: list(met) for name, met in again.shared.histories.items()} == {
            "a": ["i00004", "i00001"], "c": ["i00001"]
        }  # fmt: skip


def test_what_a_store_holds_of_other_ids_or_too_many_attributes_does_not_stop_a_start(
    run_folder: Path, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/live.sqlite"
    with Live(run_folder, store=url) as live:
        many = {f"a{number}": "x" for number in range(40)}
        live.put_items([{"item": "i00001", "attributes": many}])
        with pytest.raises(ValueError, match="there may be 40, and 'b' would be one more"):
            live.put_items([{"item": "i00002", "title": "two", "attributes": {"b": "x"}}])
        assert live.item("i00002")["title"] is None
        told = json.dumps({"attributes": {"b": "x"}})  # as another worker may have written at the same moment
        live.store.write([Document("item", "i00002", told), Document("item", "new", "{}")])
    with Live(run_folder, store=url) as live:
        assert live.item("i00001")["attributes"] == many
        assert live.item("i00002")["attributes"] == {}
    assert [Names(pl.Series([7, 8])).can_be(text) for text in ("9", "-9", "i00001", "", "9.5")] == [1, 1, 0, 0, 0]


def test_what_was_rendered_elsewhere_counts_once(live: Live) -> None:
    page = ids(live.recommend("u00001", dry_run=True))
    assert live.shown(page, "u00001", request="page 7")
    assert not live.shown(page, "u00001", request="page 7")
    assert live.store.counts() == dict.fromkeys(page, 1)
    assert live.engine.ledger.requests == 1
    live.put_items([{"item": page[0], "capacity": 1}])
    with pytest.raises(Full, match=page[0]):
        live.shown(page)
    assert live.store.counts() == dict.fromkeys(page, 1)
    with pytest.raises(ValueError, match="no item 'nothing'"):
        live.shown(["nothing"])


def test_a_withdrawn_item_is_in_no_list_and_comes_back(live: Live) -> None:
    item = ids(live.recommend("u00005", dry_run=True))[0]
    live.put_items([{"item": item, "capacity": 0}])
    assert item not in ids(live.recommend("u00005", dry_run=True))
    live.put_items([{"item": item, "capacity": -1}])
    assert item in ids(live.recommend("u00005", dry_run=True))


def test_a_new_item_enters_at_the_discount_of_its_share(live: Live) -> None:
    live.put_items([{"item": "new", "title": "New", "similar": ["i00000", "i00001"], "attributes": {"shop": "A"}}])
    ledger, number = live.engine.ledger, live.engine.items.number("new", "item")
    assert number == 40
    discount = ledger.discount[number]
    assert 0 <= discount < 0.9 * np.log(ledger.levels[number] / 1e-4) * ledger.pace.rho  # not the largest
    taken = 0
    for user in range(60):
        taken += "new" in ids(live.recommend(f"u{user:05d}"))
    share = 60 * 5 / 41
    assert 1 <= taken <= 3 * share  # neither starved nor everywhere
    assert live.item("new")["title"] == "New"
    assert live.item("new")["attributes"] == {"shop": "A"}


def test_a_share_of_more_is_more_showings(run_folder: Path, tmp_path: Path) -> None:
    counts = {}
    for share in (0.0, 4.0):
        with Live(run_folder, store=f"sqlite:///{tmp_path}/{share}.sqlite", horizon=60) as live:
            live.put_items([{"item": "i00017", "share": share}])
            for turn in range(240):
                live.recommend(f"u{turn % 60:05d}")
            counts[share] = live.store.counts().get("i00017", 0)
    assert counts[4.0] > 1.5 * counts[0.0]


def test_filters_and_exclusions(run_folder: Path, tmp_path: Path) -> None:
    items = [f"i{number:05d}" for number in range(40)]
    frame = pl.DataFrame({
        "item_id": items, "title": [f"T{number}" for number in range(40)], "shop": ["A", "B"] * 20, "year": range(40),
    })  # fmt: skip
    frame.write_parquet(tmp_path / "items.parquet")
    with Live(run_folder, catalog=tmp_path / "items.parquet") as live:
        page = live.recommend("u00001", where={"shop": "B"}, dry_run=True)
        assert all(int(line.item[1:]) % 2 for line in page.items)
        assert page.items[0].title == f"T{int(page.items[0].item[1:])}"
        both = live.recommend("u00001", where={"shop": ["A", "B"], "year": ["3", "4"]}, k=5, dry_run=True)
        assert set(ids(both)) <= {"i00003", "i00004"}
        assert not set(ids(page)) & set(ids(live.recommend("u00001", exclude=ids(page), dry_run=True)))
        with pytest.raises(ValueError, match="no attribute 'colour'"):
            live.recommend(where={"colour": "red"})
        assert live.exposure(group="shop")["groups"]["groups"] == 2
        assert [found["item"] for found in live.search("t39")] == ["i00039"]


def test_moving_the_operating_point_takes_its_discounts_over_and_survives_a_start(run_folder: Path) -> None:
    run = Run.open(run_folder)
    last = [point for point in run.read_curve().points if point.knob is not None][-1]
    with Live(run_folder) as live:
        live.set_point(last.epoch).result()
        assert live.engine.ledger.pace.rho == last.knob
        with pytest.raises(ValueError, match="epoch=9999"):
            live.set_point(9999)
    with Live(run_folder) as again:
        assert again.engine.point.knob == last.knob


def test_a_newer_run_is_taken_over_with_everything_shown(run_folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "current"
    link.symlink_to(run_folder)
    newer = Path(shutil.copytree(run_folder, tmp_path / "newer"))
    Run.open(newer).pick(epoch=1)
    with Live(link) as live:
        live.put_items([{"item": "new", "capacity": 7, "title": "New"}])
        for number in range(20):
            live.recommend(f"u{number:05d}")
        shown = dict(zip(live.engine.items.ids, live.engine.ledger.shown, strict=True))
        link.unlink()
        link.symlink_to(newer)
        live.reload().result()
        assert live.engine.point.epoch == 1
        assert dict(zip(live.engine.items.ids, live.engine.ledger.shown, strict=True)) == shown
        assert live.engine.ledger.requests == 20
        assert live.item("new")["capacity"] == 7
        live.recommend("u00001")
    with Live(link) as again:
        assert again.engine.point.epoch == 1


def test_a_point_set_for_another_run_is_not_taken_for_one_of_this(run_folder: Path, tmp_path: Path) -> None:
    with Live(run_folder, store=f"sqlite:///{tmp_path}/s.sqlite") as live:
        live.set_point(1).result()
        picked = Run.open(run_folder).read_picked()
    other = Path(shutil.copytree(run_folder, tmp_path / "other"))
    config = json.loads((other / "config.json").read_text())
    config["versions"]["divmf"] = "another"
    (other / "config.json").write_text(json.dumps(config))
    with Live(other, store=f"sqlite:///{tmp_path}/s.sqlite") as live:
        assert live.engine.point.epoch == picked.epoch


def test_a_page_that_the_store_did_not_take_is_not_counted(live: Live) -> None:
    live.recommend("u00001")
    live.store.close()
    with pytest.raises(StoreDown):
        live.recommend("u00002")
    assert live.engine.ledger.requests == 1
    assert live.engine.ledger.shown.sum() == 5


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"k": 0}, "k=0"), ({"k": 1000}, "k=1000"), ({"accuracy": 1.5}, "accuracy=1.5"),
        ({"history": ["x"] * 1001}, "history"), ({"exclude": ["x"] * 10_001}, "exclude"), ({"user": ""}, "user"),
    ],
)  # fmt: skip
def test_requests_that_cannot_be_are_refused(live: Live, arguments: dict[str, object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        live.recommend(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("item", "match"),
    [
        ({}, "no id"), ({"item": "x", "colour": 1}, "'colour' is unknown"), ({"item": "x", "capacity": -2}, "capacity"),
        ({"item": "x", "share": -1.0}, "share"), ({"item": "x", "similar": ["none"]}, "no item 'none'"),
        ({"item": "x" * 201}, "characters"), ({"item": "x", "title": "t" * 501}, "title"),
    ],
)  # fmt: skip
def test_items_that_cannot_be_are_refused(live: Live, item: dict[str, object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        live.put_items([item])
    assert live.store.documents(0) == []


def test_exposure_is_that_of_the_lists_shown(live: Live) -> None:
    pages = [ids(live.recommend(f"u{number:05d}")) for number in range(30)]
    counts = Counter(item for page in pages for item in page)
    told = live.exposure()
    assert told["coverage"] == len(counts) / 40
    shown = np.sort([counts.get(f"i{number:05d}", 0) for number in range(40)])
    assert told["lorenz"][50] == pytest.approx(shown[:20].sum() / shown.sum(), abs=1e-4)
    assert told["starved"]["items"] == 40 - len(counts)
    item = live.item(pages[-1][0])
    assert item["shown"] == counts[pages[-1][0]]
    assert item["shown_to"][0]["user"] == "u00029"
    assert item["shown_to"][0]["slot"] == 1


def test_the_public_name() -> None:
    assert divmf.Live is Live


@pytest.mark.parametrize("model", ["ease", "ials"])
def test_other_models_are_served(split, tmp_path: Path, model: str) -> None:  # type: ignore[no-untyped-def]
    from divmf.models.ease import ease
    from divmf.models.ials import ials

    scorer = ease(split.train.matrix, 10.0) if model == "ease" else ials(split.train.matrix, 8, 0.1, 0.02, 3, 0)
    fitted = divmf.diversify(scorer, split, run=tmp_path / "run", diversity_epochs=6)
    fitted.run.pick(ndcg_drop=0.1)
    with Live(tmp_path / "run") as live:
        page = live.recommend("u00001")
        assert len(page.items) == 5
        live.event("u00001", page.items[0].item)
        assert len(live.recommend("u00001").items) == 5
        live.put_items([{"item": "new", "similar": ["i00001"]}])
        assert live.recommend(history=["i00001", "new"]).basis == "history"
        assert live.recommend().basis == "nothing"


@pytest.mark.parametrize("model", ["mse", "bpr", "softmax"])
def test_somebody_new_is_folded_in_as_for_lists_in_a_file(split, tmp_path: Path, model: str) -> None:  # type: ignore[no-untyped-def]
    fitted = divmf.DivMF(model=model, accuracy_epochs=3, diversity_epochs=2, dim=8).fit(split, tmp_path / "run")  # type: ignore[arg-type]
    fitted.run.pick(epoch=1)
    chosen, history = divmf.load(tmp_path / "run"), split.item_ids[[3, 9]]
    wanted = folded(chosen.scoring, chosen.learnt, Histories.of(list(history), split.item_ids))
    people = Engine(tmp_path / "run", Options()).people
    assert people.model.name == model
    scores = people.scores(people.with_history(np.array([9, 3])))
    np.testing.assert_allclose(scores, wanted.scores(np.array([0])), rtol=1e-4, atol=1e-5)


def test_an_engine_knows_its_terms(run_folder: Path) -> None:
    engine = Engine(run_folder, Options(horizon=123))
    assert engine.ledger.terms == Terms(engine.point.knob, 5, 123)  # type: ignore[arg-type]
