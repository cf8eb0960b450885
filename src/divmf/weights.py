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

from divmf import comm
from divmf.files import damaged, replacing
from divmf.model import MF

TYPES = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64", torch.int32: "I32"}


class Rows(NamedTuple):
    """The users of this process: the first of them, and the one after the last."""

    first: int
    last: int
    whole: int

    @classmethod
    def of(cls, n_users: int) -> "Rows":
        """Where the users of this process stand, if it has so many."""
        place = comm.place(n_users)
        return cls(place.first, place.first + n_users, place.whole)


def is_users(name: str, shape: tuple[int, ...] | torch.Size) -> bool:
    """Whether a tensor has a row for each user: `users`, `accuracy.users.exp_avg`, … but not Adam's count of steps."""
    return "users" in name.split(".") and len(shape) == 2


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write safetensors, whole or not at all, all processes together."""
    arrays = {name: tensor.detach().contiguous().cpu() for name, tensor in sorted(tensors.items())}
    shared = {name: tensor for name, tensor in arrays.items() if is_users(name, tensor.shape)}
    rows = Rows.of(len(next(iter(shared.values()))) if shared else 0)
    header, places, size = layout(arrays, rows.whole, metadata or {})
    with replacing(path) as temporary:
        if comm.first():
            with temporary.open("wb") as file:
                file.write(header)
                file.truncate(size)
                for name in arrays.keys() - shared.keys():
                    write_at(file, places[name], arrays[name])
        comm.meet()
        if shared:
            with temporary.open("r+b") as file:
                for name, tensor in shared.items():
                    row_bytes = tensor.shape[1] * tensor.element_size()
                    write_at(file, places[name] + rows.first * row_bytes, tensor)
        comm.meet()


def layout(tensors: Mapping[str, Tensor], n_users: int, metadata: dict[str, str]) -> tuple[bytes, dict[str, int], int]:
    """The head of a file, where each tensor begins in it, and its size."""
    described: dict[str, Any] = {"__metadata__": {"format": "pt"} | metadata}
    begins, at = {}, 0
    for name, tensor in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):  # aligned so
        shape = [n_users, *tensor.shape[1:]] if is_users(name, tensor.shape) else list(tensor.shape)
        begins[name], end = at, at + tensor.element_size() * int(np.prod(shape, dtype=np.int64))
        described[name] = {"dtype": TYPES[tensor.dtype], "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(described, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    head = len(text).to_bytes(8, "little") + text
    return head, {name: len(head) + begin for name, begin in begins.items()}, len(head) + at


def write_at(file: IO[bytes], place: int, tensor: Tensor) -> None:
    """Write a tensor at a place of a file."""
    file.seek(place)
    file.write(np.atleast_1d(tensor.numpy()).data)


def read_tensors(path: Path, rows: Rows | None = None) -> dict[str, Tensor]:
    """Read what `write_tensors` wrote; of tables of users, these rows alone."""
    if not path.exists():
        raise ValueError(f"{path} is missing: the weights of this point were not kept; train again")
    found: dict[str, Tensor] = {}
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (it is not a mapping)
                part = file.get_slice(name)
                shape = part.get_shape()
                if rows is None or not is_users(name, tuple(shape)):
                    found[name] = file.get_tensor(name)
                elif shape[0] != rows.whole:
                    raise ValueError(f"it has {shape[0]:,} users, the data {rows.whole:,}")
                else:
                    found[name] = part[rows.first : rows.last]
    except (SafetensorError, ValueError) as error:
        raise damaged(path, error) from error
    return found


def metadata_of(path: Path) -> dict[str, str]:
    """What a file says of itself."""
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata())
    except (SafetensorError, TypeError) as error:
        raise damaged(path, error) from error


def write_model(path: Path, model: MF) -> None:
    """Write the parameters of a model."""
    write_tensors(path, model.tensors())


def read_model(path: Path, rows: Rows | None = None) -> MF:
    """Read the parameters of a model, or of it the vectors of these users."""
    tensors = read_tensors(path, rows)
    return MF(tensors["users"], tensors["items"], tensors["bias"], tensors.get("price"))
