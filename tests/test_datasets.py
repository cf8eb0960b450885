import bz2
import gzip
import json
import logging
import sqlite3
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from scipy.sparse.linalg import svds

from divmf.data import datasets
from divmf.data.datasets import KNOWN, describe, fetch, find, load, marketplace, open_data, skew_chart
from divmf.data.interactions import Interactions
from divmf.ranking.metrics import gini, head_share

RAW = {  # small files of the true formats, and the interactions in them
    "ml-100k": (b"196\t242\t3\t881250949\n186\t302\t3\t891717742\n", [(186, 302, 891717742), (196, 242, 881250949)]),
    "ml-1m": (b"1::1193::5::978300760\n1::661::3::978302109\n", [(1, 1193, 978300760), (1, 661, 978302109)]),
    "ml-10m": (b"1::122::5::838985046\n2::185::4.5::838983525\n", [(1, 122, 838985046), (2, 185, 838983525)]),
    "gowalla": (
        b"0\t2010-10-19T23:55:27Z\t30.2\t-97.7\t22847\n0\t2010-10-18T22:17:43Z\t30.2\t-97.7\t420315\n"
        b"0\t2010-10-17T23:42:03Z\t30.2\t-97.7\t22847\n",
        [(0, 420315, 1287440263), (0, 22847, 1287532527)],
    ),
    "yelp": (
        b"".join(
            json.dumps(
                {"user_id": "u", "business_id": place, "text": 'a "b"\n', "date": f"2012-01-0{day} 15:28:18"}
            ).encode()
            + b"\n"
            for place, day in (("p", 3), ("q", 2), ("p", 1))
        ),
        [("u", "q", 1325518098), ("u", "p", 1325604498)],
    ),
    "epinions": (b"2 7 5\n2 7 4\nrubbish\n1 7 1\n", [(1, 7), (2, 7)]),
}


def put_raw(name: str, folder) -> None:
    """The small raw file of a dataset, packed as its publisher packs it."""
    row, (data, _) = KNOWN[name], RAW[name]
    path = folder / row.archive
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(row.member, data)
            archive.writestr("README", "not this one")
    else:
        path.write_bytes({".gz": gzip.compress, ".bz2": bz2.compress}.get(path.suffix, bytes)(data))


@pytest.mark.parametrize("where", [".", "raw"])
@pytest.mark.parametrize("name", RAW)
def test_the_raw_file_of_every_data_set_is_read_from_the_data_directory(name, where, data_directory):
    put_raw(name, data_directory / where)
    assert load(name).frame.rows() == RAW[name][1]
    assert find(name) == data_directory / where / KNOWN[name].archive


@pytest.mark.parametrize("name", RAW)
def test_the_raw_file_of_every_data_set_is_read_by_its_path(name, tmp_path):
    put_raw(name, tmp_path)
    assert open_data(str(tmp_path / KNOWN[name].archive)).frame.rows() == RAW[name][1]


def test_every_known_data_set_says_where_it_is_from():
    assert list(KNOWN) == ["ml-100k", "ml-1m", "ml-10m", "gowalla", "yelp", "epinions"]
    for row in KNOWN.values():
        assert row.citation
        assert row.licence
        assert row.page.startswith("http")
        assert row.url is None or row.url.startswith("https://")
        assert row.url is None or row.url.endswith(row.archive)
        assert (row.member is None) == (not row.archive.endswith(".zip"))
    assert KNOWN["ml-1m"].md5 == "c4d9eecfca2ab87c1945afe126590906"


def test_a_parquet_file_goes_before_the_raw_archive(data_directory):
    put_raw("ml-1m", data_directory)
    pl.DataFrame({"user_id": [5], "item_id": [6]}).write_parquet(data_directory / "ml-1m.parquet")
    assert load("ml-1m").frame.rows() == [(5, 6)]


