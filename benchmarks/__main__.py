"""Run benchmarks by name, or all of them; each prints a Markdown table, progress goes to stderr."""

import argparse
from importlib import import_module

from benchmarks.side_by_side import prepare

# name on the command line → module with a main(); in the order of docs/benchmarks.md
BENCHMARKS = {
    "bpr": "bpr",
    "epoch": "epoch",
    "lists": "lists",
    "evaluation": "evaluation",
    "job": "whole_job",
    "path": "path",
    "exposure": "exposure",
    "growth": "growth",
    "scaling": "scaling",
    "marketplace": "market",
    "rerankers": "rerankers",
    "models": "models",
    "use": "use",
    "sizes": "models_growth",
    "strangers": "strangers",
    "rules": "rules",
    "shop": "shop",
    "serve": "serve",
    "drift": "drift",
    "index": "index",
    "pages": "pages",
    "solvers": "solvers",
    "big": "big",
}
LONG = ("big",)  # only if named
QUICK = ("models",)  # with a quick() beside main()


def main() -> None:
    """`python -m benchmarks [NAME …]`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    choice = f"{', '.join(BENCHMARKS)}; if none is named, all but {', '.join(LONG)}"
    parser.add_argument("names", nargs="*", metavar="NAME", help=choice)
    parser.add_argument("--quick", action="store_true", help="the short variant, which models has")
    asked = parser.parse_args()
    names = asked.names or [name for name in BENCHMARKS if name not in LONG]
    if unknown := [name for name in names if name not in BENCHMARKS]:
        parser.error(f"there is no benchmark {unknown[0]!r}; choose from {', '.join(BENCHMARKS)}")
    if asked.quick and (long := [name for name in names if name not in QUICK]):
        parser.error(f"{long[0]} has no short variant; --quick is for {', '.join(QUICK)}")
    prepare()
    for name in names:
        print(f"### {name}\n", flush=True)
        module = import_module(f"benchmarks.{BENCHMARKS[name]}")
        (module.quick if asked.quick else module.main)()


if __name__ == "__main__":
    main()
