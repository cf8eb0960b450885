"""A path, a known name, a database query or `synthetic` → Interactions."""

import difflib
import logging
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from glob import has_magic
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlsplit

import platformdirs
import polars as pl

from divmf.data.describe import Description, describe, skew_chart
from divmf.data.interactions import Interactions
from divmf.data.synthetic import marketplace, synthetic
from divmf.data.tables import (
    epinions_ratings,
    first_line,
    gowalla_checkins,
    inflated,
    movielens_dat,
    movielens_tab,
    no_panic,
    unpack,
    yelp_reviews,
)  # fmt: skip
from divmf.data.values import Values
from divmf.engine.files import remove_strays
from divmf.engine.masking import HIDDEN, masked

__all__ = [
    "KNOWN", "Dataset", "Description", "data_directory", "describe", "fetch", "find", "load", "marketplace",
    "open_data", "open_share", "skew_chart",
]  # fmt: skip

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Dataset:
    """A public dataset: where it is, what its file is called, and how that is read.

    url       where to download the archive; None if it must be asked for by hand at `page`
    md5       of the archive, where its publisher or many others state it; else the first download is recorded
    member    the file inside a zip archive
    """

    name: str
    title: str
    page: str
    url: str | None
    archive: str
    md5: str | None
    member: str | None
    parse: Callable[[bytes | Path], pl.DataFrame]
    citation: str
    licence: str


GROUPLENS = "https://files.grouplens.org/datasets/movielens"
MOVIELENS = (
    "F. M. Harper and J. A. Konstan: The MovieLens Datasets: History and Context. ACM TiiS 5(4), 2015",
    "research use, no redistribution without permission, cite the paper",
)
DATASETS = (
    Dataset(
        "ml-100k", "MovieLens-100K", "https://grouplens.org/datasets/movielens/100k/", f"{GROUPLENS}/ml-100k.zip",
        "ml-100k.zip", "0e33842e24a9c977be4e0107933c0723", "ml-100k/u.data", movielens_tab, *MOVIELENS,
    ),
    Dataset(
        "ml-1m", "MovieLens-1M", "https://grouplens.org/datasets/movielens/1m/", f"{GROUPLENS}/ml-1m.zip",
        "ml-1m.zip", "c4d9eecfca2ab87c1945afe126590906", "ml-1m/ratings.dat", movielens_dat, *MOVIELENS,
    ),
    Dataset(
        "ml-10m", "MovieLens-10M", "https://grouplens.org/datasets/movielens/10m/", f"{GROUPLENS}/ml-10m.zip",
        "ml-10m.zip", "ce571fd55effeba0271552578f2648bd", "ml-10M100K/ratings.dat", movielens_dat, *MOVIELENS,
    ),
    Dataset(
        "gowalla", "Gowalla check-ins", "https://snap.stanford.edu/data/loc-gowalla.html",
        "https://snap.stanford.edu/data/loc-gowalla_totalCheckins.txt.gz",
        "loc-gowalla_totalCheckins.txt.gz", None, None, gowalla_checkins,
        "E. Cho, S. A. Myers and J. Leskovec: Friendship and Mobility: User Movement in Location-Based Social Networks."
        " KDD 2011",
        "no licence stated",
    ),
    Dataset(
        "yelp", "Yelp reviews", "https://www.yelp.com/dataset", None,
        "yelp_academic_dataset_review.json", None, None, yelp_reviews,
        "Yelp Open Dataset, https://www.yelp.com/dataset",
        "academic use under Yelp's dataset agreement, no redistribution",
    ),
    Dataset(
        "epinions", "Epinions ratings", "http://www.trustlet.org/downloaded_epinions.html", None,
        "ratings_data.txt.bz2", None, None, epinions_ratings,
        "P. Massa and P. Avesani: Trust-aware Recommender Systems. RecSys 2007",
        "no licence stated",
    ),
)  # fmt: skip
KNOWN = {row.name: row for row in DATASETS}


