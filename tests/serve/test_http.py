"""The HTTP API: what it answers, what it refuses, and that nothing a client sends makes it fail."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs FastAPI (pip install 'divmf[serve]')")

from starlette.testclient import TestClient

from divmf.serve.guard import Rates
from divmf.serve.http import create_app, open_live
from divmf.serve.settings import ServeSettings

TOKEN = "a-long-enough-token"


def client_of(run: Path, **settings: Any) -> TestClient:
    made = ServeSettings(run=run, **({"rate": 0} | settings))
    return TestClient(create_app(open_live(made), made), base_url="http://127.0.0.1", raise_server_exceptions=False)


@pytest.fixture
def client(run_folder: Path) -> Iterator[TestClient]:
    with client_of(run_folder) as made:
        yield made


def is_problem(answer: Any, status: int) -> bool:
    told = answer.json()
    return (
        answer.status_code == status == told["status"]
        and answer.headers["content-type"] == "application/problem+json"
        and {"type", "title", "detail"} <= told.keys()
        and "Traceback" not in answer.text
    )


def test_a_page_counts_and_is_told_of(client: TestClient) -> None:
    page = client.post("/recommend", json={"user": "u00001", "k": 4}).json()
    assert [len(page["items"]), page["basis"], page["counted"]] == [4, "user", True]
    assert client.get("/exposure").json()["window"] == {"requests": 1, "showings": 4}
    item = page["items"][0]["item"]
    assert client.get(f"/items/{item}").json()["shown"] == 1
    assert client.get("/requests").json()[0]["user"] == "u00001"
    assert client.get("/items", params={"q": item}).json()[0] == {"item": item, "title": None, "shown": 1}
    metrics = client.get("/metrics").text
    assert f'divmf_requests_total{{route="/recommend",status="200",worker="{os.getpid()}"}} 1.0' in metrics
    assert "divmf_ledger_requests 1.0" in metrics
    assert client.get("/health").json() == client.get("/ready").json()


FIRST_REQUESTS = """
import sys
from divmf.serve.http import open_live
from divmf.serve.settings import ServeSettings
from numba.core.dispatcher import Dispatcher

def compiled():
    found = {id(each): each for module in list(sys.modules.values()) if module.__name__.startswith("divmf.kernels")
             for each in vars(module).values() if isinstance(each, Dispatcher)}
    return {each.__qualname__: len(each.signatures) for each in found.values()}

