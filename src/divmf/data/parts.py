"""A table as a folder of parquet parts, one written by each process; any tool reads the folder as one table."""

import os
import re
from pathlib import Path
from uuid import uuid4

import polars as pl

from divmf.engine import comm
from divmf.engine.files import alive, naming_output, to_disk

OURS = re.compile(r"\.?part-\d{5}-of-\d{5}\.parquet(\.(?P<process>\d+)-[0-9a-f]{8})?(\.tmp)?")


def is_folder(path: Path) -> bool:
    """Whether an output is to be a folder of parts: there is such a folder, or the name has no ending."""
    return path.is_dir() or not path.suffix


def check_folder(folder: Path) -> None:
    """Refuse, before any work is done, a folder that could not be written, or that holds other things than parts."""
    if folder.is_file():
        raise ValueError(f"{folder} is a file; name a folder for the parts, or a file with an ending such as .parquet")
    if not folder.parent.is_dir():
        raise ValueError(f"{folder}: there is no folder {folder.parent}; make it first")
    if folder.is_dir() and (other := [path.name for path in folder.iterdir() if not OURS.fullmatch(path.name)]):
        raise ValueError(f"{folder} holds {min(other)}, which is not a part of lists; choose another folder")


def write_part(table: pl.DataFrame, folder: Path) -> None:
    """Write this process's rows, in the order of the processes; all of them must call it.

    Parts get their names when all are there, and then those of an earlier call with another number of processes go,
    and what calls that were killed have left; two calls at once do not meet.
    """
    if comm.first():
        folder.mkdir(exist_ok=True)
    comm.all_gather(None)  # the folder is there
    names = [f"part-{rank:05d}-of-{comm.size():05d}.parquet" for rank in range(comm.size())]
    owner = comm.shared(f"{os.getpid()}-{uuid4().hex[:8]}")
    with naming_output(folder / names[comm.rank()]):
        table.write_parquet(part := folder / f".{names[comm.rank()]}.{owner}.tmp")
        to_disk(part)
    comm.all_gather(None)  # all parts are there
    if comm.first():
        for name in names:
            (folder / f".{name}.{owner}.tmp").replace(folder / name)
        for path in folder.iterdir():
            found = OURS.fullmatch(path.name)
            process = found and found["process"]
            if path.name not in names and not (process and alive(int(process))):
                path.unlink(missing_ok=True)
    comm.all_gather(None)  # whoever goes on finds them
