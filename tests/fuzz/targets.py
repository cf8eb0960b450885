"""What is fuzzed: every reader, each with the files that it begins from. A case is the bytes of one file.

A reader takes a file, or refuses it with one line that names it; what it takes is then used. Anything else is a fault.
"""

import bz2
import gzip
import io
import shutil
import warnings
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from divmf.cli.inputs import read_users
from divmf.data.datasets import KNOWN, open_data, read_raw
from divmf.data.interactions import Interactions
from divmf.data.split import Split
from divmf.data.tables import read_catalog
from divmf.estimator import load
from divmf.market.given import summary
from divmf.market.rules import Rules
from divmf.models.config import TrainConfig
from divmf.ranking.lists import TopK
from divmf.reports.experiments.recipe import read_recipe
from divmf.train.fitting import fit
from divmf.train.ruling import bound_to
from divmf.train.runs import Run

warnings.filterwarnings("ignore")


@dataclass(frozen=True)
class Target:
    """A file by its name in the folder, valid examples of it, and what is done with it."""

    name: str
    path: Path
    examples: tuple[bytes, ...]
    use: Callable[[Path], Any]

    def attempt(self, data: bytes) -> str:
        """`taken` or `refused`; anything else is raised."""
        self.path.write_bytes(data)
        try:
            self.use(self.path)
        except (ValueError, OSError) as error:
            said = str(error)
            if "\n" in said or len(said) > 3000 or self.path.name not in said:
                raise AssertionError(
                    f"{type(error).__name__} that is not one line about {self.path.name}: {said}"
                ) from error
            return "refused"
        finally:
            self.path.write_bytes(self.examples[0])
        return "taken"


def check_log(path: Path) -> None:
    """Read interactions; what is there is numbered."""
    data = Interactions.read(path)
    assert len(data)
    assert data.users.min() >= 0
    assert data.users.max() < data.n_users
    assert data.items.min() >= 0
    assert data.items.max() < data.n_items
    assert data.matrix.nnz == len(data)


def check_lists(path: Path) -> None:
    """Read lists; what is there is in the catalog, once, with a score."""
    lists = TopK.read(path)
    listed = lists.items >= 0
    assert listed.any()
    assert lists.items.max() < lists.n_items
    assert np.isfinite(lists.scores[listed]).all()
    assert int(lists.counts.sum()) == int(listed.sum())


def check_model(folder: Path) -> None:
    """Read a saved model or a run and make its lists."""
    lists = load(folder).lists(k=3)
    assert lists.items.max() < lists.n_items
    assert np.isfinite(lists.scores[lists.items >= 0]).all()


def check_run(folder: Path) -> None:
    """All that commands read of a run."""
    run = Run.open(folder)
    log = run.log_file.read_bytes()
    try:
        _ = run.read_config(), run.read_tuned(), run.read_choice()
        curve = run.read_curve()
        if len(curve):
            curve.choose(ndcg_drop=0.05)
        users = np.arange(run.read_split().n_users)
        lists = run.read_scorer().scores(users).argsort(axis=1)[:, -3:]
        if (rules := run.read_rules()) is not None:
            summary(rules, lists)
        run.resume(len(users))
    finally:
        run.log_file.write_bytes(log)
    check_model(folder)


