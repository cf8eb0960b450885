"""What a database was opened with stands nowhere in clear text."""

import sqlite3
import string
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divmf.engine.masking import masked

SECRET = "hunter2/&@!"
URI = f"postgresql://me:{quote(SECRET, safe='')}@db.example.org:5432/shop"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:pw@host/shop", "postgresql://me:***@host/shop"),
        ("cannot open mysql://me:p@w/x@host:3306/shop now", "cannot open mysql://me:***@host:3306/shop now"),
        ("postgresql:/me:pw@host: there is no such file", "postgresql:/me:***@host: there is no such file"),
        ("mssql://host/db?user=me&password=pw&ssl=1", "mssql://host/db?user=me&password=***&ssl=1"),
        ("postgresql://:pw@host/shop", "postgresql://:***@host/shop"),
        ("sqlite:///home/me/a@b.db", "sqlite:///home/me/a@b.db"),
        ("events.csv", "events.csv"),
        ("synthetic:60x40x900:5", "synthetic:60x40x900:5"),
    ],
)
def test_a_password_is_masked_and_nothing_else(text: str, shown: str) -> None:
    assert masked(text) == shown


@given(st.text(string.ascii_letters + string.digits + "!$%^*()-_=+[]{}|;,.<>?/~#@:&'\"", min_size=6))
def test_no_password_is_left(password: str) -> None:
    secret = f"Zq{password}"
    assert secret not in masked(f"error: postgresql://me:{secret}@host/shop could not be opened")


def test_the_password_of_a_database_is_nowhere(
    tmp_path: Path, divmf: Any, monkeypatch: pytest.MonkeyPatch, small_log: pl.DataFrame
) -> None:
    # it stood in run/config.json, in `data describe` and in notes on stderr
    log = pl.concat([small_log, small_log.with_columns(pl.col("user_id") + "2")])
    monkeypatch.setattr(pl, "read_database_uri", lambda query, uri, engine: log)
    short = ["--accuracy-epochs", 1, "--diversity-epochs", 1, "--k", 1]
    query = ["--query", "SELECT * FROM events"]
    done = [
        divmf("train", URI, "-o", tmp_path / "run", *query, *short),
        divmf("data", "describe", URI, *query),
        divmf("data", "describe", URI, *query, "--json"),
        divmf("data", "split", URI, "-o", tmp_path / "split", *query),
    ]
    assert [each.code for each in done] == [0, 0, 0, 0]
    done += [
        divmf("data", "describe", URI),
        divmf("evaluate", URI, "--test", URI, "--catalog", URI),
        divmf("train", URI, "-o", tmp_path / "other", "--split-column", "split"),
        divmf("reproduce", "q1", "--dataset", URI, "-o", tmp_path / "paper"),
    ]
    written = [path.read_bytes().decode(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    for text in (*written, *(each.out + each.err for each in done)):
        assert "hunter2" not in text
    assert "postgresql://me:***@db.example.org:5432/shop" in (tmp_path / "run" / "config.json").read_text()


def test_what_a_driver_says_of_the_password_is_masked(divmf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(query: str, uri: str, engine: str) -> None:
        raise RuntimeError(f"role me with password {SECRET} was refused at {uri}")

    monkeypatch.setattr(pl, "read_database_uri", refuse)
    done = divmf("data", "describe", URI, "--query", "SELECT 1")
    assert done.code == 2
    assert "hunter2" not in done.err
    assert "the query failed: role me with password *** was refused" in done.err


def test_a_database_file_is_named_as_it_is(tmp_path: Path, divmf: Any) -> None:
    with sqlite3.connect(tmp_path / "a@b.db") as connection:
        connection.execute("CREATE TABLE events (user_id, item_id)")
    done = divmf("data", "describe", f"sqlite://{tmp_path}/a@b.db")
    assert f"{tmp_path}/a@b.db is a database; give a query" in done.err