def data_directory() -> Path:
    """Where datasets are kept: $DIVMF_DATA, else the user's cache directory."""
    given = os.environ.get("DIVMF_DATA")
    return Path(given).expanduser() if given else platformdirs.user_cache_path("divmf")


def local_names() -> list[str]:
    """The names of the parquet files in the data directory."""
    return sorted(path.stem for path in data_directory().glob("*.parquet"))


def resolve(name: str) -> tuple[str, int]:
    """The dataset and the k-core a name stands for: `epinions-15` is the 15-core of `epinions`."""
    base, _, core = name.rpartition("-")
    if name not in KNOWN and name not in local_names() and base in KNOWN and core.isdecimal():
        return base, int(core)
    return name, 0


def find(name: str) -> Path | None:
    """The file of a dataset in the data directory: NAME.parquet, else the raw archive; None if there is neither."""
    base, _ = resolve(name)
    if base in local_names():
        return data_directory() / f"{base}.parquet"
    if base in KNOWN:
        for folder in (data_directory(), data_directory() / "raw"):
            if (path := folder / KNOWN[base].archive).is_file():
                return path
    return None


def load(name: str, k_core: int = 0) -> Interactions:
    """A dataset of the data directory by its name; `epinions-15` and k_core=15 both mean the 15-core."""
    base, core = resolve(name)
    path = find(base)
    if path is None:
        row = known(base)
        raise ValueError(f"{base} is not in the data directory {data_directory()}; {way_to(row)}")
    data = Interactions.read(path) if path.suffix == ".parquet" else read_raw(path, KNOWN[base])
    core = max(core, k_core) if core else k_core
    return data.k_core(core) if core else data


def known(name: str) -> Dataset:
    """The row of a known dataset; another name is an error that lists what there is."""
    if name not in KNOWN:
        raise ValueError(f"there is no dataset {name!r}{guess(name)}; the known ones are {', '.join(KNOWN)}")
    return KNOWN[name]


