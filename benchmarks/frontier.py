"""Every method's curve on every dataset, base model, seed and k, kept in results/ so that nothing is made twice.

A curve is a file of its points: the diversity of the test lists, and the test nDCG of every user, so that whatever
is said of it later can be said with an interval. Settings are chosen on validation, with seed 0 and the smallest k.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from scipy import sparse

from divmf.config import TrainConfig
from divmf.datasets import load
from divmf.estimator import DivMF, Recommender
from divmf.files import read_json, write_json
from divmf.fitting import fit
from divmf.ids import Array
from divmf.metrics import coverage, entropy, found_in, gini, ndcg
from divmf.model import MF
from divmf.rerank import METHODS
from divmf.runs import Run
from divmf.split import Split
from divmf.topk import TopK

DATASETS = {
    "ml-1m": ("MovieLens-1M", "ml-1m", 0),
    "epinions-15": ("Epinions-15", "epinions", 15),
    "gowalla-15": ("Gowalla stand-in (15-core)", "gowalla-lightgcn-10core", 15),
    "yelp-15": ("Yelp stand-in (15-core)", "yelp-nfa", 15),
    "lastfm-15": ("Last.fm (15-core)", "lastfm-hetrec2011", 15),
}
BASES: dict[str, dict[str, Any]] = {"softmax": {}, "bpr": {"preset": "paper"}}
SEEDS, KS, WIDTH = (0, 1, 2), (5, 10), 100
DEEPEST = 0.25  # the share of validation nDCG at which a curve may end; 20% is the last that is asked for
# what the paper leaves to tune: how many more items are kept (its n), and the step size
TRAINED: dict[str, tuple[dict[str, Any], ...]] = {
    "prices": ({},),
    "divmf": ({}, {"diversity_rate": 0.003}, {"diversity_rate": 0.003, "unmask": 500}),
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

    @classmethod
    def load(cls, file: Path) -> "Points":
        """A curve as `save` wrote it."""
        with np.load(file) as kept:
            return cls(**{name: kept[name] for name in kept.files if name != "seconds"}, seconds=float(kept["seconds"]))

    def save(self, file: Path) -> None:
        """Write it whole or not at all."""
        file.parent.mkdir(parents=True, exist_ok=True)
        made = file.with_suffix(".tmp.npz")
        np.savez_compressed(made, **vars(self))
        made.replace(file)


@dataclass(frozen=True)
class Place:
    """One dataset, base model and seed, and the folder where its curves are."""

    dataset: str
    base: str
    seed: int
    folder: Path

    def file(self, method: str, k: int) -> Path:
        """The curve of a method."""
        return self.folder / self.dataset / f"seed-{self.seed}" / f"{self.base}-{k}-{method}.npz"

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
        return (data.k_core(core) if core else data).leave_one_out(seed=self.seed)


def methods_on(base: str) -> list[str]:
    """The methods whose curves are made on a base model."""
    rerankers = [name for name in METHODS if name not in CONTROLS]
    return [*TRAINED, *(name for name in rerankers if base == "softmax" or name in ON_BPR)]


def make_curves(places: Sequence[Place], say: Callable[[str], None], ks: Sequence[int] = KS) -> None:
    """Make what is not there yet; the seed that settings are chosen with must come first."""
    for place in places:
        missing = [(k, name) for k in ks for name in methods_on(place.base) if not place.file(name, k).exists()]
        if not missing:
            continue
        split = place.split()
        model = trained(place, split)
        for k, name in missing:
            began = perf_counter()
            settings = chosen(place, name, model, split)
            curve(name, model, split, k, settings).save(place.file(name, k))
            say(f"{place.dataset} seed {place.seed} {place.base} k={k} {name}: {perf_counter() - began:.0f} s")


def trained(place: Place, split: Split) -> Recommender:
    """The accurate model of a place; trained once."""
    if not place.run.exists() or not (place.run / "done").exists():
        DivMF(**BASES[place.base], seed=place.seed, diversity_epochs=0).fit(split, run=place.run)
        (place.run / "done").touch()
    run = Run.open(place.run)
    return Recommender(run.model(run.curve.base), split, run.curve.base, run.config.k)


def chosen(place: Place, name: str, model: Recommender, split: Split) -> dict[str, Any]:
    """The variant of a method with the largest area under its validation curve, found once for a dataset and base."""
    known = read_json(place.settings) if place.settings.exists() else {}
    if name not in known:
        variants = variants_of(name)
        areas = [area(name, model, split, variant) for variant in variants] if len(variants) > 1 else [0.0]
        known[name] = dict(variants[int(np.argmax(areas))])
        place.settings.parent.mkdir(parents=True, exist_ok=True)
        write_json(place.settings, known)
    return known[name]


def variants_of(name: str) -> Sequence[Mapping[str, Any]]:
    """The settings worth a trial."""
    return TRAINED[name] if name in TRAINED else METHODS[name].variants


def area(name: str, model: Recommender, split: Split, settings: Mapping[str, Any]) -> float:
    """`evenness` of a validation curve."""
    made = curve(name, model, split, KS[0], settings, part="valid")
    return evenness(made.ndcg.mean(axis=1), made.gini)


def evenness(kept: Array, uneven: Array) -> float:
    """Mean of 1 − Gini over losses of 0 to 20% of nDCG, from both at the points of a curve, the model itself first."""
    return float(np.mean([1 - uneven[kept >= (1 - loss) * kept[0]].min() for loss in np.linspace(0, 0.2, 21)]))


def curve(
    name: str, model: Recommender, split: Split, k: int, settings: Mapping[str, Any], part: str = "test"
) -> Points:
    """The points of a method: its test lists (or validation lists) at every setting of its knob."""
    began = perf_counter()
    held = (split.test if part == "test" else split.valid).matrix
    make = own_lists if name in TRAINED else reranked_lists
    rows = [(knob, valid, *measured(lists, held)) for knob, valid, lists in make(name, model, split, k, settings, part)]
    knob, valid, covered, nats, uneven, users = (np.array(column) for column in zip(*rows, strict=True))
    return Points(knob, covered, nats, uneven, users.astype(np.float32), valid, perf_counter() - began)


def measured(lists: TopK, held: sparse.csr_array) -> tuple[float, float, float, Array]:
    """Coverage, entropy, Gini, and every user's nDCG."""
    counts = lists.counts
    hits = found_in(held, lists.items, lists.width)
    return coverage(counts), entropy(counts), gini(counts), ndcg(hits, np.diff(held.indptr))


