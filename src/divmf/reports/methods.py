"""What the methods are, and how they are called, for pages."""

from collections.abc import Mapping, Sequence
from inspect import getmodule
from typing import Any

from divmf.reports.section import Cell, Table
from divmf.rerank import METHODS

OWN = {
    "exposure market": "users take turns, and each takes the list that is best where showing what is rarely shown pays",
    "DivMF": "the paper’s method: goes on training until the lists spread over the catalogue",
}


def method_table(names: Sequence[str]) -> Table:
    """What each method does, in a line, and where it is from."""
    rows: list[list[Cell]] = [
        [name, in_short(name), METHODS[name].citation if name in METHODS else "this library"] for name in names
    ]
    return Table(["Method", "what it does", "from"], rows, left=(0, 1, 2))


def in_short(name: str) -> str:
    """What a method does in plain words: the first line of its module, which is written for that."""
    if name not in METHODS:
        return OWN[name.partition(" (")[0]]  # without the folder, by which runs of one method are told apart
    first = (getmodule(METHODS[name].function).__doc__ or "").splitlines()[0]
    return first.partition(": ")[2].removeprefix("the baseline that ").rstrip(".")


def knob_of(name: str, knob: float | None) -> str:
    """How a method is set, such as `a = 0.3`."""
    return f"{METHODS[name].knob if name in METHODS else 'ρ'} = {knob:.4g}"


def rerank_command(lists: str, method: str, settings: Mapping[str, Any], more: str) -> str:
    """The command that makes a method's lists."""
    sets = " ".join(
        f"--set {name}={value:.6g}" if isinstance(value, float) else f"--set {name}={value}"
        for name, value in settings.items()
    )
    return f"divmf rerank {lists} --method {method} {sets} {more}"
