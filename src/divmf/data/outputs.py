"""What an output may replace: an earlier output of the same kind, and nothing else."""

import json
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from divmf.data.tables import KINDS, file_kind

LISTS = ("user_id", "item_id", "score", "rank")  # the columns of lists
DISCOUNTS = ("item_id", "discount")
PAGE = b'<meta name="generator" content="divmf">'
OF_RUN = (
    "config.json", "ids.parquet", "interactions.parquet", "epochs.jsonl", "tuned.json", "state.safetensors",
    "picked.json", "rules.json", "lock",
)  # fmt: skip
OF_MODEL = ("model.json", "model.safetensors", "lists.safetensors", "ids.parquet", "interactions.parquet")
HEAD = 1 << 16  # bytes looked at


def protect(path: Path, inputs: Iterable[str | Path | None] = (), columns: Iterable[str] = ()) -> None:
    """Refuse, before any work is done, an output that would replace what is not an output of this kind.

    inputs    what the command reads: files, folders of parts
    columns   those of a table, by which an earlier one is known
    """
    for given in inputs:
        if given is not None:
            check_input(path, Path(given))
    for folder in path.absolute().parents:
        if is_own(path.absolute().relative_to(folder), folder):
            raise ValueError(f"{path} is a file of the run or model in {folder}; choose another place with -o")
    if path.is_file() and path.stat().st_size and not is_earlier(path, set(columns)):
        raise ValueError(
            f"{path} is there already and is not an earlier output of this command; choose another place with -o,"
            " or remove it"
        )


def check_input(path: Path, given: Path) -> None:
    """Refuse an output that is an input, or a part of one."""
    if path.exists() and given.exists() and path.samefile(given):
        raise ValueError(f"{path} is read by this command; choose another place with -o")
    if given.is_dir() and given.resolve() in path.resolve().parents:
        raise ValueError(f"{path} would be a part of {given}, which this command reads; choose another place with -o")


def is_own(name: Path, folder: Path) -> bool:
    """Whether a name in a folder is one of those that a run or a saved model has."""
    if (folder / "points").is_dir() and (folder / "config.json").is_file():
        return str(name) in OF_RUN or name.parts[0] == "points"
    return (folder / "model.json").is_file() and str(name) in OF_MODEL


def is_earlier(path: Path, columns: set[str]) -> bool:
    """Whether a file looks like an output of ours, by what it holds."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    ending = path.suffix.lower()
    if ending == ".html":
        return PAGE in head
    if ending == ".png":
        return head.startswith(b"\x89PNG")
    if ending == ".svg":
        return head.lstrip().startswith(b"<svg")
    if not columns:
        return b"vega-lite" in path.read_bytes() if ending == ".json" else False
    return ending in KINDS and columns <= columns_of(path, head)


def columns_of(path: Path, head: bytes) -> set[str]:
    """The columns of a table, without reading its rows; none, if it is none."""
    kind, _ = file_kind(path)
    try:
        if kind == "parquet":
            return set(pl.read_parquet_schema(path))
        first = head.splitlines()[0].decode()
        if kind == "json":
            row = json.loads(first)
            return set(row) if isinstance(row, dict) else set()
        return set(first.strip().split("\t" if kind == "tsv" else ","))
    except (OSError, ValueError, RecursionError, pl.exceptions.PolarsError):
        return set()
