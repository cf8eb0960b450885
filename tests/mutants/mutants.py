"""Small changes of the code that its tests must notice: losses, metrics, the curve, market, rules, rerankers.

python tests/mutants/mutants.py --seed 0 --mutants 160          (`make mutants`)
python tests/mutants/mutants.py --only metrics --lines 40 80

A mutant is one operator, comparison or number changed in a copy of the package; it is killed if the tests of its area
fail on it. Mutants are drawn from the seed, as many of each area as its share of the code; those that survive are told
with their line. Those of `equal.txt`, each looked at, change nothing that can be seen and are not counted.

Each mutant is tried in a fork of a process that has loaded what divmf builds on, but nothing of divmf. A
kernel that is changed is compiled anew with all that call it, the others come from a cache that the trial fills first.
"""

import argparse
import ast
import contextlib
import copy
import importlib
import math
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
EQUAL = Path(__file__).with_name("equal.txt")
OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
    ast.USub: ast.UAdd,
}  # fmt: skip
LIMIT, WAIT = 150, 1500  # seconds of computing after which a mutant is killed, and of waiting
LOADED = (
    "numpy", "scipy.sparse", "scipy.optimize", "scipy.stats", "torch", "numba", "polars", "pydantic", "safetensors",
    "hypothesis", "pytest", "altair", "filelock", "threadpoolctl", "sklearn.metrics", "pandas", "ortools.graph.python",
)  # fmt: skip