def zipped(name: str, content: bytes) -> bytes:
    """A zip archive of one file."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(name, content)
    return packed.getvalue()


RAW = {
    "ml-100k": zipped("ml-100k/u.data", b"196\t242\t3\t881250949\n186\t302\t3\t891717742\n"),
    "ml-1m": zipped("ml-1m/ratings.dat", b"1::1193::5::978300760\n1::661::3::978302109\n"),
    "gowalla": gzip.compress(
        b"0\t2010-10-19T23:55:27Z\t30.2\t-97.7\t22847\n1\t2010-10-18T22:17:43Z\t30.2\t-97.7\t420315\n"
    ),
    "epinions": bz2.compress(b" 1 100 5\n 2 100 3.5\n 3 7 1\n"),
    "yelp": b'{"user_id": "a", "business_id": "x", "stars": 3.0, "date": "2018-07-07 22:09:11"}\n'
    b'{"user_id": "b", "business_id": "y", "stars": 1.0, "date": "2012-01-03 15:28:18"}\n',
}
LOG = pl.DataFrame(
    {"user_id": ["ann", "bob", "ann"], "item_id": [7, 8, 8], "timestamp": [1_600_000_000, 1_600_000_060, 5]}
)
RANKED = pl.DataFrame({"user_id": [1, 1, 2], "item_id": ["a", "b", "a"], "score": [0.5, 0.25, 1.0], "rank": [1, 2, 1]})
RECIPE = b'title = "x"\ncore = 0\n[settings]\nunmask = 100\n[blocks]\ndiversity_epochs = 8\n[alternating]\n[joint]\n'


def written(table: pl.DataFrame, kind: str) -> bytes:
    """A table as the bytes of a file."""
    file = io.BytesIO()
    if kind == "parquet":
        table.write_parquet(file)
    elif kind == "jsonl":
        table.write_ndjson(file)
    else:
        table.write_csv(file, separator="\t" if kind == "tsv" else ",")
    return file.getvalue()


def tables(folder: Path) -> list[Target]:
    """Readers of tables and of raw formats."""
    csv = written(LOG, "csv")
    quoted = b'user_id,item_id,timestamp\n"a,b",1,2020-01-01\n"c ""d""",2,2020-01-02 10:00:00\n'
    found = [Target("log.csv", folder / "log.csv", (csv, quoted), check_log)]
    found += [Target(f"log.{kind}", folder / f"log.{kind}", (written(LOG, kind),), check_log)
              for kind in ("tsv", "jsonl", "parquet")]  # fmt: skip
    found += [
        Target("log.csv.gz", folder / "log.csv.gz", (gzip.compress(csv),), check_log),
        Target("log.csv.bz2", folder / "log.csv.bz2", (bz2.compress(csv),), check_log),
        Target("split.csv", folder / "split.csv", (
            b"user_id,item_id,split\na,x,train\na,y,valid\na,z,test\nb,x,train\nb,z,test\n",), lambda p: Split.read(p)),
        Target("recipe.toml", folder / "recipe.toml", (RECIPE,), lambda p: read_recipe("x.csv", p)),
    ]  # fmt: skip
    for kind in ("csv", "parquet", "jsonl"):
        found.append(Target(f"lists.{kind}", folder / f"lists.{kind}", (written(RANKED, kind),), check_lists))
    titled = pl.DataFrame({"item_id": ["a", "b"], "title": ["Tea", "Jam"]})
    for kind in ("csv", "parquet"):
        found.append(Target(f"catalog.{kind}", folder / f"catalog.{kind}", (written(titled, kind),), read_catalog))
    movies = b"1::Toy Story (1995)::Animation|Children's\n2::Jumanji (1995)::Adventure\n"
    found.append(Target("movies.dat", folder / "movies.dat", (movies,), read_catalog))
    known = Interactions.from_frame(LOG)
    found.append(Target("users.csv", folder / "users.csv", (b"user_id\nann\nbob\n",), lambda p: read_users(p, known)))
    for name, content in RAW.items():
        row = KNOWN[name]
        found.append(Target(f"raw {name}", folder / row.archive, (content,), lambda p, row=row: read_raw(p, row)))
    return found


# runs whose files differ, and what is fuzzed of all but the first
RUNS = {
    "run": TrainConfig(dim=4, accuracy_epochs=2, diversity_epochs=2),
    "ease": TrainConfig(model="ease", diversity_epochs=2),
    "paper": TrainConfig(preset="paper", dim=4, accuracy_epochs=2, diversity_epochs=2),
}
RULED = Rules(capacity={"items": {"i00001": 9}}, floor={"items": {"i00002": 2}})
OWN = ("rules.json", "models.json", "state.safetensors", "000.safetensors", "001.safetensors", "lists.safetensors")


def of_runs(folder: Path) -> list[Target]:
    """Each file of a run folder and of a saved model; of other kinds of runs, the files that are not alike."""
    split, found = open_data("synthetic:30x20x300").leave_one_out(0), []
    for name, config in RUNS.items():
        rules = bound_to(RULED, split, config) if name == "ease" else None
        run = Run.start(folder / name, split, config, "synthetic:30x20x300", rules=rules)
        for _ in fit(run, split, config):
            pass
        run.pick(epoch=1)
        saved = folder / ("model" if name == "run" else f"{name}-model")
        load(run.folder).save(saved)
        for place, use in ((run.folder, check_run), (saved, check_model)):
            for path in sorted(place.rglob("*")):
                wanted = path.name in (*OWN, "model.safetensors") if name != "run" else path.name != "002.safetensors"
                if path.is_file() and path.name != "lock" and wanted:
                    called = str(path.relative_to(folder))
                    examples = (path.read_bytes(),)
                    found.append(Target(called, path, examples, lambda _, use=use, place=place: use(place)))
    return found


def all_targets(folder: Path, only: Sequence[str] = ()) -> list[Target]:
    """Everything that reads a file, or some of it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    found = tables(folder)
    if not {target.name for target in found}.issuperset(only or ["all"]):
        from asked import of_what_is_asked

        found += of_runs(folder) + of_what_is_asked(folder)
    found = [target for target in found if not only or target.name in only]
    for target in found:
        target.path.write_bytes(target.examples[0])
    return found
