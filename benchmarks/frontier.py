"""Every method's curve on every dataset, base model, seed and k, kept in results/ so that nothing is made twice.

A curve is a file of its points: the diversity of the test lists, and the test nDCG of every user, so that whatever
is said of it later can be said with an interval. Settings are chosen on validation, with seed 0 and the smallest k.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from scipy import sparse

from divmf.data.datasets import load
from divmf.data.split import Split
from divmf.engine.arrays import Array
from divmf.engine.files import read_json, write_json
from divmf.estimator import DivMF, Recommender
from divmf.market.stakes import stake_of
from divmf.models.config import TrainConfig
from divmf.models.mf import MF
from divmf.ranking.lists import TopK
from divmf.ranking.metrics import coverage, entropy, found_in, gini, ndcg
from divmf.rerank import METHODS, lowest_scores
from divmf.train.fitting import fit
from divmf.train.runs import Run

DATASETS = {
    "ml-1m": ("MovieLens-1M", "ml-1m", 0),
    "epinions-15": ("Epinions-15", "epinions", 15),
    "gowalla-15": ("Gowalla stand-in (15-core)", "gowalla-lightgcn-10core", 15),
    "yelp-15": ("Yelp stand-in (15-core)", "yelp-nfa", 15),
    "lastfm-15": ("Last.fm (15-core)", "lastfm-hetrec2011", 15),
}
# the ways to hold out, each with a folder of its own. One item a user is the paper's; of a fifth of each user's items
# many more are hit, so that accuracy, and with it the place on a curve, is known several times better
HELD_OUT = {
    "fifth": "a fifth of every user's interactions is held out for the test, a tenth for validation, drawn at random",
    "one": "one interaction of every user is held out for the test, one for validation: the last, if times are known",
}
BASES: dict[str, dict[str, Any]] = {"softmax": {"accuracy_epochs": 40}, "bpr": {"preset": "paper"}}
SEEDS, KS = (0, 1, 2), (5, 10)
# candidates a user that rerankers choose from, for more reach more of the catalogue; and how many at the most, for some
# are too slow for many, and the strongest is fast
WIDTHS, MOST = (100, 300, 1000, 3000), 1000
WIDEST = {"karakaya": 300, "dual_prices": 300, "sinkhorn": 300, "mincost_flow": 300, "fairrec": 3000}
# a curve goes on until so much nDCG is lost, 20% being the last that is asked for, or for so many points
DEEPEST, LONGEST = 0.25, 1000
# what the paper leaves to tune: how many more items are kept (its n), and the step size
TRAINED: dict[str, tuple[dict[str, Any], ...]] = {
    "market": ({},),
    "divmf": (
        {},
        {"unmask": 500},
        {"diversity_rate": 0.003},
        {"diversity_rate": 0.003, "unmask": 500},
        {"mask_seen": False},  # the letter of the paper
    ),
}
# the rivals that the issue of a better base is about; the others stand on the default base only
ON_BPR = ("bayes_rule", "dual_prices", "sinkhorn", "popcon", "sapid")
CONTROLS = ("random_top", "most_popular")


@dataclass(frozen=True, eq=False)
class Points:
    """A method's curve, from the model's own lists to the most even: coverage, entropy, Gini and users' test nDCG."""

    knob: Array  # (n_points,)
    coverage: Array
    entropy: Array
    gini: Array
    ndcg: Array  # (n_points, n_users) on test
    valid_ndcg: Array  # (n_points,)
    seconds: float
    settings: Mapping[str, Any]  # that it was made with

    @classmethod
    def load(cls, file: Path) -> "Points":
        """A curve as `save` wrote it."""
        with np.load(file) as kept:
            held = dict(kept)
        seconds, settings = float(held.pop("seconds")), json.loads(str(held.pop("settings", "null")))
        return cls(**held, seconds=seconds, settings=settings)

    def save(self, file: Path) -> None:
        """Write it whole or not at all."""
        file.parent.mkdir(parents=True, exist_ok=True)
        made = file.with_suffix(".tmp.npz")
        np.savez_compressed(made, **{**vars(self), "settings": json.dumps(self.settings)})
        made.replace(file)