def test_any_parquet_file_of_the_data_directory_has_a_name(data_directory, small_log):
    small_log.write_parquet(data_directory / "my-shop.parquet")
    assert len(load("my-shop")) == len(open_data("my-shop")) == 7


def test_a_number_after_a_known_name_asks_for_the_core(data_directory):
    grid = pl.DataFrame(
        [(user, item) for user in range(4) for item in range(user + 1)], schema=["user", "item"], orient="row"
    )
    grid.write_parquet(data_directory / "epinions.parquet")
    assert datasets.resolve("epinions-2") == ("epinions", 2)
    assert datasets.resolve("ml-1m") == ("ml-1m", 0)
    assert datasets.resolve("ml-100k-15") == ("ml-100k", 15)
    core = load("epinions").k_core(2)
    for found in (
        load("epinions-2"),
        load("epinions", k_core=2),
        load("epinions-1", k_core=2),
        open_data("epinions-2"),
    ):
        assert_frame_equal(found.frame, core.frame)
    with pytest.raises(ValueError, match="k_core=-3 is negative"):
        load("epinions", k_core=-3)


def test_a_file_of_that_very_name_goes_before_the_core(data_directory):
    pl.DataFrame({"user": [1], "item": [1]}).write_parquet(data_directory / "epinions-15.parquet")
    assert len(load("epinions-15")) == 1


def test_a_data_set_that_is_not_there_says_how_to_get_it(data_directory):
    with pytest.raises(
        ValueError, match=r"ml-10m is not in the data directory .*; get it with `divmf data fetch ml-10m`"
    ):
        load("ml-10m-15")
    for ask in (load, fetch, open_data):
        with pytest.raises(
            ValueError, match=r"ask for it at https://www.yelp.com/dataset, then put yelp_academic_data"
        ):
            ask("yelp")
    with pytest.raises(ValueError, match=r"there is no dataset 'epinion' .did you mean 'epinions'"):
        load("epinion")
    with pytest.raises(ValueError, match="there is no dataset 'nothing'; the known ones are ml-100k, ml-1m"):
        fetch("nothing")


@pytest.mark.parametrize(
    ("name", "damage"),
    [("ml-1m", b"PK no zip"), ("gowalla", b"no gzip"), ("epinions", b"BZh9 no"), ("yelp", b"hello\n"), ("yelp", b"")],
)
def test_a_damaged_archive_is_named_in_one_line(name, damage, data_directory):
    path = data_directory / "raw" / KNOWN[name].archive
    path.write_bytes(damage)
    with pytest.raises(ValueError, match=r"is not the .* file it should be: .*get it again from") as caught:
        load(name)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_archive_without_its_member_is_named(data_directory):
    with zipfile.ZipFile(data_directory / "ml-1m.zip", "w") as archive:
        archive.writestr("other.txt", "x")
    with pytest.raises(ValueError, match=r"ml-1m.zip is not the MovieLens-1M file .*ml-1m/ratings.dat"):
        load("ml-1m")


def test_without_a_setting_the_data_directory_is_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("DIVMF_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert datasets.data_directory().name == "divmf"
    monkeypatch.setenv("DIVMF_DATA", "~/somewhere")
    assert datasets.data_directory().name == "somewhere"
    assert datasets.data_directory().is_absolute()


# --- downloads, from a real HTTP server on loopback


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.requests += 1
        if self.path != "/archive":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body[: self.server.sent])

    def log_message(self, *args) -> None:
        pass


@contextmanager
def served(body: bytes, sent: int | None = None) -> Iterator[ThreadingHTTPServer]:
    """A server of one file at /archive, which breaks off after `sent` bytes."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.body, server.sent, server.requests = body, sent, 0
    server.url = f"http://127.0.0.1:{server.server_port}/archive"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def archive(real, data_directory, monkeypatch) -> bytes:
    """The bytes of the real ml-1m.zip, which is not yet in the data directory."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return real("raw/ml-1m.zip").read_bytes()


