"""Small files of ours, and how any file of ours is written: whole or not at all. Never pickle."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from divmf import comm


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside the path, renamed to it when all went well: there is never a half file.

    Several processes have the same name, and the first renames and removes.
    """
    owner = os.getpid() if comm.size() == 1 else "shared"
    temporary = path.with_name(f".{path.name}.{owner}.tmp")
    try:
        yield temporary
        if comm.first():
            temporary.replace(path)
        comm.meet()
    finally:
        if comm.first():
            temporary.unlink(missing_ok=True)


def damaged(path: Path, error: Exception) -> ValueError:
    """The error for a file of ours that cannot be read."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return ValueError(f"{path} is damaged ({reason}); remove the run folder and train again")


def write_text(path: Path, text: str) -> None:
    """Write a small file, whole or not at all; the first process does."""
    with replacing(path) as temporary:
        if comm.first():
            temporary.write_text(text)


def write_json(path: Path, value: Any) -> None:
    """Write JSON, whole or not at all."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON; a damaged file is an error that names it."""
    try:
        return json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise damaged(path, error) from error
