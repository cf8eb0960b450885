"""Launch distributed_work.py under torchrun again and again on a loaded machine, and count what does not end well.

python tests/faults/launches.py --launches 200 --sizes 2 3 4 --load 2
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WORK = Path(__file__).parents[1] / "distributed_work.py"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "DIVMF_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
LIMIT = 600  # seconds after which a launch hangs


@contextmanager
def loaded(processes: int) -> Iterator[None]:
    """So many other processes that do nothing but take time."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()


def launch(size: int, folder: str) -> str:
    """What was wrong with a launch; nothing, if it ended well."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
    try:
        done = subprocess.run(
            [*start, str(WORK), folder],
            env=os.environ | ONE_THREAD, capture_output=True, text=True, check=False, timeout=LIMIT,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"still there after {LIMIT} s"
    return done.stderr if done.returncode or "terminate called" in done.stderr else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=200)
    parser.add_argument("--sizes", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--load", type=int, default=2)
    arguments = parser.parse_args()
    failed, began = 0, time.perf_counter()
    with loaded(arguments.load):
        for number in range(arguments.launches):
            size = arguments.sizes[number % len(arguments.sizes)]
            with tempfile.TemporaryDirectory() as folder:
                if wrong := launch(size, folder):
                    failed += 1
                    print(f"launch {number} of {size} processes:\n{wrong}", flush=True)
            if number % 10 == 9:
                print(f"{number + 1} launches, {failed} failed, {time.perf_counter() - began:.0f} s", flush=True)
    trial = f"{arguments.launches} launches of {arguments.sizes} processes beside {arguments.load} busy ones"
    print(f"{trial}: {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
