"""What a command says, and where: results on stdout, everything else on stderr."""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from math import isfinite, isnan
from typing import Any

from rich.console import Console
from rich.logging import RichHandler
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from divmf.engine.masking import printable


def console(stderr: bool) -> Console:
    """A stream for people; a pipe has no width, so nothing is cut or folded there."""
    made = Console(stderr=stderr, highlight=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=240)


@dataclass
class Out:
    """The three flags every command has, and the two streams they steer.

    silent: of several processes, all but the first say nothing
    """

    json: bool = False
    quiet: bool = False
    debug: bool = False
    silent: bool = False
    stdout: Console = field(default_factory=lambda: console(stderr=False))
    stderr: Console = field(default_factory=lambda: console(stderr=True))

    def listen(self) -> None:
        """Show the library's log lines: warnings always, progress unless asked to be quiet."""
        level = logging.DEBUG if self.debug else logging.WARNING if self.quiet or self.live else logging.INFO
        if self.silent and not self.debug:
            level = logging.CRITICAL
        handler: logging.Handler = logging.StreamHandler()
        if self.live:  # above the progress bar, not through it
            handler = RichHandler(console=self.stderr, show_time=False, show_path=False, show_level=False)
        logger = logging.getLogger("divmf")
        logger.handlers[:] = [handler]
        logger.setLevel(level)

    @property
    def live(self) -> bool:
        """Whether a progress bar may move."""
        return self.stderr.is_terminal and not self.quiet and not self.silent

    def say(self, text: str) -> None:
        """A line for people; not with --json or -q."""
        if not (self.json or self.quiet or self.silent):
            self.stdout.print(printable(text), markup=False)

    def note(self, text: str) -> None:
        """A line for people about how it goes, on stderr; not with -q."""
        if not (self.quiet or self.silent):
            self.stderr.print(printable(text), markup=False)

    def result(self, document: object) -> None:
        """With --json: the one JSON document on stdout."""
        if self.json and not self.silent:
            in_ascii = "utf" not in (self.stdout.encoding or "").lower()
            print(json.dumps(strict(document), ensure_ascii=in_ascii, allow_nan=False, default=str))

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """A table for people; not with --json or -q."""
        if self.json or self.quiet or self.silent:
            return
        cells = [list(row) for row in rows]
        if title:  # not the table's own title, which is folded to the width of the table
            self.stdout.print(printable(title), style="italic", markup=False)
        table = Table(header_style="bold", box=None, pad_edge=False)
        for number, name in enumerate(columns):
            texts = all(isinstance(row[number], str) for row in cells)
            table.add_column(name, justify="left" if texts else "right", overflow="fold")
        for row in cells:
            table.add_row(*(escape(printable(cell)) if isinstance(cell, str) else shown(cell) for cell in row))
        self.stdout.print(table)

    @contextmanager
    def progress(self, what: str, total: int | None) -> Iterator["Bar"]:
        """A progress bar on a terminal; elsewhere nothing moves and the log lines tell."""
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                   TimeElapsedColumn(), TextColumn("{task.fields[figures]}"))  # fmt: skip
        progress = Progress(*columns, console=self.stderr, disable=not self.live, transient=True)
        with progress if self.live else nullcontext():  # rich 13 and 14 end a disabled one with an empty line
            yield Bar(progress, progress.add_task(what, total=total, figures=""))


@dataclass
class Bar:
    """One moving bar."""

    progress: Progress
    task: Any

    def tell(self, line: str) -> None:
        """What is going on, beside a bar that does not know how far it is."""
        self.progress.update(self.task, description=line, completed=0, total=None, figures="")

    def update(self, what: str, completed: int, total: int | None, figures: Mapping[str, float]) -> None:
        """Move it, with the figures of the moment beside it."""
        beside = "  ".join(f"{name} {shown(value)}" for name, value in figures.items())
        self.progress.update(self.task, description=what, completed=completed, total=total, figures=beside)


@contextmanager
def hushed(room: str) -> Iterator[None]:
    """No warnings of a part of the library for a while: what a sweep passes through is no news."""
    logger = logging.getLogger(room)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def strict(value: object) -> object:
    """A document as JSON can say it, which knows no infinity: ±inf as "inf" and "-inf", NaN as null."""
    if isinstance(value, Mapping):
        return {key: strict(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [strict(inner) for inner in value]
    if isinstance(value, float) and not isfinite(value):
        return None if isnan(value) else f"{value:g}"
    return value


def shown(value: object) -> str:
    """A number as people read it."""
    if isinstance(value, float):
        return f"{value:.4f}" if abs(value) < 10 else f"{value:,.1f}"
    if isinstance(value, int):
        return f"{value:,}"
    return "–" if value is None else str(value)
