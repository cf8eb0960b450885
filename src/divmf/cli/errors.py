"""What an error means to the one who called, in one line."""

from divmf.cli.console import Out


def one_line_of(error: BaseException) -> str:
    """The first line of what an error says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def failed(message: str, code: int) -> int:
    """One line on stderr; of several processes, the first that fails says it."""
    from divmf.engine import comm
    from divmf.engine.masking import masked, printable

    if comm.speaks_for_all():
        Out().stderr.print(f"divmf: {printable(masked(message))}", markup=False, soft_wrap=True)
    return code


def explain(error: Exception) -> int:
    """What an error means to the one who called."""
    from pydantic import ValidationError

    from divmf.cli.options import one_line

    if isinstance(error, ValidationError):
        return failed(one_line(error), 2)
    if isinstance(error, ValueError):
        return failed(str(error), 2)
    if isinstance(error, OSError) and error.filename:
        return failed(f"{error.filename}: {error.strerror}", 2)
    if isinstance(error, ImportError | RuntimeError | OSError):
        return failed((str(error).strip().splitlines() or [type(error).__name__])[0], 1)
    if type(error).__module__.startswith("polars"):
        return failed(f"polars cannot work on this: {one_line_of(error)}; check the types of the columns", 1)
    return failed(f"unexpected {type(error).__name__}: {one_line_of(error)}; run again with --debug and report it", 1)
