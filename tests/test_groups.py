"""Numbers of groups, worked by hand, and by a plain loop."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divmf.ranking.groups import GroupExposure, Groups
from divmf.ranking.metrics import gini

IDS = pl.Series("item_id", ["a", "b", "c", "d"])


def test_numbers_of_sellers_worked_by_hand() -> None:
    catalog = pl.DataFrame({"item_id": IDS, "seller": ["x", "x", "y", "z"]})
    found = GroupExposure(Groups.read(catalog, "seller", IDS), np.array([3, 0, 1, 0]), np.array([1, 1, 4, 2]))
    assert found.showings.tolist() == [3, 1, 0]
    # shares .75 .25 0 against .25 .5 .25 by merit: z has nothing, y exactly half
    assert found.measures == {
        "group_coverage": 2 / 3, "group_gini": pytest.approx(0.75), "worst_off": 0.0, "max_min": 0.0, "starved": 1.0,
    }  # fmt: skip
    frame = found.frame
    assert frame["seller"].to_list() == ["x", "y", "z"]
    assert frame["coverage"].to_list() == [0.5, 1.0, 0.0]
    assert frame["gini"].to_list() == [1.0, 0.0, 0.0]
    assert frame["starved"].to_list() == [False, False, True]
    assert found.document()["most_starved"] == ["z"]


def test_an_item_counts_in_each_of_its_genres() -> None:
    catalog = pl.DataFrame({"item_id": IDS, "genres": [["s", "t"], ["t"], [], None]})
    found = GroupExposure(Groups.read(catalog, "genres", IDS), np.array([2, 1, 5, 0]))
    assert found.groups.names == ["s", "t"]
    assert found.showings.tolist() == [2, 3]
    assert found.measures["worst_off"] == 2 / 8
    assert found.measures["max_min"] == 2 / 3
    assert found.merit.tolist() == [0.25, 0.5]  # by items


@given(seed=st.integers(0, 10**6))
def test_sums_over_groups_are_those_of_a_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    ids, sellers = pl.Series("item_id", list(range(n))), rng.integers(0, 5, n)
    counts = rng.integers(0, 9, n)
    found = GroupExposure(Groups.read(pl.DataFrame({"item_id": ids, "s": sellers}), "s", ids), counts)
    for row in found.frame.iter_rows(named=True):
        own = counts[sellers == row["s"]]
        assert row["showings"] == own.sum()
        assert row["items_shown"] == (own > 0).sum()
        assert row["gini"] == pytest.approx(gini(own))
    assert found.showings.sum() == counts.sum()
    assert found.measures["max_min"] == pytest.approx(found.showings.min() / max(1, found.showings.max()))


def test_unknown_columns_are_named() -> None:
    with pytest.raises(ValueError, match="groups = 'maker'"):
        Groups.read(pl.DataFrame({"item_id": IDS}), "maker", IDS)
    with pytest.raises(ValueError, match="holds nothing"):
        Groups.read(pl.DataFrame({"item_id": IDS, "s": [None] * 4}, schema_overrides={"s": pl.String}), "s", IDS)
