"""Where experiments are done once: everything trained or reranked lies under a hash of all it was made from."""

import hashlib
import json
import shutil
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from divmf.data.fingerprint import fingerprint
from divmf.data.split import Split
from divmf.engine.arrays import Array
from divmf.engine.files import read_json, write_json
from divmf.models.config import TrainConfig
from divmf.models.mf import MF
from divmf.ranking.curve import Curve, Point
from divmf.ranking.lists import TopK
from divmf.ranking.retrieval import recommend
from divmf.reports.experiments.compare import crossing
from divmf.reports.experiments.recipe import Sweep
from divmf.rerank import METHODS
from divmf.rerank.sweep import Known, grid_place, lowest_of_parts, sweep_points
from divmf.train.fitting import fit
from divmf.train.identity import fingerprint_of_model
from divmf.train.market import refine
from divmf.train.runs import Run

Points = Generator[Point, None, Curve]  # yields points as they are made, returns the whole curve


@dataclass(frozen=True)
class Lab:
    """A folder of finished curves (`curves/HASH.json`), models (`models/HASH`) and runs under way (`runs/HASH`).

    A run under way goes on where it was stopped. Once its curve is whole, only that is kept: a hundred epochs of
    weights are a hundred megabytes. Base models are kept, since everything starts from them.
    """

    folder: Path
    split: Split

    def base(self, config: TrainConfig) -> Points:
        """Train a base model, or go on; see `base_run`."""
        run = self.base_run(config)
        yield from fit(run, self.split, config)
        return run.read_curve()

    def base_run(self, config: TrainConfig) -> Run:
        """The run of a base model."""
        return Run.start(self.folder / "models" / self.key(asdict(config)), self.split, config)

    def trained(self, config: TrainConfig, base: Run, losses: list[float]) -> Points:
        """The curve of a run from the base model, or from nothing if its schedule is not sequential.

        The market gets points where the losses are just met, as rerankers do.
        """
        start = base_model(base) if config.schedule == "sequential" else None
        key = self.key(asdict(config) | {"start": None if start is None else fingerprint_of_model(start)})
        if (known := self.known(key)) is not None:
            return known
        run = Run.start(self.folder / "runs" / key, self.split, config, model=start)
        yield from fit(run, self.split, config, start)
        for loss in losses:
            refine(run, self.split, config, ndcg_drop=loss)
        return self.keep(key, run.read_curve())

    def swept(self, name: str, sweep: Sweep, base: Run, width: int, losses: list[float]) -> Points:
        """A reranker's curve over all its variants, with values of its knob added where a loss is met."""
        config = base.read_config()
        about = {"method": name, "sweep": asdict(sweep), "width": width, "losses": losses, "k": config.k}
        key = self.key(about | {"seed": config.seed, "start": fingerprint_of_model(base_model(base))})
        if (known := self.known(key)) is not None:
            return known
        wide, lowest = candidates(base, self.split, width), lowest_of_parts(base_model(base), self.split)
        points, made = list[Point](), Known()
        for variant in sweep.variants:
            points += yield from self.variant(wide, lowest, name, sweep, variant, config, losses, made)
        return self.keep(key, Curve(tuple(points)))

    def variant(
        self, wide: TopK, lowest: Mapping[str, Array], name: str, sweep: Sweep, settings: Mapping[str, Any],
        config: TrainConfig, losses: list[float], known: Known,
    ) -> Generator[Point, None, list[Point]]:  # fmt: skip
        """One variant of a reranker, from its neutral end to its strongest."""
        method = replace(METHODS[name], grid=tuple(sweep.grid))
        whole = all(float(value).is_integer() for value in sweep.grid) and max(sweep.grid) > 1

        def run(grid: list[float]) -> list[Point]:
            values = [int(value) if whole else value for value in grid]
            found = sweep_points(
                wide, method, self.split, config.k, grid=values, settings=settings, seed=config.seed, lowest=lowest,
                known=known,
            )  # fmt: skip
            return list(found)

        points: list[Point] = []
        for value in sweep.grid:
            points += run([value])
            yield points[-1]
        for loss in losses:
            for _ in range(sweep.refine):
                between = crossing(points, loss, whole)
                if between is None:
                    break
                points += run([between])
                yield points[-1]
        return sorted(points, key=lambda point: grid_place(point.knob, sweep.grid))

    def key(self, made_from: Mapping[str, Any]) -> str:
        """The hash of what something is made from: the data, the settings, the version of divmf."""
        whole = dict(made_from) | {"data": fingerprint(self.split), "divmf": version("divmf")}
        text = json.dumps(whole, sort_keys=True, default=str)
        return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()

    def known(self, key: str) -> Curve | None:
        """The curve kept under a hash; the run it came from, if a kill left it, is cleared away."""
        path = self.folder / "curves" / f"{key}.json"
        if not path.exists():
            return None
        shutil.rmtree(self.folder / "runs" / key, ignore_errors=True)
        return Curve(tuple(Point.from_json(row) for row in read_json(path)))

    def keep(self, key: str, curve: Curve) -> Curve:
        """Write a whole curve down; its run is not needed any more."""
        path = self.folder / "curves" / f"{key}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, [point.to_json() for point in curve.points])
        shutil.rmtree(self.folder / "runs" / key, ignore_errors=True)
        return curve


def base_model(base: Run) -> MF:
    """The most accurate weights of the base run, read anew: training changes them in place."""
    return base.read_model(base.read_curve().base)


def candidates(base: Run, split: Split, width: int) -> TopK:
    """The best items of each user under the base model, those of validation among them."""
    items, scores = recommend(base_model(base), split.train.matrix, min(width, split.n_items))
    return TopK(items, scores, split.user_ids, split.item_ids)
