import bz2
import gzip
import json
import logging
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from divmf.data.interactions import Interactions
from divmf.data.tables import (
    check_writable,
    epinions_ratings,
    find_column,
    gowalla_checkins,
    movielens_dat,
    movielens_tab,
    read_table,
    to_polars,
    yelp_reviews,
)

PACK = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}


def written(frame: pl.DataFrame, path: Path) -> Path:
    """The frame in the kind of file that the name asks for."""
    kind = path.name.removesuffix(".gz").removesuffix(".bz2").rpartition(".")[2]
    plain = path.with_name("plain")
    if kind == "parquet":
        frame.write_parquet(plain)
    elif kind == "jsonl":
        frame.write_ndjson(plain)
    else:
        frame.write_csv(plain, separator="\t" if kind == "tsv" else ",")
    path.write_bytes(PACK[path.suffix if path.suffix in PACK else ""](plain.read_bytes()))
    return path


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "jsonl"])
def test_every_kind_of_file_gives_the_same_interactions(kind, packing, small_log, tmp_path):
    found = Interactions.read(written(small_log, tmp_path / f"log.{kind}{packing}"))
    meant = Interactions.from_frame(small_log)
    assert_frame_equal(found.frame, meant.frame)
    assert found.merged == meant.merged == 1


def test_a_folder_of_parquet_parts_is_one_table(small_log, tmp_path):
    small_log[:5].write_parquet(tmp_path / "part-0.parquet")
    small_log[5:].write_parquet(tmp_path / "part-1.parquet")
    assert_frame_equal(read_table(tmp_path), small_log)


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["1", "-2", "30"], [1, -2, 30]),
        (["0", "10"], [0, 10]),
        (["1", "2.5"], [1.0, 2.5]),
        (["0.5", "1e3"], [0.5, 1000.0]),
        (["007", "7"], ["007", "7"]),  # were one user when read as numbers
        (["9223372036854775807"], [9223372036854775807]),
        (["99999999999999999999"], ["99999999999999999999"]),  # would lose its last digits as a decimal
        (["1", "B00X"], ["1", "B00X"]),
    ],
)
def test_a_csv_column_holds_numbers_only_where_that_loses_nothing(texts, values, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["user_id,item_id", *(f"{text},x" for text in texts)]))
    assert read_table(path)["user_id"].to_list() == values


def test_the_first_letter_may_come_late_in_a_csv_column(tmp_path):
    # polars looked at the first 10,000 rows, took the ids for integers and failed at the first letter
    ids = [*map(str, range(20_000)), "A1"]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["user_id,item_id", *(f"{name},1" for name in ids)]))
    assert read_table(path)["user_id"].to_list() == ids


def test_a_json_field_may_come_late(tmp_path):
    path = tmp_path / "log.jsonl"
    late = {"user_id": 1, "item_id": 2, "time": 3}
    path.write_text("\n".join([*['{"user_id": 1, "item_id": 2}'] * 200, json.dumps(late)]))
    assert read_table(path)["time"].drop_nulls().to_list() == [3]


@pytest.mark.parametrize(
    ("columns", "role", "found"),
    [
        (["userId", "movieId", "rating", "timestamp"], "item", "movieId"),
        (["User_ID", "ITEM", "Date"], "user", "User_ID"),
        (["User_ID", "ITEM", "Date"], "time", "Date"),
        (["item", "item_id", "uid"], "item", "item_id"),
        (["visitorid", "asin", "score"], "time", None),
    ],
)
def test_columns_are_found_by_their_usual_names(columns, role, found):
    assert find_column(pl.DataFrame(schema=columns), role, required=False) == found


def test_a_named_column_goes_before_a_usual_one():
    assert find_column(pl.DataFrame(schema=["user_id", "buyer", "item_id"]), "user", "buyer") == "buyer"