@dataclass(frozen=True)
class Area:
    """Modules that are changed, as patterns in the package, and the tests that must notice, the fastest first."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


AREAS = {
    "losses": Area(("models/losses.py",), ("tests/test_losses.py",)),
    "metrics": Area(("ranking/metrics.py",), ("tests/test_metrics.py",)),
    "curve": Area(("ranking/curve.py",), ("tests/test_curve.py",)),
    "rules": Area(
        ("market/rules.py", "market/binding.py", "market/bound.py", "market/feasible.py", "market/given.py",
         "market/keeping.py", "market/kept.py", "market/repair.py", "market/ruled.py", "kernels/rules.py"),
        ("tests/test_kept_rules.py", "tests/test_rules.py", "tests/test_ruled_market.py"),
    ),
    "market": Area(
        ("market/bonus.py", "market/certificate.py", "market/chosen.py", "market/columns.py", "market/entering.py",
         "market/ledger.py", "market/offer.py", "market/response.py", "market/solve.py", "market/stakes.py",
         "market/values.py", "kernels/market.py", "kernels/ledger.py", "kernels/response.py", "kernels/bound.py"),
        ("tests/test_slots.py", "tests/test_stakes.py", "tests/test_offer.py", "tests/test_ledger.py",
         "tests/test_market.py", "tests/test_new_items.py", "tests/rerank/test_rerank_market.py"),
    ),
    "rerankers": Area(("rerank/[!_]*.py", "kernels/rerank_*.py"), ("tests/rerank",)),
}  # fmt: skip


def tests_of(site: "Site") -> list[str]:
    """The test files of a change, the nearest first."""
    near = f"tests/rerank/test_rerank_{site.module.stem.removeprefix('rerank_')}.py"
    return [*([near] if (ROOT / near).exists() else []), *AREAS[site.area].tests]


@dataclass(frozen=True)
class Site:
    """A place that can be changed: the number of a node in the tree, and of what is changed at it."""

    area: str
    module: Path
    node: int
    part: int
    line: int

    def told(self) -> str:
        """The place and the change, as `equal.txt` names it."""
        return f"{self.module.relative_to(ROOT / 'src' / 'divmf')}: {changed(self)[1]}"


def sites(area: str) -> Iterator[Site]:
    """Every place of an area that can be changed."""
    package = ROOT / "src" / "divmf"
    for module in sorted({path for pattern in AREAS[area].modules for path in package.glob(pattern)}):
        tree = ast.parse(module.read_text())
        left_out = {id(node) for node in not_changed(tree)}
        for number, node in enumerate(ast.walk(tree)):
            if id(node) not in left_out:
                for part in range(parts_of(node)):
                    yield Site(area, module, number, part, getattr(node, "lineno", 0))


def not_changed(tree: ast.AST) -> Iterator[ast.AST]:
    """Messages, defaults, decorators and types; numbers that were chosen: constants in capitals, grids of knobs."""
    for node in getattr(tree, "body", []):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).strip("()").replace(", ", "").isupper():
            yield from ast.walk(node)
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.AnnAssign | ast.arguments | ast.Assert):
            yield from ast.walk(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Method":
            yield from ast.walk(node)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            for part in node.decorator_list:
                yield from ast.walk(part)
        if isinstance(node, ast.FunctionDef) and node.returns is not None:
            yield from ast.walk(node.returns)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and ast.unparse(node.func)[:4] == "log.":
            yield from ast.walk(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):  # types
            yield from ast.walk(node)


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
    around = next(
        line.strip() for number, line in enumerate(site.module.read_text().split("\n"), 1) if number == site.line
    )
    if isinstance(node, ast.Compare):
        node.ops[0] = OPERATORS[type(node.ops[0])]()  # type: ignore[call-overload]
    elif isinstance(node, ast.BinOp | ast.BoolOp | ast.UnaryOp):
        node.op = OPERATORS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1  # type: ignore[operator]
    return ast.unparse(tree), f"{before}  →  {ast.unparse(node)}  in  {around}"


def survives(site: Site, source: Path) -> bool:
    """Whether the tests of the area pass on a copy of the package with the change."""
    text, _ = changed(site)
    own = source / site.module.relative_to(ROOT / "src")
    stale = callers(own) if own.parent.name == "kernels" else set()
    cache = source.parent / "kernels"
    if stale:  # numba looks at the time of the file that a kernel stands in, not at those of what it calls
        cache = Path(shutil.copytree(cache, source.parent / "changed"))
    own.write_text(text)
    for path in stale:
        os.utime(path)
    try:
        return passes(tests_of(site), source, cache)
    finally:
        for path in stale | {own}:
            shutil.copy2(ROOT / "src" / path.relative_to(source), path)
        if stale:
            shutil.rmtree(cache)


def callers(kernel: Path) -> set[Path]:
    """The modules of kernels that hold one, itself among them."""
    found, more = set(), {kernel}
    while more:
        found |= more
        lines = {f"from divmf.kernels.{path.stem} import" for path in more}
        more = {path for path in kernel.parent.glob("*.py") if any(line in path.read_text() for line in lines)} - found
    return found


def passes(tests: list[str], source: Path, cache: Path) -> bool:
    """Whether tests pass on the package in this folder: in a fork of this process, which has not loaded it."""
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        os.chdir(ROOT)
        sys.path[:0] = [str(source), str(ROOT)]
        sys.dont_write_bytecode = True
        with contextlib.suppress(BaseException):
            import pytest
            from numba.core import config

            config.CACHE_DIR = str(cache)
            os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests])))
        os._exit(99)
    return ended(child) == 0


def ended(child: int) -> int:
    """The exit code of a process that leads a group; one that is there too long is ended, with all it started."""
    until = time.monotonic() + WAIT
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 98


def drawn(seed: int, number: int, only: list[str], lines: tuple[int, int] | None) -> list[Site]:
    """So many places, as many of each area as its share of all, in a drawn order; without those known to be equal."""
    known = {line for line in EQUAL.read_text().splitlines() if line and not line.startswith("#")}
    found: list[Site] = []
    areas = {area: [site for site in sites(area) if wanted(site, only, lines)] for area in AREAS}
    total = sum(map(len, areas.values()))
    for area, places in areas.items():
        random.Random(f"{seed} {area}").shuffle(places)
        kept = [site for site in places if site.told() not in known]
        found += kept[: max(min(8, number), round(number * len(places) / max(1, total)))]
    random.Random(seed).shuffle(found)
    return found


def wanted(site: Site, only: list[str], lines: tuple[int, int] | None) -> bool:
    """Whether a place is of the areas or modules named, and of these lines."""
    named = not only or site.area in only or site.module.stem in set(only) - AREAS.keys()
    return named and (lines is None or lines[0] <= site.line <= lines[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mutants", type=int, default=160, help="how many, of all areas together")
    parser.add_argument("--only", nargs="*", default=[], help="areas, or modules by name, such as metrics")
    parser.add_argument("--seconds", type=float, default=math.inf, help="after which no other one is begun")
    parser.add_argument("--lines", type=int, nargs=2, help="of these lines alone")
    asked = parser.parse_args()
    os.environ |= {"DIVMF_THREADS": "1", "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    for name in LOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    tried, alive = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        (Path(folder) / "kernels").mkdir()
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        places = drawn(asked.seed, asked.mutants, asked.only, asked.lines and tuple(asked.lines))
        for area in sorted({site.area for site in places}):
            began = time.monotonic()
            if not passes(list(AREAS[area].tests), source, source.parent / "kernels"):
                print(f"the tests of {area} fail on the unchanged code")
                return 2
            print(f"the tests of {area} take {time.monotonic() - began:.0f} s", flush=True)
        until = time.monotonic() + asked.seconds
        for site in places:
            if time.monotonic() > until:
                break
            tried[site.area] += 1
            alive_now = survives(site, source)
            alive[site.area] += alive_now
            print(f"{'SURVIVES' if alive_now else 'killed'} {site.line}: {site.told()}", flush=True)
    for area, number in sorted(tried.items()):
        print(f"{area}: {number} mutants, {number - alive[area]} killed")
    total, left = tried.total(), alive.total()
    share = (total - left) / max(1, total)
    print(f"seed {asked.seed}: {total} of {len(places)} mutants, {total - left} killed ({share:.0%}), {left} alive")
    return 0


if __name__ == "__main__":
    sys.exit(main())