def guess(name: str) -> str:
    """The name that was perhaps meant, in brackets."""
    close = difflib.get_close_matches(name.lower(), ["synthetic", *KNOWN, *local_names()], n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def way_to(row: Dataset) -> str:
    """How a dataset gets into the data directory."""
    if row.url is not None:
        return f"get it with `divmf data fetch {row.name}`"
    return f"ask for it at {row.page}, then put {row.archive} into {data_directory()}, or give its path instead"


def read_raw(path: Path, row: Dataset) -> Interactions:
    """Interactions from a dataset's file as its publisher gives it."""
    try:
        if path.suffix == ".zip" and row.member:
            with zipfile.ZipFile(path) as archive, archive.open(row.member) as member:
                data: bytes | Path = inflated(member, path.stat().st_size)
        else:
            data = unpack(path, path.suffix[1:]) if path.suffix in (".gz", ".bz2") else path
        with no_panic():
            return Interactions.from_frame(row.parse(data))
    except (
        ValueError,
        KeyError,
        NotImplementedError,  # of an archive
        RuntimeError,  # of an archive with a password
        OSError,
        EOFError,
        zlib.error,
        zipfile.BadZipFile,
        pl.exceptions.PolarsError,
    ) as error:
        reason = first_line(error).strip('"')
        raise ValueError(
            f"{path} is not the {row.title} file it should be: {reason}; remove it and get it again from {row.page}"
        ) from error


def fetch(name: str, progress: bool = False) -> Path:
    """Download a known dataset into the data directory, unless it is there; its hash is checked."""
    row = known(resolve(name)[0])
    here = find(row.name)
    if row.url is None and here is None:
        raise ValueError(f"{row.name} cannot be downloaded by a program: {way_to(row)}")
    if here is not None and (row.url is None or here.suffix == ".parquet"):
        log.info("%s is already there: %s", row.name, here)
        return here
    return download(row, here.parent if here else data_directory() / "raw", progress)


def download(row: Dataset, folder: Path, progress: bool = False) -> Path:
    """Download an archive into a folder: under a temporary name, renamed once it is whole and its hash is right."""
    import pooch

    path, record = folder / row.archive, folder / f"{row.archive}.md5"
    md5 = row.md5 or (record.read_text().split()[0] if record.is_file() else None)
    if path.is_file() and md5 in (None, pooch.file_hash(str(path), "md5")):
        log.info("%s is already there: %s", row.name, path)
        return path
    pooch.get_logger().setLevel("WARNING")  # it prints on its own otherwise
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with progress_bar(row.name, progress) as bar:
            # identity: some servers unpack a .gz file on its way
            headers = {"Accept-Encoding": "identity"}
            downloader = pooch.HTTPDownloader(progressbar=bar, headers=headers, timeout=30)
            remove_strays(path)
            own = f".{row.archive}.{os.getpid()}-"  # by which a later call knows what a killed one has left
            with TemporaryDirectory(prefix=own, suffix=".tmp", dir=folder) as incoming:
                pooch.retrieve(row.url, f"md5:{md5}" if md5 else None, row.archive, incoming, downloader=downloader)
                if md5 is None:
                    check_content(Path(incoming) / row.archive, row)
                (Path(incoming) / row.archive).replace(path)
    except OSError as error:  # the network's errors too
        raise OSError(
            f"{row.name} could not be downloaded from {row.url} into {folder}: {error};"
            f" try again, or put {row.archive} there by hand"
        ) from error
    except ValueError as error:  # pooch's word for a wrong hash
        raise OSError(
            f"what {row.url} gave is not {row.archive} with md5 {md5}; nothing was kept;"
            f" try again later, or see {row.page}"
        ) from error
    if row.md5 is None:
        seen = pooch.file_hash(str(path), "md5")
        part = record.with_suffix(".part")
        part.write_text(f"{seen}  {row.archive}\n")
        part.replace(record)
        log.info("%s has no published hash; its md5 is %s, noted in %s", row.archive, seen, record)
    return path


class NotTheData(RuntimeError):
    """What a server gave is not the dataset."""


def check_content(path: Path, row: Dataset) -> None:
    """Refuse what cannot be read as the dataset, where no hash tells: a login page, or half a file."""
    try:
        read_raw(path, row)
    except ValueError as error:
        reason = str(error).partition("it should be: ")[2].partition("; remove it")[0]
        raise NotTheData(
            f"what {row.url} gave is not {row.archive} ({reason}); nothing was kept; try again later, or see {row.page}"
        ) from error


@dataclass
class Bar:
    """What pooch asks of a progress bar, drawn by rich."""

    progress: Any
    task: Any
    total: int = 0

    def update(self, size: int) -> None:
        """So many bytes more."""
        self.progress.update(self.task, total=self.total, advance=size)

    def reset(self) -> None:
        """Back to none."""
        self.progress.reset(self.task)

    def close(self) -> None:
        """Nothing: the bar ends with its context."""


@contextmanager
def progress_bar(name: str, shown: bool) -> Iterator[Any]:
    """A bar on the error stream while the download lasts; False, for none, if not to be shown."""
    if not shown:
        yield False
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        yield Bar(progress, progress.add_task(name))


def open_data(
    data: str, user: str | None = None, item: str | None = None, time: str | None = None, query: str | None = None,
    min_rating: float | None = None, rating: str | None = None, weight: str | None = None,
) -> Interactions:  # fmt: skip
    """DATA of the command line: files, a known name, `synthetic[:USERSxITEMSxINTERACTIONS[:SEED]]`, a database URI.

    user, item and time name the columns of a file or a query; query is the SELECT for a database.
    """
    return opened_by(Interactions.read, data, (user, item, time), query, Values.checked(min_rating, rating, weight))


def open_share(
    data: str, user: str | None = None, item: str | None = None, time: str | None = None, query: str | None = None,
    min_rating: float | None = None, rating: str | None = None, weight: str | None = None,
) -> Interactions:  # fmt: skip
    """As `open_data`, but of large parquet files this process' range of users alone; see `Interactions.read_share`."""
    return opened_by(
        Interactions.read_share, data, (user, item, time), query, Values.checked(min_rating, rating, weight)
    )


def opened_by(
    read: Callable[..., Interactions],
    data: str,
    columns: tuple[str | None, str | None, str | None],
    query: str | None,
    values: Values,
) -> Interactions:
    """DATA of the command line; read: how its files are read, where it is files."""
    if "://" in data:
        return Interactions.from_frame(read_database(data, query), *columns, *values)
    if query is not None:
        raise ValueError(f"a query was given, but {data!r} is no database; give a URI such as sqlite://shop.db")
    path = Path(data)
    if not data.strip():
        raise ValueError("the name of the data is empty, as of a variable that is not set; name a file or a dataset")
    if path.is_fifo() or path.is_char_device() or path.is_socket():
        raise ValueError(f"{data} is not a file but a pipe or a device; write what it gives to a file first")
    if path.is_file():
        raw = next((row for row in DATASETS if path.name in (row.archive, Path(row.member or "").name)), None)
        if raw is None:
            return read(path, *columns, *values)
        values.refuse(data)
        return read_raw(path, raw)
    named = data.partition(":")[0] == "synthetic" or resolve(data)[0] in [*KNOWN, *local_names()]
    if named and any(columns):
        raise ValueError(f"the columns of {data!r} are known; leave user, item and time out")
    if data.partition(":")[0] == "synthetic":
        values.refuse(data)
        return synthetic(data)
    if named:
        return load(data) if values.is_plain else load_valued(data, values)
    if path.is_dir() or has_magic(data):
        return read(data, *columns, *values)
    raise ValueError(
        f"{data}: there is no such file or dataset{guess(data)}; give a file (CSV, TSV, parquet, JSON lines), a folder"
        f" or a pattern of parquet files, one of {', '.join(dict.fromkeys([*KNOWN, *local_names()]))},"
        " synthetic[:USERSxITEMSxINTERACTIONS[:SEED]], or a database URI with a query"
    )


def load_valued(name: str, values: Values) -> Interactions:
    """As `load`, of the rows with a high enough rating, and with weights; the core is that of what they leave."""
    base, core = resolve(name)
    path = find(base)
    if path is None or path.suffix != ".parquet":
        values.refuse(name)
        return load(name)
    data = Interactions.read(path, None, None, None, *values)
    return data.k_core(core) if core else data


def read_database(uri: str, query: str | None) -> pl.DataFrame:
    """The result of a SELECT; the address is shown without its password in errors."""
    address = urlsplit(uri)
    shown = f"{address.scheme}://{address.hostname or ''}{address.path}"
    if address.scheme in ("http", "https", "ftp", "s3"):
        raise ValueError(f"{shown} is not a database; download the file and give its path")
    if query is None:
        raise ValueError(f"{shown} is a database; give a query (--query) such as SELECT user_id, item_id FROM events")
    try:
        import_module("connectorx")
    except ImportError as error:
        raise ImportError("reading a database needs connectorx; install it with pip install 'divmf[sql]'") from error
    # connectorx takes all that follows sqlite:// for the path, and makes a file that is not there
    if address.scheme == "sqlite" and not (path := Path(unquote(uri[len("sqlite://") :]))).is_file():
        raise ValueError(f"{uri}: there is no file {path}; write sqlite://shop.db, or sqlite:///home/me/shop.db")
    try:
        return pl.read_database_uri(query, uri, engine="connectorx")
    except Exception as error:  # connectorx raises what each driver raises
        reason = masked(first_line(error).replace(uri, shown))
        for secret in {address.password or "", unquote(address.password or "")} - {""}:
            reason = reason.replace(secret, HIDDEN)
        # the driver's own words may hold the password, so they are not kept
        raise ValueError(f"{shown}: the query failed: {reason}; check the address and the query") from None
