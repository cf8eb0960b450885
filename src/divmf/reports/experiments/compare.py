"""Every reranker beside the market or DivMF, on the same MF model's lists, at matched nDCG loss.

The knob of each method is chosen on validation, separately for each metric and loss; what is reported is the test.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from divmf.data.split import Split
from divmf.engine.arrays import Array
from divmf.estimator import Recommender
from divmf.market.rules import Rules
from divmf.ranking.curve import Curve, Point
from divmf.ranking.lists import TopK
from divmf.ranking.metrics import Estimate, compare, evaluate, measure
from divmf.reports.rules import UnderRules
from divmf.rerank import METHODS, Method
from divmf.rerank.sweep import Known, grid_place, knob_between, lowest_of_parts, sweep_points, unseen
from divmf.train.market import refine
from divmf.train.ruling import lists_under
from divmf.train.runs import Run

LOSSES = (0.01, 0.05, 0.1, 0.2)
DIVERSITY = ("coverage", "entropy", "gini")
REFINEMENTS = 3


@dataclass(frozen=True, eq=False)
class Rival:
    """A method's whole curve on a model's lists, and how to make the test lists of one of its points.

    settings   of a reranker, at one of its points
    under      the test lists of a point as they are where they keep rules; an error says which of them they cannot
    """

    name: str
    curve: Curve
    lists: Callable[[Point], TopK]
    seconds: float
    under: Callable[[Point, Rules], TopK]
    settings: Callable[[Point], Mapping[str, Any]] = lambda point: {}

    @property
    def drawn(self) -> Curve:
        """The curve as one line: where there are variants, the validation frontier of all of them."""
        many = self.name in METHODS and len(METHODS[self.name].variants) > 1
        return one_line(self.curve) if many else self.curve


def one_line(curve: Curve) -> Curve:
    """The model itself, then the points that no other beats on validation, from accurate to even."""
    return Curve((curve.base, *(point for point in curve.frontier("gini").points if point is not curve.base)))


NAMES = {"market": "market", "divmf": "DivMF"}  # of the methods a run is made by


def rivals(
    run: Run, width: int = 100, methods: Sequence[str] | None = None, seed: int = 0, also: Sequence[Run] = ()
) -> Iterator[Rival]:
    """The run's own curve, then each reranker's on the `width` best candidates of the run's model.

    also: runs that diversify the same model with another method (see `divmf.diversify`). A reranker that is the method
    of a run is left out: its curve is there.
    """
    for other in also:
        run.check_same_data(other)
    called = names_of([run, *also])
    split, config, curve = run.read_split(), run.read_config(), run.read_curve()
    base = Recommender.at(run, curve.base, split)
    for name, each in zip(called, (run, *also), strict=True):
        yield own_rival(each, split, name)
    candidates, lowest = base.lists(k=min(width, split.n_items), seen="train"), lowest_of_parts(base.scoring, split)
    for name in reranked(METHODS if methods is None else methods, (run, *also)):
        yield rival_of(METHODS[name], candidates, split, config.k, seed, lowest)


def reranked(methods: Iterable[str], runs: Sequence[Run]) -> list[str]:
    """The rerankers that are not the method of one of the runs."""
    own = {NAMES[run.read_config().method] for run in runs}
    return [name for name in methods if name not in own]


def names_of(runs: Sequence[Run]) -> list[str]:
    """What runs are called beside each other: by their method, and by their folder too where methods are the same."""
    folders = [run.folder.resolve() for run in runs]
    if twice := [run.folder for number, run in enumerate(runs) if folders[number] in folders[:number]]:
        raise ValueError(f"{twice[0]} is given twice; name each run once")
    methods = [NAMES[run.read_config().method] for run in runs]
    short = len({folder.name for folder in folders}) == len(folders)
    return [
        method if methods.count(method) == 1 else f"{method} ({folder.name if short else folder})"
        for method, folder in zip(methods, folders, strict=True)
    ]


def own_rival(run: Run, split: Split, name: str) -> Rival:
    """The curve of a run; the market gets points where the losses of interest are crossed, as the rerankers do."""
    config = run.read_config()
    for loss in LOSSES:
        refine(run, split, config, ndcg_drop=loss)
    curve, k = run.read_curve(), config.k
    spent = sum(point.seconds or 0.0 for point in curve.points if point.phase == "diversity")

    def lists(point: Point) -> TopK:
        return Recommender.at(run, point, split).lists(k=k, seen="train+valid")

    def under(point: Point, rules: Rules) -> TopK:
        items = lists_under(run, split, point, rules)[0].lists["test"].copy()
        return TopK(items, np.zeros(items.shape, dtype=np.float32), split.user_ids, split.item_ids)

    return Rival(name, Curve(curve.operating), lists, spent, under)


def rival_of(
    method: Method, candidates: TopK, split: Split, k: int, seed: int, lowest: Mapping[str, Array] | None = None
) -> Rival:
    """A reranker's curve over its grid, for each of its variants, refined where the losses of interest are crossed."""
    points: list[Point] = []
    settings: list[Mapping[str, Any]] = []
    sweep = partial(sweep_points, candidates, method, split, k, seed=seed, lowest=lowest, known=Known())
    for variant in method.variants:
        made = list(sweep(settings=variant))
        for loss in LOSSES:
            for _ in range(REFINEMENTS):
                between = crossing(made, loss, whole=method.counts)
                if between is None:
                    break
                made += sweep(grid=[between], settings=variant)
        made.sort(key=lambda point: grid_place(point.knob, method.grid))
        points += made
        settings += [variant] * len(made)
    known = unseen(candidates, split.seen)

    def settings_at(point: Point) -> Mapping[str, Any]:
        return {**settings[points.index(point)], method.knob: point.knob}

    def lists(point: Point, rules: Rules | None = None) -> TopK:
        scale = None if lowest is None else lowest["test"]
        return method.run(known, k, settings_at(point), split.train, seed, scale, rules)

    seconds = max(point.seconds or 0.0 for point in points) / 2  # a point makes two lists: validation and test
    return Rival(method.name, Curve(tuple(points)), lists, seconds, lists, settings_at)


