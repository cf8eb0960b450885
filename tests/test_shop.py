"""Rules from the outside: training, diversifying, reranking and recommending keep them; wrong ones write nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import divmf
from divmf import Rules
from divmf.data.datasets import marketplace
from divmf.data.synthetic import shop_of
from divmf.market.binding import bind
from divmf.market.bound import Shop
from divmf.reports.rules import rules_section
from divmf.rerank import METHODS

K = 3
CATALOG = pl.DataFrame(
    {
        "item_id": [f"i{number:05d}" for number in range(40)],
        "seller": [f"s{number % 8}" for number in range(40)],
        "seats": [12 + number % 5 for number in range(40)],
        "sold_out": [number in (3, 17) for number in range(40)],
    }
)
GIVEN: dict[str, Any] = {
    "capacity": {"column": "seats"},
    "groups": {"seller": {"floor": 18, "per_list": 1}},
    "filter": {"exclude": "sold_out"},
}
TOML = """
[capacity]
column = "seats"
[groups.seller]
floor = 18
per_list = 1
[filter]
exclude = "sold_out"
"""


@pytest.fixture(scope="module")
def split() -> divmf.Split:
    return marketplace(60, 40, 700, seed=1).leave_one_out(0)


def check(lists: pl.DataFrame) -> None:
    """All rules of GIVEN, counted from the lists as anybody would."""
    listed = lists.join(CATALOG, on="item_id")
    assert len(listed) == 60 * K
    shown = listed.group_by("item_id", "seats").len()
    assert (shown["len"] <= shown["seats"]).all()
    assert not listed["sold_out"].any()
    assert listed.group_by("user_id", "seller").len()["len"].max() == 1
    sellers = listed.group_by("seller").len()
    assert len(sellers) == 8
    assert sellers["len"].min() >= 18  # type: ignore[operator]


def test_every_point_of_a_curve_keeps_the_rules(split: divmf.Split, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(split.n_users, 3)), rng.normal(size=(split.n_items, 3))
    rules = Rules(**GIVEN, catalog=CATALOG)
    model = divmf.diversify(*factors, split, k=K, diversity_epochs=3, rules=rules, run=tmp_path / "run")
    assert model.curve.base.knob == 0
    assert model.curve.without_rules.phase == "accuracy"
    for point in model.curve.operating:
        for seen in ("train", "train+valid", "all"):
            check(model.at(rho=point.knob).recommend_frame(seen=seen))
    chosen = model.at(ndcg_drop=0.5)
    longer = chosen.recommend_frame(k=K + 4)
    assert not set(longer["item_id"]) & {"i00003", "i00017"}
    chosen.save(tmp_path / "saved")
    check(divmf.load(tmp_path / "saved").recommend_frame())
    opened = divmf.DivMF.load(tmp_path / "run")
    assert opened.run.read_rules() is not None
    assert opened.run.read_rules().digest == model.run.read_rules().digest  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="other rules"):
        divmf.diversify(*factors, split, k=K, diversity_epochs=3, run=tmp_path / "run")


def test_given_lists_keep_the_rules_and_methods_that_cannot_say_so(split: divmf.Split) -> None:
    rng = np.random.default_rng(0)
    wide = divmf.TopK.from_factors(rng.normal(size=(60, 3)), rng.normal(size=(40, 3)), split.train, width=40)
    rules = Rules(**GIVEN, catalog=CATALOG)
    check(divmf.rerank.market(wide, K, rho=0.0, rules=rules).frame)
    check(divmf.rerank.market(wide, K, rho=0.5, rules=rules).frame)
    check(divmf.rerank.market(wide, K, replace=0.6, rules=rules).frame)
    with pytest.raises(ValueError, match="kwon cannot keep rules; these can: market"):
        METHODS["kwon"].run(wide, K, rules=rules)


def test_the_commands_keep_the_rules_and_say_what_they_cost(divmf: Any, tmp_path: Path) -> None:
    marketplace(60, 40, 700, seed=1).frame.write_parquet(tmp_path / "data.parquet")
    CATALOG.write_parquet(tmp_path / "items.parquet")
    (tmp_path / "rules.toml").write_text(TOML)
    flags = ["--rules", tmp_path / "rules.toml", "--catalog", tmp_path / "items.parquet"]
    few = ["--k", K, "--model", "ease", "--diversity-epochs", 2]
    done = divmf("train", tmp_path / "data.parquet", "-o", tmp_path / "run", *few, *flags, "--json")
    assert done.code == 0, done.err
    assert done.json["rules"]["unmet"] == done.json["rules"]["over"] == done.json["rules"]["lists_broken"] == 0
    assert done.json["rules"]["ndcg_with"] == done.json["base"]["test"]["ndcg"]
    said = divmf("curve", tmp_path / "run", "--all").out.splitlines()
    model, ruled = (next(line.split() for line in said if name in line) for name in ("ease, the model", "ease under"))
    assert (model[0], ruled[0]) == ("–", "0")  # the model keeps no rules, so it cannot be picked
    assert float(model[-5]) == pytest.approx(done.json["rules"]["ndcg_without"], abs=1e-4)
    assert float(ruled[-5]) == pytest.approx(done.json["rules"]["ndcg_with"], abs=1e-4)
    divmf("recommend", tmp_path / "run", "-o", tmp_path / "a.parquet", "--seen", "all")
    check(pl.read_parquet(tmp_path / "a.parquet"))
    divmf("train", tmp_path / "data.parquet", "-o", tmp_path / "plain", *few)
    done = divmf("recommend", tmp_path / "plain", "-o", tmp_path / "b.parquet", *flags, "--json")
    assert done.code == 0, done.err
    assert done.json["rules"]["unmet"] == 0
    check(pl.read_parquet(tmp_path / "b.parquet"))
    divmf("recommend", tmp_path / "plain", "-o", tmp_path / "wide.parquet", "--k", 38)
    done = divmf("rerank", tmp_path / "wide.parquet", "-o", tmp_path / "c.parquet", "--k", K, *flags)
    assert "0 not met" in done.out
    check(pl.read_parquet(tmp_path / "c.parquet"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[capacity]\ncolumn = 'chairs'", "'chairs'"),
        ("[groups.seller]\nfloor = '20%'", "160%"),
        ("[filter]\nexclude = 'seats > 0'", "none of 40"),
        ("[capacity]\ncount = 2", "80 showings"),
        ("[capacity]\ncount = ", "not TOML"),
    ],
)
def test_wrong_rules_are_one_line_and_write_nothing(divmf: Any, tmp_path: Path, text: str, says: str) -> None:
    marketplace(60, 40, 700, seed=1).frame.write_parquet(tmp_path / "data.parquet")
    CATALOG.write_parquet(tmp_path / "items.parquet")
    (tmp_path / "rules.toml").write_text(text)
    flags = ["--rules", tmp_path / "rules.toml", "--catalog", tmp_path / "items.parquet", "-q"]
    done = divmf("train", tmp_path / "data.parquet", "-o", tmp_path / "run", *flags)
    assert done.code == 2
    assert says in done.err
    assert "rules.toml" in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_section_says_which_bounds_lists_break_without_rules_and_with_them(split: divmf.Split) -> None:
    items = split.item_ids
    catalog = pl.DataFrame({"item_id": items, "seats": [3] * 2 + [200] * (len(items) - 2)})
    rules = divmf.Rules(capacity={"column": "seats"}, catalog=catalog)
    shop = Shop(items, split.user_ids, split.known, False, 2, split.train.popularity)
    same, apart = np.zeros((60, 2), dtype=np.int32), 2 + np.arange(120, dtype=np.int32).reshape(60, 2) % 38
    same[:, 1] = 1  # items 0 and 1 are in 60 lists each, and have three seats
    section = rules_section(bind(rules, shop), same, apart, {"without": 0.2, "with": 0.1}, "Few seats.")
    assert f"break 2 of {len(items):,} bounds; those made with them break 0" in section.prose[0]
    assert "0.2000 without and 0.1000 with the rules (−50.0%)" in section.prose[0]
    assert [row[3:] for row in section.tables[0].rows[:2]] == [[60, 0], [60, 0]]


def test_a_synthetic_shop_has_sellers_and_seats_for_every_item() -> None:
    data = divmf.datasets.marketplace(users=60, items=40, interactions=900, seed=3)
    shop = shop_of(data, seed=1)
    assert shop["item_id"].to_list() == data.item_ids.to_list()
    assert shop["seats"].min() >= 20
    assert shop["seats"].max() <= 120
    assert shop.equals(shop_of(data, seed=1))
    assert not shop.equals(shop_of(data, seed=2))


@pytest.mark.parametrize("seed", [0, 1])
def test_lists_are_full_where_others_have_to_make_room(seed: int) -> None:
    # a hundred lists and more were short: those who could make room were not among the users looked at
    rng = np.random.default_rng(seed)
    n_lists, n_items, width, most = 3000, 250, 8, 75
    scores = rng.gumbel(size=(n_lists, n_items)) - 1.2 * np.log(np.arange(n_items) + 2)
    items = np.argsort(-scores, axis=1)[:, :width].astype(np.int32)
    wide = divmf.TopK(
        items, np.take_along_axis(scores, items, 1).astype(np.float32),
        pl.Series("user_id", np.arange(n_lists)), pl.Series("item_id", np.arange(n_items)),
    )  # fmt: skip
    made = divmf.rerank.market(wide, K, rho=0.1, rules=Rules(capacity={"count": most}))
    assert made.counts.max() <= most
    assert (made.items >= 0).all()
