"""What the small files of a run folder and of a saved model hold: checked whenever one is read, whoever wrote it."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from divmf.engine.files import damaged, read_json, text_of

KEPT = ConfigDict(strict=True, extra="allow")  # no text for a number; what is written beside is left alone
ALWAYS = ("ndcg", "hit", "coverage", "entropy", "gini")  # measured at every point


def complete(measures: dict[str, float]) -> dict[str, float]:
    """Measures, if none is missing that commands show and choose by."""
    if missing := [name for name in ALWAYS if name not in measures]:
        raise ValueError(f"{missing[0]} is missing")
    return measures


Finite = Annotated[float, Field(allow_inf_nan=False)]
Measured = Annotated[dict[str, Finite], AfterValidator(complete)]
Number = Finite | Literal["inf", "-inf", "nan"]  # JSON knows no infinity
Fingerprint = Annotated[str, Field(pattern="^[0-9a-f]+$", max_length=64)]
Count = Annotated[int, Field(ge=0, le=1 << 31)]


@with_config(KEPT)
class PointRow(TypedDict):
    """A line of epochs.jsonl, and picked.json."""

    phase: Literal["accuracy", "diversity"]
    epoch: Count
    valid: Measured
    test: Measured
    knob: NotRequired[Number]
    loss: NotRequired[Number]
    seconds: NotRequired[Number]
    gap: NotRequired[Number]


@with_config(KEPT)
class DataFacts(TypedDict):
    """Which data a run was made with."""

    source: str
    fingerprint: Fingerprint
    users: Annotated[int, Field(ge=1)]
    items: Annotated[int, Field(ge=1)]
    columns: NotRequired[dict[str, str]]


@with_config(KEPT)
class ConfigFile(TypedDict):
    """config.json of a run."""

    settings: dict[str, Any]
    start: str | None
    data: DataFacts


@with_config(KEPT)
class LearntRow(TypedDict):
    """How the model of a saved point was fitted, and how its market counts."""

    name: str | None
    settings: dict[str, Finite]
    exposure: Literal["count", "attention"]
    stake: Annotated[float, Field(ge=0, le=1)]
    delta: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    level: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    steepness: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    ruled: bool


@with_config(KEPT)
class ModelFile(TypedDict):
    """model.json of a saved model."""

    k: Annotated[int, Field(ge=1)]
    point: PointRow
    fingerprint: Fingerprint
    learnt: LearntRow


@with_config(KEPT)
class TunedFile(TypedDict):
    """tuned.json: settings chosen on validation."""

    l2: NotRequired[Finite]
    learning_rate: NotRequired[Finite]


@with_config(KEPT)
class TrialRow(TypedDict):
    """A model that was fitted while one was chosen."""

    model: str
    settings: dict[str, Finite]
    seconds: Finite
    valid_ndcg: Finite


@with_config(KEPT)
class Choice(TypedDict):
    """models.json: the model that was chosen, with its settings, and all that was tried."""

    model: Annotated[str, Field(pattern="^(ials|ease|softmax|bpr|mse)$")]
    settings: dict[str, Finite]
    tried: list[TrialRow]
    left_out: dict[str, str]
    capped: bool


CHOICE = TypeAdapter(Choice)
POINT, CONFIG, MODEL = TypeAdapter(PointRow), TypeAdapter(ConfigFile), TypeAdapter(ModelFile)
TUNED = TypeAdapter(TunedFile)


def read_as(path: Path, kind: TypeAdapter[Any]) -> Any:
    """A JSON file that fits its schema; another is an error that names it and what is wrong with it."""
    return fitting(path, read_json(path), kind)


def read_lines_as(path: Path, kind: TypeAdapter[Any]) -> list[Any]:
    """JSON lines that fit their schema; a last line that was cut off is passed over."""
    found = []
    for number, line in enumerate(whole_lines(path), 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise damaged(path, f"line {number} is not JSON") from error
        found.append(fitting(path, row, kind, f"line {number}: "))
    return found


def whole_lines(path: Path) -> list[str]:
    """The lines of a file with their ends, but for one that was cut off; none, if there is no file."""
    lines = text_of(path).split("\n") if path.exists() else [""]
    return [f"{line}\n" for line in lines[:-1]]


def fitting(path: Path, value: Any, kind: TypeAdapter[Any], where: str = "") -> Any:
    """The value, if it fits."""
    try:
        kind.validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(str(part) for part in problem["loc"] if not str(part).startswith(("constrained", "literal")))
        rule = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
        raise damaged(path, f"{where}{key}: {rule}" if key else f"{where}it {rule}") from error
    return value
