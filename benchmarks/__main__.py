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
    "strangers": "strangers",
    "rules": "rules",
    "serve": "serve",
    "big": "big",
}
LONG = ("big",)  # only if named


def main() -> None:
    """`python -m benchmarks [NAME …]`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    choice = f"{', '.join(BENCHMARKS)}; if none is named, all but {', '.join(LONG)}"
    parser.add_argument("names", nargs="*", metavar="NAME", help=choice)
    names = parser.parse_args().names or [name for name in BENCHMARKS if name not in LONG]
    if unknown := [name for name in names if name not in BENCHMARKS]:
        parser.error(f"there is no benchmark {unknown[0]!r}; choose from {', '.join(BENCHMARKS)}")
    prepare()
    for name in names:
        print(f"### {name}\n", flush=True)
        import_module(f"benchmarks.{BENCHMARKS[name]}").main()


if __name__ == "__main__":
    main()
