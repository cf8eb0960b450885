"""What tests share: where real data is, and a log small enough to work out by hand."""

import json
import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from divmf.data.split import Split

settings.register_profile("divmf", deadline=None)  # a busy machine is not a failure
settings.load_profile("divmf")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Small tests gain nothing from threads, and on a busy machine these wait for each other; some set their own."""
    import numba
    import torch

    import divmf.kernels
    import divmf.models.mf  # noqa: F401  (both set the threads when they are loaded)

    torch.set_num_threads(1)
    numba.set_num_threads(1)


@pytest.fixture(autouse=True)
def log_as_it_was() -> None:
    """A command called by another test or a fixture sets how the library's log is shown; each test begins anew."""
    logger = logging.getLogger("divmf")
    logger.setLevel(logging.NOTSET)
    logger.handlers[:] = []
    logging.getLogger("divmf.rerank").setLevel(logging.NOTSET)  # `divmf reproduce` hushes it


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
    from divmf.data.datasets import marketplace

    return marketplace(users=120, items=60, interactions=1500, seed=1).leave_one_out(0)


@pytest.fixture
def small_log() -> pl.DataFrame:
    """Three users, four items, eight rows, of which one repeats a pair: ann met tea again at 9."""
    rows = [
        ("bob", "tea", 4), ("ann", "tea", 1), ("ann", "jam", 7), ("bob", "rye", 2),
        ("ann", "rye", 7), ("cyd", "egg", 5), ("ann", "tea", 9), ("bob", "jam", 3),
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row")


class Done:
    """What a call left: exit code and the two streams."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def divmf(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Call `divmf …` in this process."""

    from divmf.cli import main

    def call(*arguments: Any) -> Done:
        monkeypatch.setattr(sys, "argv", ["divmf", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        streams = capsys.readouterr()
        return Done(stop.value.code if isinstance(stop.value.code, int) else 0, streams.out, streams.err)

    return call


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`divmf train synthetic:60x40x900`, of a few epochs; not to be changed."""
    from divmf.data.datasets import open_data
    from divmf.models.config import TrainConfig
    from divmf.train.fitting import fit
    from divmf.train.runs import Run

    split, config = (
        open_data("synthetic:60x40x900").leave_one_out(0),
        TrainConfig(accuracy_epochs=4, diversity_epochs=6),
    )
    run = Run.start(tmp_path_factory.mktemp("finished") / "run", split, config, "synthetic:60x40x900")
    for _ in fit(run, split, config):
        pass
    run.pick(ndcg_drop=0.05)
    return run.folder


@pytest.fixture
def run_folder(finished_run: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, to do anything with."""
    return Path(shutil.copytree(finished_run, tmp_path / "run"))


@pytest.fixture
def look_at() -> Callable[[Path, int, str, int], None]:
    """Open a page in a real browser: it draws its charts, fits its width, fetches nothing and complains of nothing."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install playwright)")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("needs Chromium (apt-get install chromium)")

    def look(page: Path, charts: int, scheme: str, width: int, method: int | None = None) -> None:
        """method: the place in the first legend of a method that is left alone by a click."""
        with sync_api.sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            tab = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
            problems: list[str] = []
            fetched: list[str] = []
            tab.on("console", lambda message: problems.append(message.text))
            tab.on("pageerror", lambda error: problems.append(str(error)))
            tab.on("request", lambda request: fetched.append(request.url))
            tab.goto(page.as_uri())
            tab.wait_for_function(f"document.querySelectorAll('.chart svg.marks').length === {charts}")
            tab.wait_for_timeout(500)
            assert problems == []
            assert fetched == [page.as_uri()]
            assert tab.evaluate("document.documentElement.scrollWidth") == width
            excess = "[...document.querySelectorAll('.chart')].map(box => box.scrollWidth - box.clientWidth)"
            assert tab.evaluate(excess) == [0] * charts
            marks = "document.querySelectorAll('.chart .mark-symbol path, .chart .mark-line path').length"
            assert tab.evaluate(marks) > 20
            each = (
                "[...document.querySelectorAll('.chart')].map(box => box.querySelectorAll('.role-mark :is(path, line)')"
            )
            assert min(tab.evaluate(f"{each}.length)")) > 1
            fills = "[...document.querySelectorAll('.chart text')].map(each => getComputedStyle(each).fill)"
            assert "rgb(0, 0, 0)" not in tab.evaluate(fills)  # unreadable on a dark page
            title = "getComputedStyle(document.querySelector('.chart .role-axis-title text')).fill"
            assert tab.evaluate(title) == {"light": "rgb(34, 38, 43)", "dark": "rgb(232, 230, 225)"}[scheme]
            if method is not None:
                tab.locator(".role-legend-symbol path").nth(method).scroll_into_view_if_needed()
                box = tab.locator(".role-legend-symbol path").nth(method).bounding_box()
                tab.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
                tab.wait_for_timeout(300)
                first = "document.querySelector('.chart').querySelectorAll('.mark-line path')"
                shown = tab.evaluate(f"[...{first}].map(line => Number(line.getAttribute('opacity')))")
                assert sorted(shown) == [0.06] * 9 + [1] * 3  # one of four methods, in three panels
            browser.close()

    return look


class Threads:
    """Several processes of one run, played by threads that meet at a barrier."""

    def __init__(self, size: int) -> None:
        self.n_threads, self.barrier = size, threading.Barrier(size)
        self.held: list[Any] = [None] * size
        self.own = threading.local()

    def size(self) -> int:
        return self.n_threads

    def rank(self) -> int:
        return int(self.own.rank)

    def all_gather(self, value: Any) -> list[Any]:
        self.held[self.rank()] = value
        self.barrier.wait()
        found = list(self.held)
        self.barrier.wait()
        return found

    def shared(self, value: Any) -> Any:
        return self.all_gather(value)[0]

    def total(self, value: Any) -> Any:
        return sum(self.all_gather(np.asarray(value)))

    def run(self, work: Callable[[], Any]) -> list[Any]:
        def of_rank(rank: int) -> Any:
            self.own.rank = rank
            try:
                return work()
            except BaseException:
                self.barrier.abort()
                raise

        with ThreadPoolExecutor(self.n_threads) as pool, pytest.MonkeyPatch.context() as patch:
            for name in ("size", "rank", "all_gather", "shared", "total"):
                patch.setattr(f"divmf.engine.comm.{name}", getattr(self, name))
            patch.setattr("divmf.data.scans.SMALL", 1)  # no log is too small to be shared
            done = [pool.submit(of_rank, rank) for rank in range(self.n_threads)]
            errors = [error for each in done if (error := each.exception())]
        # who waits while another fails finds the barrier broken: that is not what went wrong
        for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
            raise error
        return [each.result() for each in done]


@pytest.fixture(scope="session")
def processes() -> type[Threads]:
    """processes(3).run(work): what each of three processes of one run gets from `work()`, by rank."""
    return Threads
