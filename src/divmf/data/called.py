"""What the files of a command call their columns: names given once, for every file that the command reads."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

# a name, or none, for each role that the running command has a flag for; None outside of commands
NAMES: ContextVar[Mapping[str, str | None] | None] = ContextVar("NAMES", default=None)


@contextmanager
def called(names: Mapping[str, str | None]) -> Iterator[None]:
    """Inside, a column of such a name plays the role in every file that has it; other files go by the usual names."""
    token = NAMES.set(names)
    try:
        yield
    finally:
        NAMES.reset(token)


def also_called(names: Mapping[str, str]) -> None:
    """Names for roles that were given none, until the end of `called`."""
    known = NAMES.get() or {}
    NAMES.set({**names, **{role: name or names.get(role) for role, name in known.items()}})


def name_of(role: str) -> str | None:
    """The name given for a role."""
    return (NAMES.get() or {}).get(role)


def way_to_name(role: str, usual: str) -> str:
    """How one says which column plays a role: by its usual name, or as the running command or function takes it."""
    names = NAMES.get()
    if names is None:
        return f"call it {usual}, or say which it is ({role}=…)"
    return f"call it {usual}, or name it with --{role}" if role in names else f"call it {usual}"
