"""--min-rating: only what people liked is an interaction; --by-time on the command line."""

from pathlib import Path

import polars as pl
import pytest

from divmf import Interactions
from divmf.cli.inputs import split_by_time
from divmf.data.datasets import open_data

LOG = pl.DataFrame(
    {"user_id": [1, 1, 1, 2, 2, 3], "item_id": [10, 11, 12, 10, 12, 11], "rating": [5.0, 3.0, 4.0, 2.0, None, 4.5],
     "timestamp": [1, 2, 3, 4, 5, 6]}
)  # fmt: skip
LIKED = [(1, 10), (1, 12), (3, 11)]


def pairs(data: Interactions) -> list[tuple[int, int]]:
    return data.frame.select("user_id", "item_id").rows()


def test_rows_with_a_lower_rating_or_none_are_no_interactions() -> None:
    assert pairs(Interactions.from_frame(LOG, min_rating=4)) == LIKED
    assert len(Interactions.from_frame(LOG)) == 6


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_every_kind_of_file_is_read_so(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"log.{ending}"
    {"csv": LOG.write_csv, "parquet": LOG.write_parquet, "jsonl": LOG.write_ndjson}[ending](path)
    assert pairs(Interactions.read(path, min_rating=4)) == LIKED
    assert pairs(Interactions.read_share(path, min_rating=4)) == LIKED
    assert pairs(open_data(str(path), min_rating=4)) == LIKED


def test_the_rating_column_may_have_any_name() -> None:
    named = LOG.rename({"rating": "how_good"})
    assert pairs(Interactions.from_frame(named, min_rating=4, rating="how_good")) == LIKED
    with pytest.raises(
        ValueError, match=r"no column looks like the rating .* call it rating, or say which it is \(rating=…\)"
    ):
        Interactions.from_frame(named, min_rating=4)
    with pytest.raises(ValueError, match="rating='how_good' is named, but not from which on"):
        Interactions.from_frame(named, rating="how_good")


def test_what_holds_no_ratings_is_said(tmp_path: Path) -> None:
    words = LOG.with_columns(rating=pl.lit("good"))
    with pytest.raises(ValueError, match="column 'rating' holds String, not ratings"):
        Interactions.from_frame(words, min_rating=4)
    words.write_parquet(tmp_path / "log.parquet")
    with pytest.raises(ValueError, match="column 'rating' holds String, not ratings"):
        Interactions.read(tmp_path / "log.parquet", min_rating=4)
    with pytest.raises(ValueError, match="there are no rows"):
        Interactions.from_frame(LOG, min_rating=6)
    with pytest.raises(ValueError, match="synthetic is read without ratings"):
        open_data("synthetic", min_rating=4)


def test_a_known_name_is_read_with_its_ratings_and_cut_to_its_core_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIVMF_DATA", str(tmp_path))
    LOG.write_parquet(tmp_path / "epinions.parquet")
    assert pairs(open_data("epinions", min_rating=4)) == LIKED
    assert pairs(open_data("epinions-1", min_rating=4.5)) == [(1, 10), (3, 11)]


@pytest.mark.parametrize(("text", "held"), [("5", 2), ("34%", 2), ("0.34", 2), ("1970-01-01T00:00:06", 1)])
def test_by_time_is_a_moment_or_a_share(text: str, held: int) -> None:
    data = Interactions.from_frame(pl.DataFrame({"user": [1] * 6, "item": range(6), "time": range(1, 7)}))
    split = split_by_time(data.where(data.times > 0), text)
    whole = len(split.train) + len(split.valid)
    assert whole == 6 - held