BAD_FILES = {
    "empty.csv": ("", "is empty; an interaction log needs"),
    "blank.csv": ("\n", "is empty"),
    "header.csv": ("user_id,item_id\n", "there are no rows"),
    "header.csv.gz": ("", "is empty"),
    "tabs.csv": ("user_id\titem_id\n1\t2\n", r"no column looks like the user .*is the separator right .comma in .csv"),
    "commas.tsv": ("user_id,item_id\n1,2\n", "is the separator right"),
    "bare.csv": ("1,1193,5\n1,661,3\n", "the first line must hold the names"),
    "names.csv": ("who,what\n1,2\n", r"no column looks like the user .*among 'who', 'what'; call it user_id, or say"),
    "ragged.csv": ("user_id,item_id\n1,2\n1,2,3\n", "could not be read as csv: found more fields"),
    "no-user.csv": ("user_id,item_id\n1,2\n,3\n", "column 'user_id' has 1 empty ids of 2"),
    "no-item.jsonl": ('{"user": 1, "sku": "a"}\n{"user": 1, "sku": null}\n', "column 'sku' has 1 empty ids of 2"),
    "short.csv": ("user_id,item_id\n1,2\n1\n", "column 'item_id' has 1 empty ids of 2"),
    "decimal.csv": ("user_id,item_id\n1.0,2\n", r"column 'user_id' holds Float64 .such as 1.0"),
    "time.csv": ("user_id,item_id,time\n1,2,2020-01-01\n1,3,soon\n", "'time' has 1 values that are not times"),
    "no-time.csv": ("user_id,item_id,time\n1,2,5\n1,3,\n", "column 'time' has 1 empty times of 2"),
    "list.json": ('[{"user_id": 1, "item_id": 2}]', "could not be read as json"),
    "prose.jsonl": ("hello\n", "could not be read as json"),
    "fake.parquet": ("user_id,item_id\n1,2\n", "could not be read as parquet"),
    "log.xlsx": ("x", r"unknown kind of file; use one of .csv, .tsv"),
    "log": ("x", "unknown kind of file"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_gives_one_line_that_names_it(name, tmp_path):
    text, message = BAD_FILES[name]
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    with pytest.raises(ValueError, match=message) as caught:
        Interactions.read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["log.csv.gz", "log.csv.bz2"])
def test_a_packed_file_that_is_cut_off_is_refused(name, tmp_path):
    whole = PACK[Path(name).suffix](b"user_id,item_id\n" + b"1,2\n" * 1000)
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=f"{name} could not be read as csv"):
        Interactions.read(tmp_path / name)


def test_a_missing_file_and_a_folder_without_data_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere.csv: there is no such file"):
        Interactions.read(tmp_path / "nowhere.csv")
    with pytest.raises(ValueError, match="is a folder without parquet files"):
        Interactions.read(tmp_path)


def test_a_missing_column_is_named_with_those_there_are(small_log):
    with pytest.raises(ValueError, match="there is no column 'sku'; the columns are 'user_id', 'item_id', 'timestamp'"):
        Interactions.from_frame(small_log, item="sku")


def test_frames_of_other_libraries_are_taken(small_log):
    pandas = small_log.to_pandas()
    for frame in (small_log.lazy(), pandas, small_log.to_arrow()):
        assert_frame_equal(to_polars(frame), small_log)
    kept = pandas[pandas.user_id != "bob"]  # its index has gaps
    assert to_polars(kept).columns == small_log.columns
    with pytest.raises(ValueError, match="a list is not a frame; give a polars, pandas or Arrow table"):
        to_polars([(1, 2)])


def test_movielens_dat_lines_are_read():
    frame = movielens_dat(b"1::122::5::838985046\n1::185::4.5::838983525\n")
    assert frame.rows() == [(1, 122, 838985046), (1, 185, 838983525)]
    assert frame.columns == ["user_id", "item_id", "timestamp"]


def test_the_true_lines_of_movielens_10m_are_read(real):
    path = real("raw/ml-10m.ratings.sample.dat")
    lines = [line.split("::") for line in path.read_text().splitlines()]
    assert movielens_dat(path).rows() == [(int(user), int(item), int(time)) for user, item, _, time in lines]
    assert len(lines) == 220


