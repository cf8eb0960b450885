"""divmf doctor."""

import os
import platform

from divmf.cli.app import app
from divmf.cli.console import Out
from divmf.cli.options import command


@command(app, "doctor")
def doctor(out: Out) -> None:
    """Describe this machine and installation: versions, threads, memory, data directory, compiled kernels."""
    import numba
    import torch

    import divmf.models.mf  # noqa: F401  (sets torch's threads)
    from divmf.data.datasets import data_directory
    from divmf.engine.threads import threads
    from divmf.engine.versions import versions
    from divmf.kernels.cache import kernel_cache

    directory, cache = data_directory(), kernel_cache()
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
        "kernel cache": str(cache.folder),
        "kernels compiled": f"{cache.warm} of {cache.kernels}; each is compiled at its first use, once",
    }
    out.table("", ["", ""], [[name, str(value)] for name, value in facts.items()])
    out.result({name.replace(" ", "_"): value for name, value in facts.items()})