live = open_live(ServeSettings(run=sys.argv[1], store="sqlite:///" + sys.argv[2]))
ready = compiled()
live.recommend(live.engine.users.ids[3]), live.recommend("somebody new"), live.recommend(history=["i00005", "i00007"])
assert sum(ready.values()) > 5
assert compiled() == ready, (ready, compiled())
assert live.engine.ledger.requests == 3
live.close()
"""


def test_nothing_is_compiled_by_the_first_requests(run_folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", FIRST_REQUESTS, str(run_folder), f"{tmp_path}/live.sqlite"]
    subprocess.run(command, check=True)


def test_rendering_later_events_items_and_the_point(client: TestClient) -> None:
    page = client.post("/recommend", json={"user": "u00002", "dry_run": True}).json()
    items = [slot["item"] for slot in page["items"]]
    told = {"items": items, "user": "u00002", "request": "r1"}
    assert [client.post("/shown", json=told).json() for _ in range(2)] == [{"counted": True}, {"counted": False}]
    assert client.post("/events", json={"events": [{"user": "u00002", "item": items[0]}]}).json() == {
        "kept": 1,
        "unknown": [],
    }
    assert client.get("/events").json()[0]["item_id"] == items[0]
    again = client.post("/recommend", json={"user": "u00002", "dry_run": True}).json()
    assert items[0] not in [slot["item"] for slot in again["items"]]
    new = {"item": "new", "title": "<script>alert(1)</script>", "capacity": 1, "similar": [items[1]], "share": 2}
    assert client.post("/items", json={"items": [new]}).json() == {"kept": 1}
    assert client.get("/items/new").json()["capacity"] == 1
    assert client.post("/shown", json={"items": ["new"]}).status_code == 200
    assert is_problem(client.post("/shown", json={"items": ["new"]}), 409)
    points = client.get("/curve").json()["points"]
    assert client.post("/point", json={"epoch": points[-1]["epoch"]}).json()["point"] == points[-1]["name"]
    assert client.get("/curve").json()["epoch"] == points[-1]["epoch"]
    assert client.post("/reload").status_code == 200
    people = client.get("/people").json()
    wanted = [{"user": each["user"]} for each in people] + [{"history": items[:2]}, {}]
    lists = client.post("/preview", json={"people": wanted, "epoch": points[-1]["epoch"]}).json()
    assert [len(each) for each in lists] == [5] * len(wanted)
    own = client.post("/preview", json={"people": wanted, "epoch": 0}).json()
    assert not any(slot["new"] for each in own for slot in each)


def test_ids_that_there_are_not_are_told_and_numbers_for_text_refused(client: TestClient) -> None:
    page = client.post("/recommend", json={"history": ["i00001", "nope"], "dry_run": True}).json()
    assert (page["basis"], page["unknown"]) == ("history", ["nope"])
    told = [{"user": "u00002", "item": item} for item in ("i00001", "nope", "nope")]
    assert client.post("/events", json={"events": told}).json() == {"kept": 3, "unknown": ["nope"]}
    refused = client.post("/recommend", json={"user": 2})
    assert refused.status_code == 422
    assert "user=2 is a number, and ids are text here, such as 'u00000'" in refused.json()["detail"]


def test_rules_are_set_told_and_refused(client: TestClient) -> None:
    for number, name in enumerate("ABA"):
        item = {"item": f"i0000{number}", "attributes": {"seller": name}}
        assert client.post("/items", json={"items": [item]}).status_code == 200
    assert client.get("/rules").json()["from"] == "none"
    told = client.put("/rules", json={"groups": {"seller": {"cap": {"A": 1}, "per_list": 1}}}).json()
    assert [(row["name"], row["at_most"], row["per_list"]) for row in told["totals"]] == [
        ("'A'", 1, 1),
        ("'B'", None, 1),
    ]
    assert client.post("/shown", json={"items": ["i00000"]}).json() == {"counted": True}
    assert is_problem(client.post("/shown", json={"items": ["i00002"]}), 409)
    assert client.get("/exposure").json()["rules"]["full"] == 1
    told_of_item = client.get("/items/i00002").json()
    assert [(row["name"], row["at_most"], row["given"]) for row in told_of_item["rules"]] == [("'A'", 1, 1)]
    assert told_of_item["advice"].startswith("The cap of the rule for seller 'A' is reached")
    unknown = {"groups": {"colour": {"cap": 1}}}, {"floor": {"items": {"tea": 1}}}
    for wrong in (*unknown, {"filter": {"exclude": "/etc/passwd"}}, {"capacity": {"x": 1}}):
        assert is_problem(client.put("/rules", json=wrong), 422)
    assert client.get("/rules").json()["totals"] == [
        row | {"given": 1, "in_horizon": 1, "full": True} if row["name"] == "'A'" else row for row in told["totals"]
    ]
    assert client.put("/rules", json={}).json()["totals"] == []
    assert client.post("/shown", json={"items": ["i00002"]}).status_code == 200
    assert client.put("/rules", json={"start": True}).json()["from"] == "none"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"k": 0}, "body.k"), ({"k": 10**9}, "body.k"), ({"k": "five"}, "body.k"), ({"user": True}, "body.user"),
        ({"user": ""}, "body.user"), ({"user": "a\x00b"}, "body.user"), ({"user": "\ud800"}, "body.user"),
        ({"user": "a\r\nset-cookie: x"}, "body.user"), ({"users": "u1"}, "body.users"), ({"accuracy": 2}, "body.acc"),
        ({"history": ["x"] * 1001}, "body.history"), ({"where": {"shop": {"$ne": 1}}}, "body.where"),
        ({"exclude": [10**40]}, "body.exclude"), ([1, 2], "body"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_a_problem_that_names_the_field(client: TestClient, body: Any, field: str) -> None:
    answer = client.post("/recommend", content=json.dumps(body), headers={"content-type": "application/json"})
    assert is_problem(answer, 422)
    assert answer.json()["errors"][0]["field"].startswith(field)
    assert client.get("/health").json()["requests"] == 0


def test_other_bad_requests_are_problems(client: TestClient) -> None:
    kind = {"content-type": "application/json"}
    assert is_problem(client.post("/recommend", content=b"{", headers=kind), 400)
    assert is_problem(client.post("/recommend", content=b"\xff\xfe", headers=kind), 400)
    assert is_problem(client.post("/recommend", content=b'{"accuracy": NaN}', headers=kind), 422)
    assert is_problem(client.post("/recommend", content=b'{"k": 3}', headers={"content-type": "text/plain"}), 422)
    assert is_problem(client.post("/recommend", content=b"[" * 100_000, headers=kind), 400)
    assert is_problem(client.post("/recommend", content=b" " * (1 << 20) + b" ", headers=kind), 413)
    assert is_problem(client.post("/recommend", content=iter([b" " * 600_000] * 2), headers=kind), 413)
    assert is_problem(client.post("/recommend", json={"where": {"colour": "red"}}), 422)
    assert is_problem(client.get("/items/none"), 404)
    assert is_problem(client.get("/nothing"), 404)
    assert client.get("/nothing").json()["detail"] == "there is no GET /nothing; GET /openapi.json lists what there is"
    unread = client.post("/recommend", content=b'{"k": 3,}', headers=kind).json()["detail"]
    assert unread.startswith("the body is not JSON: ")
    assert unread.endswith(", at character 8")
    assert client.post("/recommend", json={"users": 1}).json()["detail"] == "body.users: there is no such field"
    assert is_problem(client.put("/items"), 405)
    assert is_problem(client.post("/point", json={"epoch": 99_999}), 422)
    assert is_problem(client.get("/health", headers={"host": "evil.example"}), 421)
    assert client.post("/recommend", json={"user": "' OR 1=1; DROP TABLE divmf_showings; --"}).status_code == 200
    assert client.post("/recommend", json={"user": "u00001"}).status_code == 200


def test_a_token_guards_all_but_health(run_folder: Path) -> None:
    with client_of(run_folder, token=TOKEN) as client:
        for path in ("/health", "/ready", "/metrics", "/", "/studio.js", "/studio.css", "/openapi.json"):
            assert client.get(path).status_code == 200, path
        for path in ("/exposure", "/requests", "/events", "/items?q=i", "/items/i00001", "/curve", "/people"):
            assert is_problem(client.get(path), 401), path
        for path in ("/recommend", "/shown", "/events", "/items", "/preview", "/point", "/reload"):
            assert is_problem(client.post(path, json={}), 401), path
        assert is_problem(client.put("/rules", json={}), 401)
        for given in ("Bearer wrong", f"Basic {TOKEN}", "Bearer", f"Bearer {TOKEN}x", "Bearer \xff"):
            assert client.get("/curve", headers={"authorization": given.encode("latin-1")}).status_code == 401
        assert client.get("/curve", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert client.get("/health", headers={"host": "shop.example"}).status_code == 200


def test_browsers_of_other_sites_are_let_in_only_if_named(run_folder: Path) -> None:
    asking = {"origin": "https://shop.example", "access-control-request-method": "POST"}
    with client_of(run_folder) as client:
        assert "access-control-allow-origin" not in client.options("/recommend", headers=asking).headers
    with client_of(run_folder, origins="https://shop.example", token=TOKEN) as client:
        allowed = client.options("/recommend", headers=asking)
        assert allowed.headers["access-control-allow-origin"] == "https://shop.example"
        other = client.options("/recommend", headers=asking | {"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers


def test_pages_of_other_sites_do_not_write(run_folder: Path) -> None:
    with client_of(run_folder, origins="https://shop.example") as client:
        for origin in ("https://evil.example", "null", "http://127.0.0.1:81", "https://shop.example.evil.example"):
            assert is_problem(client.post("/reload", headers={"origin": origin}), 403), origin
            assert client.get("/health", headers={"origin": origin}).status_code == 200
        for origin in ("http://127.0.0.1", "https://shop.example"):
            assert client.post("/reload", headers={"origin": origin}).status_code == 200, origin


def test_every_operation_says_what_it_does_and_answers(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    names = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"][0].isupper(), path
            names.append(operation["operationId"])
            (kind,) = operation["responses"]["200"]["content"].values()
            assert "additionalProperties" not in json.dumps(kind["schema"]), (method, path)
    assert len(set(names)) == len(names)


def test_a_client_that_asks_too_often_waits(run_folder: Path) -> None:
    now = 0.0
    rates = Rates(2.0, lambda: now)
    assert [rates.wait("a") for _ in range(4)] == [0.0] * 4
    assert rates.wait("a") == pytest.approx(0.5)
    assert rates.wait("b") == 0.0
    now = 0.5
    assert rates.wait("a") == 0.0
    with client_of(run_folder, rate=1) as client:
        answers = [client.get("/health") for _ in range(5)]
        assert is_problem(answers[-1], 429)
        assert int(answers[-1].headers["retry-after"]) >= 1


def test_a_store_that_is_down_is_said_and_nothing_counted(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from divmf.serve.sql import SqlStore
    from divmf.serve.store import StoreDown

    def fails(*_: Any) -> None:
        raise StoreDown("disk full at /secret/place")

    with monkeypatch.context() as patch:
        patch.setattr(SqlStore, "write", fails)
        answer = client.post("/recommend", json={"user": "u00001"})
        assert is_problem(answer, 503)
        assert "secret" not in answer.text
    assert client.get("/health").json()["requests"] == 0
    assert client.post("/recommend", json={"user": "u00001"}).status_code == 200


def test_what_fails_inside_is_a_problem_without_a_traceback(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("divmf.serve.live.Live.search", lambda *_: 1 / 0)
    assert is_problem(client.get("/items", params={"q": "x"}), 500)


@pytest.mark.parametrize(
    ("settings", "match"),
    [({"host": "0.0.0.0"}, "token is needed"), ({"token": "short"}, "at least 8"), ({"group": "seller"}, "seller")],
)
def test_settings_that_are_unsafe_or_wrong_are_refused(run_folder: Path, settings: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        client_of(run_folder, **settings)


def takes_input(operation: Any) -> bool:
    return bool(len(operation.body) or len(operation.query) or len(operation.path_parameters))


def fuzzed(run: Path, cases: int, seed: int) -> int:
    """How many requests made from the OpenAPI document were answered; none may end in a failure of the service."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded
    from schemathesis import GenerationMode

    made = ServeSettings(run=run, rate=0)
    done = 0
    with TestClient(create_app(open_live(made), made), base_url="http://127.0.0.1") as client:
        schema = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
        operations = [found.ok() for found in schema.get_all_operations()]
        both = [
            (operation, mode)
            for operation in operations
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
            if operation.label != "POST /reload" and (mode == GenerationMode.POSITIVE or takes_input(operation))
        ]
        while done < cases:  # an operation with few different requests makes fewer
            for operation, mode in both:

                @seeded(seed + done)
                @settings(
                    max_examples=-(-cases // len(both)),
                    deadline=None,
                    database=None,
                    phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                )
                @given(case=operation.as_strategy(generation_mode=mode))
                def ask(case: Any) -> None:
                    nonlocal done
                    sent = case.as_transport_kwargs(base_url="http://127.0.0.1")
                    sent.pop("cookies", None)
                    answer = client.request(**sent)
                    assert answer.status_code < 500, (case.method, case.path, case.body, answer.text)
                    assert answer.status_code < 400 or is_problem(answer, answer.status_code)
                    done += 1

                ask()
    return done


def test_no_request_of_the_openapi_document_makes_it_fail(run_folder: Path) -> None:
    pytest.importorskip("schemathesis", reason="needs schemathesis (pip install schemathesis)")
    assert fuzzed(run_folder, cases=250, seed=0) >= 250


@pytest.mark.slow
def test_many_requests_of_the_openapi_document(run_folder: Path) -> None:
    pytest.importorskip("schemathesis", reason="needs schemathesis (pip install schemathesis)")
    cases = 20_000 if os.environ.get("DIVMF_TRIAL") == "whole" else 1_000  # as `make faults` sets it
    assert fuzzed(run_folder, cases=cases, seed=1) >= cases