def set_url(monkeypatch, url: str, **changes) -> None:
    monkeypatch.setitem(KNOWN, "ml-1m", replace(KNOWN["ml-1m"], url=url, **changes))


def names_in(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_download_with_the_right_hash_is_kept_and_not_repeated(archive, data_directory, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    with served(archive) as server:
        set_url(monkeypatch, server.url)
        path = fetch("ml-1m")
        assert path == data_directory / "raw" / "ml-1m.zip"
        assert path.read_bytes() == archive
        assert names_in(path.parent) == ["ml-1m.zip"]
        assert "already there" not in caplog.text
        assert fetch("ml-1m-15") == path
        assert server.requests == 1
    assert "ml-1m is already there" in caplog.text
    assert len(load("ml-1m")) == 1_000_209


def test_a_download_with_a_wrong_hash_is_refused_and_nothing_is_left(archive, data_directory, monkeypatch):
    with served(archive[:-1] + b"x") as server:
        set_url(monkeypatch, server.url)
        with pytest.raises(OSError, match=f"not ml-1m.zip with md5 {KNOWN['ml-1m'].md5}; nothing was kept") as caught:
            fetch("ml-1m")
    assert "\n" not in str(caught.value)
    assert names_in(data_directory / "raw") == []


@pytest.mark.parametrize("md5", [KNOWN["ml-1m"].md5, None])
def test_a_download_that_breaks_off_leaves_no_half_file(md5, archive, data_directory, monkeypatch):
    with served(archive, sent=len(archive) // 2) as server:
        set_url(monkeypatch, server.url, md5=md5)
        with pytest.raises(OSError, match=f"ml-1m could not be downloaded from {server.url} into .*try again"):
            fetch("ml-1m")
    assert names_in(data_directory / "raw") == []
    assert find("ml-1m") is None


def test_what_a_killed_download_has_left_goes_with_the_next(archive, data_directory, monkeypatch):
    raw = data_directory / "raw"
    (raw / ".ml-1m.zip.99999999-ab.tmp").mkdir()
    (raw / ".ml-1m.zip.99999999-ab.tmp" / "half").write_bytes(b"half")
    with served(archive) as server:
        set_url(monkeypatch, server.url)
        fetch("ml-1m")
    assert names_in(raw) == ["ml-1m.zip"]


def test_a_page_that_is_gone_and_a_server_that_is_gone_are_named(archive, data_directory, monkeypatch):
    with served(archive) as server:
        set_url(monkeypatch, f"{server.url}/gone")
        with pytest.raises(OSError, match=r"could not be downloaded from .*/gone into .*404"):
            fetch("ml-1m")
    with pytest.raises(OSError, match=r"could not be downloaded .* or put ml-1m.zip there by hand"):
        fetch("ml-1m")
    assert names_in(data_directory / "raw") == []


def test_an_archive_with_a_wrong_hash_is_downloaded_again(archive, data_directory, monkeypatch):
    (data_directory / "ml-1m.zip").write_bytes(archive[:1000])
    with served(archive) as server:
        set_url(monkeypatch, server.url)
        assert fetch("ml-1m").read_bytes() == archive
    assert names_in(data_directory) == ["ml-1m.zip", "raw"]


def test_a_hash_that_nobody_published_is_recorded_and_then_kept_to(data_directory, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    first, raw = bz2.compress(RAW["epinions"][0]), data_directory / "raw"
    with served(first) as server:
        monkeypatch.setitem(KNOWN, "epinions", replace(KNOWN["epinions"], url=server.url))
        fetch("epinions")
        assert names_in(raw) == ["ratings_data.txt.bz2", "ratings_data.txt.bz2.md5"]
        assert (raw / "ratings_data.txt.bz2.md5").read_text().split()[0] in caplog.text
        fetch("epinions")
        assert server.requests == 1
        (raw / "ratings_data.txt.bz2").write_bytes(b"damaged")
        assert fetch("epinions").read_bytes() == first
        server.body = bz2.compress(b"1 1 1\n")
        (raw / "ratings_data.txt.bz2").unlink()
        with pytest.raises(OSError, match="nothing was kept"):
            fetch("epinions")
    assert names_in(raw) == ["ratings_data.txt.bz2.md5"]


def test_a_parquet_file_that_is_there_is_not_downloaded(data_directory, small_log):
    small_log.write_parquet(data_directory / "ml-1m.parquet")
    assert fetch("ml-1m") == data_directory / "ml-1m.parquet"


def test_a_progress_bar_is_shown_on_the_error_stream_only_if_asked_for(archive, monkeypatch, capsys):
    with served(archive) as server:
        set_url(monkeypatch, server.url)
        path = fetch("ml-1m")
        assert capsys.readouterr() == ("", "")
        path.unlink()
        fetch("ml-1m", progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "ml-1m" in err
    assert "5.9/5.9 MB" in err


# --- DATA of the command line


def test_data_may_be_a_file_with_named_columns(tmp_path):
    path = tmp_path / "log.tsv"
    path.write_text("buyer\tthing\n1\ta\n1\tb\n")
    assert open_data(str(path), user="buyer", item="thing").frame.rows() == [(1, "a"), (1, "b")]


def test_data_may_be_a_query_of_a_database(tmp_path):
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as shop:
        shop.execute("CREATE TABLE orders (buyer TEXT, product_id INTEGER, at INTEGER)")
        shop.executemany("INSERT INTO orders VALUES (?, ?, ?)", [("b", 2, 5), ("a", 1, 7), ("a", 2, 3)])
    shop.close()
    uri = f"sqlite://{path}"
    found = open_data(uri, user="buyer", time="at", query="SELECT * FROM orders")
    assert found.frame.rows() == [("a", 2, 3), ("a", 1, 7), ("b", 2, 5)]
    with pytest.raises(ValueError, match=r"shop.db is a database; give a query"):
        open_data(uri)
    with pytest.raises(ValueError, match=r"the query failed: .*no such table: sales"):
        open_data(uri, query="SELECT * FROM sales")


def test_a_password_is_not_shown_in_an_error(monkeypatch):
    def refuse(query: str, uri: str, engine: str) -> None:
        raise RuntimeError(f"cannot connect to {uri}\n  in some driver")

    monkeypatch.setattr(pl, "read_database_uri", refuse)  # a real refusal takes a driver half a minute
    for query in (None, "SELECT 1"):
        with pytest.raises(ValueError, match=r"postgresql://127\.0\.0\.1/shop") as caught:
            open_data("postgresql://me:secret@127.0.0.1:1/shop", query=query)
        assert "secret" not in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_missing_database_driver_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "connectorx", None)
    with pytest.raises(ImportError, match=r"pip install 'divmf\[sql\]'"):
        open_data("sqlite:///shop.db", query="SELECT 1")


def test_data_may_be_synthetic():
    assert repr(open_data("synthetic")) == "Interactions(2,000 users, 1,000 items, 60,000 interactions, with times)"
    found = open_data("synthetic:300x200x3000:7")
    assert_frame_equal(found.frame, marketplace(300, 200, 3000, seed=7).frame)
    assert_frame_equal(open_data("synthetic:300x200x3_000").frame, marketplace(300, 200, 3000, seed=0).frame)


def test_a_folder_named_like_a_data_set_does_not_hide_it(data_directory, monkeypatch, tmp_path):
    put_raw("ml-1m", data_directory)
    (tmp_path / "ml-1m").mkdir()  # the unpacked archive
    monkeypatch.chdir(tmp_path)
    assert len(open_data("ml-1m")) == 2


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("ml1m", {}, "ml1m: there is no such file or dataset .did you mean 'ml-1m'.*; give a file .CSV.*database URI"),
        ("nowhere.csv", {}, "nowhere.csv: there is no such file or dataset; give a file"),
        ("synthetic:many", {}, "'synthetic:many' is not understood; write synthetic:USERSxITEMSxINTERACTIONS"),
        ("synthetic:9x9", {}, "'synthetic:9x9' is not understood"),
        ("synthetic", {"user": "u"}, "the columns of 'synthetic' are known; leave user, item and time out"),
        ("ml-1m", {"time": "t"}, "the columns of 'ml-1m' are known"),
        ("ml-1m", {"query": "SELECT 1"}, "a query was given, but 'ml-1m' is no database; give a URI such as sqlite"),
        ("https://example.org/log.csv", {}, "is not a database; download the file and give its path"),
    ],
)
def test_data_that_cannot_be_is_refused_with_what_can(data, options, message, data_directory):
    with pytest.raises(ValueError, match=message) as caught:
        open_data(data, **options)
    assert "\n" not in str(caught.value)


# --- the synthetic marketplace


@pytest.mark.parametrize("sizes", [(2000, 1000, 60_000), (50, 30, 700), (20, 12, 115), (3000, 500, 15_500)])
def test_a_marketplace_has_exactly_the_sizes_asked_for(sizes):
    data = marketplace(*sizes, seed=3)
    assert (data.n_users, data.n_items, len(data)) == sizes
    assert np.bincount(data.users).min() >= 5
    assert data.popularity.min() >= 1
    assert (data.user_ids[0], data.item_ids[-1]) == ("u00000", f"i{sizes[1] - 1:05}")
    again = Interactions.from_frame(data.frame)  # read back as a log: nothing merged, nothing moved
    assert again.merged == 0
    for mine, read in ((data.users, again.users), (data.items, again.items), (data.times, again.times)):
        np.testing.assert_array_equal(mine, read)


def test_a_marketplace_depends_on_its_seed_only():
    one, same, other = marketplace(seed=1), marketplace(seed=1), marketplace(seed=2)
    assert_frame_equal(one.frame, same.frame)
    assert not np.array_equal(one.items, other.items)


@pytest.mark.parametrize("sizes", [(2000, 1000, 60_000), (20_000, 5_000, 400_000), (70_000, 8_000, 500_000)])
def test_a_marketplace_is_as_skewed_as_real_data(sizes):
    assert 0.48 <= describe(marketplace(*sizes)).head_share <= 0.68  # MovieLens-1M 0.44, Epinions 0.65


def test_tastes_can_be_learnt_in_a_marketplace():
    split = marketplace(seed=0).leave_one_out()
    seen = split.seen.astype(np.float64)
    left, weight, right = svds(seen, k=16, v0=np.ones(min(seen.shape)))
    by_taste, by_popularity = (left * weight) @ right, np.tile(split.train.popularity, (split.n_users, 1)).astype(float)

    def hit_rate(scores: np.ndarray, k: int = 10) -> float:
        scores[seen.nonzero()] = -np.inf
        tested = scores[split.test.users, split.test.items]
        return float(((scores[split.test.users] > tested[:, None]).sum(axis=1) < k).mean())

    assert hit_rate(by_taste) > 1.8 * hit_rate(by_popularity)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((0, 10, 10), "0 users and 10 items are too few for a market"),
        ((-9, -9, 10), "-9 users and -9 items are too few"),
        ((3, 3, 5), "3 users and 3 items are too few for a market"),
        ((100, 50, 100), "interactions=100 does not fit 100 users and 50 items; choose from 550 to 2,500"),
        ((100, 50, 4000), "interactions=4,000 does not fit"),
    ],
)
def test_a_marketplace_that_cannot_be_is_refused(sizes, message):
    with pytest.raises(ValueError, match=message):
        marketplace(*sizes)


