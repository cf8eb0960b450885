"""Where compiled kernels are kept, and how many of them are there: a kernel is compiled once on a machine."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, NamedTuple

from numba.core.registry import CPUDispatcher

import divmf.kernels


class KernelCache(NamedTuple):
    """The folder numba chose (NUMBA_CACHE_DIR, else beside the kernels, else, where it may not write there, the user's
    cache), how many kernels are kept there, and how many there are.
    """

    folder: Path
    warm: int
    kernels: int


def kernel_cache() -> KernelCache:
    """Look at every kernel without compiling any."""
    all_of_them = list(kernels())
    return KernelCache(folder_of(all_of_them[0]), sum(map(is_warm, all_of_them)), len(all_of_them))


def kernels() -> Iterator[Any]:
    """Every compiled function of ours."""
    for module in iter_modules(divmf.kernels.__path__):
        name = f"{divmf.kernels.__name__}.{module.name}"
        for thing in vars(import_module(name)).values():
            if isinstance(thing, CPUDispatcher) and thing.py_func.__module__ == name:
                yield thing


def folder_of(kernel: Any) -> Path:
    """Where numba keeps a kernel."""
    return Path(kernel.stats.cache_path)


def is_warm(kernel: Any) -> bool:
    """Whether a kernel was compiled since its file was last changed."""
    code = kernel.py_func.__code__
    source = Path(code.co_filename)
    kept = folder_of(kernel).glob(f"{source.stem}.{kernel.py_func.__qualname__}-{code.co_firstlineno}.*.nbi")
    return any(index.stat().st_mtime >= source.stat().st_mtime for index in kept)
