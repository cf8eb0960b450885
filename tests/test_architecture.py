"""Packages import those below them only, modules never in circles, and `import divmf` costs next to nothing."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import divmf

SOURCE = Path(divmf.__file__).parent
# a package imports from those to its right only: docs/architecture.md has the same line
RULE = [
    "cli",
    "serve",
    "reports",
    "estimator",
    "train",
    "rerank",
    "market",
    "models",
    "ranking",
    "data",
    "kernels",
    "engine",
]
# the fluent data.leave_one_out(), promised by the public surface, calls a function of a module that needs interactions
ALLOWED = {("data.interactions", "data.split")}
# curve.chart(), promised likewise, is drawn where charts are
DRAWN = ("ranking.curve", "reports.drawing")


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def room(module: str) -> str:
    return module.split(".")[0]


MODULES = {name_of(path): path for path in SOURCE.rglob("*.py")}


def imported(path: Path) -> set[str]:
    """The modules a file imports, by what they are: `from divmf.market import solve` imports market.solve."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "divmf":
            base = (node.module or "").removeprefix("divmf").removeprefix(".")
            for alias in node.names:
                deeper = f"{base}.{alias.name}".removeprefix(".")
                found.add(deeper if deeper in MODULES else base)
        elif isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("divmf.") for alias in node.names if alias.name.startswith("divmf.")}
    return found - {""}


def test_the_folder_shows_the_architecture() -> None:
    assert {room(name) for name in MODULES} <= {*RULE, "__init__", "__main__"}
    assert len(list(SOURCE.glob("*.py"))) <= 12


def test_packages_import_only_those_below_them() -> None:
    level = {name: place for place, name in enumerate([*RULE])}
    upward = {
        (here, other)
        for here, path in MODULES.items()
        for other in imported(path)
        if room(here) in level and room(other) != room(here) and level[room(other)] < level[room(here)]
    }
    assert upward == {DRAWN}


def test_no_modules_import_each_other_in_a_circle() -> None:
    below = {
        here: {other for other in imported(path) if other != here and (here, other) not in {*ALLOWED, DRAWN}}
        for here, path in MODULES.items()
        if here not in ("__init__", "__main__")
    }
    list(TopologicalSorter(below).static_order())  # raises CycleError, which names the circle


READING = ("read", "load", "open", "exists", "stat", "glob", "iterdir")


def test_no_property_reads_a_file() -> None:
    found = [
        f"{name}.{node.name}"
        for name, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and any("property" in ast.unparse(each) for each in node.decorator_list)
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1].startswith(READING)
    ]
    assert not found


def test_importing_divmf_is_silent_and_loads_neither_torch_nor_charts() -> None:
    code = (
        "import sys, divmf; print([m for m in ('torch', 'numba', 'polars', 'altair', 'fastapi') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""


def test_the_help_reads_no_data_and_loads_nothing_that_would() -> None:
    heavy = ("torch", "numba", "numpy", "polars", "scipy", "altair", "fastapi")
    code = f"""
import sys
from divmf.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print([name for name in {heavy} if name in sys.modules], file=sys.stderr)
"""
    for words in (["--help"], ["audit", "--help"], ["train", "--help"]):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
        assert done.stderr.strip() == "[]", words


def test_every_public_name_can_be_reached() -> None:
    assert all(getattr(divmf, name) is not None for name in divmf.__all__)
    assert set(divmf._HOME) | set(divmf._ROOMS) == set(divmf.__all__)
