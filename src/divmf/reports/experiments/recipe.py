"""What `divmf reproduce` does, read from small files: one a dataset, one a question."""

import tomllib
from collections.abc import Mapping
from dataclasses import field
from importlib.resources import files
from math import ceil
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass

from divmf.data.datasets import resolve
from divmf.data.split import Split
from divmf.models.config import STRICT, TrainConfig

QUESTIONS = ("q1", "q2", "q3", "q4", "q5")
Settings = dict[str, Any]
# what the accuracy phase reads: the base model is the same whatever a question changes beside it
OF_THE_BASE = ("k", "dim", "negatives", "batch", "learning_rate", "l2", "patience", "accuracy_epochs")
ROW_BLOCKS, COLUMN_BLOCKS = 7, 5  # where a recipe does not say how large a block is
JOINT = {"diversity_epochs": 150}  # where it does not say how long L_total is minimised: accuracy has peaked by then


@dataclass(frozen=True, config=STRICT)
class Recipe:
    """The settings of a dataset: those of every run, and those that a run of a question may `use` beside them.

    blocks        of the run with mini-batches of Q5
    whole         of the run without: its rows and columns are always all
    alternating   of the alternating run of Q3
    joint         of the run of Q3 that minimises the sum of both losses, in the blocks of Q5
    """

    title: str
    core: int
    settings: Settings
    blocks: Settings
    alternating: Settings
    whole: Settings = field(default_factory=dict)
    joint: Settings = field(default_factory=dict)

    def base(self, seed: int) -> TrainConfig:
        """The accuracy phase, which all sequential runs share."""
        shared = {name: value for name, value in self.settings.items() if name in OF_THE_BASE}
        return paper_config({"seed": seed, "diversity_epochs": 0} | shared)

    def config(self, seed: int, split: Split, run: Mapping[str, Any]) -> TrainConfig:
        """A run of a question; it starts from the base model where its schedule is sequential."""
        given: Settings = self.settings | self.used(run.get("use"), split)
        given |= {name: value for name, value in run.items() if name != "use"}
        if given.get("schedule", "sequential") == "sequential":
            given["accuracy_epochs"] = 0
        return paper_config({"seed": seed} | given)

    def used(self, name: str | None, split: Split) -> Settings:
        """The settings of one of the tables beside `settings`."""
        if name in ("blocks", "joint"):
            sizes = {"rows": ceil(split.n_users / ROW_BLOCKS), "columns": ceil(split.n_items / COLUMN_BLOCKS)}
            return sizes | self.blocks | (JOINT | self.joint if name == "joint" else {})
        if name == "whole":
            return self.whole | {"rows": None, "columns": None}
        return self.alternating if name == "alternating" else {}


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))  # a capacity may be infinite
class Sweep:
    """A reranker's curve: the values of its knob, its variants, and how many values are tried where a loss is met."""

    grid: list[float]
    variants: list[Settings] = field(default_factory=lambda: [{}])
    refine: int = 2


@dataclass(frozen=True, config=STRICT)
class Question:
    """What a question trains and reranks, and at which losses of nDCG it compares.

    runs     trained curves by name: settings of `TrainConfig` that differ from the dataset's
    paper    the rerankers of the paper, others the stronger ones it does not have
    """

    title: str
    asks: str
    figure: str
    losses: list[float]
    runs: dict[str, Settings]
    paper: dict[str, Sweep] = field(default_factory=dict)
    others: dict[str, Sweep] = field(default_factory=dict)
    candidates: int = 100

    @property
    def sweeps(self) -> dict[str, Sweep]:
        """All rerankers."""
        return self.paper | self.others


def paper_config(settings: Settings) -> TrainConfig:
    """The paper's settings, but for these."""
    whole: Settings = {"preset": "paper"} | settings
    return TrainConfig(**whole)


def read_question(name: str) -> Question:
    """q1 … q5."""
    if name not in QUESTIONS:
        raise ValueError(f"there is no question {name!r}; choose one of {', '.join(QUESTIONS)}, or all")
    return Question(**tomllib.loads(recipe_file(name).read_text(encoding="utf-8")))


def read_recipe(dataset: str, file: Path | None = None, core: int | None = None) -> Recipe:
    """The recipe of a dataset by its name (`epinions-15` is `epinions`), of a file, or else the one for any data."""
    base, named_core = resolve(dataset)
    source = file or recipe_file(next((name for name in (dataset, base) if name in recipe_names()), "default"))
    try:
        given = tomllib.loads(source.read_text(encoding="utf-8"))
        given["title"] = given.get("title") or Path(base).stem
        given["core"] = given.get("core", 0) if core is None and not named_core else core or named_core
        recipe = Recipe(**given)
        for table in (recipe.settings, recipe.blocks, recipe.whole, recipe.alternating, recipe.joint):
            paper_config(table)
    except (tomllib.TOMLDecodeError, ValidationError, UnicodeDecodeError, TypeError) as error:
        reason = error.errors()[0] if isinstance(error, ValidationError) else error
        shown = f"{'.'.join(map(str, reason['loc']))}: {reason['msg']}" if isinstance(reason, dict) else str(reason)
        raise ValueError(f"{source} is not a recipe: {shown}; see docs/reproduce.md for one") from error
    return recipe


def recipe_file(name: str) -> Any:
    """A file of the package."""
    return files("divmf.reports.experiments") / "recipes" / f"{name}.toml"


def recipe_names() -> list[str]:
    """The datasets that have a recipe of their own."""
    names = (path.name.removesuffix(".toml") for path in recipe_file("default").parent.iterdir())
    return sorted(name for name in names if name not in (*QUESTIONS, "default"))