# --- statistics


def from_popularity(counts: list[int]) -> Interactions:
    rows = [(user, item, 1_000_000_000 + user) for item, count in enumerate(counts) for user in range(count)]
    return Interactions.from_frame(pl.DataFrame(rows, schema=["user_id", "item_id", "time"], orient="row"))


def test_a_small_log_is_described_as_worked_out_by_hand():
    found = describe(from_popularity([3, 6, 1, 2]))
    assert (found.users, found.items, found.interactions) == (6, 4, 12)
    assert found.density == 0.5
    assert found.head_share == 0.5  # a tenth of four items, rounded up, is one
    assert found.gini == pytest.approx((-3 * 1 - 1 * 2 + 1 * 3 + 3 * 6) / (12 * 3), rel=1e-12)
    assert found.per_item == (1, 2.5, 6)
    assert found.per_user == (1, 1.5, 4)
    assert (str(found.first), str(found.last)) == ("2001-09-09 01:46:40+00:00", "2001-09-09 01:46:45+00:00")
    assert found.users_with_one == 3
    assert found.merged == 0


def test_skew_is_measured_as_it_is_for_recommendations():
    counts = np.random.default_rng(0).integers(1, 30, 57)
    found = describe(from_popularity(counts.tolist()))
    assert found.gini == pytest.approx(gini(counts), rel=1e-12)
    assert found.head_share == pytest.approx(head_share(counts, np.argsort(-counts)), rel=1e-12)


