"""Imports only point down the ladder, and `import divmf` costs next to nothing."""

import ast
import subprocess
import sys
import time
from pathlib import Path

import divmf

SOURCE = Path(divmf.__file__).parent
LADDER = [
    ["forked"],
    ["ids", "threads", "config", "clock", "times", "device", "masking"],
    ["comm", "order"],
    ["files"],
    ["tables"],
    ["scans", "parts", "outputs"],
    ["interactions", "model", "losses"],
    ["kernels"],
    ["split", "select", "sampling", "schema"],
    ["fingerprint"],
    ["stored", "weights", "unmask", "topk", "bootstrap", "describe", "marketplace", "stakes"],
    ["softmax", "diversity", "steps", "prices", "metrics", "datasets"],
    ["training"],
    ["models"],
    ["market"],
    ["plan"],
    ["calibrate"],
    ["curve"],
    ["rerank", "runs"],
    ["tuning", "audit"],
    ["fitting"],
    ["estimator"],
    ["experiments"],
    ["report"],
    ["cli"],
    ["__init__", "__main__"],
]
# the fluent data.leave_one_out(), promised by the public surface, calls a function one step up
ALLOWED = {("interactions", "split")}


def room(path: Path) -> str:
    relative = path.relative_to(SOURCE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imported_rooms(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "divmf":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("divmf."):
            found.add((node.module or "").split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("divmf.")}
    return found


def test_every_room_stands_on_the_ladder() -> None:
    rooms = {room(path) for path in SOURCE.rglob("*.py")}
    assert rooms == {name for step in LADDER for name in step}


def test_imports_only_point_down() -> None:
    level = {name: height for height, step in enumerate(LADDER) for name in step}
    upward = set()
    for path in SOURCE.rglob("*.py"):
        here = room(path)
        for other in imported_rooms(path) - {here}:
            if level[other] >= level[here] and here != "__init__" and (here, other) not in ALLOWED:
                upward.add((here, other))
    assert not upward


def test_importing_divmf_is_silent_and_loads_neither_torch_nor_charts() -> None:
    code = (
        "import sys, divmf; print([m for m in ('torch', 'numba', 'polars', 'altair', 'fastapi') if m in sys.modules])"
    )
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""
    assert time.perf_counter() - began < 2


def test_every_public_name_can_be_reached() -> None:
    assert all(getattr(divmf, name) is not None for name in divmf.__all__)
    assert set(divmf._HOME) | set(divmf._ROOMS) == set(divmf.__all__)
