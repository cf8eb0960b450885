"""A million users, 20,000 items, 50 million interactions: the whole job by one process and by two, beside `divmf plan`.

Read the parts from disk, one accuracy epoch, one diversity epoch, everybody's lists; a thread a process. Takes about
half an hour; `python -m benchmarks.big 50` does a fiftieth of it, `python -m benchmarks.big 1 FOLDER` keeps its files.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.big_market import write_market
from benchmarks.side_by_side import table

USERS, ITEMS, INTERACTIONS = 1_000_000, 20_000, 50_000_000
METHOD = ("--model", "bpr", "--method", "divmf")
EPOCHS = ("--accuracy-epochs", "1", "--diversity-epochs", "1")
GIGABYTE = 2**30 / 1e9  # what the kernel calls one, in 10⁹ bytes
PHASES = ("reading", "accuracy epochs", "diversity epochs", "validation metrics")


def command(processes: int, folder: Path, *arguments: str) -> tuple[dict[str, Any], float, list[float]]:
    """Run divmf in processes of its own: its JSON, seconds, and what each process held at most, in 10⁹ bytes."""
    launch = (
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes > 1 else []
    )
    env = os.environ | dict.fromkeys(("DIVMF_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    line = [sys.executable, *launch, "-m", "benchmarks.peak", str(folder), *arguments, "--json"]
    began = time.perf_counter()
    done = subprocess.run(line, env=env, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    print(f"# {processes} × divmf {' '.join(arguments)}: {seconds:.0f} s", file=sys.stderr, flush=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    peaks = [float((folder / f"{arguments[0]}-{rank}.peak").read_text()) * GIGABYTE for rank in range(processes)]
    return json.loads(done.stdout.splitlines()[-1]), seconds, peaks


def job(processes: int, folder: Path, sizes: tuple[int, int, int]) -> list[list[str]]:
    """Rows of the table: what was planned and what was measured."""
    run, lists = folder / f"run-{processes}", folder / f"lists-{processes}"
    asked = [f"--{name}={size}" for name, size in zip(("users", "items", "interactions"), sizes, strict=True)]
    planned, _, _ = command(1, folder, "plan", *asked, f"--processes={processes}", *METHOD)
    trained, _, of_train = command(
        processes, folder, "train", str(folder / "market"), "-o", str(run), "--profile", *METHOD, *EPOCHS
    )
    _, listing, of_lists = command(processes, folder, "recommend", str(run), "-o", str(lists))
    by_phase = {row["phase"]: row["seconds"] for row in trained["profile"]}
    memory = {name: sum(parts.values()) / 1e9 for name, parts in planned["memory_bytes"].items()}
    to_train, to_list = max(memory[name] for name in ("reading", "accuracy", "diversity")), memory["recommend"]
    took = planned["seconds"]
    expected = [took["reading"], took["accuracy"], took["diversity"], 2 * took["measuring"], took["recommend"]]
    found = [*(by_phase[name] for name in PHASES), listing]
    return [
        [f"{processes}, planned", *(f"{value:.0f}" for value in expected), f"{to_train:.2f}", f"{to_list:.2f}"],
        [f"{processes}, measured", *(f"{value:.0f}" for value in found), shown(of_train), shown(of_lists)],
        ["ratio", *(f"{one / other:.2f}" for one, other in zip(found, expected, strict=True)),
         f"{max(of_train) / to_train:.2f}", f"{max(of_lists) / to_list:.2f}"],
    ]  # fmt: skip


def shown(peaks: list[float]) -> str:
    """Peaks of all processes."""
    return " and ".join(f"{peak:.2f}" for peak in peaks)


def main(one_in: int = 1, folder: Path | None = None) -> None:
    """Make the market, do the job, print a Markdown table."""
    sizes = (USERS // one_in, ITEMS, INTERACTIONS // one_in)
    with tempfile.TemporaryDirectory() as temporary:
        folder = folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        write_market(folder / "market", *sizes)
        rows = [row for processes in (1, 2) for row in job(processes, folder, sizes)]
    header = ["processes", "reading", "accuracy", "diversity", "measuring", "lists", "GB to train", "GB to recommend"]
    table(header, rows)


if __name__ == "__main__":
    main(*(kind(text) for kind, text in zip((int, Path), sys.argv[1:], strict=False)))
