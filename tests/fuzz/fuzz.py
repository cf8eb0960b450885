"""Files with something changed, given to every reader: each is taken, or refused in one line that names it.

python tests/fuzz/fuzz.py --seed 0 --cases 100000            (`make fuzz`)
python tests/fuzz/fuzz.py --seed 0 --only log.csv --case 17  one case again
"""

import argparse
import contextlib
import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from mutate import mutated
from targets import Target, all_targets

LIMIT = 30  # seconds after which a reader hangs
ENDS = ("taken", "refused", "failed", "aborted")


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


class Trial:
    """So many cases of each reader, one reader behind the other; how far they are stands in a file after each."""

    def __init__(self, names: list[str], seed: int, each: int, kept: Path) -> None:
        self.names, self.seed, self.each, self.kept = names, seed, each, kept
        self.at, self.found = 0, {name: Counter[str]() for name in names}
        if kept.exists():
            told = json.loads(kept.read_text())
            if told["of"] != [names, seed, each]:
                raise SystemExit(f"{kept} is of another trial; choose another place with --progress")
            self.at, self.found = told["at"], {name: Counter(counts) for name, counts in told["found"].items()}

    def keep(self) -> None:
        """Write down how far it is."""
        self.kept.write_text(json.dumps({"of": [self.names, self.seed, self.each], "at": self.at, "found": self.found}))

    def over(self) -> bool:
        """Whether all cases were tried."""
        return self.at == len(self.names) * self.each

    def case(self) -> tuple[str, int]:
        """The next case: its reader and its number."""
        return self.names[self.at // self.each], self.at % self.each

    def count(self, end: str) -> None:
        """The next case came to this end."""
        name, number = self.case()
        self.found[name][end] += 1
        self.at += 1
        if number == self.each - 1:
            told = ", ".join(f"{self.found[name][end]:,} {end}" for end in ENDS)
            print(f"{name}: {self.each:,} cases, {told}", flush=True)


def work(trial: Trial, targets: dict[str, Target]) -> None:
    """All cases that are left, in this process."""
    while not trial.over():
        trial.keep()
        name, number = trial.case()
        with silent():
            end, why = tried(targets[name], case_of(targets[name], trial.seed, number))
        if why:
            print(f"FAILED --seed {trial.seed} --only {name!r} --case {number}\n{why}", flush=True)
        trial.count(end)
    trial.keep()


def run(names: list[str], seed: int, each: int, kept: Path) -> Trial:
    """All cases in a process of their own; one that ends the process is counted, and another goes on behind it."""
    script = [sys.executable, __file__, "--seed", str(seed), "--only"]
    while True:
        trial = Trial(names, seed, each, kept)
        if trial.over():
            return trial
        subprocess.run([*script, *names, "--work", str(each), str(kept)], check=False)
        trial = Trial(names, seed, each, kept)
        if not trial.over():
            name, number = trial.case()
            again = subprocess.run([*script, name, "--case", str(number)], capture_output=True, check=False)
            known = b"memory allocation of" in again.stderr  # polars gives up so; it cannot be caught
            told = f"--seed {seed} --only {name!r} --case {number}: exit {again.returncode}"
            print(f"{'ABORTED' if known else 'FAILED'} {told}", flush=True)
            trial.count("aborted" if known else "failed")
            trial.keep()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=100_000, help="of all readers together")
    parser.add_argument("--only", nargs="*", default=[], help="these readers")
    parser.add_argument("--case", type=int, help="this case alone; its bytes are printed")
    parser.add_argument("--progress", type=Path, help="a file by which a trial that was ended goes on")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        targets = {target.name: target for target in all_targets(Path(folder) / "fuzz", asked.only)}
        logging.disable()  # what readers warn of
        if asked.work:
            work(Trial(asked.only, asked.seed, int(asked.work[0]), Path(asked.work[1])), targets)
            return 0
        if asked.case is not None:
            (target,) = targets.values()
            data = case_of(target, asked.seed, asked.case)
            print(data, flush=True)
            print(*tried(target, data))
            return 0
        kept = asked.progress or Path(folder) / "progress"
        trial = run(list(targets), asked.seed, -(-asked.cases // len(targets)), kept)
    total = sum(trial.found.values(), Counter[str]())
    print(f"seed {asked.seed}: {total.total():,} cases of {len(targets)} readers, {total['failed']:,} failed,"
          f" {total['aborted']:,} aborted inside polars")  # fmt: skip
    return 1 if total["failed"] or total["aborted"] else 0


if __name__ == "__main__":
    sys.exit(main())
