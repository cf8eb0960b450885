"""Adam's moments, by name, as a run keeps them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from divmf.engine.files import damaged


def check_moments(state: Mapping[str, Tensor], path: Path) -> None:
    """Refuse moments of Adam that do not fit the tables that they are of."""
    for name, tensor in state.items():
        table = state.get(name.split(".")[1]) if name.count(".") == 2 else None
        if table is not None and tensor.ndim and tensor.shape != table.shape:
            raise damaged(path, f"{name} has shape {tuple(tensor.shape)}, its table {tuple(table.shape)}")


def optimiser_tensors(optimisers: Mapping[str, Any]) -> dict[str, Tensor]:
    """Adam's moments and step counts by name: `accuracy.users.exp_avg`, …"""
    return {
        f"{phase}.{table}.{name}": tensor
        for phase, optimiser in optimisers.items()
        for table, parameter in zip(("users", "items"), optimiser.param_groups[0]["params"], strict=True)
        for name, tensor in optimiser.state[parameter].items()
    }


def restore_optimiser(phase: str, optimiser: Any, state: Mapping[str, Tensor]) -> None:
    """Put back what `optimiser_tensors` named, if the phase had begun."""
    for table, parameter in zip(("users", "items"), optimiser.param_groups[0]["params"], strict=True):
        prefix = f"{phase}.{table}."
        moments = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
        if moments:
            optimiser.state[parameter] = {name: tensor.to(parameter.device) for name, tensor in moments.items()}
