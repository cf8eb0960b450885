"""Strong scaling: the same epochs by one process of one thread and by two, in turn, five times.

Both jobs are started once and wait for their turn, sleeping; what is measured is epochs, with their metrics and the
writing of their points, not starting Python.
"""

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import REAL, real_split
from benchmarks.side_by_side import REPEATS, milliseconds, ratio, table

EPOCHS = 4  # at a turn
ONE_THREAD = {"DIVMF_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
# what is timed → the settings and the phase; bpr says what many small steps cost that all wait for each other
JOBS: dict[str, tuple[dict[str, Any], str]] = {
    "diversity phase": ({"preset": "paper"}, "diversity"),
    "softmax": ({"l2": 8.0, "learning_rate": 0.2}, "accuracy"),
    "bpr": ({"preset": "paper"}, "accuracy"),
}


LARGE = "40,000 users × 10,000 items"
WORK = [(name, job) for name in REAL for job in JOBS] + [(LARGE, "diversity phase"), (LARGE, "softmax")]


def split_of(name: str) -> Any:
    """The data by name; the large one, where what an epoch costs beside its steps counts for little, is synthetic."""
    from divmf.data.datasets import marketplace

    return marketplace(40_000, 10_000, 1_000_000, seed=0).leave_one_out(0) if name == LARGE else real_split(name)


def begun(name: str, job: str, folder: Path) -> Any:
    """A training of a dataset, ready for its next epoch; the vectors are random, which changes no amount of work."""
    import torch

    from divmf.engine import comm
    from divmf.models.config import TrainConfig
    from divmf.models.epochs import initial_model, optimisers_of
    from divmf.train.fitting import Training
    from divmf.train.runs import Run

    split = split_of(name)
    split = split if comm.size() == 1 else split.of_process(comm.rank(), comm.size())
    config = TrainConfig(**JOBS[job][0], device="cpu")
    model = initial_model(split.n_users, split.n_items, config)
    with torch.no_grad():
        for vectors in (model.users, model.items):
            vectors.mul_(30)
    run = Run.start(folder / f"{name}-{job.replace(' ', '-')}", split, config)
    return Training(run, split, config, model, optimisers_of(model, config))


def wait_for(path: Path) -> None:
    """Sleep until a file is there."""
    while not path.exists():
        time.sleep(0.005)


def work(folder: Path) -> None:
    """One of the processes: prepare everything, do epochs whenever a turn is called, and say how long they took."""
    from divmf.engine import comm

    with comm.process_group():
        trainings = {(name, job): begun(name, job, folder) for name, job in WORK}
        for turn in range(1 + REPEATS):
            for (name, job), training in trainings.items():
                if comm.first():
                    wait_for(folder / f"go-{turn}-{name}-{job}")
                comm.barrier()
                began, steps = time.perf_counter(), training.clock.seconds.get(f"{JOBS[job][1]} epochs", 0.0)
                for _ in range(EPOCHS):
                    training.epoch(JOBS[job][1])
                took = time.perf_counter() - began
                steps = training.clock.seconds[f"{JOBS[job][1]} epochs"] - steps
                if comm.first():
                    done = folder / f"done-{turn}-{name}-{job}"
                    done.with_suffix(".tmp").write_text(f"{took / EPOCHS} {steps / EPOCHS}")
                    done.with_suffix(".tmp").rename(done)


def started(size: int, folder: Path, stack: ExitStack) -> subprocess.Popen[bytes]:
    """So many processes of one thread each."""
    together = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)] if size > 1 else []
    command = [sys.executable, *together, "-m", "benchmarks.scaling", str(folder)]
    process = subprocess.Popen(command, env=os.environ | ONE_THREAD)
    stack.callback(process.wait)
    stack.callback(lambda: process.poll() is None and process.terminate())
    return process


def main() -> None:
    """Measure and print a Markdown table."""
    seconds: dict[tuple[str, str, int], list[list[float]]] = {}
    with ExitStack() as stack:
        folders = {size: Path(stack.enter_context(tempfile.TemporaryDirectory())) for size in (1, 2)}
        jobs = {size: started(size, folder, stack) for size, folder in folders.items()}
        for turn in range(1 + REPEATS):  # the first to warm up
            for name, job in WORK:
                for size, folder in folders.items():
                    (folder / f"go-{turn}-{name}-{job}").touch()
                    done = folder / f"done-{turn}-{name}-{job}"
                    while not done.exists():
                        if jobs[size].poll() is not None:
                            raise RuntimeError(f"the job of {size} process(es) ended with {jobs[size].returncode}")
                        time.sleep(0.005)
                    took = [float(number) for number in done.read_text().split()]
                    if turn:
                        seconds.setdefault((name, job, size), []).append(took)
        for process in jobs.values():
            process.wait()
    rows = []
    for name, job in WORK:
        one, two = (np.array(seconds[name, job, size]) for size in (1, 2))  # (repeats, 2)
        for column, what in enumerate((f"{job}, an epoch", "its steps alone")):
            gains = one[:, column] / two[:, column]
            rows.append([
                name, what, milliseconds(one[:, column]), milliseconds(two[:, column]),
                f"{ratio(one[:, column], two[:, column]):.2f} ({gains.min():.2f}–{gains.max():.2f})",
            ])  # fmt: skip
    table(["dataset", "what", "1 process × 1 thread", "2 processes × 1 thread", "times as fast"], rows)


if __name__ == "__main__":
    work(Path(sys.argv[1]))