@dataclass(frozen=True)
class Place:
    """One dataset, base model and seed, and the folder where its curves are, named for what is held out."""

    dataset: str
    base: str
    seed: int
    folder: Path

    def file(self, method: str, k: int) -> Path:
        """The curve of a method."""
        return self.folder / self.dataset / f"seed-{self.seed}" / f"{self.base}-{k}-{method}.npz"

    def has(self, method: str, k: int) -> bool:
        """Whether there is the curve of a method, made with the settings chosen for it."""
        file, known = self.file(method, k), read_json(self.settings) if self.settings.exists() else {}
        return file.exists() and method in known and Points.load(file).settings == known[method]

    @property
    def run(self) -> Path:
        """The run that trains the model."""
        return self.folder / self.dataset / f"seed-{self.seed}" / f"run-{self.base}"

    @property
    def settings(self) -> Path:
        """The settings chosen for each method on this dataset and base."""
        return self.folder / self.dataset / f"settings-{self.base}.json"

    def split(self) -> Split:
        """The data, split with the seed."""
        _, name, core = DATASETS[self.dataset]
        data = load(name)
        data = data.k_core(core) if core else data
        fifth = self.folder.name == "fifth"
        return data.hold_out(seed=self.seed) if fifth else data.leave_one_out(seed=self.seed)


def methods_on(base: str) -> list[str]:
    """The methods whose curves are made on a base model."""
    rerankers = [name for name in METHODS if name not in CONTROLS]
    return [*TRAINED, *(name for name in rerankers if base == "softmax" or name in ON_BPR)]


def make_curves(places: Sequence[Place], say: Callable[[str], None], ks: Sequence[int] = KS) -> None:
    """Make what is not there yet; the seed that settings are chosen with must come first."""
    for place in places:
        missing = [(k, name) for k in ks for name in methods_on(place.base) if not place.has(name, k)]
        if not missing:
            continue
        split = place.split()
        model = trained(place, split)
        for k, name in missing:
            began = perf_counter()
            settings, floor = chosen(place, name, model, split), floor_of(place, split, k)
            curve(name, model, split, k, settings, floor).save(place.file(name, k))
            say(f"{place.dataset} seed {place.seed} {place.base} k={k} {name}: {perf_counter() - began:.0f} s")


def trained(place: Place, split: Split) -> Recommender:
    """The accurate model of a place; trained once."""
    if not place.run.exists() or not (place.run / "done").exists():
        DivMF(**BASES[place.base], seed=place.seed, diversity_epochs=0).fit(split, run=place.run)
        (place.run / "done").touch()
    run = Run.open(place.run)
    return Recommender(run.model(run.curve.base), split, run.curve.base, run.config.k)


def floor_of(place: Place, split: Split, k: int) -> float:
    """The test nDCG at which a curve may end: enough is lost from the less accurate base, so from the other too."""
    held, models = split.test.matrix, [trained(replace(place, base=base), split) for base in BASES]
    return (1 - DEEPEST) * min(measured(model.lists(k=k, seen="train+valid"), held)[-1].mean() for model in models)


def chosen(place: Place, name: str, model: Recommender, split: Split) -> dict[str, Any]:
    """The settings of a method with the best validation curve, found once for a dataset and base.

    Of a reranker with the narrowest candidates first; then with wider ones.
    """
    known = read_json(place.settings) if place.settings.exists() else {}
    if name not in known:
        known[name] = best_of(name, partial(worth, name, model, split))
        place.settings.parent.mkdir(parents=True, exist_ok=True)
        write_json(place.settings, known)
    return known[name]


def best_of(name: str, value: Callable[[Mapping[str, Any]], float]) -> dict[str, Any]:
    """The settings of the largest value, among those worth a trial."""
    if name in TRAINED:
        return dict(max(TRAINED[name], key=value) if len(TRAINED[name]) > 1 else TRAINED[name][0])
    variants = [{**variant, "candidates": WIDTHS[0]} for variant in METHODS[name].variants]
    found = [max(((variant, value(variant)) for variant in variants), key=itemgetter(1))]
    for width in WIDTHS[1:]:
        if width <= WIDEST.get(name, MOST):
            wider = {**found[0][0], "candidates": width}
            found.append((wider, value(wider)))
    return max(found, key=itemgetter(1))[0]


