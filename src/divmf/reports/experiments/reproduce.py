"""The paper's experiments on a dataset: what is to be trained, what was found, and the files both are kept in."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from divmf.data.interactions import Interactions
from divmf.data.tables import write_table
from divmf.engine.files import read_json, write_json
from divmf.engine.versions import versions
from divmf.ranking.curve import Curve, Point
from divmf.reports.experiments.claims import Claim, Curves
from divmf.reports.experiments.lab import Lab
from divmf.reports.experiments.questions import CLAIMS
from divmf.reports.experiments.recipe import QUESTIONS, Question, Recipe, read_question


@dataclass(frozen=True)
class Step:
    """How far it has come: `done` of `total` curves, and the last point of the curve under way."""

    what: str
    done: int
    total: int
    point: Point


@dataclass(frozen=True)
class Answer:
    """What was found for a question: its curves, one a seed, and its claims."""

    name: str
    question: Question
    seeds: tuple[int, ...]
    curves: Curves
    claims: tuple[Claim, ...]


def work(
    folder: Path, data: Interactions, recipe: Recipe, names: Sequence[str], seeds: int
) -> Generator[Step, None, list[Answer]]:
    """Train and rerank all that the questions ask for, each thing once, and answer them."""
    questions = {name: read_question(name) for name in names}
    found: dict[str, dict[str, list[Curve]]] = {name: {} for name in names}
    n_curves = seeds * (1 + sum(len(each.runs) + len(each.sweeps) for each in questions.values()))
    done = 0
    for seed in range(seeds):
        lab = Lab(folder / "cache", data.leave_one_out(seed))
        for name, what, making in curves_of(lab, recipe, questions, seed):
            curve = yield from steps(making, f"seed {seed}: {what}", done, n_curves)
            done += 1
            for each in names if name is None else [name]:
                found[each].setdefault(what, []).append(curve)
    return [answered(name, questions[name], tuple(range(seeds)), found[name]) for name in names]


def curves_of(
    lab: Lab, recipe: Recipe, questions: Mapping[str, Question], seed: int
) -> Iterator[tuple[str | None, str, Generator[Point, None, Curve]]]:
    """Every curve of one seed: its question (none: MF, which all share), its name, and how it is made."""
    yield None, "MF", lab.base(recipe.base(seed))
    base = lab.base_run(recipe.base(seed))
    for name, question in questions.items():
        for what, settings in question.runs.items():
            config = recipe.config(seed, lab.split, settings)
            yield name, what, lab.trained(config, base, question.losses)
        for what, sweep in question.sweeps.items():
            yield name, what, lab.swept(what, sweep, base, question.candidates, question.losses)


def steps(making: Generator[Point, None, Curve], what: str, done: int, total: int) -> Generator[Step, None, Curve]:
    """The points of a curve under way as steps."""
    while True:
        try:
            yield Step(what, done, total, next(making))
        except StopIteration as end:
            curve: Curve = end.value
            return curve


def answered(name: str, question: Question, seeds: tuple[int, ...], curves: Curves) -> Answer:
    """The claims of a question from its curves."""
    return Answer(name, question, seeds, curves, tuple(CLAIMS[name](curves, question)))


# ---- the files: q1/points.parquet, q1/points.csv, q1/claims.json, …


def write_answer(folder: Path, answer: Answer) -> None:
    """Keep an answer: its points as tables, its claims as JSON, which is written last."""
    own = folder / answer.name
    own.mkdir(parents=True, exist_ok=True)
    frames = [
        curve.frame.select(pl.lit(seed).alias("seed"), pl.lit(name).alias("curve"), pl.all())
        for name, curves in answer.curves.items()
        for seed, curve in zip(answer.seeds, curves, strict=True)
    ]
    points = pl.concat(frames, how="diagonal")
    for ending in ("parquet", "csv"):
        write_table(points, own / f"points.{ending}")
    write_json(
        own / "claims.json",
        {
            "claims": [claim.to_json() for claim in answer.claims],
            "seeds": answer.seeds,
            "question": asdict(answer.question),
            "versions": versions(),
        },
    )


def read_answers(folder: Path) -> list[Answer]:
    """Every answer in a folder, in the order of the questions."""
    return [read_answer(folder, name) for name in QUESTIONS if (folder / name / "claims.json").exists()]


def read_answer(folder: Path, name: str) -> Answer:
    """What `write_answer` wrote."""
    about = read_json(folder / name / "claims.json")
    points = pl.read_parquet(folder / name / "points.parquet", glob=False)
    seeds = tuple(about["seeds"])
    curves: dict[str, list[Curve]] = {}
    for (what, _), rows in points.group_by("curve", "seed", maintain_order=True):
        curves.setdefault(str(what), []).append(Curve(tuple(map(point_of, rows.iter_rows(named=True)))))
    question = Question(**about["question"])
    return Answer(name, question, seeds, curves, tuple(Claim.from_json(row) for row in about["claims"]))


def point_of(row: Mapping[str, Any]) -> Point:
    """A row of the table of points."""
    parts = {
        part: {
            name.removeprefix(f"{part}_"): value
            for name, value in row.items()
            if name.startswith(f"{part}_") and value is not None
        }
        for part in ("valid", "test")
    }
    extra = {name: row[name] for name in ("knob", "loss", "seconds", "gap")}
    return Point(row["phase"], row["epoch"], parts["valid"], parts["test"], **extra)


def claim_folder(folder: Path, dataset: str, recipe: Recipe, data: Interactions) -> dict[str, Any]:
    """Make a folder the one of a dataset; one of another dataset is an error, since a page tells of one."""
    about = {
        "dataset": dataset, "title": recipe.title, "core": recipe.core, "users": data.n_users,
        "items": data.n_items, "interactions": len(data), "timed": data.times is not None,
        "settings": recipe.settings,
    }  # fmt: skip
    path = folder / "reproduce.json"
    if path.exists():
        there = read_json(path)
        if other := [name for name in about if there.get(name) != about[name]]:
            name = other[0]
            raise ValueError(
                f"{folder} holds the results of other data or settings ({name} was {there.get(name)!r}, now"
                f" {about[name]!r}); choose another folder with -o"
            )
    elif folder.exists() and any(each.suffix != ".tmp" for each in folder.iterdir()):  # killed calls leave those
        raise ValueError(f"{folder} is not empty and not a folder of `divmf reproduce`; choose another one with -o")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, about)
    return about
