"""Small files of ours, and how any file of ours is written: whole or not at all. Never pickle."""

import ctypes
import glob
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside the path, renamed to it when all went well and is on disk: there is never a half file.

    The name is of this call alone, so two who write the same file do not meet; several processes of one run have the
    same, and the first renames and removes.
    """
    from divmf.engine import comm  # it brings numpy, which reading the command line does without

    owner = f"{os.getpid()}-{uuid4().hex[:8]}" if comm.size() == 1 else "shared"
    temporary = path.with_name(f".{path.name}.{owner}.tmp")
    if comm.first():
        remove_strays(path)
    try:
        with naming_output(path):
            yield temporary
            if comm.first():
                to_disk(temporary)
                temporary.replace(path)
                to_disk(path.parent)
        comm.barrier()
    finally:
        if comm.first():
            temporary.unlink(missing_ok=True)


def to_disk(path: Path) -> None:
    """Have the system write a file, or the names in a folder, to disk: a rename must not come before what it names."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        if not path.is_dir():  # not every file system knows this of folders
            raise
    finally:
        os.close(handle)


def put_folder(made: Path, folder: Path) -> None:
    """Give a folder its name, in the place of one that may be there: at every moment there is the one or the other."""
    remove_strays(folder)
    if folder.exists() and not exchanged(made, folder):  # where the system cannot, there is none for a moment
        old = made.with_name(f"{made.name}.old.tmp")
        folder.rename(old)
        made.rename(folder)
        old.rename(made)
    elif made.exists() and not folder.exists():
        made.rename(folder)
    to_disk(folder.absolute().parent)
    shutil.rmtree(made, ignore_errors=True)


def exchanged(one: Path, other: Path) -> bool:
    """Exchange the names of two folders in one step, if the system can (Linux, on most of its file systems)."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)


def remove_strays(path: Path) -> None:
    """Remove what calls that were killed while they wrote this file have left beside it."""
    for stray in path.parent.glob(f".{glob.escape(path.name)}.*-*.tmp"):
        number = stray.name.removeprefix(f".{path.name}.").partition("-")[0]
        if number.isdecimal() and not alive(int(number)):
            with suppress(OSError):
                shutil.rmtree(stray) if stray.is_dir() else stray.unlink()


def alive(process: int) -> bool:
    """Whether a process with this number runs on this machine."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


@contextmanager
def naming_output(path: Path) -> Iterator[None]:
    """What fails while a file is written (a full disk, as a rule) as an error that names the file."""
    try:
        yield
    except OSError as error:
        raise unwritten(path, error.strerror or reason_of(error)) from error
    except BaseException as error:  # of writers in other languages, whose errors are no OSError, nor all an Exception
        if type(error).__module__.partition(".")[0] not in ("polars", "pyo3_runtime", "safetensors_rust"):
            raise
        raise unwritten(path, reason_of(error)) from error


@contextmanager
def naming(path: str | Path | None) -> Iterator[None]:
    """Errors about what a file holds begin with its name, unless they name it already."""
    try:
        yield
    except ValueError as error:
        if path is None or names(str(error), str(path)):
            raise
        raise ValueError(f"{path}: {error}") from error


def names(text: str, path: str) -> bool:
    """Whether a text begins with a path, or with one below it."""
    return re.match(rf"{re.escape(path)}(?![\w-]|\.\w)", text) is not None


def unwritten(path: Path, reason: str) -> OSError:
    """The error for a file that could not be written."""
    return OSError(f"{path} could not be written: {reason}; what was there before is unchanged")


def reason_of(error: BaseException | str) -> str:
    """What an error says, in one line."""
    text = str(error).strip().splitlines() or [type(error).__name__]
    return text[0] or type(error).__name__


def damaged(path: Path, error: BaseException | str) -> ValueError:
    """The error for a file of ours that cannot be read, or is not there."""
    saved = (path.parent / "model.json").exists()
    way_out = "save the model again, or restore the file" if saved else "remove the run folder and train again"
    if path.name == "picked.json":
        way_out = f"run `divmf pick {path.parent} --ndcg-drop 5%`"
    wrong = "missing" if isinstance(error, FileNotFoundError) else f"damaged ({reason_of(error)})"
    return ValueError(f"{path} is {wrong}; {way_out}")


def write_text(path: Path, text: str) -> None:
    """Write a small file, whole or not at all; the first process does."""
    from divmf.engine import comm

    with replacing(path) as temporary:
        if comm.first():
            temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write JSON, whole or not at all."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def append_line(path: Path, line: str) -> None:
    """Add a line to a file, on disk when this returns; a last line that was cut off before its end goes first."""
    with naming_output(path), path.open("a+b", buffering=0) as file:
        file.seek(0)
        size = file.read().rfind(b"\n") + 1  # up to the end of the last whole line
        file.truncate(size)
        left = f"{line}\n".encode()
        try:
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except OSError:  # a full disk: half a line is of no use
            file.truncate(size)
            raise


def text_of(path: Path) -> str:
    """The text of a file of ours; what is not text is an error that names it."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError as error:
        raise damaged(path, error) from error
    except (OSError, UnicodeDecodeError) as error:
        raise damaged(path, error.strerror or "unreadable" if isinstance(error, OSError) else "not text") from error


def read_json(path: Path) -> Any:
    """Read JSON; a damaged file is an error that names it."""
    text = text_of(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(path, error) from error
