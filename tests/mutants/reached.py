"""Which tests reach which lines: what a mutant has to be tried by."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


class Reached:
    """Which lines of the package each test reaches, and how long it takes: a plugin of pytest.

    A test reaches what its fixtures do, also where another test has set them up. What is run while tests are collected,
    such as decorators, stands under no name.
    """

    def __init__(self, source: Path) -> None:
        self.source, self.now = f"{source}{os.sep}", set[str]()
        self.found: dict[str, tuple[float, set[str]]] = {}
        self.fixtures: dict[str, set[str]] = {}

    @classmethod
    def read(cls, source: Path, path: Path) -> "Reached":
        """From what `write` kept."""
        made = cls(source)
        made.found = {test: (took, set(found)) for test, (took, found) in json.loads(path.read_text()).items()}
        return made

    def write(self, path: Path) -> None:
        """Keep what was found."""
        path.write_text(json.dumps({test: [took, sorted(found)] for test, (took, found) in self.found.items()}))

    def trace(self, frame: Any, event: str, _: Any) -> Any:
        """Called by Python for each function, and within the package for each line."""
        if not frame.f_code.co_filename.startswith(self.source):
            return None
        self.now.add(f"{self.name(frame.f_code.co_filename)}:{frame.f_lineno}")
        return self.trace

    @pytest.hookimpl(hookwrapper=True)
    def pytest_collection(self) -> Iterator[None]:
        sys.settrace(self.trace)
        yield
        sys.settrace(None)
        self.found[""] = 0.0, self.now

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        before, self.now = self.now, set()
        yield
        self.fixtures.setdefault(fixturedef.argname, set()).update(self.now)
        self.now |= before

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        began, self.now = time.perf_counter(), set()
        threading.settrace(self.trace)
        sys.settrace(self.trace)
        yield
        sys.settrace(None)
        lines = self.now.union(*(self.fixtures.get(name, set()) for name in item.fixturenames))
        self.found[item.nodeid] = time.perf_counter() - began, lines

    def by_lines(self, module: Path, lines: range | None) -> list[str]:
        """The tests that reach one of these lines; all, where they are none, or are run when modules are loaded."""
        name = self.name(module)
        wanted = {f"{name}:{line}" for line in lines or ()}
        by_all = not wanted or wanted & self.found[""][1]
        return self.ordered(lambda found: bool(by_all or wanted & found))

    def name(self, module: Path | str) -> str:
        """A module as lines are named after it."""
        return str(module)[len(self.source) :]

    def by_kernels(self, kernels: set[Path]) -> list[str]:
        """The tests that reach a module which calls one of these kernels, and those of files that call one."""
        lines = [f"from divmf.kernels.{path.stem} import" for path in kernels]
        users = {
            self.name(path)
            for path in Path(self.source, "divmf").rglob("*.py")
            if path.parent.name != "kernels" and any(line in path.read_text() for line in lines)
        }
        files = {test.partition("::")[0] for test in self.found if test}
        calling = {each for each in files if any(line in Path(each).read_text() for line in lines)}
        reached = self.ordered(lambda found: any(each.rpartition(":")[0] in users for each in found))
        own = [test for test in self.found if test.partition("::")[0] in calling and test not in set(reached)]
        return sorted([*reached, *own], key=self.took)

    def ordered(self, wanted: Callable[[set[str]], bool]) -> list[str]:
        """Those tests, the fastest first."""
        return sorted((test for test, (_, found) in self.found.items() if test and wanted(found)), key=self.took)

    def took(self, test: str) -> float:
        """The seconds that a test takes."""
        return self.found[test][0]
