"""The command line: the only place that prints or exits."""

import io
import sys

import typer
from typer.models import CommandInfo

from divmf.cli.app import app
from divmf.cli.errors import explain, failed, one_line_of

ORDER = ("train", "curve", "pick", "recommend", "evaluate", "audit", "rerank", "compare", "serve", "replay", "demo")


def place(command: CommandInfo) -> int:
    """Where a command stands in the help: the main job in its order, then the others."""
    return ORDER.index(command.name) if command.name in ORDER else len(ORDER)


def main() -> None:
    """Run a command; errors become one line and an exit code: 1 the work failed, 2 the call was wrong."""
    debug = "--debug" in sys.argv
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal may know no ρ
            stream.reconfigure(errors="backslashreplace")
    try:
        from divmf.cli import (  # noqa: F401  (each registers its commands)
            audit,
            compare,
            curve,
            data,
            demo,
            doctor,
            lists,
            plan,
            replay,
            reproduce,
            rerank,
            rerun,
            serve,
            train,
        )

        if "" in sys.argv[1:]:
            raise ValueError(
                f"argument {sys.argv.index('', 1)} is empty, as of a variable that is not set; give a value,"
                " or leave it out"
            )
        app.registered_commands.sort(key=place)
        code = app(prog_name="divmf", standalone_mode=False)
    except typer.Abort:
        code = failed("stopped", 1)
    except KeyboardInterrupt:
        code = failed("stopped", 1)
    except typer.TyperException as error:
        code = failed(usage(error), 2) if error.format_message() else 2  # the help was shown: nothing to add
    except Exception as error:
        if debug:
            raise
        code = explain(error)
    except BaseException as error:
        if debug or type(error).__name__ != "PanicException":
            raise
        code = failed(f"polars cannot work on this: {one_line_of(error)}; check the types of the columns", 1)
    sys.exit(code if isinstance(code, int) else 0)


def usage(error: typer.TyperException) -> str:
    """A wrong call, with the way to its help."""
    context = getattr(error, "ctx", None)
    hint = f" (see `{context.command_path} --help`)" if context else ""
    said = error.format_message().replace("Value error, ", "").replace("Input should", "it should")
    return " ".join(said.split()) + hint