@pytest.mark.parametrize(("unit", "time"), [(1, 1_600_000_000), (1000, 1_600_000_000_000), (0, 17)])
def test_times_are_dates_only_where_they_can_be(unit, time):
    frame = pl.DataFrame({"user": [1, 1], "item": [1, 2], "time": [time, time]})
    found = describe(Interactions.from_frame(frame))
    assert str(found.first)[:19] == ("2020-09-13 12:26:40" if unit else "None")


def test_even_popularity_has_no_skew_and_empty_data_no_description():
    assert describe(from_popularity([4] * 20)).gini == 0
    assert describe(from_popularity([4] * 20)).head_share == pytest.approx(0.1)
    assert describe(from_popularity([4])).gini == 0
    with pytest.raises(ValueError, match="there are no interactions to describe"):
        describe(from_popularity([4]).where(np.zeros(4, dtype=bool)))


def test_a_tenth_of_epinions_holds_65_percent_as_the_paper_says(real):
    found = describe(Interactions.read(real("epinions.parquet")))
    assert found.head_share == pytest.approx(0.65, abs=0.01)
    assert found.density == pytest.approx(664_823 / (40_163 * 139_738), rel=1e-12)


def test_the_skew_chart_draws_popularity_by_rank(tmp_path):
    data = marketplace(20_000, 5_000, 200_000)
    chart = skew_chart(data)
    points = chart.layer[0].data
    popularity = np.sort(data.popularity)[::-1]
    assert len(points) <= 2000
    assert (points["rank"].min(), points["rank"].max()) == (1, 5_000)
    np.testing.assert_array_equal(points["interactions"], popularity[points["rank"].to_numpy() - 1])
    drawn = chart.to_dict()
    assert "of the interactions are with the most popular 10% of the items" in drawn["title"]["text"]
    assert drawn["layer"][0]["encoding"]["y"]["scale"]["type"] == "log"
    chart.save(tmp_path / "skew.png")
    assert (tmp_path / "skew.png").stat().st_size > 1000


