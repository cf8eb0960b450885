"""divmf doctor."""

import os
import platform

from divmf.cli import app
from divmf.cli.console import Out
from divmf.cli.options import command


@command(app, "doctor")
def doctor(out: Out) -> None:
    """What this machine and this installation are: versions, threads, memory, data directory."""
    import numba
    import torch

    from divmf.datasets import data_directory
    from divmf.runs import versions
    from divmf.threads import threads

    directory = data_directory()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30 if hasattr(os, "sysconf") else None
    facts = {
        **versions(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads": threads(),
        "torch threads": torch.get_num_threads(),
        "numba threads": numba.get_num_threads(),
        "cuda": torch.cuda.is_available(),
        "memory": f"{memory:.1f} GiB" if memory else "unknown",
        "data directory": str(directory),
        "data there": ", ".join(sorted(path.stem for path in directory.glob("*.parquet"))) or "nothing yet",
        "kernel cache": os.environ.get("NUMBA_CACHE_DIR", "beside the kernels (__pycache__)"),
    }
    out.table("", ["", ""], [[name, str(value)] for name, value in facts.items()])
    out.result({name.replace(" ", "_"): value for name, value in facts.items()})
