"""A run made again from its own folder, and what is the same: byte for byte, or where the first difference is."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from divmf.engine.versions import versions
from divmf.models.weights import read_tensors
from divmf.ranking.curve import ACCURACY, Point
from divmf.train.fitting import fit
from divmf.train.identity import FUNCTION
from divmf.train.market import fit_scores, refine
from divmf.train.runs import Run
from divmf.train.schema import CONFIG, POINT, read_as, read_lines_as

UNTOLD = ("seconds",)  # what a second run need not have alike


@dataclass(frozen=True)
class Check:
    """What was compared, whether it is the same, and how, or where the first difference is."""

    what: str
    same: bool
    detail: str


def repeat(run: Run, folder: Path) -> Iterator[Point]:
    """Make the points of a run again in another folder, with its data and settings; one begun there goes on."""
    split, config, start = run.read_split(), run.read_config(), run.read_start()
    curve = run.read_curve()
    if start == FUNCTION:
        raise ValueError(f"{run.folder}: the scores were a function's, which is not kept; call diversify again")
    scorer = None if start is None else run.read_scorer()
    model = run.read_model(curve.base) if start is not None and is_factors(run) else None
    facts, begun = run.read_facts(), scorer if model is None else model
    again = Run.start(folder, split, config, facts["source"], begun, columns=facts.get("columns"))
    making = fit(again, split, config, model) if scorer is None or model else fit_scores(again, split, config, scorer)
    for point in making:
        yield point
        if all(count(again.read_curve().points, phase) >= count(curve.points, phase) for phase in (True, False)):
            break  # the run was stopped before its end: what it has is made
    made = {point.knob for point in again.read_curve().points}
    for point in curve.points:
        if point.knob is not None and point.knob not in made:  # added where a criterion of `divmf pick` is just met
            refine(again, split, config, None, None if model else scorer, rho=point.knob)
            yield again.read_curve().points[-1]


def is_factors(run: Run) -> bool:
    """Whether a run begins from vectors, and not from another scorer."""
    return "users" in read_tensors(run.base_file)


def count(points: tuple[Point, ...], accuracy: bool) -> int:
    """How many points are of the accuracy phase, or are not."""
    return sum((point.phase == ACCURACY) is accuracy for point in points)


def compared(run: Run, again: Run) -> list[Check]:
    """Two runs of the same settings: data, versions, the log, and each file of numbers."""
    found = [same_data(run, again), same_versions(run), same_points(run, again)]
    if run.read_tuned() or again.read_tuned():
        found.append(same_document("tuned.json", run.read_tuned(), again.read_tuned()))
    found += same_weights(run, again)
    if run.state_file.exists() and len(run.read_curve()) == len(again.read_curve()):
        found.append(same_tensors(run, again, run.state_file.name))
    return found


def same_data(run: Run, again: Run) -> Check:
    """The fingerprint of what each learnt from; a run whose folder does not fit its own is not read at all."""
    ours, theirs = again.read_facts()["fingerprint"], run.read_facts()["fingerprint"]
    return Check("data", ours == theirs, f"fingerprint {theirs}" if ours == theirs else f"{theirs}, now {ours}")


def same_versions(run: Run) -> Check:
    """What each was made with; numbers may differ where versions do."""
    kept, now = read_as(run.config_file, CONFIG).get("versions", {}), versions()
    other = [f"{name} {kept.get(name)}, now {version}" for name, version in now.items() if kept.get(name) != version]
    return Check("versions", not other, "; ".join(other) or "those of now")


def same_points(run: Run, again: Run) -> Check:
    """The lines of the log, but for the seconds that each took."""
    theirs, ours = (read_lines_as(each.log_file, POINT) for each in (run, again))
    for number, row in enumerate(theirs, 1):
        if number > len(ours):
            return Check("epochs.jsonl", False, f"line {number} was not made again")
        if where := first_difference(row, ours[number - 1]):
            return Check("epochs.jsonl", False, f"line {number}: {where}")
    return Check("epochs.jsonl", True, f"{len(theirs)} points, to the last digit")


def same_document(name: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> Check:
    """A JSON file, but for seconds."""
    where = first_difference(one, other)
    return Check(name, not where, where or "to the last digit")


def first_difference(one: Any, other: Any, where: str = "") -> str:
    """Where two documents first differ, seconds apart, and how; nothing, if they do not."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in sorted((one.keys() | other.keys()) - set(UNTOLD)):
            path = f"{where}.{name}" if where else name
            if name not in one or name not in other:
                return f"{path} is in one of them alone"
            if found := first_difference(one[name], other[name], path):
                return found
        return ""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return next(filter(None, (first_difference(*pair, f"{where}[{n}]") for n, pair in pairs)), "")
    return "" if one == other else f"{where} was {one!r}, now {other!r}"


def same_weights(run: Run, again: Run) -> Iterator[Check]:
    """The files of all points together, and each that differs."""
    names = sorted(path.name for path in (run.folder / "points").glob("*.safetensors"))
    checks = [same_tensors(run, again, f"points/{name}") for name in names]
    same = [name for name, check in zip(names, checks, strict=True) if check.same]
    size = sum((run.folder / "points" / name).stat().st_size for name in same)
    yield Check("points", len(same) == len(names), f"{len(same)} of {len(names)} files byte for byte ({size:,} bytes)")
    yield from (check for check in checks if not check.same)


def same_tensors(run: Run, again: Run, name: str) -> Check:
    """A file of tensors: its bytes, else the first tensor that is another, and by how much."""
    one, other = run.folder / name, again.folder / name
    if not other.exists():
        return Check(name, False, "was not made again")
    if one.read_bytes() == other.read_bytes():
        return Check(name, True, f"byte for byte ({one.stat().st_size:,} bytes)")
    theirs, ours = read_tensors(one), read_tensors(other)
    for key in sorted(theirs.keys() | ours.keys()):
        if key not in theirs or key not in ours:
            return Check(name, False, f"{key} is in one of them alone")
        if theirs[key].shape != ours[key].shape:
            return Check(name, False, f"{key} had shape {tuple(theirs[key].shape)}, now {tuple(ours[key].shape)}")
        if not torch.equal(theirs[key], ours[key]):
            apart = (theirs[key].double() - ours[key].double()).abs()
            index = tuple(int(axis) for axis in (apart > 0).nonzero()[0])
            return Check(name, False, f"{key}{list(index)} differs first, by {float(apart[index]):.3g};"
                         f" at most {float(apart.max()):.3g}")  # fmt: skip
    return Check(name, False, "the same numbers in other bytes")