def worth(name: str, model: Recommender, split: Split, settings: Mapping[str, Any]) -> float:
    """Mean of coverage, entropy (of the largest there is) and 1 − Gini over losses of 0 to 20% of validation nDCG."""
    made = curve(name, model, split, KS[0], settings, part="valid")
    kept = made.ndcg.mean(axis=1)
    metrics = (made.coverage, made.entropy / np.log(split.n_items), 1 - made.gini)
    return float(np.mean([over_losses(kept, metric) for metric in metrics]))


def over_losses(kept: Array, metric: Array) -> float:
    """Mean of a metric over losses of 0 to 20% of nDCG, the best that each allows, from both at the points of a curve.

    The model itself comes first.
    """
    return float(np.mean([metric[kept >= (1 - loss) * kept[0]].max() for loss in np.linspace(0, 0.2, 21)]))


def curve(
    name: str,
    model: Recommender,
    split: Split,
    k: int,
    settings: Mapping[str, Any],
    floor: float | None = None,
    part: str = "test",
) -> Points:
    """The points of a method: its test lists (or validation lists) at every setting of its knob.

    floor: the nDCG below which nothing is asked for, so that what is trained may end there; counted from the curve's
        own first point if none is given
    """
    began = perf_counter()
    rows: list[tuple[Any, ...]] = []
    held = (split.test if part == "test" else split.valid).matrix
    make = own_lists if name in TRAINED else reranked_lists
    for knob, valid, lists in make(name, model, split, k, settings, part):
        rows.append((knob, valid, *measured(lists, held)))
        kept = float(rows[-1][-1].mean())
        floor = (1 - DEEPEST) * kept if floor is None else floor
        if kept < floor and name in TRAINED:
            break
    knob, valid, covered, nats, uneven, users = (np.array(column) for column in zip(*rows, strict=True))
    return Points(knob, covered, nats, uneven, users.astype(np.float32), valid, perf_counter() - began, dict(settings))


def measured(lists: TopK, held: sparse.csr_array) -> tuple[float, float, float, Array]:
    """Coverage, entropy, Gini, and every user's nDCG."""
    counts = lists.counts
    hits = found_in(held, lists.items, lists.width)
    return coverage(counts), entropy(counts), gini(counts), ndcg(hits, np.diff(held.indptr))


Lists = Iterator[tuple[float, float, TopK]]


def own_lists(name: str, model: Recommender, split: Split, k: int, settings: Mapping[str, Any], part: str) -> Lists:
    """The model's own lists, then those of every point of the diversity phase."""
    seen: Any = "train+valid" if part == "test" else "train"
    phases: dict[str, Any] = {"model": "bpr", "accuracy_epochs": 0, "diversity_epochs": LONGEST, "deepest": 1.0}
    phases["stake"] = stake_of(split)
    config = TrainConfig(method=name, k=k, dim=model.weights.dim, **phases, **settings)
    with tempfile.TemporaryDirectory() as folder:
        start = MF(model.weights.users.clone(), model.weights.items.clone(), model.weights.bias)  # trained in place
        run = Run.start(folder, split, config, model=start)
        for number, point in enumerate(fit(run, split, config, start)):
            lists = Recommender.at(run, point, split).lists(seen=seen)
            yield point.knob or float(number), point.valid["ndcg"], lists


def reranked_lists(
    name: str, model: Recommender, split: Split, k: int, settings: Mapping[str, Any], part: str
) -> Lists:
    """The lists of a reranker over its grid."""
    seen: Any = "train+valid" if part == "test" else "train"
    method, candidates = METHODS[name], model.lists(k=min(settings["candidates"], split.n_items), seen=seen)
    given = {key: value for key, value in settings.items() if key != "candidates"}
    lowest = lowest_scores(model.scoring, split.seen if part == "test" else split.train.matrix)
    for knob in method.grid:
        lists = method.run(candidates, k, {**given, method.knob: knob}, split.train, seed=0, lowest=lowest)
        yield float(knob), np.nan, lists


def places(folder: Path, names: Sequence[str] = tuple(DATASETS), seeds: Sequence[int] = SEEDS) -> list[Place]:
    """All of them, seed 0 first."""
    return [Place(name, base, seed, folder) for seed in seeds for name in names for base in BASES]
