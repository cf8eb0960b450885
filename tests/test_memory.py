"""Memory stays that of the parameters and one block of scores; the dense matrix would be 12 GB."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

CODE = """
from pathlib import Path
from divmf.data.datasets import marketplace
from divmf.estimator import Recommender
from divmf.train.fitting import fit
from divmf.train.runs import Run
from divmf.models.config import TrainConfig
import tempfile

split = marketplace(70_000, 44_000, 1_500_000, seed=0).leave_one_out(0)
config = TrainConfig(accuracy_epochs=1, diversity_epochs=1, {settings})
with tempfile.TemporaryDirectory() as folder:
    run = Run.start(folder + "/run", split, config)
    points = list(fit(run, split, config))
    lists = Recommender(run.read_model(points[-1]), split, points[-1]).lists(k=10)
assert lists.items.shape == (70_000, 10)
# not getrusage: its maximum counts the parent's memory from before the exec too
lines = Path("/proc/self/status").read_text().splitlines()
print(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**20)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    ["preset='paper'", "preset='paper', rows=5000, columns=5000", "l2=8.0", "model='bpr', method='market'"],
)
def test_seventy_thousand_users_and_forty_four_thousand_items_need_less_than_two_gigabytes(settings: str) -> None:
    code = CODE.replace("{settings}", settings)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 2.0


AUDIT = """
import sys
from pathlib import Path
import numpy as np
import polars as pl
from divmf.cli import main

users, k, n_items = 1_000_000, 10, 50_000
first = np.random.default_rng(0).integers(0, n_items, users) ** 2 // n_items
items = (first[:, None] + 7 * np.arange(k)) % n_items
frame = {"user_id": np.repeat(np.arange(users), k), "item_id": items.ravel(), "rank": np.tile(np.arange(k), users)}
pl.DataFrame(frame).write_csv("lists.csv")
pl.DataFrame({"item_id": np.arange(n_items)}).write_csv("items.csv")
del frame, items
Path("/proc/self/clear_refs").write_text("5")  # the highest so far is forgotten
sys.argv = ["divmf", "audit", "lists.csv", "--catalog", "items.csv", "-o", "report.html", "-q"]
try:
    main()
finally:
    lines = Path("/proc/self/status").read_text().splitlines()
    print(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**20)
"""


@pytest.mark.slow
def test_the_audit_of_a_million_lists_needs_less_than_two_gigabytes(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", AUDIT], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").exists()
    assert float(done.stdout) < 2.0


READING = """
import sys
from pathlib import Path
from divmf.engine import comm
from divmf.data.interactions import Interactions

def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024

with comm.process_group():
    before = status("VmRSS")
    data = Interactions.read_share(sys.argv[1])
    text = f"{(status('VmHWM') - before) / len(data)} {len(data)}"
    (Path(sys.argv[1]).parent / f"{comm.rank()}.txt").write_text(text)
"""


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_process_reads_its_own_rows_in_ninety_bytes_each(tmp_path: Path, processes: int) -> None:
    """The ids alone, as strings, would take twice that in a frame; users stand all over the parts."""
    rng, n_rows, log = np.random.default_rng(0), 10_000_000, tmp_path / "log"
    log.mkdir()
    for part in range(4):
        users, items, times = (rng.integers(0, most, n_rows // 4) for most in (200_000, 20_000, 10**9))
        table = pl.LazyFrame({"user_id": users, "item_id": items, "timestamp": times})
        named = [pl.format(f"a rather long {name} {{}}", name).alias(name) for name in ("user_id", "item_id")]
        table.with_columns(named).sink_parquet(log / f"{part}.parquet", row_group_size=100_000)
    (tmp_path / "read.py").write_text(READING)
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    line = [sys.executable, *(start if processes > 1 else []), str(tmp_path / "read.py"), str(log)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = [(tmp_path / f"{rank}.txt").read_text().split() for rank in range(processes)]
    assert sum(int(rows) for _, rows in found) > 0.99 * n_rows  # a few pairs are drawn twice
    assert all(float(bytes_a_row) < 90 for bytes_a_row, _ in found), found