# --- real data


def test_the_real_archive_and_the_parquet_file_hold_the_same(real, data_directory):
    (data_directory / "raw" / "ml-1m.zip").symlink_to(real("raw/ml-1m.zip"))
    raw, parquet = load("ml-1m"), Interactions.read(real("ml-1m.parquet"))
    for mine, other in ((raw.users, parquet.users), (raw.items, parquet.items), (raw.times, parquet.times)):
        np.testing.assert_array_equal(mine, other)
    assert raw.user_ids.equals(parquet.user_ids)
    assert raw.item_ids.equals(parquet.item_ids)


def test_real_data_is_loaded_by_name(real, monkeypatch):
    monkeypatch.setenv("DIVMF_DATA", str(real("epinions.parquet").parent))
    for found in (load("epinions-15"), load("epinions", k_core=15), open_data("epinions-15")):
        assert (found.n_users, found.n_items, len(found)) == (5_531, 4_287, 186_995)
    assert len(open_data(real("ml-100k.parquet").stem)) == 100_000
    assert len(open_data(real("lastfm-hetrec2011.parquet").stem)) == 92_834


@pytest.mark.parametrize("name", ["absent.db", "shop.db?mode=ro", "shop.db#x"])
def test_a_database_file_that_is_not_there_is_an_error_and_is_not_made(name, tmp_path):
    sqlite3.connect(tmp_path / "shop.db").close()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match="there is no file"):
        open_data(f"sqlite://{tmp_path / name}", query="SELECT 1 AS user_id, 2 AS item_id")
    assert sorted(tmp_path.iterdir()) == before


