"""Run a benchmark by name, or all of them."""

import argparse
from collections.abc import Callable

from benchmarks import bpr, market, rerankers

BENCHMARKS: dict[str, Callable[[], None]] = {
    "marketplace": market.main,
    "rerankers": rerankers.main,
    "bpr": bpr.main,
}


def main() -> None:
    """`python -m benchmarks [NAME …]`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], help="which ones; all if none is named")
    for name in parser.parse_args().names or BENCHMARKS:
        BENCHMARKS[name]()


if __name__ == "__main__":
    main()
