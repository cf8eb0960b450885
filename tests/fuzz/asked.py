"""What is asked of a run, fuzzed: rules, histories, new items, lists of ids, requests of the service."""

import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from targets import Target, written

from divmf.cli.filters import read_rules
from divmf.cli.inputs import read_histories
from divmf.data.filters import Filters
from divmf.data.split import Split
from divmf.data.tables import read_table
from divmf.engine.files import naming
from divmf.estimator import Recommender, load
from divmf.models.config import TrainConfig
from divmf.train.ruling import bound_to

RULES = b"""[capacity]
where = "seats > 3"
column = "seats"
[floor]
items = {i00001 = 2, i00002 = 1}
[target]
by = "merit"
power = 0.5
[groups.seller]
floor = "5%"
cap = {a = "90%", b = 140}
per_list = 3
[filter]
exclude = "seats = 3"
[promote]
where = "seller = 'b'"
share = "10%"
"""
REQUESTS: dict[str, tuple[bytes, ...]] = {
    "recommend": (
        b'{"user": "u00001", "k": 3, "exclude": ["i00001"], "accuracy": 0.5, "dry_run": true}',
        b'{"history": ["i00001", "i00002"], "where": {"seller": ["a", "b"]}}',
    ),
    "shown": (b'{"items": ["i00003", "i00004"], "user": "u00002", "request": "r1"}',),
    "events": (
        b'{"events": [{"user": "u00001", "item": "i00002", "kind": "click"}, {"user": "new", "item": "i00001"}]}',
    ),
    "items": (
        b'{"items": [{"item": "n1", "title": "Tea", "attributes": {"seller": "a"}, "similar": ["i00001"],'
        b' "capacity": 3, "share": 1.5}, {"item": "i00002", "capacity": 0}]}',
    ),
    "preview": (b'{"people": [{"user": "u00001"}, {"history": ["i00003"]}], "epoch": 1, "k": 3}',),
    "point": (b'{"epoch": 1}',),
}  # fmt: skip


def of_what_is_asked(folder: Path) -> list[Target]:
    """Rules, histories, new items and filters beside a run in this folder, and requests of a service of it."""
    chosen = load(folder / "run")
    shop = catalog_of(chosen.split)
    (folder / "shop.csv").write_bytes(written(shop, "csv"))
    met = pl.DataFrame({"user_id": ["new", "new", "newer"], "item_id": ["i00001", "i00003", "i00002"]})
    fresh = pl.DataFrame({"item_id": ["n1", "n2", "n2"], "like": ["i00001", "i00002", "i00003"]})
    left_out = pl.DataFrame({"item_id": ["i00001", "i00002"], "user_id": ["u00001", "u00002"]})
    found = [
        Target("rules.toml", folder / "rules.toml", (RULES,), lambda path: check_rules(path, shop, chosen)),
        Target("shop.csv", folder / "shop.csv", (written(shop, "csv"),), lambda path: check_shop(path, chosen)),
    ]
    kinds: list[tuple[str, pl.DataFrame, Callable[[Path, Recommender], Any]]] = [
        ("histories", met, check_histories), ("new-items", fresh, check_new), ("exclude", left_out, check_filter)
    ]  # fmt: skip
    for name, table, use in kinds:
        for kind in ("csv", "parquet", "jsonl"):
            path = folder / f"{name}.{kind}"
            found.append(Target(path.name, path, (written(table, kind),), lambda path, use=use: use(path, chosen)))
    for name, examples in REQUESTS.items():
        path = folder / f"{name}.request"
        found.append(Target(f"POST {name}", path, examples, lambda path, name=name: ask(folder / "run", name, path)))
    return found


def catalog_of(split: Split) -> pl.DataFrame:
    """A catalog with a number and a group for each item."""
    numbers = np.arange(split.n_items)
    return pl.DataFrame({"item_id": split.item_ids, "seats": 3 + numbers, "seller": np.where(numbers % 2, "a", "b")})


def check_rules(path: Path, shop: pl.DataFrame, chosen: Recommender) -> None:
    """Read rules and work out what they mean for the data; no bound is below nothing."""
    rules = read_rules(path, None).model_copy(update={"catalog": shop})
    bound = bound_to(rules, chosen.split, TrainConfig(k=3))
    assert (bound.low >= 0).all()
    assert (bound.high >= 0).all()


def check_shop(path: Path, chosen: Recommender) -> None:
    """The same of a catalog that rules look into."""
    rules = read_rules(path.with_name("rules.toml"), path)
    with naming(path):
        bound_to(rules, chosen.split, TrainConfig(k=3))


def check_histories(path: Path, chosen: Recommender) -> None:
    """Lists of people who were not in training, none of which holds what they have met."""
    people = read_histories(path, chosen.split.train)
    lists = chosen.lists(k=3, histories=people)
    assert len(lists.items) == len(people)
    rows, items = people.met.nonzero()
    assert not (lists.items[rows] == items[:, None]).any()


def check_new(path: Path, chosen: Recommender) -> None:
    """Lists of a catalog with new items."""
    with naming(path):
        lists = chosen.with_items(read_table(path)).lists(k=3)
    assert lists.n_items > chosen.split.n_items


def check_filter(path: Path, chosen: Recommender) -> None:
    """Read a file of items, or of pairs, that are left out."""
    with naming(path):
        blocked = Filters(chosen.split.item_ids, chosen.split.user_ids).blocked(path)
    assert len(blocked.items) == chosen.split.n_items


@cache
def service(run: Path) -> Any:
    """A client of a service of a copy of a run, in this process; closed by nobody, since it lasts as long as this."""
    from starlette.testclient import TestClient

    from divmf.serve.http import create_app, open_live
    from divmf.serve.settings import ServeSettings

    own = Path(tempfile.mkdtemp(dir=run.parent)) / "run"
    shutil.copytree(run, own)
    settings = ServeSettings(run=own, rate=0, catalog=run.parent / "shop.csv")
    app = create_app(open_live(settings), settings)
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)


def ask(run: Path, name: str, path: Path) -> None:
    """Send a request; an answer is a page or a problem document, whose status is that of a client's mistake."""
    answer = service(run).post(f"/{name}", content=path.read_bytes(), headers={"content-type": "application/json"})
    told = answer.json()
    if answer.status_code == 200:
        return
    assert 400 <= answer.status_code < 500, f"{answer.status_code}: {answer.text}"
    assert told["status"] == answer.status_code
    assert answer.headers["content-type"] == "application/problem+json"
    raise ValueError(f"{path.name}: {' '.join(str(told['detail']).split())}")
