"""Small changes of the code that its tests must notice: losses, metrics, the curve, the rerankers.

python tests/mutants/mutants.py --seed 0 --seconds 900          (`make mutants`)

A mutant is one operator, comparison or number changed in a copy of the package; it is killed if the tests of its module
fail on it. Mutants are drawn from the seed until the seconds are over; those that survive are told with their line.
"""

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
    ast.USub: ast.UAdd,
}  # fmt: skip
LIMIT = 120  # seconds: a mutant that runs so long is killed


def tests_of(module: Path) -> list[str]:
    """The test files of a module."""
    name = module.stem
    if module.parent.name != "rerank":
        return [f"tests/test_{name}.py"]
    own = f"tests/rerank/test_rerank_{name}.py"
    return [own] if (ROOT / own).exists() else ["tests/rerank"]


def modules() -> list[Path]:
    """What is changed."""
    package = ROOT / "src" / "divmf"
    found = [package / "models" / "losses.py", package / "ranking" / "metrics.py", package / "ranking" / "curve.py"]
    return found + [path for path in sorted((package / "rerank").glob("*.py")) if path.name != "__init__.py"]


@dataclass(frozen=True)
class Site:
    """A place that can be changed: the number of a node in the tree, and of what is changed at it."""

    module: Path
    node: int
    part: int
    line: int


def sites(module: Path) -> Iterator[Site]:
    """Every place of a module that can be changed, but for messages, defaults, decorators and types."""
    tree = ast.parse(module.read_text())
    left_out = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.AnnAssign | ast.arguments | ast.Assert):
            left_out |= {id(each) for each in ast.walk(node)}
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            left_out |= {id(each) for part in node.decorator_list for each in ast.walk(part)}
            if isinstance(node, ast.FunctionDef) and node.returns is not None:
                left_out |= {id(each) for each in ast.walk(node.returns)}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and ast.unparse(node.func)[:4] == "log.":
            left_out |= {id(each) for each in ast.walk(node)}
    for number, node in enumerate(ast.walk(tree)):
        if id(node) not in left_out:
            for part in range(parts_of(node)):
                yield Site(module, number, part, getattr(node, "lineno", 0))


def parts_of(node: ast.AST) -> int:
    """How many things can be changed at a node."""
    if isinstance(node, ast.Compare):
        return sum(type(each) in OPERATORS for each in node.ops[:1])
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.UnaryOp):
        return int(type(node.op) in OPERATORS)
    return int(isinstance(node, ast.Constant) and type(node.value) in (int, float, bool))


def changed(site: Site) -> tuple[str, str]:
    """The module with one change, and what the change is."""
    tree = copy.deepcopy(ast.parse(site.module.read_text()))
    node = list(ast.walk(tree))[site.node]
    before = ast.unparse(node)
    if isinstance(node, ast.Compare):
        node.ops[0] = OPERATORS[type(node.ops[0])]()  # type: ignore[call-overload]
    elif isinstance(node, ast.BinOp | ast.BoolOp | ast.UnaryOp):
        node.op = OPERATORS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1  # type: ignore[operator]
    return ast.unparse(tree), f"{before}  →  {ast.unparse(node)}"


def survives(site: Site, source: Path) -> bool:
    """Whether the tests of the module pass on a copy of the package with the change."""
    text, _ = changed(site)
    place = source / site.module.relative_to(ROOT / "src")
    place.write_text(text)
    own = os.environ | {
        "PYTHONPATH": f"{source}{os.pathsep}{ROOT}",
        "DIVMF_THREADS": "1",
        "HYPOTHESIS_PROFILE": "divmf",
    }
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests_of(site.module)]
    try:
        done = subprocess.run(words, cwd=ROOT, env=own, capture_output=True, timeout=LIMIT, check=False)
        return done.returncode == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        shutil.copy(site.module, place)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--only", nargs="*", default=[], help="modules by name, such as metrics")
    asked = parser.parse_args()
    found = [site for module in modules() if not asked.only or module.stem in asked.only for site in sites(module)]
    random.Random(asked.seed).shuffle(found)
    ends, tried, alive = time.monotonic() + asked.seconds, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        for site in found:
            if time.monotonic() > ends:
                break
            tried += 1
            if survives(site, source):
                alive += 1
                print(f"SURVIVES {site.module.relative_to(ROOT)}:{site.line}: {changed(site)[1]}", flush=True)
    share = (tried - alive) / max(1, tried)
    print(
        f"seed {asked.seed}: {tried} of {len(found)} mutants tried, {tried - alive} killed ({share:.0%}), {alive} alive"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
