"""Small changes of the code that its tests must notice: losses, metrics, the curve, market, rules, rerankers.

python tests/mutants/mutants.py --seed 0 --mutants 160          (`make mutants`)
python tests/mutants/mutants.py --only metrics --lines 40 80

A mutant is one operator, comparison or number changed in a copy of the package; it is killed if the tests of its area
fail on it. Mutants are drawn from the seed, as many of each area as its share of the code; those that survive are told
with their line. Those of `equal.txt`, each looked at, change nothing that can be seen and are not counted.

Each mutant is tried in a fork of a process that has loaded what divmf builds on, but nothing of divmf, by the tests
that reach the changed line (of a kernel: a module that calls it), the fastest first. A kernel that is changed is
compiled anew with all that call it, the others come from a cache that the trial fills first. Kernels check the bounds
of arrays, so that reading beyond an end is seen.
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

from reached import Reached

ROOT = Path(__file__).parents[2]
EQUAL = Path(__file__).with_name("equal.txt")
OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
    ast.USub: ast.UAdd,
}  # fmt: skip
# chosen numbers of which it is as much a choice whether they are still within: < or <=
TUNED = {"SETTLED", "NEW", "LEAST", "TIGHT", "STALLED", "CLOSE", "TOLERANCE", "MOST_KEPT", "STATES", "TRACKED"}
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
    "curve": Area(("ranking/curve.py",), ("tests/test_curve.py", "tests/test_display.py")),
    "rules": Area(
        ("market/rules.py", "market/binding.py", "market/bound.py", "market/feasible.py", "market/given.py",
         "market/keeping.py", "market/kept.py", "market/repair.py", "market/ruled.py", "kernels/rules.py"),
        ("tests/test_kept_rules.py", "tests/test_rules.py", "tests/test_ruled_parts.py", "tests/test_ruled_market.py",
         "tests/test_shop.py", "tests/serve/test_rules_live.py", "tests/rerank/test_rerank_rules.py"),
    ),
    "market": Area(
        ("market/bonus.py", "market/certificate.py", "market/chosen.py", "market/columns.py", "market/entering.py",
         "market/ledger.py", "market/offer.py", "market/response.py", "market/solve.py", "market/stakes.py",
         "market/values.py", "kernels/market.py", "kernels/ledger.py", "kernels/response.py", "kernels/bound.py"),
        ("tests/test_stakes.py", "tests/test_offer.py", "tests/test_ledger.py", "tests/test_market_parts.py",
         "tests/test_market.py", "tests/test_new_items.py", "tests/rerank/test_rerank_market.py",
         "tests/serve/test_live.py", "tests/serve/test_rules_live.py"),
    ),
    "rerankers": Area(("rerank/[!_]*.py", "kernels/rerank_*.py"), ("tests/rerank",)),
}  # fmt: skip


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

    @property
    def name(self) -> str:
        """What it is known by in a file of progress."""
        return f"{self.module.relative_to(ROOT)} {self.node} {self.part}"


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
    """What is no behaviour that a test could hold.

    Messages, defaults, decorators and types; numbers that were chosen: constants in capitals, grids of knobs; room that
    is asked for, as one element more changes nothing; `strict` of zip, which is an assertion; the 1 of −1, whose sign
    is changed instead: every number below 0 says that there is none.
    """
    for node in getattr(tree, "body", []):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).strip("()").replace(", ", "").isupper():
            yield from ast.walk(node)
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "strict":
            yield node.value
        if isinstance(node, ast.UnaryOp) and ast.unparse(node) == "-1":
            yield node.operand
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.AnnAssign | ast.arguments | ast.Assert):
            yield from ast.walk(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Method":
            yield from ast.walk(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "np.empty":
            yield from (each for each in ast.walk(node.args[0]) if isinstance(each, ast.Constant))
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
        names = {
            each.id for side in (node.left, *node.comparators) for each in ast.walk(side) if isinstance(each, ast.Name)
        }
        return sum(type(each) in OPERATORS for each in node.ops[:1]) * names.isdisjoint(TUNED)
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.UnaryOp):
        return int(type(node.op) in OPERATORS)
    return int(isinstance(node, ast.Constant) and type(node.value) in (int, float, bool))


def changed(site: Site) -> tuple[str, str]:
    """The module with one change, and what the change is."""
    tree = copy.deepcopy(ast.parse(site.module.read_text()))
    node = list(ast.walk(tree))[site.node]
    before, line = ast.unparse(node), site.module.read_text().split("\n")[site.line - 1]
    same = [each for each in ast.walk(tree) if getattr(each, "lineno", 0) == site.line and ast.unparse(each) == before]
    place = sorted(each.col_offset for each in same).index(node.col_offset)  # type: ignore[attr-defined]
    around = line.strip() + f"  ({place + 1})" * (place > 0)
    if isinstance(node, ast.Compare):
        node.ops[0] = OPERATORS[type(node.ops[0])]()  # type: ignore[call-overload]
    elif isinstance(node, ast.BinOp | ast.BoolOp | ast.UnaryOp):
        node.op = OPERATORS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1  # type: ignore[operator]
    return ast.unparse(tree), f"{before}  →  {ast.unparse(node)}  in  {around}"


def survives(site: Site, source: Path, reached: Reached) -> bool:
    """Whether the tests of the area pass on a copy of the package with the change."""
    text, _ = changed(site)
    own = source / site.module.relative_to(ROOT / "src")
    stale = callers(own) if own.parent.name == "kernels" else set()
    tests = reached.by_kernels(stale) if stale else reached.by_lines(own, lines_of(site))
    if not tests:
        return True
    cache = source.parent / "kernels"
    if stale:  # numba looks at the time of the file that a kernel stands in, not at those of what it calls
        shutil.rmtree(source.parent / "changed", ignore_errors=True)
        cache = Path(shutil.copytree(cache, source.parent / "changed"))
    own.write_text(text)
    for path in stale:
        os.utime(path)
    try:
        return passes(tests, source, cache)
    finally:
        for path in stale | {own}:
            shutil.copy2(ROOT / "src" / path.relative_to(source), path)


def lines_of(site: Site) -> range | None:
    """The lines of the statement that is changed; none where it is run when the module is loaded."""
    tree = ast.parse(site.module.read_text())
    node = list(ast.walk(tree))[site.node]
    inside = [each for each in ast.walk(tree) if isinstance(each, ast.stmt) and node in set(ast.walk(each))]
    if not any(isinstance(each, ast.FunctionDef) for each in inside):
        return None
    own = inside[-1]  # walked breadth first, so the innermost is the last
    body = getattr(own, "body", None)
    return range(own.lineno, body[0].lineno if body else (own.end_lineno or own.lineno) + 1)


def callers(kernel: Path) -> set[Path]:
    """The modules of kernels that hold one, itself among them."""
    found, more = set(), {kernel}
    while more:
        found |= more
        lines = {f"from divmf.kernels.{path.stem} import" for path in more}
        more = {path for path in kernel.parent.glob("*.py") if any(line in path.read_text() for line in lines)} - found
    return found


def passes(tests: list[str], source: Path, cache: Path, kept: Path | None = None) -> bool:
    """Whether tests pass on the package in this folder: in a fork of this process, which has not loaded it.

    kept   where to write which lines each test reaches
    """
    child = os.fork()
    if child == 0:
        os.setsid()
        if kept is None:
            resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
        said = os.open(source.parent / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.chdir(ROOT)
        sys.path[:0] = [str(source), str(ROOT)]
        sys.dont_write_bytecode = True
        with contextlib.suppress(BaseException):
            import pytest
            from numba.core import config

            config.CACHE_DIR = str(cache)
            reached = Reached(source)
            failed = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests], [reached] if kept else []))
            if kept is not None and not failed:
                reached.write(kept)
            os._exit(failed)
        os._exit(99)
    code = ended(child)
    if code in (3, 4, 5):  # of pytest: it went wrong itself, or there is no such test
        raise SystemExit(f"the tests could not be run: {' '.join(tests)}")
    return code == 0


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
    parser.add_argument("--progress", type=Path, help="a folder by which a trial that was ended goes on")
    asked = parser.parse_args()
    os.environ |= {"DIVMF_THREADS": "1", "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1", "NUMBA_BOUNDSCHECK": "1"}
    for name in LOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    places = drawn(asked.seed, asked.mutants, asked.only, asked.lines and tuple(asked.lines))
    with tempfile.TemporaryDirectory() as spare:
        folder = asked.progress or Path(spare)
        folder.mkdir(exist_ok=True)
        kept = folder / "tried"
        known = dict(line.split("\t") for line in kept.read_text().splitlines()) if kept.exists() else {}
        left = [site for site in places if site.name not in known]
        for site, alive in tried(left, folder, time.monotonic() + asked.seconds):
            known[site.name] = "SURVIVES" if alive else "killed"
            with kept.open("a") as file:
                file.write(f"{site.name}\t{known[site.name]}\n")
            print(f"{known[site.name]} {site.line}: {site.told()}", flush=True)
    tell(asked.seed, places, known)
    return 0


def tried(places: list[Site], folder: Path, until: float) -> Iterator[tuple[Site, bool]]:
    """Each place, and whether its mutant survives; none is begun after a time."""
    source, cache = folder / "src", folder / "kernels"
    cache.mkdir(exist_ok=True)
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    for area in sorted({site.area for site in places}):
        began, kept = time.monotonic(), folder / f"{area}.json"
        if not kept.exists():  # first the kernels are compiled, then the tests are timed
            if not all(passes(list(AREAS[area].tests), source, cache, to) for to in (folder / "compiled", kept)):
                raise SystemExit(f"the tests of {area} fail on the unchanged code; see {folder / 'said'}")
            print(f"the tests of {area}: {time.monotonic() - began:.0f} s for two runs", flush=True)
    for site in places:
        if time.monotonic() < until:
            yield site, survives(site, source, Reached.read(source, folder / f"{site.area}.json"))


def tell(seed: int, places: list[Site], known: dict[str, str]) -> None:
    """Print how many were killed, of each area and in all."""
    found = Counter((site.area, known[site.name]) for site in places if site.name in known)
    for area in AREAS:
        killed, alive = found[area, "killed"], found[area, "SURVIVES"]
        if killed + alive:
            print(f"{area}: {killed + alive} mutants, {killed} killed")
    killed = sum(number for (_, how), number in found.items() if how == "killed")
    share = killed / max(1, found.total())
    alive = found.total() - killed
    print(f"seed {seed}: {found.total()} of {len(places)} mutants, {killed} killed ({share:.0%}), {alive} alive")


if __name__ == "__main__":
    sys.exit(main())