def under_rules(rival: Rival, point: Point, rules: Rules, split: Split) -> UnderRules:
    """What rules make of a method's lists at a point, and what they cost on the test."""
    before = rival.lists(point)
    try:
        after = rival.under(point, rules)
    except ValueError as error:  # what a method cannot keep it says itself
        return UnderRules(rival.name, before.items, None, None, str(error))
    ndcg, change = measure(before, split.test.matrix)["ndcg"], compare(after, before, split)["ndcg"]
    cost = Estimate(*(float(part) / ndcg if ndcg else 0.0 for part in (change, change.low, change.high)))
    return UnderRules(rival.name, before.items, after.items, cost)


def crossing(points: Sequence[Point], loss: float, whole: bool) -> float | None:
    """A knob between the strongest setting that keeps within the loss and the next one that does not."""
    return knob_between(points, "ndcg", (1 - loss) * points[0].valid["ndcg"], whole)


def matched(rival: Rival, base: TopK, split: Split, losses: Sequence[float] = LOSSES) -> Iterator[dict[str, object]]:
    """A row for each loss: the metrics on test with 95% intervals, and the nDCG really lost there."""
    ndcg = measure(base, split.test.matrix)["ndcg"]
    made: dict[int, tuple[dict[str, Estimate], dict[str, Estimate]]] = {}  # by the point's position in the curve
    for loss in losses:
        row: dict[str, object] = {"method": rival.name, "loss": loss}
        for metric in DIVERSITY:
            point = rival.curve.best_within(loss, metric)
            position = rival.curve.points.index(point)
            if position not in made:
                lists = rival.lists(point)
                made[position] = evaluate(lists, split), compare(lists, base, split)
            found, change = made[position]
            row |= {
                metric: float(found[metric]),
                f"{metric}_low": found[metric].low,
                f"{metric}_high": found[metric].high,
            }
            if metric == "gini":
                row |= {"knob": point.knob, "epoch": point.epoch}
                row |= {
                    "ndcg": float(found["ndcg"]),
                    "ndcg_change": float(change["ndcg"]) / ndcg,
                    "ndcg_change_low": change["ndcg"].low / ndcg,
                    "ndcg_change_high": change["ndcg"].high / ndcg,
                }
        yield row | {"seconds": rival.seconds}


def table_of(rows: Sequence[dict[str, object]]) -> pl.DataFrame:
    """The rows as one table, methods in the order given."""
    return pl.DataFrame(rows, infer_schema_length=None)


def markdown(table: pl.DataFrame, loss: float) -> str:
    """The rows of one loss as a Markdown table; the best value of each column in bold."""
    some = table.filter(pl.col("loss") == loss)
    lines = [
        "| method | coverage | entropy | Gini | nDCG change on test | knob | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    best = {metric: (np.max if metric != "gini" else np.min)(some[metric].to_numpy()) for metric in DIVERSITY}
    for row in some.iter_rows(named=True):
        cells = []
        for metric in DIVERSITY:
            shown = f"{row[metric]:.3f}"
            width = (row[f"{metric}_high"] - row[f"{metric}_low"]) / 2
            cells.append((f"**{shown}**" if row[metric] == best[metric] else shown) + f" ± {width:.3f}")
        change = f"{row['ndcg_change']:+.1%} ({row['ndcg_change_low']:+.1%} … {row['ndcg_change_high']:+.1%})"
        knob = f"epoch {row['epoch']}" if row["knob"] is None else f"{row['knob']:.3g}"
        lines.append(f"| {row['method']} | {' | '.join(cells)} | {change} | {knob} | {row['seconds']:.1f} |")
    return "\n".join(lines)
