"""Where tensors are: the name of a device → a device that is there."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def device_of(name: str) -> "torch.device":
    """The device that `auto`, `cpu` or `cuda` means here; each process of a machine takes a GPU of its own in turn."""
    import torch

    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        built = "was built without CUDA" if torch.version.cuda is None else "finds no GPU"
        raise ValueError(
            f"device='cuda' is not there: torch {torch.__version__} {built}; choose auto or cpu, or install torch for"
            " CUDA (https://pytorch.org/get-started) on a machine with a GPU"
        )
    if name == "cpu" or not there:
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
