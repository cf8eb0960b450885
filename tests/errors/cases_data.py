"""Data that cannot be read, and calls of `divmf train` and `divmf data` that cannot be done."""

import bz2
import gzip
import os
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import polars as pl
from table import Case, frame, raw, several, text

TRAIN = "divmf train {} -o out -q"
HEAD = "user_id,item_id,timestamp\n"


def train(about: str, name: str, content: str, more: str = "") -> Case:
    """A text file that `divmf train` refuses."""
    named = None if "--split-column split --user" in more else name
    return Case(about, TRAIN.format(name) + more, text(name, content), named)


def parquet(about: str, **columns: object) -> Case:
    """A parquet file that `divmf train` refuses."""
    return Case(about, TRAIN.format("x.parquet"), frame("x.parquet", columns), "x.parquet")


FILES = [
    Case("a file that is not there", TRAIN.format("event.csv"), names="event.csv"),
    Case("a folder without data", TRAIN.format("data"), names="data"),
    Case("a pattern that fits nothing", TRAIN.format("'data/*.parquet'"), names="data/*.parquet"),
    Case("a pattern of other files", TRAIN.format("'*.csv'"), names="catalog.csv"),
    Case("an ending that says nothing", TRAIN.format("events.dat"), text("events.dat", HEAD), "events.dat"),
    Case("no ending", TRAIN.format("events"), text("events", HEAD), "events"),
    Case("a pipe", TRAIN.format("x.csv"), lambda: os.mkfifo("x.csv"), "x.csv"),
    Case("a pipe among parquet parts", TRAIN.format("parts"),
         several(lambda: Path("parts").mkdir(), lambda: os.mkfifo("parts/1.parquet")), "parts/1.parquet"),
    Case("a device", TRAIN.format("/dev/zero"), names="/dev/zero"),
    Case("parts of different columns", TRAIN.format("parts"),
         several(lambda: Path("parts").mkdir(), frame("parts/1.parquet", {"user_id": [1], "item_id": [2]}),
                 frame("parts/2.parquet", {"user_id": [1], "movie": [2]})), "parts"),
    Case("an empty argument, as of an unset variable", "divmf train '' -o out"),
    train("an empty file", "x.csv", ""),
    train("a header and nothing more", "x.csv", HEAD),
    train("only blank lines", "x.csv", "\n\n\n"),
    train("no header", "x.csv", "1,10,100\n2,20,200\n"),
    train("another separator", "x.csv", "user_id;item_id\n1;2\n"),
    train("rows of more fields than the header has", "x.csv", "user_id,item_id\n1,2\n3,4,5\n"),
    train("a quote that never ends", "x.csv", 'user_id,item_id\n1,"2\n3,4\n'),
    train("JSON lines that are no JSON", "x.jsonl", '{"user_id": 1, "item_id": 2}\n{"user_id": \n'),
    train("JSON lines that are numbers", "x.jsonl", "1\n2\n"),
    train("a page of a server", "x.jsonl", "<!doctype html><title>Log in</title>\n"),
    Case("text that is called parquet", TRAIN.format("x.parquet"), text("x.parquet", HEAD), "x.parquet"),
    Case("a parquet file that was cut off", TRAIN.format("x.parquet"),
         several(frame("x.parquet", {"user_id": [1, 2], "item_id": [3, 4]}), lambda: os.truncate("x.parquet", 200)),
         "x.parquet"),
    Case("text that is called .gz", TRAIN.format("x.csv.gz"), text("x.csv.gz", HEAD), "x.csv.gz"),
    Case("a .gz file that was cut off", TRAIN.format("x.csv.gz"),
         raw("x.csv.gz", gzip.compress(HEAD.encode() + b"1,2,3\n" * 999)[:40]), "x.csv.gz"),
    Case("text that is called .bz2", TRAIN.format("x.csv.bz2"), text("x.csv.bz2", HEAD), "x.csv.bz2"),
    Case("a small file that would fill the memory", TRAIN.format("x.csv.bz2"),
         raw("x.csv.bz2", bz2.compress(HEAD.encode() + b"1,2,3\n" * (20 << 20))), "x.csv.bz2"),
    Case("bytes that are no text", TRAIN.format("x.csv"), raw("x.csv", b"user_id,item_id\n\xff\xfe,\x80\n"), "x.csv"),
    Case("a NUL in the middle", TRAIN.format("x.csv"), raw("x.csv", b"user_id,item_id\n1\x00,\n"), "x.csv"),
    Case("text of sixteen bits", TRAIN.format("x.csv"), raw("x.csv", HEAD.encode("utf-16")), "x.csv"),
]  # fmt: skip

