"""Odd columns, names and terminals: each is an error of one line that names the file, or right; nothing is silent."""

import json
import os
import subprocess
import sys
import zipfile
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import divmf as package
from divmf.data.datasets import open_data
from divmf.data.interactions import Interactions
from divmf.data.tables import as_numbers, read_catalog, write_table
from divmf.engine.masking import printable
from divmf.estimator import DivMF, load
from divmf.ranking.lists import TopK

PAIRS = pl.DataFrame({"user_id": ["a", "a", "a", "b", "b", "b"], "item_id": ["x", "y", "z", "x", "y", "z"]})
ODD_SCORES = {
    "struct": pl.struct(a=pl.lit(1)), "list": pl.concat_list(pl.lit(1)), "binary": pl.lit(b"1"),
    "date": pl.lit(date(2020, 1, 1)), "words": pl.lit("high"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ODD_SCORES)
def test_scores_that_are_no_numbers_are_refused(kind: str, tmp_path: Path, divmf: Any) -> None:
    # a struct was an unexpected error, and a date counted as the number of its day
    PAIRS.with_columns(score=ODD_SCORES[kind]).write_parquet(tmp_path / "lists.parquet")
    PAIRS.write_parquet(tmp_path / "test.parquet")
    files = ["--test", tmp_path / "test.parquet", "--catalog", tmp_path / "test.parquet"]
    done = divmf("evaluate", tmp_path / "lists.parquet", *files)
    assert done.code == 2
    assert f"{tmp_path}/lists.parquet: column 'score' must hold numbers" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("kind", ["struct", "list", "binary"])
def test_titles_that_are_no_text_are_refused(kind: str, tmp_path: Path, divmf: Any) -> None:
    PAIRS.with_columns(score=1.0).write_parquet(tmp_path / "lists.parquet")
    PAIRS.with_columns(title=ODD_SCORES[kind]).write_parquet(tmp_path / "catalog.parquet")
    done = divmf(
        "audit", tmp_path / "lists.parquet", "--catalog", tmp_path / "catalog.parquet", "-o", tmp_path / "a.html"
    )
    assert done.code == 2
    assert "catalog.parquet: column 'title' holds" in done.err
    assert not (tmp_path / "a.html").exists()


@pytest.mark.parametrize(
    "times", [pl.lit(9 * 10**18).cast(pl.Datetime("ms")), pl.lit(2**31 - 1).cast(pl.Int32).cast(pl.Date)]
)
def test_times_beyond_all_times_are_an_error_and_no_panic(times: pl.Expr, tmp_path: Path, divmf: Any) -> None:
    # polars panicked, with 85 lines
    PAIRS.with_columns(timestamp=times).write_parquet(tmp_path / "log.parquet")
    done = divmf("data", "describe", tmp_path / "log.parquet")
    assert done.code == 2
    assert "column 'timestamp' has 6 impossible times of 6" in done.err


def test_a_panic_that_nobody_foresaw_is_one_line(divmf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    panic: Any = type("PanicException", (BaseException,), {})

    def open_data(*_: Any) -> None:
        raise panic("index out of range\nand eighty lines")

    monkeypatch.setattr("divmf.data.datasets.open_data", open_data)
    done = divmf("data", "describe", "synthetic")
    assert done.code == 1
    assert done.err == "divmf: polars cannot work on this: index out of range; check the types of the columns\n"


@pytest.mark.parametrize(
    ("texts", "kept"),
    [
        (["1", "+1"], ["1", "+1"]),
        (["0", "-0"], ["0", "-0"]),
        (["0", "-00"], ["0", "-00"]),
        (["1", "-1"], [1, -1]),
        (["1.5", "-0.5"], [1.5, -0.5]),
        (["7", "007"], ["7", "007"]),
    ],
)
def test_ids_that_are_written_differently_stay_apart(texts: list[str], kept: list[Any]) -> None:
    assert as_numbers(pl.Series(texts)).to_list() == kept


def test_seconds_and_milliseconds_in_one_column_are_refused(tmp_path: Path) -> None:
    # the latest interactions were those in milliseconds, whenever they were
    for kind in (int, float):
        times = [kind(1_600_000_000), kind(1_700_000_000_000)] * 3
        PAIRS.with_columns(timestamp=pl.Series(times)).write_csv(tmp_path / "log.csv")
        PAIRS.with_columns(timestamp=pl.Series(times)).write_parquet(tmp_path / "log.parquet")
        for name in ("log.csv", "log.parquet"):
            with pytest.raises(ValueError, match=r"holds 3 times in seconds and 3 in milliseconds or finer; write all"):
                Interactions.read(tmp_path / name)
    for fine in ([0, 1_700_000_000_000], [5, 10**9], [10**12, 10**18]):  # missing ones, counts, one unit
        log = PAIRS.with_columns(timestamp=pl.Series(fine * 3))
        assert len(Interactions.from_frame(log)) == 6


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user_id,item_id,user_id\n1,2,3\n")
    with pytest.raises(ValueError, match=r"log\.csv.*column 'user_id' stands there twice"):
        Interactions.read(tmp_path / "log.csv")
    with pytest.raises(ValueError, match="the columns 'User_id' and 'user_id' both look like the user"):
        Interactions.from_frame(pl.DataFrame({"User_id": [1], "user_id": [2], "item_id": [3]}))


def test_arrays_and_factors_that_are_no_lists_are_refused(split: Any) -> None:
    with pytest.raises(ValueError, match="items holds float64; give the numbers of items, which are integers"):
        TopK.from_arrays(np.array([[0.9, 1.2]]), np.ones((1, 2)), ["a"], ["x", "y"])
    users, items = np.ones((split.n_users, 2)), np.ones((split.n_items, 2))
    for name, wrong in (("user_factors", (users * np.nan, items)), ("item_factors", (users, items * np.inf))):
        with pytest.raises(ValueError, match=f"{name} holds NaN or infinite numbers"):
            TopK.from_factors(*wrong, split.train)


def test_training_data_with_ids_of_another_type_is_refused(tmp_path: Path, divmf: Any) -> None:
    PAIRS.with_columns(score=1.0).write_parquet(tmp_path / "wide.parquet")
    train = pl.DataFrame({"user_id": [1, 2], "item_id": [1, 2]})
    train.write_parquet(tmp_path / "train.parquet")
    for method in ("bayes_rule", "popcon", "xquad", "fairmatch"):
        done = divmf("rerank", tmp_path / "wide.parquet", "--method", method, "--train", tmp_path / "train.parquet",
                     "--k", 1, "-o", tmp_path / "out.csv")  # fmt: skip
        assert (method, done.code) == (method, 2)


@pytest.mark.parametrize("wanted", ["100000", "1025", "99999999999999999999"])
def test_more_threads_than_a_machine_has_are_refused(wanted: str) -> None:
    # a segmentation fault
    done = subprocess.run(
        [sys.executable, "-m", "divmf", "train", "synthetic:60x40x900", "-o", "x"],
        env=os.environ | {"DIVMF_THREADS": wanted}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert f"DIVMF_THREADS={wanted} is more than a machine can run; give 1 to 1024" in done.stderr


def test_a_terminal_that_knows_no_greek_is_no_error(finished_run: Path) -> None:
    command = [sys.executable, "-m", "divmf", "curve", str(finished_run)]
    plain = os.environ | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    for flags in ([], ["--json"]):
        done = subprocess.run([*command, *flags], env=plain, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        text = done.stdout.decode("ascii")
        assert len(json.loads(text) if flags else text) > 4


def test_a_name_does_not_steer_the_terminal(divmf: Any, tmp_path: Path) -> None:
    hostile = f"{tmp_path}/\x1b[2J\x1b]0;mine\x07.csv"
    done = divmf("data", "describe", hostile)
    assert done.code == 2
    assert "\x1b" not in done.err
    assert "\x07" not in done.err
    assert r"\x1b[2J" in done.err
    assert printable("two lines\n\tof ρ") == "two lines\n\tof ρ"


def test_titles_are_no_formulas_and_ids_stay_as_they_are(tmp_path: Path) -> None:
    table = pl.DataFrame({"item_id": ["=1+1", "-5"], "title": ["=HYPERLINK(1)", None], "lists": [-1, 2]})
    write_table(table, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "item_id,title,lists\n=1+1,'=HYPERLINK(1),-1\n-5,,2\n"
    write_table(table, tmp_path / "t.parquet")
    assert pl.read_parquet(tmp_path / "t.parquet").equals(table)


def test_one_user_is_not_the_letters_of_its_id(finished_run: Path) -> None:
    model = load(finished_run)
    with pytest.raises(ValueError, match=r"users='C-1' is one id; give a list of them, \['C-1'\]"):
        model.recommend("C-1")


def test_what_was_not_fitted_says_so() -> None:
    for call in (lambda m: m.at(ndcg_drop=0.05), lambda m: m.recommend(["a"]), lambda m: m.curve):
        with pytest.raises(ValueError, match="was not fitted yet; call fit"):
            call(DivMF())
    assert package.DivMF is DivMF


# found by `make fuzz`


def test_times_of_more_than_64_bits_are_refused(tmp_path: Path) -> None:
    # polars' InvalidOperationError came through
    path = tmp_path / "log.jsonl"
    path.write_text('{"user_id": 1, "item_id": 2, "timestamp": -1000000000000000000000000000000}\n')
    with pytest.raises(ValueError, match=r"log\.jsonl: column 'timestamp' has 1 impossible times of 1"):
        Interactions.read(path)


def test_an_id_of_more_than_64_bits_is_no_line_of_movies(tmp_path: Path) -> None:
    # polars' ComputeError came through
    path = tmp_path / "movies.dat"
    path.write_bytes(b"1::Tea::x\n9223372036854775808::Jam::y\n")
    assert read_catalog(path)[1] == {1: "Tea"}


def test_a_panic_on_a_parquet_file_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a changed length inside the file was a PanicException, which no `except Exception` sees
    class PanicException(BaseException):
        pass

    def panic(*_: Any, **__: Any) -> None:
        raise PanicException("assertion failed: offset + length <= self.length")

    path = tmp_path / "x.parquet"
    pl.DataFrame({"user_id": [1], "item_id": [2], "score": [3.0]}).write_parquet(path)
    monkeypatch.setattr(pl, "scan_parquet", panic)
    monkeypatch.setattr(pl, "read_parquet", panic)
    for read in (Interactions.read, TopK.read, read_catalog):
        with pytest.raises(ValueError, match=r"x\.parquet:? could not be read as parquet: assertion failed"):
            read(path)


@pytest.mark.parametrize(("place", "value", "said"), [(6, b"\x01", "encrypted"), (4, b"\x6e", "zip file version 11.0")])
def test_an_archive_that_cannot_be_unpacked_is_named(place: int, value: bytes, said: str, tmp_path: Path) -> None:
    # NotImplementedError, RuntimeError
    path = tmp_path / "ml-100k.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ml-100k/u.data", "1\t2\t3\t4\n")
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02") + place + 2
    data[at : at + 1] = value
    data[place : place + 1] = value
    path.write_bytes(data)
    with pytest.raises(ValueError, match=rf"ml-100k\.zip is not the MovieLens-100K file it should be: .*{said}"):
        open_data(str(path))


def test_a_picked_point_that_was_never_made_is_named(run_folder: Path, divmf: Any) -> None:
    # the weights of another point were blamed
    path = run_folder / "picked.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"epoch": 99, "phase": "diversity"}))
    done = divmf("recommend", run_folder, "-o", run_folder.parent / "x.csv")
    assert done.code == 2
    assert "picked.json is damaged" in done.err
    assert "is not among the points of epochs.jsonl); run `divmf pick" in done.err


def test_commands_report_one_coverage_for_one_file(divmf: Any, tmp_path: Path) -> None:
    # lists of different lengths, not in order, longer than k; of two users of the test one has no list
    rng = np.random.default_rng(0)
    rows = [
        (f"u{user}", f"i{item}", float(rng.random())) for user in range(4) for item in rng.permutation(9)[: 3 + user]
    ]
    lists, later, items = tmp_path / "lists.csv", tmp_path / "later.csv", tmp_path / "items.csv"
    table = pl.DataFrame(rows, schema=["user_id", "item_id", "score"], orient="row")
    table.sample(fraction=1.0, shuffle=True, seed=1).write_csv(lists)
    pl.DataFrame({"user_id": ["u0", "u9"], "item_id": ["i3", "i4"]}).write_csv(later)
    pl.DataFrame({"item_id": [f"i{item}" for item in range(12)]}).write_csv(items)
    best = table.sort("score", descending=True).group_by("user_id").head(2)["item_id"]
    expected = best.n_unique() / 12
    shared = ["--catalog", items, "-k", 2, "--json"]
    evaluated = divmf("evaluate", lists, "--test", later, *shared).json
    audited = divmf("audit", lists, "-o", tmp_path / "a.html", "--budget", 0, *shared).json
    tested = divmf("audit", lists, "--test", later, "-o", tmp_path / "b.html", "--budget", 0, *shared).json
    reranked = divmf("rerank", lists, "-o", tmp_path / "c.csv", *shared).json
    neutral = divmf("rerank", lists, "--rho", 0, "-o", tmp_path / "d.csv", *shared).json
    found = [evaluated["coverage"], audited["coverage"], tested["coverage"], reranked["before"]["coverage"]]
    assert found == [expected] * 4
    assert neutral["coverage"] == expected
    assert divmf("evaluate", tmp_path / "d.csv", "--test", later, *shared).json["coverage"] == expected
    assert evaluated["gini"] == audited["gini"] == tested["gini"] == reranked["before"]["gini"]


def test_the_current_folder_is_read_once_and_not_searched_for_ever(
    divmf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / "work" / "deep"
    (deep / ".hidden").mkdir(parents=True)
    (deep / "loop").symlink_to(tmp_path / "work")
    for number in range(40):
        (deep / ".hidden" / f"{number}.parquet").touch()
    monkeypatch.chdir(tmp_path / "work")

    def refused(says: str) -> None:
        for command in (
            ["train", ".", "-o", tmp_path / "run"],
            ["data", "describe", "."],
            ["train", "./", "-o", "run"],
        ):
            done = divmf(*command)
            assert done.code == 2
            assert says in done.err
            assert done.err.count("\n") == 1
        assert not (tmp_path / "run").exists()

    refused("is a folder without parquet files; name a file, or a folder of parquet parts")
    os.mkfifo("pipe.parquet")  # nobody writes to it
    refused("pipe.parquet is not a file but a pipe")
    Path("pipe.parquet").unlink()
    PAIRS.write_parquet(deep / "part.parquet")
    assert divmf("data", "describe", ".", "--json").json["interactions"] == 6  # once, and nothing of the hidden folder
    monkeypatch.setattr("divmf.data.scans.MOST_NAMES", 20)
    for number in range(20):
        Path(f"{number}.txt").touch()
    refused("holds more than 20 files; name the folder of parquet parts itself")
