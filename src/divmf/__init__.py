"""divmf: aggregately diversified recommendation.

Good lists for each user, and a fair chance for the whole catalog. The names below are loaded when first used,
so that `import divmf` takes no time.
"""

import os
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from divmf import rerank
    from divmf.data import datasets
    from divmf.data.interactions import Interactions
    from divmf.data.split import Split, hold_out, leave_one_out
    from divmf.estimator import DivMF, Recommender, diversify, load
    from divmf.market.rules import Rules
    from divmf.models.config import TrainConfig, TrainingDiverged
    from divmf.models.mf import MF
    from divmf.ranking.curve import Curve, Point
    from divmf.ranking.lists import TopK
    from divmf.ranking.metrics import Estimate, compare, evaluate, measure
    from divmf.serve.live import Live

__version__ = version("divmf")

# torch and numba each keep threads; by default, idle ones spin and take the core from those that have work (on a
# busy two-core machine a diversity step took 10 s instead of 0.4 s). Read when torch is loaded; your own setting wins.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_HOME = {
    "Curve": "ranking.curve", "Point": "ranking.curve",
    "DivMF": "estimator", "Recommender": "estimator", "diversify": "estimator", "load": "estimator",
    "Interactions": "data.interactions",
    "Live": "serve.live",
    "Estimate": "ranking.metrics", "compare": "ranking.metrics", "evaluate": "ranking.metrics",
    "measure": "ranking.metrics",
    "MF": "models.mf",
    "Rules": "market.rules",
    "Split": "data.split", "hold_out": "data.split", "leave_one_out": "data.split",
    "TopK": "ranking.lists",
    "TrainConfig": "models.config", "TrainingDiverged": "models.config",
}  # fmt: skip
_ROOMS = {"datasets": "data.datasets", "rerank": "rerank"}

__all__ = [
    "MF", "Curve", "DivMF", "Estimate", "Interactions", "Live", "Point", "Recommender", "Rules", "Split", "TopK",
    "TrainConfig",
    "TrainingDiverged", "compare", "datasets", "diversify", "evaluate", "hold_out", "leave_one_out", "load", "measure",
    "rerank",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"divmf.{_ROOMS[name]}")
    if name in _HOME:
        return getattr(import_module(f"divmf.{_HOME[name]}"), name)
    raise AttributeError(f"module 'divmf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
