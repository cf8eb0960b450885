"""Files with something changed, given to every reader: each is taken, or refused in one line that names it.

python tests/fuzz/fuzz.py --seed 0 --cases 100000            (`make fuzz`)
python tests/fuzz/fuzz.py --seed 0 --only log.csv --case 17  one case again, its bytes kept in the current folder
"""

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from mutate import mutated
from targets import Target, all_targets

LIMIT = 30  # seconds after which a reader hangs


def case_of(target: Target, seed: int, number: int) -> bytes:
    """The bytes of a case: the same for the same seed, target and number."""
    rng = random.Random(f"{seed} {target.name} {number}")
    return mutated(rng.choice(target.examples), rng)


def hangs(signum: int, frame: Any) -> None:
    raise AssertionError(f"still reading after {LIMIT} s")


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Without what libraries in other languages write to the error stream when they panic."""
    kept = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def tried(target: Target, data: bytes) -> tuple[str, str]:
    """What came of a case: taken, refused or failed; and how it failed."""
    signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        return target.attempt(data), ""
    except KeyboardInterrupt:
        raise
    except BaseException:  # a panic is no Exception
        return "failed", traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def run(targets: list[Target], seed: int, cases: int) -> Counter[str]:
    """As many cases of all targets together, and what came of them; failures are told at once."""
    total: Counter[str] = Counter()
    for target in targets:
        began, found = time.perf_counter(), Counter[str]()
        for number in range(max(1, -(-cases // len(targets)))):
            with silent():
                end, why = tried(target, case_of(target, seed, number))
            found[end] += 1
            if why:
                print(f"FAILED --seed {seed} --only {target.name!r} --case {number}\n{why}", flush=True)
        print(f"{target.name}: {found.total():,} cases, {found['taken']:,} taken, {found['refused']:,} refused,"
              f" {found['failed']:,} failed, {time.perf_counter() - began:.0f} s", flush=True)  # fmt: skip
        total += found
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=100_000, help="of all readers together")
    parser.add_argument("--only", nargs="*", default=[], help="these readers")
    parser.add_argument("--case", type=int, help="this case alone")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        targets = [each for each in all_targets(Path(folder) / "fuzz") if not asked.only or each.name in asked.only]
        if asked.case is not None:
            data = case_of(targets[0], asked.seed, asked.case)
            Path(f"case-{targets[0].path.name}").write_bytes(data)
            print(*tried(targets[0], data))
            return 0
        total = run(targets, asked.seed, asked.cases)
    print(f"seed {asked.seed}: {total.total():,} cases of {len(targets)} readers, {total['failed']:,} failed")
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
