"""A malformed input as a row of a table: what is there, what is called, and what is seen of it.

The folder of each row holds `standard` files: events.csv, a run, a saved model, lists and what they are measured with.
"""

import contextlib
import hashlib
import io
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import torch
from safetensors.torch import load_file, save_file

DATA = "synthetic:60x40x900"
JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Case:
    """about: what is wrong, in words; call: words of a shell, Python, or a request as `PUT /rules {…}` to a service;
    given: makes it so in the current folder.
    """

    about: str
    call: str
    given: Callable[[], None] = lambda: None
    names: str | None = None  # the file that must be named

    @property
    def in_python(self) -> bool:
        return not self.call.startswith("divmf ") and not self.is_request

    @property
    def is_request(self) -> bool:
        return self.call.split()[0] in ("GET", "POST", "PUT")


@dataclass(frozen=True)
class Seen:
    """What the user sees: the exit code, or the type of an exception; the message; which files were written."""

    end: str
    said: str
    wrote: tuple[str, ...] = ()


def text(path: str, content: str) -> Callable[[], None]:
    """A text file."""

    def make() -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(content)

    return make


def raw(path: str, content: bytes) -> Callable[[], None]:
    """A file of any bytes."""

    def make() -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(content)

    return make


def frame(path: str, columns: Mapping[str, Any]) -> Callable[[], None]:
    """A parquet file."""
    return lambda: pl.DataFrame(columns, strict=False).write_parquet(path)


def cut(path: str, size: int) -> Callable[[], None]:
    """The first bytes of a file."""
    return lambda: os.truncate(path, size)


def document(path: str, **values: Any) -> Callable[[], None]:
    """A JSON file with other values; `a__b` is b of a, and what becomes None is taken out."""

    def change() -> None:
        whole = json.loads(Path(path).read_text())
        for name, value in values.items():
            *outer, last = name.split("__")
            part = whole
            for key in outer:
                part = part[key]
            if value is None:
                del part[last]
            else:
                part[last] = value
        Path(path).write_text(json.dumps(whole))

    return change


def tensors(path: str, how: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[], None]:
    """A file of tensors with some changed."""

    def change() -> None:
        found = load_file(path)
        how(found)
        save_file({name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in found.items()}, path)

    return change


def table(path: str, how: Callable[[pl.DataFrame], pl.DataFrame]) -> Callable[[], None]:
    """A parquet file with something changed."""

    def change() -> None:
        how(pl.read_parquet(path)).write_parquet(path)

    return change


def gone(path: str) -> Callable[[], None]:
    """A file that is not there any more."""
    return lambda: Path(path).unlink()


def several(*steps: Callable[[], None]) -> Callable[[], None]:
    """One after the other."""

    def make() -> None:
        for step in steps:
            step()

    return make


def make_standard(folder: Path, run: Path) -> None:
    """The files that every row begins with."""
    import divmf
    from divmf.data.datasets import open_data

    shutil.copytree(run, folder / "run", ignore=shutil.ignore_patterns("lock"))
    data, model = open_data(DATA), divmf.load(run)
    split = model.split
    data.frame.write_csv(folder / "events.csv")
    model.save(folder / "model")
    for name, k in (("lists", 5), ("wide", 20)):
        model.lists(k=k).frame.write_csv(folder / f"{name}.csv")
    split.test.frame.write_csv(folder / "test.csv")
    split.train.frame.write_csv(folder / "train.csv")
    pl.DataFrame({"item_id": split.item_ids, "title": [f"item {n}" for n in range(split.n_items)]}).write_csv(
        folder / "catalog.csv"
    )
    (folder / "data").mkdir()


def contents(folder: Path) -> dict[str, str]:
    """All files and folders below a folder; locks do not count."""
    return {
        str(path.relative_to(folder)): "" if not path.is_file() else hashlib.md5(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.name != "lock"
    }


@contextlib.contextmanager
def standing_in(folder: Path) -> Iterator[None]:
    """The current folder, and an empty data directory in it."""
    old, environment = Path.cwd(), os.environ.get("DIVMF_DATA")
    os.chdir(folder)
    os.environ["DIVMF_DATA"] = "data"
    try:
        yield
    finally:
        os.chdir(old)
        del os.environ["DIVMF_DATA"]
        if environment is not None:
            os.environ["DIVMF_DATA"] = environment


def see(case: Case, folder: Path) -> Seen:
    """Make the case in a folder of standard files, call, and tell."""
    with standing_in(folder):
        case.given()
        before = contents(folder)
        how = see_request if case.is_request else see_python if case.in_python else see_command
        seen = how(case)
        after = contents(folder)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    said = seen.said.replace(f"{folder.resolve()}/", "").replace(f"{folder}/", "")
    return Seen(seen.end, said, tuple(changed))


def see_command(case: Case) -> Seen:
    """A command in this process: its exit code, and all that it says on stderr."""
    from divmf.cli import main

    said, kept = io.StringIO(), sys.argv
    sys.argv = shlex.split(case.call)
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            main()
    except SystemExit as stop:
        return Seen(str(stop.code), said.getvalue().strip())
    finally:
        sys.argv = kept
    raise AssertionError("main() did not exit")


def see_python(case: Case) -> Seen:
    """A line of Python: the exception's type, and what it says."""
    import numpy as np

    import divmf

    names = {"divmf": divmf, "np": np, "pl": pl, "split": None, "model": None}
    if "split" in case.call or "model." in case.call:
        names["model"] = divmf.load("model")
        names["split"] = names["model"].split  # type: ignore[attr-defined]
    try:
        eval(case.call, names)
    except Exception as error:
        lines = [line for line in str(error).splitlines() if "pydantic.dev" not in line]  # an address of its version
        return Seen(type(error).__name__, "\n".join(lines))
    return Seen("", "")


def see_request(case: Case) -> Seen:
    """A request to a service of the run with shop.csv as its catalog: the status, and the detail of the problem."""
    from starlette.testclient import TestClient

    from divmf.serve.http import create_app, open_live
    from divmf.serve.settings import ServeSettings

    method, path, *body = case.call.split(" ", 2)
    with tempfile.TemporaryDirectory() as elsewhere:
        given = ServeSettings(run=Path("run"), catalog=Path("shop.csv"), store=f"sqlite:///{elsewhere}/live.sqlite")
        with TestClient(create_app(open_live(given), given), base_url="http://127.0.0.1") as client:
            answer = client.request(method, path, content=body[0] if body else None, headers=JSON)
    assert answer.headers["content-type"] == "application/problem+json"
    return Seen(str(answer.status_code), answer.json()["detail"])
