"""The cache of compiled kernels: each is kept, and one that is kept is seen."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import divmf
from divmf.kernels.cache import kernels

PROGRAM = """
from divmf.kernels.cache import kernel_cache
before = kernel_cache()
import numpy as np
from divmf.kernels.counts import row_sums
row_sums(np.ones((1, 1), dtype=np.bool_), np.ones(1), np.empty(1))
print(before.folder, before.warm, kernel_cache().warm, "found" if row_sums.stats.cache_hits else "compiled")
"""


def test_every_kernel_is_kept_on_disk() -> None:
    made = list(kernels())
    assert len(made) > 30
    assert all(kernel.stats.cache_path for kernel in made)  # none for a kernel without cache=True


def test_a_kernel_is_compiled_once_and_then_found(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}

    def run() -> list[str]:
        command = [sys.executable, "-c", PROGRAM]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()

    first, second = run(), run()
    assert Path(first[0]).is_relative_to(tmp_path)
    loaded, warm = int(first[1]), int(first[2])  # a few kernels are compiled as soon as they are loaded
    assert (warm, first[3]) == (loaded + 1, "compiled")
    assert second[1:] == [str(warm), str(warm), "found"]


def test_a_kernel_whose_file_changed_is_not_warm(tmp_path: Path) -> None:
    shutil.copytree(Path(divmf.__file__).parent, tmp_path / "divmf", ignore=shutil.ignore_patterns("__pycache__"))
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM]
    folder, before, after, _ = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout.split()
    assert (Path(folder), int(after)) == (tmp_path / "divmf" / "kernels" / "__pycache__", int(before) + 1)
    source = tmp_path / "divmf" / "kernels" / "counts.py"
    source.write_text(source.read_text() + "\n")
    os.utime(source, (2**31, 2**31))
    look = "from divmf.kernels.cache import kernel_cache; print(kernel_cache().warm)"
    done = subprocess.run([sys.executable, "-c", look], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{before}\n"
