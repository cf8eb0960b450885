"""The run folder: everything one training run leaves behind, and all it needs to go on after a stop.

config.json            settings, seed, versions, fingerprint of the data
ids.parquet            what the user and item numbers stand for
interactions.parquet   the split, by number
epochs.jsonl           a line an epoch: its point of the curve
points/NNN.safetensors the weights of diversity epoch NNN, or point NNN's prices; 000 is the model before diversifying
tuned.json             settings chosen on validation, and what was tried
state.safetensors      weights and optimiser after the last epoch, to resume from
picked.json            the operating point chosen
"""

import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import polars as pl
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from divmf.config import TrainConfig
from divmf.curve import ACCURACY, Curve, Point
from divmf.fingerprint import fingerprint
from divmf.interactions import Interactions
from divmf.model import MF
from divmf.split import PARTS, Split

# a run may be taken up again with other values of these: they say how far it goes, not what it is
EXTENDABLE = ("diversity_epochs",)
# what runs did that were made before there was a choice
BEFORE_PRICES = {"method": "divmf"}
# what may be in a folder where a run was stopped before its config.json, which makes it one, was written
OURS = ("points", "ids.parquet", "interactions.parquet", "lock")


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
        cls, folder: str | Path, split: Split, config: TrainConfig, source: str = "", model: MF | None = None
    ) -> Self:
        """A new run in an empty or absent folder, or the same run taken up again; model: what it begins from."""
        run = cls(Path(folder))
        settings = {
            "settings": asdict(config),
            "start": None if model is None else fingerprint_of_model(model),
            "data": {
                "source": source,
                "fingerprint": fingerprint(split),
                "users": split.n_users,
                "items": split.n_items,
            },
        }
        if run.config_file.exists():
            check_same(run, settings)
            return run
        if run.folder.exists() and any(
            path.name not in OURS and path.suffix != ".tmp" for path in run.folder.iterdir()
        ):
            raise ValueError(f"{folder} is not empty and not a run folder; choose another one with -o")
        (run.folder / "points").mkdir(parents=True, exist_ok=True)
        write_split(split, run.folder)
        write_json(run.config_file, settings | {"versions": versions()})  # last: with it, the folder is a run
        return run

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

    @property
    def config(self) -> TrainConfig:
        """The settings the run was made with."""
        return TrainConfig(**BEFORE_PRICES | read_json(self.config_file)["settings"])

    @property
    def split(self) -> Split:
        """The data the run was made with."""
        return read_split(self.folder)

    @property
    def curve(self) -> Curve:
        """The points recorded so far; a line cut off by a crash is passed over."""
        lines = self.log_file.read_text().splitlines(keepends=True) if self.log_file.exists() else []
        try:
            return Curve(tuple(Point.from_json(json.loads(line)) for line in lines if line.endswith("\n")))
        except (json.JSONDecodeError, TypeError) as error:
            raise damaged(self.log_file, error) from error

    def weights_file(self, point: Point) -> Path:
        """Where the weights of a point are; 000 is the model before diversifying."""
        return self.folder / "points" / f"{0 if point.phase == 'accuracy' else point.epoch:03d}.safetensors"

    def model(self, point: Point) -> MF:
        """The model of a point of the curve that one may choose."""
        if point.phase == ACCURACY or point.knob is None:
            return read_model(self.weights_file(point))
        return replace(read_model(self.folder / "points" / "000.safetensors"), price=self.price(point))

    def price(self, point: Point) -> Tensor:
        """The prices of a point.  (n_items,)"""
        return read_tensors(self.weights_file(point))["price"]

    def record_price(self, point: Point, price: Tensor) -> None:
        """Keep a point of the prices: they are all it adds to the model before diversifying, and nothing resumes."""
        write_tensors(self.weights_file(point), {"price": price})
        self.append(point)

    def append(self, point: Point) -> None:
        """A line in the log."""
        with self.log_file.open("a") as file:
            file.write(json.dumps(point.to_json()) + "\n")

    @property
    def tuned_file(self) -> Path:
        """Where the settings chosen on validation are."""
        return self.folder / "tuned.json"

    @property
    def tuned(self) -> dict[str, Any]:
        """The settings chosen on validation, and what was tried; empty if nothing was."""
        return dict(read_json(self.tuned_file)) if self.tuned_file.exists() else {}

    def record(self, curve: Curve, model: MF, optimisers: Mapping[str, Any]) -> None:
        """Keep the last point of the curve: its weights if it may be chosen, its line, then the state."""
        point = curve.points[-1]
        if point.phase != "accuracy" or curve.base is point:
            write_model(self.weights_file(point), model)
        self.append(point)
        state = model.tensors() | optimiser_tensors(optimisers)
        write_tensors(self.state_file, state, {"epochs": str(len(curve.points))})

    def resume(self) -> dict[str, Tensor]:
        """The last state; lines of the log that it does not cover (an epoch cut short) are taken back. Empty if new."""
        if not self.state_file.exists():
            self.log_file.unlink(missing_ok=True)
            return {}
        try:
            with safe_open(self.state_file, framework="pt") as file:
                epochs = int(file.metadata()["epochs"])
        except (SafetensorError, KeyError, TypeError) as error:
            raise damaged(self.state_file, error) from error
        lines = self.log_file.read_text().splitlines(keepends=True)
        kept = lines[:epochs] + [line for line in lines[epochs:] if is_price(line)]
        if len(lines) > len(kept):
            with replacing(self.log_file) as temporary:
                temporary.write_text("".join(kept))
        return load_file(self.state_file)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for one process: two that write to it would mix their epochs."""
        try:
            with FileLock(self.folder / "lock", blocking=False):
                yield
        except Timeout:
            raise ValueError(f"{self.folder} is in use by another process; wait for it, or take another one") from None

    def pick(self, rule: str | None = None, **criterion: float | None) -> Point:
        """Choose the operating point (see `Curve.choose`) and remember it."""
        point = self.curve.choose(rule, **criterion)  # type: ignore[arg-type]
        asked: dict[str, Any] = {name: value for name, value in criterion.items() if value is not None} or {
            "rule": rule
        }
        write_json(self.folder / "picked.json", {"by": asked} | point.to_json())
        return point

    @property
    def has_pick(self) -> bool:
        """Whether an operating point was chosen."""
        return (self.folder / "picked.json").exists()

    @property
    def picked(self) -> Point:
        """The operating point chosen last."""
        path = self.folder / "picked.json"
        if not self.has_pick:
            raise ValueError(
                f"{self.folder}: no operating point was picked yet; run `divmf pick {self.folder} --ndcg-drop 5%`"
            )
        return Point.from_json(read_json(path))


def is_price(line: str) -> bool:
    """Whether a line of the log is a whole point of the prices, which stands without a state to resume from."""
    try:
        return line.endswith("\n") and "knob" in json.loads(line)
    except json.JSONDecodeError:
        return False


def check_same(run: Run, asked: Mapping[str, Any]) -> None:
    """An existing run is taken up again only with the same data and settings."""
    there = read_json(run.config_file)
    try:
        data, settings = there["data"], BEFORE_PRICES | there["settings"]
    except (KeyError, TypeError) as error:
        raise damaged(run.config_file, error) from error
    if data["fingerprint"] != asked["data"]["fingerprint"]:
        raise ValueError(
            f"{run.folder} is a run of other data ({data['source'] or 'unnamed'}, {data['users']:,} users ×"
            f" {data['items']:,} items); choose another folder with -o"
        )
    other = [
        f"{name} was {value!r}, now {asked['settings'].get(name)!r}"
        for name, value in settings.items()
        if name not in EXTENDABLE and asked["settings"].get(name) != value
    ]
    if there.get("start") != asked["start"]:
        raise ValueError(f"{run.folder} is a run that began from another model; choose another folder with -o")
    if other:
        raise ValueError(
            f"{run.folder} is a run with other settings ({'; '.join(other)}); choose another folder with -o"
        )


def fingerprint_of_model(model: MF) -> str:
    """A hash of the parameters a run begins from."""
    digest = hashlib.blake2b(digest_size=16)
    for tensor in model.tensors().values():
        digest.update(tensor.detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()


def damaged(path: Path, error: Exception) -> ValueError:
    """The error for a file of ours that cannot be read."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return ValueError(f"{path} is damaged ({reason}); remove the run folder and train again")