COLUMNS = [
    train("no column that looks like the user", "x.csv", "who,item_id\na,b\n"),
    train("no column that looks like the item", "x.csv", "user_id,what\na,b\n"),
    train("a column that is not there", "x.csv", HEAD + "a,b,1\n", " --user person"),
    train("two columns that may be the user", "x.csv", "user_id,User_ID,item_id\na,b,c\n"),
    train("a column that stands there twice", "x.csv", "user_id,item_id,item_id\na,b,c\n"),
    train("empty ids", "x.csv", HEAD + "a,b,1\n,c,2\n"),
    train("ids that are decimals", "x.csv", "user_id,item_id\n1.5,a\n2.5,b\n"),
    train("times that are no times", "x.csv", HEAD + "a,b,soon\nc,d,later\n"),
    train("empty times", "x.csv", HEAD + "a,b,1600000000\na,c,\n"),
    train("seconds and milliseconds in one column", "x.csv", HEAD + "a,b,1600000000\na,c,1600000000000\n"),
    parquet("ids that are lists", user_id=[[1], [2]], item_id=[3, 4]),
    parquet("ids that are bytes", user_id=[b"a", b"b"], item_id=[3, 4]),
    parquet("ids that are true or false", user_id=[True, False], item_id=[3, 4]),
    parquet("ids that are dates", user_id=[datetime(2020, 1, 1)], item_id=[3]),
    parquet("ids that are exact decimals", user_id=[Decimal("1.5")], item_id=[3]),
    parquet("ids of 64 bits without a sign", user_id=pl.Series([2**63 + 1], dtype=pl.UInt64), item_id=[3]),
    parquet("missing ids", user_id=[None, 1], item_id=[3, 4]),
    parquet("times that are records", user_id=[1], item_id=[2], timestamp=[{"day": 1}]),
    parquet("times beyond all times", user_id=[1], item_id=[2], timestamp=[1e300]),
    parquet("times that are not a number", user_id=[1], item_id=[2], timestamp=[float("nan")]),
    train("negative weights", "x.csv", "user_id,item_id,plays\na,b,3\nc,d,-1\n", " --weight plays"),
    train("missing weights", "x.csv", "user_id,item_id,plays\na,b,3\nc,d,\n", " --weight plays"),
    train("weights that are no numbers", "x.csv", "user_id,item_id,plays\na,b,often\n", " --weight plays"),
    train("weights that are all zero", "x.csv", "user_id,item_id,plays\na,b,0\n", " --weight plays"),
    train("a column of weights that is not there", "x.csv", "user_id,item_id\na,b\n", " --weight plays"),
    parquet("no rows", user_id=pl.Series([], dtype=pl.Int64), item_id=pl.Series([], dtype=pl.Int64)),
    Case("a split that holds something else", "divmf train events.csv -o out -q --split-column user_id"),
    train("a split that marks nothing as test", "x.csv", "user_id,item_id,split\na,b,train\nc,d,train\n",
          " --split-column split"),
    train("a pair in two parts of a split", "x.csv", "user_id,item_id,split\na,b,train\na,b,test\n",
          " --split-column split"),
    train("one user", "x.csv", HEAD + "a,b,1\na,c,2\na,d,3\n"),
    train("nobody with three interactions", "x.csv", HEAD + "a,b,1\nc,d,2\n", " --k 1"),
    train("named columns of a given split", "x.csv", "person,item_id,split\na,b,train\n",
          " --split-column split --user person"),
]  # fmt: skip

