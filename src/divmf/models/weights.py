"""Tables of numbers on disk (safetensors), whole or not at all; of several processes, each writes and reads its rows.

A file holds the same bytes however many processes wrote it: the rows of the users stand one share behind the other, and
the first process writes what is not the users'. They need a file system that all of them see.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from divmf.engine import comm
from divmf.engine.files import damaged, replacing
from divmf.engine.threads import RowRange
from divmf.models.mf import MF

TYPES = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64", torch.int32: "I32"}

LARGEST = 1e12  # scores of larger vectors do not fit into float32


def is_users(name: str, shape: tuple[int, ...] | torch.Size) -> bool:
    """Whether a tensor has a row for each user: `users`, `accuracy.users.exp_avg`, … but not Adam's count of steps."""
    return "users" in name.split(".") and len(shape) == 2


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write safetensors, whole or not at all, all processes together."""
    arrays = {name: tensor.detach().contiguous().cpu() for name, tensor in sorted(tensors.items())}
    shared = {name: tensor for name, tensor in arrays.items() if is_users(name, tensor.shape)}
    rows = comm.row_range(len(next(iter(shared.values()))) if shared else 0)
    header, offsets, size = layout(arrays, rows.whole, metadata or {})
    with replacing(path) as temporary:
        if comm.first():
            with temporary.open("wb") as file:
                file.write(header)
                file.truncate(size)
                for name in arrays.keys() - shared.keys():
                    write_at(file, offsets[name], arrays[name])
        comm.barrier()
        if shared:
            with temporary.open("r+b") as file:
                for name, tensor in shared.items():
                    row_bytes = tensor.shape[1] * tensor.element_size()
                    write_at(file, offsets[name] + rows.first * row_bytes, tensor)
        comm.barrier()


def layout(tensors: Mapping[str, Tensor], n_users: int, metadata: dict[str, str]) -> tuple[bytes, dict[str, int], int]:
    """The head of a file, where each tensor begins in it, and its size."""
    described: dict[str, Any] = {"__metadata__": {"format": "pt"} | metadata}
    begins, offset = {}, 0
    for name, tensor in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):  # aligned so
        shape = [n_users, *tensor.shape[1:]] if is_users(name, tensor.shape) else list(tensor.shape)
        begins[name], end = offset, offset + tensor.element_size() * int(np.prod(shape, dtype=np.int64))
        described[name] = {"dtype": TYPES[tensor.dtype], "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(described, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    head = len(text).to_bytes(8, "little") + text
    return head, {name: len(head) + begin for name, begin in begins.items()}, len(head) + offset


def write_at(file: IO[bytes], offset: int, tensor: Tensor) -> None:
    """Write a tensor at an offset of a file."""
    file.seek(offset)
    file.write(np.atleast_1d(tensor.numpy()).data)


class Sizes(NamedTuple):
    """What the tables of a file must fit: the data of the run or model that they belong to."""

    users: int
    items: int

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Refuse a table that has not a row for each user or item. Kernels take that for granted: they do not look."""
        parts = name.split(".")
        of_users, of_items = "users" in parts, not {"items", "bias", "discount"}.isdisjoint(parts)
        if not shape or not (of_users or of_items):  # Adam's count of steps
            return
        whose, n_rows = ("users", self.users) if of_users else ("items", self.items)
        if shape[0] != n_rows or len(shape) > 2 or (of_users and len(shape) != 2) or 0 in shape:
            raise ValueError(f"{name} has shape {shape}, the data {n_rows:,} {whose}")


def read_tensors(path: Path, rows: RowRange | None = None, sizes: Sizes | None = None) -> dict[str, Tensor]:
    """Read what `write_tensors` wrote, if it is numbers and fits the data; of tables of users, these rows alone."""
    if not path.exists():
        raise damaged(path, FileNotFoundError())
    found: dict[str, Tensor] = {}
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (it is not a mapping)
                part = file.get_slice(name)
                shape = part.get_shape()
                if sizes is not None:
                    sizes.check(name, tuple(shape))
                if rows is None or not is_users(name, tuple(shape)):
                    found[name] = file.get_tensor(name)
                elif shape[0] != rows.whole:
                    raise ValueError(f"it has {shape[0]:,} users, the data {rows.whole:,}")
                else:
                    found[name] = part[rows.first : rows.last]
                check_numbers(name, found[name])
    except (SafetensorError, ValueError, OSError) as error:
        raise damaged(path, error) from error
    return found


def check_numbers(name: str, tensor: Tensor) -> None:
    """Refuse types that are not written here, and what is not finite: a list of NaN scores would be empty."""
    if tensor.dtype not in TYPES:
        raise ValueError(f"{name} holds {str(tensor.dtype).removeprefix('torch.')}")
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{name} holds NaN or infinite numbers")


def check_small(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Refuse tables whose products do not fit into float32."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.numel() and float(tensor.abs().max()) > LARGEST:
            raise damaged(path, f"{name} holds numbers larger than {LARGEST:g}")


def metadata_of(path: Path) -> dict[str, str]:
    """What a file says of itself."""
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata())
    except (SafetensorError, TypeError, OSError) as error:
        raise damaged(path, error) from error


def write_model(path: Path, model: MF) -> None:
    """Write the parameters of a model."""
    write_tensors(path, model.tensors())


def read_model(path: Path, rows: RowRange | None = None, sizes: Sizes | None = None) -> MF:
    """Read the parameters of a model, or of it the vectors of these users; sizes: those of its data."""
    return model_of(read_tensors(path, rows, sizes), path)


def model_of(tensors: Mapping[str, Tensor], path: Path) -> MF:
    """The model that was read from a file, if its tables fit each other."""
    if missing := [name for name in ("users", "items", "bias") if name not in tensors]:
        raise damaged(path, f"it has no {missing[0]}")
    model = MF(tensors["users"], tensors["items"], tensors["bias"])
    if model.users.ndim != 2 or model.items.ndim != 2 or model.users.shape[1] != model.items.shape[1]:
        raise damaged(path, f"vectors of shapes {tuple(model.users.shape)} and {tuple(model.items.shape)}")
    if model.bias.shape != (model.n_items,):
        raise damaged(path, f"bias has shape {tuple(model.bias.shape)}, the model {model.n_items:,} items")
    check_small({name: tensors[name] for name in ("users", "items", "bias")}, path)
    types = {tensor.dtype for tensor in (model.users, model.items, model.bias)}
    if len(types) > 1 or not model.users.is_floating_point():
        raise damaged(path, f"vectors of {' and '.join(sorted(str(each).removeprefix('torch.') for each in types))}")
    return model
