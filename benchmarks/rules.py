"""Floors of publishers and genres against what they cost, beside FairRec and P-MMF on the same lists.

EASE's 200 best unseen items of every user are the candidates; a fifth of each user's interactions is held out for the
test and a tenth for validation, k = 5. A curve begins with the model's own lists: of the market along floors of all
groups (ρ = 0), and along ρ with a bonus on the showings of groups; of FairRec along α, which guarantees showings to
items; of P-MMF along λ. λ of EASE and the settings of each method are those with the best curve on validation. What is
reported is the test, at matched losses of nDCG, with intervals from resampled users, the same for all methods.
"""

import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from scipy import sparse

import divmf
from benchmarks.frontier import over_losses
from benchmarks.matched import Cells, cells, verdict, weights_of
from benchmarks.pmmf import Settings, pmmf
from divmf.data.catalogs import movielens_items
from divmf.data.datasets import data_directory
from divmf.engine.arrays import Array
from divmf.models.ease import ease
from divmf.ranking.groups import Groups
from divmf.ranking.metrics import found_in, gini, ndcg
from divmf.rerank.market import bound_to_lists

SETS = (("steam", 0, "publisher"), ("books", 10, "publisher"), ("ml-1m", 0, "genres"))  # name, core, column
K, WIDTH = 5, 200
L2 = (30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0)  # λ of EASE
FLOORS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)  # of the even share of a group
ALPHAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
STRENGTHS = (0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)  # λ of P-MMF
RHOS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
LOSSES = (0.01, 0.02, 0.05, 0.1, 0.2)
LOST = np.linspace(0, 0.2, 21)  # the losses that settings are judged by
METRICS = {"shown": 1, "tenth": 1, "gini": -1}
TITLES = {"shown": "groups shown", "tenth": "least shown tenth", "gini": "Gini of groups"}
MARKET = "market, floors"


class Job(NamedTuple):
    """One dataset: its lists, and whose items are."""

    name: str
    split: divmf.Split
    catalog: pl.DataFrame
    column: str
    groups: Groups
    wide: Mapping[str, divmf.TopK]

    @property
    def held(self) -> Mapping[str, sparse.csr_array]:
        """What is held out for each part."""
        return {"valid": self.split.valid.matrix, "test": self.split.test.matrix}

    @property
    def even(self) -> float:
        """The even share of a group, in showings."""
        return self.split.n_users * K / len(self.groups)

    @property
    def membership(self) -> sparse.csr_array:
        """Which groups items are in.  (n_items, groups)"""
        ones, shape = np.ones(len(self.groups.items)), (self.groups.n_items, len(self.groups))
        return sparse.csr_array((ones, (self.groups.items, self.groups.codes)), shape=shape)


@dataclass(frozen=True, eq=False)
class Points:
    """A curve: what groups get at each point, and every user's nDCG.  (points,), (points, n_users)"""

    shown: Array
    tenth: Array
    gini: Array
    ndcg: Array
    seconds: float


Lists = Iterator[Array]


def floors(job: Job, wide: divmf.TopK, _: Any) -> Lists:
    """The market at ρ = 0, with a floor of all groups."""
    for fraction in FLOORS:
        yield divmf.rerank.market(wide, K, rho=0.0, rules=floor_of(job, fraction)).items


def floor_of(job: Job, fraction: float) -> divmf.Rules:
    """A floor of so much of the even share."""
    floor = max(1, int(fraction * job.even))
    return divmf.Rules(groups={job.column: {"floor": floor}}, catalog=job.catalog)


def bonuses(job: Job, wide: divmf.TopK, weight: Any) -> Lists:
    """The market along ρ, with a bonus on the showings of groups that weighs so much more than an item's."""
    rules = divmf.Rules(groups={job.column: {"target": "even", "weight": weight}}, catalog=job.catalog)
    for rho in RHOS:
        yield divmf.rerank.market(wide, K, rho=rho / weight, rules=rules).items


