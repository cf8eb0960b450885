"""How long work goes, for people who call it from Python."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def told(shown: bool) -> Iterator[Callable[[str], None]]:
    """A function that is told, a line at a time, how it goes; the last line and the time stand on stderr meanwhile."""
    if not shown:
        yield lambda line: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda line: progress.update(task, description=line)