Lists = Iterator[tuple[float, float, TopK]]


def own_lists(name: str, model: Recommender, split: Split, k: int, settings: Mapping[str, Any], part: str) -> Lists:
    """The model's own lists, then those of every point of the diversity phase until enough is lost."""
    seen: Any = "train+valid" if part == "test" else "train"
    config = TrainConfig(
        method=name, accuracy="bpr", accuracy_epochs=0, k=k, deepest=DEEPEST, dim=model.weights.dim, **settings
    )
    with tempfile.TemporaryDirectory() as folder:
        start = MF(model.weights.users.clone(), model.weights.items.clone(), model.weights.bias)  # trained in place
        run = Run.start(folder, split, config, model=start)
        lowest = 0.0
        for number, point in enumerate(fit(run, split, config, start)):
            lists = Recommender(run.model(point), split, point, k).lists(seen=seen)
            yield point.knob or float(number), point.valid["ndcg"], lists
            lowest = lowest or (1 - DEEPEST) * point.valid["ndcg"]
            if point.valid["ndcg"] < lowest:
                break


def reranked_lists(
    name: str, model: Recommender, split: Split, k: int, settings: Mapping[str, Any], part: str
) -> Lists:
    """The lists of a reranker over its grid."""
    seen: Any = "train+valid" if part == "test" else "train"
    method, candidates = METHODS[name], model.lists(WIDTH, seen=seen)
    for knob in method.grid:
        lists = method.run(candidates, k, {**settings, method.knob: knob}, split.train, seed=0)
        yield float(knob), np.nan, lists


def places(folder: Path, names: Sequence[str] = tuple(DATASETS), seeds: Sequence[int] = SEEDS) -> list[Place]:
    """All of them, seed 0 first."""
    return [Place(name, base, seed, folder) for seed in seeds for name in names for base in BASES]
