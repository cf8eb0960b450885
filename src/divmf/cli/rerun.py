"""divmf rerun."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from divmf.cli.app import app
from divmf.cli.console import Out
from divmf.cli.options import command

if TYPE_CHECKING:
    from divmf.train.runs import Run


@command(app, "rerun")
def rerun(
    out: Out,
    run: Annotated[Path, typer.Argument(help="A run folder made by `divmf train`; it is not changed.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Keep the repeated run in this folder; otherwise it is removed."),
    ] = None,
) -> None:
    """Repeat a run from its own folder, and say what is equal byte for byte, or where the first difference is.

    Data, settings and seed are those in the folder. The exit code is 1 if anything differs. Example: divmf rerun run
    """
    from divmf.train.rerun import compared
    from divmf.train.runs import Run

    opened = Run.open(run)
    if not len(opened.read_curve()):
        raise ValueError(f"{run} has no finished epoch yet, so there is nothing to make again")
    if output is not None and output.resolve() == run.resolve():
        raise ValueError(f"{output} is the run itself; choose another folder with -o")
    with TemporaryDirectory(prefix="divmf-rerun-") as temporary:
        again = make(out, opened, Path(temporary) / "run" if output is None else output)
        found = compared(opened, again)
    rows = [[check.what, "equal" if check.same else "DIFFERENT", check.detail] for check in found]
    out.table(f"{run}, made again", ["", "", ""], rows)
    different = [check for check in found if not check.same]
    names = ", ".join(check.what for check in different)
    out.say("all is equal" if not different else f"different: {names}")
    out.result({
        "run": str(run), "equal": not different, "output": None if output is None else str(output),
        "checks": [{"what": check.what, "equal": check.same, "detail": check.detail} for check in found],
    })  # fmt: skip
    if different:
        raise typer.Exit(1)


def make(out: Out, opened: "Run", folder: Path) -> "Run":
    """Make a run again in a folder, with a progress bar."""
    from divmf.train.rerun import repeat
    from divmf.train.runs import Run

    total = len(opened.read_curve())
    with out.progress("making it again", total) as bar:
        for number, point in enumerate(repeat(opened, folder), 1):
            bar.update(point.phase, number, total, {"nDCG": point.valid["ndcg"], "Gini": point.valid["gini"]})
    return Run.open(folder)