def guarantees(_: Job, wide: divmf.TopK, order: Any) -> Lists:
    """FairRec, of the candidates as many as it is given."""
    for alpha in ALPHAS:
        yield divmf.rerank.fairrec(wide, K, alpha=alpha, order=order).items


def prices(job: Job, wide: divmf.TopK, settings: Any) -> Lists:
    """P-MMF along λ."""
    for strength in STRENGTHS:
        yield pmmf(wide.items, wide.scores, job.membership, K, strength, settings)


METHODS: Mapping[str, tuple[Callable[[Job, divmf.TopK, Any], Lists], Sequence[Any]]] = {
    MARKET: (floors, (None,)),
    "market, bonus on groups": (bonuses, (1.0, 100.0, 10_000.0)),
    "FairRec": (guarantees, ("method", "score")),
    "P-MMF": (
        prices,
        [Settings(*each) for each in product((True, False), (True, False), (0.00001, 0.0001, 0.001), (1, 4))],
    ),
}


def curve(job: Job, method: str, settings: Any, part: str) -> Points:
    """A method's points on a part of the split, the model's own lists first."""
    wide, held = job.wide[part], job.held[part]
    began, rows = time.process_time(), []
    for items in (wide.items[:, :K], *METHODS[method][0](job, wide, settings)):
        counts = np.bincount(items[items >= 0], minlength=job.groups.n_items)
        showings = np.sort(job.groups.sums(counts))
        least = showings[: max(1, len(showings) // 10)].mean() / job.even
        users = ndcg(found_in(held, items, K), np.diff(held.indptr))
        rows.append(((showings > 0).mean(), least, gini(showings), users))
    shown, tenth, uneven, users = (np.array(column) for column in zip(*rows, strict=True))
    return Points(shown, tenth, uneven, users, time.process_time() - began)


def chosen(job: Job, method: str) -> Any:
    """The settings with the best curve on validation: the mean of the metrics over losses of 0 to 20%."""

    def worth(settings: Any) -> float:
        made = curve(job, method, settings, "valid")
        kept = made.ndcg.mean(axis=1)
        return float(np.mean([over_losses(kept, sign * getattr(made, name), LOST) for name, sign in METRICS.items()]))

    several = METHODS[method][1]
    return max(several, key=worth) if len(several) > 1 else several[0]


def wide_lists(split: divmf.Split, l2: float) -> dict[str, divmf.TopK]:
    """EASE's best unseen items of every user, for validation and for the test."""
    model, made = ease(split.train.matrix, l2), {}
    for part, seen in (("valid", split.train.matrix), ("test", split.seen)):
        scores = model.scores(np.arange(split.n_users))
        scores[seen.nonzero()] = -np.inf
        items = np.argsort(-scores, axis=1, kind="stable")[:, :WIDTH].astype(np.int32)
        made[part] = divmf.TopK(items, np.take_along_axis(scores, items, 1), split.user_ids, split.item_ids)
    return made


def job_of(name: str, core: int, column: str) -> tuple[Job, float]:
    """A dataset, and the λ of its EASE."""
    folder = data_directory()
    split = divmf.Interactions.read(folder / f"{name}.parquet").k_core(core).hold_out(0)
    if column == "genres":
        with zipfile.ZipFile(folder / "raw" / "ml-1m.zip") as archive:
            catalog = movielens_items(archive.read("ml-1m/movies.dat"))
    else:
        catalog = pl.read_parquet(folder / f"{name}-items.parquet")
    groups, held = Groups.read(catalog, column, split.item_ids), split.valid.matrix

    def accuracy(l2: float) -> float:
        items = wide_lists(split, l2)["valid"].items[:, :K]
        return float(ndcg(found_in(held, items, K), np.diff(held.indptr)).mean())

    l2 = max(L2, key=accuracy)
    return Job(name, split, catalog, column, groups, wide_lists(split, l2)), l2


def print_floors(job: Job, weights: Array) -> None:
    """What each floor asks for, gives and costs."""
    wide, held = job.wide["test"], job.held["test"]
    before = ndcg(found_in(held, wide.items[:, :K], K), np.diff(held.indptr))
    print(f"\n| {job.name}: floor of a group | reduced | asked | missing | nDCG@5 | cost, 95% | CPU seconds |")
    print("|---" * 7 + "|")
    print(f"| none | | | | {before.mean():.4f} | | |")
    for fraction in (0.1, 0.2, 0.4, 0.8):
        rules = floor_of(job, fraction)
        began = time.process_time()
        made = divmf.rerank.market(wide, K, rho=0.0, rules=rules)
        seconds = time.process_time() - began
        bound = bound_to_lists(rules, wide, K, None)
        missing = int(np.maximum(bound.low - bound.counted(made.items), 0).sum())
        after = ndcg(found_in(held, made.items, K), np.diff(held.indptr))
        costs = 1 - (weights @ after) / (weights @ before)
        low, high = np.percentile(costs[1:], [2.5, 97.5])
        floor = max(1, int(fraction * job.even))
        print(
            f"| {floor:,} ({fraction:.0%} of an even share) | {len(bound.impossible)} of {len(job.groups):,} |"
            f" {int(bound.low.sum()):,} | {missing:,} | {after.mean():.4f} |"
            f" {costs[0]:.1%} ({low:.1%} to {high:.1%}) | {seconds:.1f} |", flush=True,
        )  # fmt: skip


def print_matched(job: Job, weights: Array) -> None:
    """All methods at matched losses; the best of each in bold, with how the floors stand."""
    made: dict[str, Cells] = {}
    about = []
    for method in METHODS:
        settings = chosen(job, method)
        points = curve(job, method, settings, "test")
        made[method] = cells([points], weights, LOSSES, METRICS)
        given = settings._asdict() if isinstance(settings, Settings) else {"": settings} if settings is not None else {}
        said = "".join(f" {name} {value}".replace("  ", " ") for name, value in given.items())
        about.append(f"{method}{said}, {points.seconds:.1f} s for {len(points.ndcg)} points")
    for column, (metric, sign) in enumerate(METRICS.items()):
        print(f"\n| {job.name}: {TITLES[metric]} | {' | '.join(f'{loss:.0%} lost' for loss in LOSSES)} |")
        print("|---" * (1 + len(LOSSES)) + "|")
        best = np.max([sign * found.value[:, column] for found in made.values()], axis=0)
        for method, found in made.items():
            low, high = found.interval()
            shown = []
            for row, value in enumerate(found.value[:, column]):
                text = f"{value:.3f}"
                bold = f"**{text}**" if sign * value >= best[row] - 1e-9 else text
                shown.append(f"{bold} ± {(high - low)[row, column] / 2:.3f}")
            print(f"| {method} | {' | '.join(shown)} |")
        others = {name: found for name, found in made.items() if not name.startswith("market")}
        how = [verdict(made[MARKET], others, row, column, METRICS) for row in range(len(LOSSES))]
        print(f"| floors are, beside the rivals | {' | '.join(word for word, _ in how)} |", flush=True)
    print(f"\nSettings: {'; '.join(about)}.", flush=True)


def main() -> None:
    """The tables of all sets."""
    for name, core, column in SETS:
        job, l2 = job_of(name, core, column)
        weights = weights_of(job.split.n_users, seed=0)
        several = len(job.groups.items) / max(1, len(np.unique(job.groups.items)))
        print(
            f"\n**{name}**: {job.split.n_users:,} users, {job.split.n_items:,} items, {len(job.groups):,} groups by"
            f" {column}, {several:.1f} of an item; EASE with λ = {l2:g}.", flush=True,
        )  # fmt: skip
        print_floors(job, weights)
        print_matched(job, weights)


if __name__ == "__main__":
    main()