def test_a_database_file_may_have_a_blank_in_its_name(tmp_path):
    with sqlite3.connect(tmp_path / "my shop.db") as shop:
        shop.execute("CREATE TABLE orders (user_id INTEGER, item_id INTEGER)")
        shop.execute("INSERT INTO orders VALUES (1, 2)")
    shop.close()
    uri = f"sqlite://{tmp_path}/my%20shop.db"
    assert open_data(uri, query="SELECT * FROM orders").frame.rows() == [(1, 2)]


@pytest.mark.parametrize("name", ["gowalla", "epinions"])
@pytest.mark.parametrize("wrong", ["a login page", "half of it"])
def test_what_is_not_the_data_is_not_kept_where_no_hash_tells(name, wrong, data_directory, monkeypatch):
    # it was kept, and later downloads were held to its hash
    row, raw = KNOWN[name], data_directory / "raw"
    pack = gzip.compress if row.archive.endswith("gz") else bz2.compress
    whole = pack(RAW[name][0])
    content = b"<html>please log in</html>" if wrong == "a login page" else whole[: len(whole) // 2]
    with served(content) as server:
        monkeypatch.setitem(KNOWN, name, replace(row, url=server.url))
        with pytest.raises(
            RuntimeError, match=rf"what {server.url} gave is not {row.archive} \(.+\); nothing was kept"
        ):
            fetch(name)
    assert names_in(raw) == []
    with served(whole) as server:
        monkeypatch.setitem(KNOWN, name, replace(row, url=server.url))
        assert fetch(name).read_bytes() == whole


def test_downloads_come_by_https_alone():
    assert all(row.url is None or row.url.startswith("https://") for row in KNOWN.values())


@pytest.mark.parametrize("name", ["log.csv.gz", "log.csv.bz2", "ml-1m.zip"])
def test_an_archive_that_fills_the_memory_is_refused(name, tmp_path, monkeypatch):
    # 52 kB became 1 GB
    monkeypatch.setattr("divmf.data.tables.SMALL_ENOUGH", 1 << 20)
    content, path = b"user_id,item_id\n" + b"1,1\n" * 4_000_000, tmp_path / name
    if name.endswith("zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(KNOWN["ml-1m"].member, content)
    else:
        path.write_bytes(gzip.compress(content) if name.endswith("gz") else bz2.compress(content))
    with pytest.raises(ValueError, match=rf"{name}.*grows to more than 100 times its .* bytes when unpacked"):
        open_data(str(path))
    assert open_data(str(plain_log(tmp_path))).n_users == 1


def plain_log(folder):
    """A log that is packed well, but small."""
    path = folder / "small.csv.gz"
    path.write_bytes(gzip.compress(b"user_id,item_id\n" + b"1,1\n" * 100_000))
    return path