SETTINGS = [
    Case("a dataset that is not known", TRAIN.format("ml-1n"), names="ml-1n"),
    Case("a dataset that is not here", TRAIN.format("ml-1m"), names="ml-1m"),
    Case("a synthetic market without sizes", TRAIN.format("synthetic:60")),
    Case("more interactions than pairs", TRAIN.format("synthetic:60x40x9000")),
    Case("a list longer than the catalog", TRAIN.format("events.csv --k 41")),
    Case("a list of no items", TRAIN.format("events.csv --k 0")),
    Case("a list of -1 items", TRAIN.format("events.csv --k -1")),
    Case("a length that is no number", TRAIN.format("events.csv --k five")),
    Case("a flag that does not exist", TRAIN.format("events.csv --lists 5")),
    Case("a command that does not exist", "divmf trian events.csv"),
    Case("no output", "divmf train events.csv"),
    Case("no data", "divmf train -o out"),
    Case("vectors longer than any memory", TRAIN.format("events.csv --dim 10000000000000000000")),
    Case("a bonus that never ends", TRAIN.format("events.csv --delta 1e-308")),
    Case("a setting that is not a number", TRAIN.format("events.csv --level nan")),
    Case("an infinite setting", TRAIN.format("events.csv --steepness inf")),
    Case("a negative seed", TRAIN.format("events.csv --seed -1")),
    Case("a negative number of epochs", TRAIN.format("events.csv --diversity-epochs -3")),
    Case("a preset that does not exist", TRAIN.format("events.csv --preset papers")),
    Case("nothing left to train", TRAIN.format("events.csv --method divmf --no-reg-cov --no-reg-skew")),
    Case("a core that leaves nobody", TRAIN.format("events.csv --k-core 900")),
    Case("a negative core", TRAIN.format("events.csv --k-core -1")),
    Case("a share above one", TRAIN.format("events.csv --pick 120%")),
    Case("a share that is no number", TRAIN.format("events.csv --pick much")),
    Case("a share that leaves nothing to learn from", TRAIN.format("events.csv --hold-out 90%")),
    Case("a core of a given split", TRAIN.format("events.csv --k-core 5 --split-column item_id")),
    Case("a column of data that has a name", TRAIN.format("synthetic --user user_id")),
    Case("a query of a file", TRAIN.format("events.csv --query 'SELECT 1'"), names="events.csv"),
    Case("an address in the web", TRAIN.format("https://example.org/x.csv"), names="https://example.org/x.csv"),
    Case("a database without a query", TRAIN.format("postgresql://me:secret@example.org/shop")),
    Case("a database that is not there", TRAIN.format("sqlite://shop.db --query 'SELECT 1'"), names="shop.db"),
    Case("a query that fails", TRAIN.format("sqlite://shop.db --query 'SELECT user_id FROM events'"),
         raw("shop.db", b""), "shop.db"),
    Case("a budget that is too small for any model", TRAIN.format("events.csv --budget 1e-9s")),
    Case("a budget of no time", TRAIN.format("events.csv --budget 0")),
    Case("a budget that is no time", TRAIN.format("events.csv --budget soon")),
    Case("a fraction that is none", TRAIN.format("events.csv --deepest 30percent%")),
    Case("a setting of another method, at its usual value", TRAIN.format("events.csv --eps 0.01")),
    Case("a setting of training by epochs, at its usual value", TRAIN.format("events.csv --model ease --batch 4096")),
    Case("weights of a synthetic market", TRAIN.format("synthetic --weight plays")),
    Case("a machine that is not there", "divmf train events.csv -o out -q --device tpu"),
]  # fmt: skip

DESCRIBE = [
    Case("a picture of an unknown kind", "divmf data describe events.csv -o skew.gif", names="skew.gif"),
    Case("a picture in a folder that is not there", "divmf data describe events.csv -o a/skew.png", names="a/skew.png"),
    Case("a dataset that cannot be fetched by name", "divmf data fetch ml-2m", names="ml-2m"),
    Case("a dataset that must be asked for", "divmf data fetch yelp", names="yelp"),
    Case("a split in the place of other files", "divmf data split events.csv -o out",
         several(lambda: Path("out").mkdir(), text("out/train.parquet", "mine")), "out/train.parquet"),
    Case("a dataset that is not what its name says", "divmf data describe ml-100k",
         raw("data/ml-100k.zip", b"PK\x03\x04 no archive"), "data/ml-100k.zip"),
    Case("an archive without its file", "divmf data describe ml-1m",
         raw("data/ml-1m.zip", b"PK\x05\x06" + bytes(18)), "data/ml-1m.zip"),
    Case("check-ins that were cut off", "divmf data describe gowalla",
         raw("data/loc-gowalla_totalCheckins.txt.gz", gzip.compress(b"0\t2010-10-19T23:55:27Z\t1\t1\t5\n" * 99)[:30]),
         "data/loc-gowalla_totalCheckins.txt.gz"),
    Case("a login page for reviews", "divmf data describe yelp",
         text("data/yelp_academic_dataset_review.json", "<html>log in</html>\n"),
         "data/yelp_academic_dataset_review.json"),
]  # fmt: skip
