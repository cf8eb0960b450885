"""What tests share: where real data is, and a log small enough to work out by hand."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from divmf.split import Split

settings.register_profile("divmf", deadline=None)  # a busy machine is not a failure
settings.load_profile("divmf")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Small tests gain nothing from threads, and on a busy machine these wait for each other; some set their own."""
    import numba
    import torch

    import divmf.kernels
    import divmf.model  # noqa: F401  (both set the threads when they are loaded)

    torch.set_num_threads(1)
    numba.set_num_threads(1)


@pytest.fixture(scope="session")
def real() -> Callable[[str], Path]:
    """The path of a real file of the data directory; the test is skipped, saying so, where it is absent."""
    directory = os.environ.get("DIVMF_DATA")  # read once: tests set it to folders of their own

    def path_of(name: str) -> Path:
        if not directory:
            pytest.skip(f"needs {name}: DIVMF_DATA does not name a data directory")
        path = Path(directory) / name
        if not path.exists():
            pytest.skip(f"needs {name}, which is not in {directory}")
        return path

    return path_of


@pytest.fixture
def data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data directory of the test's own."""
    folder = tmp_path / "data"
    (folder / "raw").mkdir(parents=True)
    monkeypatch.setenv("DIVMF_DATA", str(folder))
    return folder


@pytest.fixture(scope="session")
def split() -> "Split":
    """A marketplace small enough to train on in a moment."""
    from divmf.datasets import marketplace

    return marketplace(users=120, items=60, interactions=1500, seed=1).leave_one_out(0)


@pytest.fixture
def small_log() -> pl.DataFrame:
    """Three users, four items, eight rows, of which one repeats a pair: ann met tea again at 9."""
    rows = [
        ("bob", "tea", 4), ("ann", "tea", 1), ("ann", "jam", 7), ("bob", "rye", 2),
        ("ann", "rye", 7), ("cyd", "egg", 5), ("ann", "tea", 9), ("bob", "jam", 3),
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row")
