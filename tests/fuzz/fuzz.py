"""Files with something changed, given to every reader: each is taken, or refused in one line that names it.

python tests/fuzz/fuzz.py --seed 0 --cases 100000            (`make fuzz`)
python tests/fuzz/fuzz.py --seed 0 --only log.csv --case 17  one case again
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
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


def work(target: Target, seed: int, first: int, last: int, progress: Path) -> None:
    """The cases first … last−1 of a reader; how far it is, and what came of them, stands in a file after each."""
    found: Counter[str] = Counter()
    for number in range(first, last):
        progress.write_text(json.dumps(found | {"at": number}))
        with silent():
            end, why = tried(target, case_of(target, seed, number))
        found[end] += 1
        if why:
            print(f"FAILED --seed {seed} --only {target.name!r} --case {number}\n{why}", flush=True)
    progress.write_text(json.dumps(found | {"at": last}))


def run(name: str, seed: int, cases: int, progress: Path) -> Counter[str]:
    """All cases of a reader, in a process of their own; one that ends the process is counted, and the next goes on."""
    total, first = Counter[str](), 0
    while first < cases:
        script = [sys.executable, __file__, "--seed", str(seed), "--only", name]
        subprocess.run([*script, "--work", str(first), str(cases), str(progress)], check=False)
        found = json.loads(progress.read_text())
        first = found.pop("at")
        total += Counter(found)
        if first < cases:
            again = subprocess.run([*script, "--case", str(first)], capture_output=True, check=False)
            known = b"memory allocation of" in again.stderr  # polars gives up so; it cannot be caught
            total["aborted" if known else "failed"] += 1
            print(f"{'ABORTED' if known else 'FAILED'} --seed {seed} --only {name!r} --case {first}: exit"
                  f" {again.returncode}", flush=True)  # fmt: skip
            first += 1
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=100_000, help="of all readers together")
    parser.add_argument("--only", nargs="*", default=[], help="these readers")
    parser.add_argument("--case", type=int, help="this case alone; its bytes are printed")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        targets = all_targets(Path(folder) / "fuzz", asked.only)
        if asked.work:
            first, last, progress = asked.work
            work(targets[0], asked.seed, int(first), int(last), Path(progress))
            return 0
        if asked.case is not None:
            data = case_of(targets[0], asked.seed, asked.case)
            print(data, flush=True)
            print(*tried(targets[0], data))
            return 0
        total, each = Counter[str](), -(-asked.cases // len(targets))
        for target in targets:
            began, found = time.perf_counter(), run(target.name, asked.seed, each, Path(folder) / "progress")
            told = ", ".join(f"{found[end]:,} {end}" for end in ("taken", "refused", "failed", "aborted"))
            print(f"{target.name}: {each:,} cases, {told}, {time.perf_counter() - began:.0f} s", flush=True)
            total += found
    print(f"seed {asked.seed}: {total.total():,} cases of {len(targets)} readers, {total['failed']:,} failed,"
          f" {total['aborted']:,} aborted inside polars")  # fmt: skip
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
