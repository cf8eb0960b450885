"""What computes: the versions of Python and of the libraries that results depend on."""

import importlib.metadata
import platform


def versions() -> dict[str, str]:
    """The versions by name; nothing is loaded for it."""
    names = ("divmf", "torch", "numpy", "numba", "polars", "scipy")
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in names}