def versions() -> dict[str, str]:
    """What the run was made with."""
    names = ("divmf", "torch", "numpy", "numba", "polars", "scipy")
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in names}


def write_split(split: Split, folder: Path) -> None:
    """The id tables (the shorter one padded with nulls) and the parts, by number, as parquet."""
    longer = max(split.n_users, split.n_items)
    ids = pl.DataFrame(
        [
            split.user_ids.alias("user_id").extend_constant(None, longer - split.n_users),
            split.item_ids.alias("item_id").extend_constant(None, longer - split.n_items),
        ]
    )
    rows = pl.concat(
        pl.DataFrame({"user": part.users, "item": part.items, "time": part.times if part.times is not None else 0})
        .cast({"time": pl.Int64})
        .with_columns(part=pl.lit(number, pl.Int8), timed=pl.lit(part.times is not None))
        for number, part in enumerate((split.train, split.valid, split.test))
    )
    for name, table in (("ids", ids), ("interactions", rows)):
        with replacing(folder / f"{name}.parquet") as temporary:
            table.write_parquet(temporary)


def read_split(folder: Path) -> Split:
    """What `write_split` wrote."""
    ids, rows = (read_part(folder / f"{name}.parquet") for name in ("ids", "interactions"))
    users, items = ids["user_id"].drop_nulls(), ids["item_id"].drop_nulls()
    parts = []
    for number in range(len(PARTS)):
        part = rows.filter(pl.col("part") == number)
        columns = [part[name].to_numpy().copy() for name in ("user", "item", "time")]
        parts.append(Interactions(columns[0], columns[1], columns[2] if rows["timed"].any() else None, users, items))
    return Split(*parts)


def read_part(path: Path) -> pl.DataFrame:
    """A parquet file of a run folder."""
    try:
        return pl.read_parquet(path, glob=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise damaged(path, error) from error


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
            optimiser.state[parameter] = moments


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside the path, renamed to it when all went well: there is never a half file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write JSON, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON; a damaged file is an error that names it."""
    try:
        return json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise damaged(path, error) from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write safetensors, whole or not at all."""
    with replacing(path) as temporary:
        save_file({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}, temporary, metadata)


def write_model(path: Path, model: MF) -> None:
    """Write the parameters of a model."""
    write_tensors(path, model.tensors())


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read what `write_tensors` wrote."""
    if not path.exists():
        raise ValueError(f"{path} is missing: the weights of this point were not kept; train again")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise damaged(path, error) from error


def read_model(path: Path) -> MF:
    """Read the parameters of a model."""
    tensors = read_tensors(path)
    return MF(tensors["users"], tensors["items"], tensors["bias"], tensors.get("price"))
