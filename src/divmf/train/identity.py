"""Whether a run may be taken up again: with the data, the settings, the rules and the model it began with."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from divmf.models.mf import MF
from divmf.models.scorer import Blocks, Scorer
from divmf.models.stored import tensors

# a run may be taken up again with other values of these: they say how far it goes and where, not what it is
EXTENDABLE = ("diversity_epochs", "device")
FUNCTION = "a function"  # what a run begins from that has no parameters to keep


def check_same(folder: Path, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """An existing run is taken up again only with the same data and settings."""
    data, settings = stored["data"], stored["settings"]
    if data["fingerprint"] != wanted["data"]["fingerprint"]:
        raise ValueError(
            f"{folder} is a run of other data or of another split ({data['source'] or 'unnamed'},"
            f" {data['users']:,} users × {data['items']:,} items); choose another folder with -o"
        )
    other = [
        f"{name} was {value!r}, now {wanted['settings'].get(name)!r}"
        for name, value in settings.items()
        if name not in EXTENDABLE and wanted["settings"].get(name) != value
    ]
    if stored.get("rules") != wanted["rules"]:
        raise ValueError(f"{folder} is a run with other rules; choose another folder with -o")
    if stored.get("start") != wanted["start"]:
        raise ValueError(f"{folder} is a run that began from another model; choose another folder with -o")
    if other:
        raise ValueError(f"{folder} is a run with other settings ({'; '.join(other)}); choose another folder with -o")


def fingerprint_of_model(model: MF | Scorer) -> str:
    """A hash of the parameters a run begins from; of a function there are none."""
    if isinstance(model, Blocks):
        return FUNCTION
    digest = hashlib.blake2b(digest_size=16)
    for tensor in (model.tensors() if isinstance(model, MF) else tensors(model)).values():
        digest.update(tensor.detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()
