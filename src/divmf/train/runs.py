"""The run folder: everything one training run leaves behind, and all it needs to go on after a stop.

config.json            settings, seed, versions, fingerprint of the data
ids.parquet            what the user and item numbers stand for
interactions.parquet   the split, by number
epochs.jsonl           a line an epoch: its point of the curve
points/NNN.safetensors the weights of diversity epoch NNN, or point NNN's discounts and lists (market);
                       000 is the model before diversifying
points/adam.safetensors where the diversity phase begins with them: Adam's moments of the accuracy epoch it begins from
models.json            the model that was chosen on validation, its settings, and what was tried
tuned.json             of a softmax trained by epochs: settings chosen on validation, and what was tried
state.safetensors      weights and optimiser after the last epoch, to resume from
picked.json            the operating point chosen
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout
from pydantic import ValidationError
from torch import Tensor

from divmf.data.fingerprint import fingerprint
from divmf.data.split import Split
from divmf.data.stored import read_split, write_split
from divmf.engine import comm
from divmf.engine.files import append_line, damaged, read_json, write_json, write_text
from divmf.engine.threads import RowRange
from divmf.engine.versions import versions
from divmf.market.bound import Bound
from divmf.market.chosen import Chosen
from divmf.market.kept import check_kept
from divmf.models.config import TrainConfig
from divmf.models.mf import MF
from divmf.models.scorer import Blocks, Factors, Scorer
from divmf.models.stored import from_tensors, tensors
from divmf.models.weights import (
    Sizes,
    check_small,
    metadata_of,
    model_of,
    read_model,
    read_tensors,
    write_model,
    write_tensors,
)
from divmf.ranking.curve import ACCURACY, Curve, Point
from divmf.train.identity import FUNCTION, check_same, fingerprint_of_model
from divmf.train.moments import check_moments, optimiser_tensors, restore_optimiser
from divmf.train.schema import CHOICE, CONFIG, POINT, TUNED, Choice, read_as, read_lines_as, whole_lines

# what may be in a folder where a run was stopped before its config.json, which makes it one, was written
OURS = ("points", "ids.parquet", "interactions.parquet", "rules.json", "lock")


@dataclass(frozen=True)
class Run:
    """A run folder on disk."""

    folder: Path

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """An existing run."""
        run = cls(Path(folder))
        if not run.config_file.exists():
            raise ValueError(
                f"{folder} is not a run folder (it has no config.json); make one with `divmf train DATA -o {folder}`"
            )
        return run

    @classmethod
    def start(
        cls, folder: str | Path, split: Split, config: TrainConfig, source: str = "", model: MF | Scorer | None = None,
        rules: Bound | None = None, columns: Mapping[str, str] | None = None,
    ) -> Self:  # fmt: skip
        """A new run in an empty or absent folder, or the same run taken up again.

        model: what it begins from; rules: what its lists keep; columns: what the log calls its columns, by role
        """
        run = cls(Path(folder))
        settings = {
            "rules": None if rules is None else rules.digest,
            "settings": asdict(config),
            "start": None if model is None else fingerprint_of_model(model),
            "data": {
                "source": source,
                "fingerprint": fingerprint(split),
                "users": comm.row_range(split.n_users).whole,
                "items": split.n_items,
                "columns": dict(columns or {}),
            },
        }
        is_run, is_ours = comm.shared((run.config_file.exists(), run.is_ours()))  # what the first process sees
        if is_run:
            check_same(run.folder, read_as(run.config_file, CONFIG), settings)
            return run
        if not is_ours:
            raise ValueError(f"{folder} is not empty and not a run folder; choose another one with -o")
        if comm.first():
            (run.folder / "points").mkdir(parents=True, exist_ok=True)
        comm.barrier()
        write_split(split, run.folder)
        if rules is not None:
            write_json(run.rules_file, rules.to_json())
        write_json(run.config_file, settings | {"versions": versions()})  # last: with it, the folder is a run
        return run

    def is_ours(self) -> bool:
        """Whether there is nothing in the folder, or nothing but what a run has written there before it was stopped."""
        there = self.folder.iterdir() if self.folder.exists() else iter(())
        return all(path.name in OURS or path.suffix == ".tmp" for path in there)

    @property
    def rules_file(self) -> Path:
        """Where the rules are, as they were bound to the data."""
        return self.folder / "rules.json"

    def read_rules(self) -> Bound | None:
        """The rules that the run's lists keep; none where there are none."""
        if not self.rules_file.exists():
            return None
        try:
            sizes = self.read_sizes()
            bound = Bound.from_json(read_json(self.rules_file), sizes.users)
            check_kept(bound, sizes.items)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise damaged(self.rules_file, error) from error
        return bound

    @property
    def config_file(self) -> Path:
        """Where the settings are."""
        return self.folder / "config.json"

    @property
    def log_file(self) -> Path:
        """Where the points are, a line each."""
        return self.folder / "epochs.jsonl"

    @property
    def state_file(self) -> Path:
        """Where the last state is."""
        return self.folder / "state.safetensors"

    def read_config(self) -> TrainConfig:
        """The settings the run was made with."""
        kept = read_as(self.config_file, CONFIG)["settings"]
        try:
            return TrainConfig(**kept)
        except ValidationError as error:
            problem = error.errors()[0]
            name = ".".join(map(str, problem["loc"])) or "settings"
            raise damaged(
                self.config_file, f"{name}: {problem['msg'].removeprefix('Value error, ').removeprefix('Input ')}"
            ) from error

    def read_facts(self) -> Mapping[str, Any]:
        """What the run says of its data: source, fingerprint, users, items."""
        facts: Mapping[str, Any] = read_as(self.config_file, CONFIG)["data"]
        return facts

    def read_start(self) -> str | None:
        """A hash of the model that the run began from; none if it began from nothing."""
        kept: str | None = read_as(self.config_file, CONFIG)["start"]
        return kept

    def read_sizes(self) -> Sizes:
        """How many users and items there are, which all tables of the run must fit."""
        facts = self.read_facts()
        return Sizes(facts["users"], facts["items"])

    def read_split(self) -> Split:
        """The data the run was made with; of several processes, each has its share."""
        split = read_split(self.folder, self.read_facts()["fingerprint"])
        if (comm.row_range(split.n_users).whole, split.n_items) != (sizes := self.read_sizes()):
            raise damaged(self.config_file, f"it says {sizes.users:,} users and {sizes.items:,} items")
        return split

    def check_same_data(self, other: "Run") -> None:
        """Refuse to set another run beside this one if it is of other data, or of lists of another length."""
        ours, theirs = self.read_facts(), other.read_facts()
        if theirs["fingerprint"] != ours["fingerprint"]:
            raise ValueError(
                f"{other.folder} is a run of other data ({theirs['source'] or 'unnamed'}) than {self.folder}"
                f" ({ours['source'] or 'unnamed'}); only runs of the same data and split can be compared"
            )
        if (there := other.read_config().k) != (here := self.read_config().k):
            raise ValueError(
                f"{other.folder} is a run of k={there}, {self.folder} of k={here}; compare lists of one length"
            )

    def read_curve(self) -> Curve:
        """The points recorded so far; a line cut off by a crash is passed over."""
        return Curve(tuple(Point.from_json(row) for row in read_lines_as(self.log_file, POINT)))

    def weights_file(self, point: Point) -> Path:
        """Where the weights of a point are; 000 is the model before diversifying."""
        return self.folder / "points" / f"{0 if point.phase == 'accuracy' else point.epoch:03d}.safetensors"

    def read_model(self, point: Point, rows: RowRange | None = None) -> MF:
        """The model of a point of the curve that one may choose; rows: of some users alone."""
        if point.phase == ACCURACY or point.knob is None:
            return read_model(self.weights_file(point), rows, self.read_sizes())
        return read_model(self.base_file, rows, self.read_sizes())

    @property
    def base_file(self) -> Path:
        """Where the model before diversifying is."""
        return self.folder / "points" / "000.safetensors"

    def read_scorer(self, rows: RowRange | None = None) -> Scorer:
        """What the market's lists are made of: the model before diversifying; rows: of some users alone."""
        if not self.base_file.exists():
            if self.read_start() != FUNCTION:
                raise damaged(self.base_file, FileNotFoundError())
            raise ValueError(f"{self.folder}: the scores were a function's, which is not kept; call diversify again")
        found = read_tensors(self.base_file, rows, self.read_sizes())
        if "users" in found:
            return Factors.of(model_of(found, self.base_file))
        return scorer_of(found, self.base_file, self.read_sizes())

    def record_scorer(self, scorer: Scorer) -> None:
        """Keep what the market begins from, if it can be kept."""
        if not isinstance(scorer, Blocks):
            write_tensors(self.base_file, tensors(scorer))

    @property
    def models_file(self) -> Path:
        """Where the model that was chosen is described, with all that was tried."""
        return self.folder / "models.json"

    def read_choice(self) -> Choice | None:
        """The model that was chosen, with its settings, and what was tried; none, if it was trained by epochs."""
        if not self.models_file.exists():
            return None
        found: Choice = read_as(self.models_file, CHOICE)
        return found

    def record_model(self, scorer: Scorer, choice: Choice) -> None:
        """Keep the model that was chosen: first its numbers, then what it is."""
        self.record_scorer(scorer)
        write_json(self.models_file, choice)

    def read_chosen(self, point: Point, rows: RowRange | None = None) -> Chosen | None:
        """The lists of a point of the market; none for other points. rows: of some users alone."""
        if point.phase == ACCURACY or point.knob is None or self.read_config().method != "market":
            return None
        path, sizes = self.weights_file(point), self.read_sizes()
        return Chosen.of(read_tensors(path, rows, sizes), sizes.items, path)

    def record_chosen(self, point: Point, chosen: Chosen) -> None:
        """Keep a point of the market: all that it adds to the model before diversifying, and nothing resumes."""
        write_tensors(self.weights_file(point), chosen.tensors())
        self.append(point)

    def append(self, point: Point) -> None:
        """A line in the log."""
        if comm.first():
            append_line(self.log_file, json.dumps(point.to_json()))
        comm.barrier()

    @property
    def tuned_file(self) -> Path:
        """Where the settings chosen on validation are."""
        return self.folder / "tuned.json"

    def read_tuned(self) -> dict[str, Any]:
        """The settings chosen on validation, and what was tried; empty if nothing was."""
        return dict(read_as(self.tuned_file, TUNED)) if self.tuned_file.exists() else {}

    def record(self, curve: Curve, model: MF, optimisers: Mapping[str, Any]) -> None:
        """Keep the last point of the curve: its weights if it may be chosen, its line, then the state."""
        point = curve.points[-1]
        if point.phase != "accuracy" or curve.base is point:
            write_model(self.weights_file(point), model)
        self.append(point)
        state = model.tensors() | optimiser_tensors(optimisers)
        write_tensors(self.state_file, state, {"epochs": str(len(curve.points))})

    @property
    def moments_file(self) -> Path:
        """Where Adam's moments of the model before diversifying are."""
        return self.folder / "points" / "adam.safetensors"

    def record_moments(self, optimiser: Any) -> None:
        """Keep Adam's moments of the accuracy epoch that the diversity phase would begin with."""
        write_tensors(self.moments_file, optimiser_tensors({"kept": optimiser}))

    def restore_moments(self, optimiser: Any, n_users: int) -> None:
        """Give an optimiser the moments kept last; there are none where no accuracy epoch was trained."""
        if comm.shared(self.moments_file.exists()):
            restore_optimiser("kept", optimiser, read_tensors(self.moments_file, comm.row_range(n_users)))

    def resume(self, n_users: int) -> dict[str, Tensor]:
        """The last state; lines of the log that it does not cover (an epoch cut short) are taken back. Empty if new.

        n_users: how many of them this process has; there may be more or fewer processes than before
        """
        rows = comm.row_range(n_users)
        if not comm.shared(self.state_file.exists()):
            if comm.first():
                self.log_file.unlink(missing_ok=True)
            comm.barrier()
            return {}
        try:
            epochs = int(metadata_of(self.state_file)["epochs"])
        except (KeyError, ValueError) as error:
            raise damaged(self.state_file, f"epochs: {error}") from error
        lines = whole_lines(self.log_file)
        if len(lines) < epochs:
            raise damaged(
                self.log_file, f"it has {len(lines)} epochs, {self.state_file.name} was written after {epochs}"
            )
        kept = lines[:epochs] + [line for line in lines[epochs:] if is_market_point(line)]
        comm.barrier()  # everybody has read it
        if len(lines) > len(kept):
            write_text(self.log_file, "".join(kept))
        state = read_tensors(self.state_file, rows, self.read_sizes())
        if (width := model_of(state, self.state_file).dim) != (n_dims := self.read_config().n_dims):
            raise damaged(self.state_file, f"vectors of {width}, config.json says dim={n_dims}")
        check_moments(state, self.state_file)
        return state

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for one run: two that write to it would mix their epochs. The first process holds it."""
        lock = FileLock(self.folder / "lock", blocking=False)
        free = True
        if comm.first():
            try:
                lock.acquire()
            except Timeout:
                free = False
        try:
            if not comm.shared(free):
                raise ValueError(f"{self.folder} is in use by another process; wait for it, or take another one")
            yield
        finally:
            if lock.is_locked:
                lock.release()

    def pick(self, rule: str | None = None, **criterion: float | None) -> Point:
        """Choose the operating point (see `Curve.choose`) and remember it."""
        point = self.read_curve().choose(rule, **criterion)  # type: ignore[arg-type]
        given: dict[str, Any] = {name: value for name, value in criterion.items() if value is not None} or {
            "rule": rule
        }
        write_json(self.folder / "picked.json", {"by": given} | point.to_json())
        return point

    def has_pick(self) -> bool:
        """Whether an operating point was chosen."""
        return (self.folder / "picked.json").exists()

    def read_picked(self) -> Point:
        """The operating point chosen last."""
        path = self.folder / "picked.json"
        if not self.has_pick():
            raise ValueError(
                f"{self.folder}: no operating point was picked yet; run `divmf pick {self.folder} --ndcg-drop 5%`"
            )
        point = Point.from_json(read_as(path, POINT))
        known = {(each.epoch, each.knob) for each in self.read_curve().points}
        if point.phase != ACCURACY and (point.epoch, point.knob) not in known:
            raise damaged(path, f"{point.name} is not among the points of {self.log_file.name}")
        return point


def scorer_of(found: Mapping[str, Tensor], path: Path, sizes: Sizes) -> Scorer:
    """The scorer that was kept in a file, if it is one of these users and items."""
    check_small(found, path)
    try:
        scorer = from_tensors(found)
    except (KeyError, ValueError) as error:
        raise damaged(path, error) from error
    if (scorer.n_users, scorer.n_items) != sizes:
        raise damaged(path, f"scores of {scorer.n_users:,} users for {scorer.n_items:,} items")
    return scorer


def is_market_point(line: str) -> bool:
    """Whether a line of the log is a whole point of the market, which needs no state to resume from."""
    try:
        return line.endswith("\n") and "knob" in json.loads(line)
    except json.JSONDecodeError:
        return False