def test_movielens_tab_and_csv_are_read(tmp_path):
    assert movielens_tab(b"196\t242\t3\t881250949\n").rows() == [(196, 242, 881250949)]
    path = tmp_path / "ratings.csv"
    path.write_text("userId,movieId,rating,timestamp\n1,296,5.0,1147880044\n1,306,3.5,1147868817\n")
    assert Interactions.read(path).frame.rows() == [(1, 306, 1147868817), (1, 296, 1147880044)]


def test_gowalla_check_ins_are_read():
    lines = (
        b"0\t2010-10-19T23:55:27Z\t30.2359091167\t-97.7951395833\t22847\n"
        b"0\t2010-10-18T22:17:43Z\t30.2691029532\t-97.7493953705\t420315\n"
    )
    frame = gowalla_checkins(lines)
    assert frame.select("user_id", "item_id", "timestamp").rows() == [(0, 22847, 1287532527), (0, 420315, 1287440263)]


def test_epinions_lines_without_three_fields_are_dropped_and_counted(caplog):
    lines = b"23 387 5\n23 388 4 extra\n\nnonsense\n24 387 1\r\n24  9 5\n25 1"
    with caplog.at_level(logging.WARNING):
        assert epinions_ratings(lines).rows() == [(23, 387), (24, 387), (24, 9)]
    assert "dropped 4 of 7 lines" in caplog.text


def test_yelp_reviews_are_read_whatever_their_text_holds():
    text = 'he said "user_id": "nobody",\nthen \\ left {"date": "1999-01-01 00:00:00"} é 🍜'
    review = {
        "review_id": "r" * 22, "user_id": "u" * 22, "business_id": "b" * 22, "stars": 4.0, "useful": 1, "funny": 0,
        "cool": 0, "text": text, "date": "2012-01-03 15:28:18",
    }  # fmt: skip
    other = dict(reversed(review.items())) | {"user_id": "-_xyz0123456789abcdefgh"}
    lines = "\n".join([json.dumps(review), json.dumps(other, ensure_ascii=False)]).encode()
    frame = yelp_reviews(lines)
    assert frame.rows() == [
        ("u" * 22, "b" * 22, 1325604498),
        ("-_xyz0123456789abcdefgh", "b" * 22, 1325604498),
    ]


@pytest.mark.parametrize("name", ["a[1]", "b*", "c?{d}"])
@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "jsonl", "csv.gz"])
def test_a_path_that_looks_like_a_pattern_is_a_path(kind, name, small_log, tmp_path):
    folder = tmp_path / name
    folder.mkdir()
    assert_frame_equal(read_table(written(small_log, folder / f"{name}.{kind}")), small_log)
    if kind == "parquet":
        assert_frame_equal(read_table(folder), small_log)
        path = folder / "ratings[1].dat"
        path.write_bytes(b"1::122::5::838985046\n")
        assert movielens_dat(path).rows() == [(1, 122, 838985046)]
        path.write_text('{"user_id": "u", "business_id": "b", "date": "2012-01-03 15:28:18"}\n')
        assert yelp_reviews(path).rows() == [("u", "b", 1325604498)]


def test_an_output_of_an_unknown_kind_is_not_told_of_packed_kinds(tmp_path):
    with pytest.raises(ValueError, match=r"unknown kind of file; use one of .csv, .*\.json$"):
        check_writable(tmp_path / "lists.xlsx")
    with pytest.raises(ValueError, match="lists are written plain"):
        check_writable(tmp_path / "lists.csv.gz")


@pytest.mark.parametrize("values", [[1, "a"], ["a", 1]])
def test_a_pandas_column_of_mixed_types_is_named(values):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"user": ["u", "v"], "item": pandas.Series(values, dtype=object)})
    with pytest.raises(ValueError, match=r"column 'item' cannot be read: .*; make its values all strings") as caught:
        to_polars(frame)
    assert "\n" not in str(caught.value)


def test_a_frame_that_needs_pyarrow_to_be_read_says_what_to_install():
    class Frame:
        """As a pandas frame is where pyarrow is not."""

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            raise ImportError("`Import pyarrow` failed.")

    with pytest.raises(ValueError, match="install it with pip install pyarrow"):
        to_polars(Frame())
