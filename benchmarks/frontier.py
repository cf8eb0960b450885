"""Every method's curve on every dataset, base model, seed and k, kept in results/ so that nothing is made twice.

A curve is a file of its points: the diversity of the test lists, and the test nDCG of every user, so that whatever
is said of it later can be said with an interval. Settings are chosen on validation, with seed 0 and the smallest k.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from divmf.data.datasets import load
from divmf.data.split import Split
from divmf.engine.arrays import Array
from divmf.engine.files import read_json, write_json
from divmf.estimator import DivMF, Recommender, Seen, diversify
from divmf.models.config import TrainConfig
from divmf.models.mf import MF
from divmf.models.scorer import Factors
from divmf.ranking.lists import TopK
from divmf.ranking.metrics import coverage, entropy, found_in, gini, ndcg
from divmf.rerank import METHODS, lowest_scores
from divmf.train.fitting import fit
from divmf.train.market import fit_scores
from divmf.train.runs import Run

DATASETS = {
    "ml-1m": ("MovieLens-1M", "ml-1m", 0),
    "epinions-15": ("Epinions-15", "epinions", 15),
    "lastfm-15": ("Last.fm (15-core)", "lastfm-hetrec2011", 15),
    "yelp-15": ("Yelp stand-in (15-core)", "yelp-nfa", 15),
    "gowalla-15": ("Gowalla stand-in (15-core)", "gowalla-lightgcn-10core", 15),
}
SMALL = ("ml-1m", "epinions-15", "lastfm-15")
BASES = {
    "ease": "EASE",
    "ials": "iALS of irspack (128 dimensions, alpha0 0.5, reg 0.005)",
    "softmax": "MF by softmax (32 dimensions)",
    "bpr": "MF by BPR (32 dimensions, preset paper)",
    "auto": "the model that `DivMF()` chooses",
}
TRAINED_HERE: dict[str, dict[str, Any]] = {
    "ease": {"model": "ease"},
    "softmax": {"accuracy_epochs": 40},
    "bpr": {"preset": "paper"},
    "auto": {},
}
VECTORS = ("softmax", "bpr")  # DivMF trains vectors, and these were trained here
SEEDS, KS = (0, 1, 2), (5, 10)
# the rivals that are made first
STRONG = ("fairrec", "sinkhorn", "bayes_rule", "uimatch", "popcon", "dual_prices", "fairmatch")
CONTROLS = ("random_top", "most_popular")
# candidates a user that rerankers choose from: more reach more of the catalog
WIDTHS = (100, 300, 1000)
WIDER = {"fairrec": (3000,)}
# what takes long has these settings; validation chooses those of the others
FIXED: dict[str, dict[str, Any]] = {
    "market": {},
    "divmf": {"unmask": 500},
    "sinkhorn": {"candidates": 300},
    "uimatch": {"candidates": 100},
    "popcon": {"candidates": 1000},
    "dual_prices": {"candidates": 300},
    "karakaya": {"candidates": 300},
    "mincost_flow": {"candidates": 300},
}
# a curve goes on until so much nDCG is lost, 40% being the last that is asked for; DivMF for so many epochs at the most
DEEPEST, LONGEST = 0.45, 200
LOST = np.linspace(0, 0.4, 41)  # the losses that settings are judged by


@dataclass(frozen=True, eq=False)
class Points:
    """A method's curve, from the model's own lists to the most even: coverage, entropy, Gini and users' test nDCG."""

    knob: Array  # (n_points,)
    coverage: Array
    entropy: Array
    gini: Array
    ndcg: Array  # (n_points, n_users) on test
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
        """The data, split with the seed: a fifth held out in a folder of that name, else one item a user."""
        _, name, core = DATASETS[self.dataset]
        data = load(name)
        data = data.k_core(core) if core else data
        fifth = self.folder.name == "fifth"
        return data.hold_out(seed=self.seed) if fifth else data.leave_one_out(seed=self.seed)


class Job(NamedTuple):
    """A curve to make."""

    place: Place
    k: int
    method: str


def methods_on(base: str) -> list[str]:
    """The methods whose curves are made on a base model, the market first and the strongest rivals next.

    What is chosen automatically is one of the other models, so the market alone is made on it.
    """
    if base == "auto":
        return ["market"]
    rerankers = [name for name in METHODS if name not in (*CONTROLS, *STRONG, "market")]
    return ["market", *STRONG, *rerankers, *(["divmf"] if base in VECTORS else [])]


def jobs(folder: Path, names: Sequence[str] = tuple(DATASETS), seeds: Sequence[int] = SEEDS) -> Iterator[Job]:
    """All curves, in an order in which what is there at any time says most.

    The market and its strongest rivals with the first seed and short lists, the small datasets first; then long lists,
    then the other seeds; then the other methods.
    """
    groups = [[name for name in names if (name in SMALL) == small] for small in (True, False)]
    for strong in (True, False):
        for seed in seeds:
            for k in KS:
                for group in groups:
                    for base in BASES:
                        methods = [name for name in methods_on(base) if (name in ("market", *STRONG)) == strong]
                        yield from (Job(Place(name, base, seed, folder), k, m) for name in group for m in methods)


def make_curves(asked: Iterator[Job], say: Callable[[str], None]) -> None:
    """Make what is not there yet; the seed and k that settings are chosen with come first."""
    for place, group in groupby(asked, key=lambda job: job.place):
        missing = [job for job in group if not place.has(job.method, job.k)]
        if not missing:
            continue
        candidates_of.cache_clear()
        split = place.split()
        model = trained(place, split)
        for _, k, method in missing:
            began = perf_counter()
            settings = chosen(place, method, model, split)
            curve(method, model, split, k, settings).save(place.file(method, k))
            say(f"{place.dataset} seed {place.seed} {place.base} k={k} {method}: {perf_counter() - began:.0f} s")


def trained(place: Place, split: Split) -> Recommender:
    """The accurate model of a place; trained once."""
    if not (place.run / "done").exists():
        if place.base in TRAINED_HERE:
            DivMF(**TRAINED_HERE[place.base], seed=place.seed, diversity_epochs=0).fit(split, run=place.run)
        else:
            diversify(irspack_ials(split.train.matrix, place.seed), split, run=place.run, diversity_epochs=0)
        (place.run / "done").touch()
    run = Run.open(place.run)
    if place.base in VECTORS:
        return Recommender(run.read_model(run.read_curve().base), split, run.read_curve().base, run.read_config().k)
    return Recommender.at(run, run.read_curve().base, split)


def irspack_ials(met: sparse.csr_array, seed: int) -> Factors:
    """iALS of an independent library."""
    from irspack import IALSRecommender

    from divmf.engine.threads import threads

    settings: dict[str, Any] = {"n_components": 128, "alpha0": 0.5, "reg": 0.005, "random_seed": seed}
    model = IALSRecommender(sparse.csr_matrix(met), n_threads=threads(), **settings).learn()
    return Factors.from_arrays(model.get_user_embedding(), model.get_item_embedding())


def chosen(place: Place, name: str, model: Recommender, split: Split) -> dict[str, Any]:
    """The settings of a method with the best validation curve, found once for a dataset and base."""
    known = read_json(place.settings) if place.settings.exists() else {}
    if name not in known:
        known[name] = best_of(name, partial(worth, name, model, split))
        place.settings.parent.mkdir(parents=True, exist_ok=True)
        write_json(place.settings, known)
    return known[name]


def best_of(name: str, value: Callable[[Mapping[str, Any]], float]) -> dict[str, Any]:
    """The settings of the largest value, among those worth a trial: variants with few candidates, then more of them."""
    if name in FIXED:
        return dict(FIXED[name])
    variants = [{**variant, "candidates": WIDTHS[0]} for variant in METHODS[name].variants]
    found = [max(((variant, value(variant)) for variant in variants), key=itemgetter(1))]
    for width in (*WIDTHS[1:], *WIDER.get(name, ())):
        wider = {**found[0][0], "candidates": width}
        found.append((wider, value(wider)))
    return max(found, key=itemgetter(1))[0]


def worth(name: str, model: Recommender, split: Split, settings: Mapping[str, Any]) -> float:
    """Mean of coverage, entropy (of the largest there is) and 1 − Gini over losses of 0 to 40% of validation nDCG."""
    made = curve(name, model, split, KS[0], settings, part="valid")
    kept = made.ndcg.mean(axis=1)
    metrics = (made.coverage, made.entropy / np.log(split.n_items), 1 - made.gini)
    return float(np.mean([over_losses(kept, metric) for metric in metrics]))


def over_losses(kept: Array, metric: Array, losses: Array = LOST) -> float:
    """Mean of a metric over losses of nDCG, the best that each allows, from both at the points of a curve.

    The model itself comes first.
    """
    return float(np.mean([metric[kept >= (1 - loss) * kept[0]].max() for loss in losses]))


def curve(
    name: str, model: Recommender, split: Split, k: int, settings: Mapping[str, Any], part: str = "test"
) -> Points:
    """The points of a method: its test lists (or validation lists) at every setting of its knob.

    What has no grid ends with the first point that has lost DEEPEST.
    """
    began = perf_counter()
    rows: list[tuple[Any, ...]] = []
    held = (split.test if part == "test" else split.valid).matrix
    for knob, lists in MAKERS.get(name, reranked_lists)(name, model, split, k, settings, part):
        rows.append((knob, *measured(lists, held)))
        if name in MAKERS and rows[-1][-1].mean() < (1 - DEEPEST) * rows[0][-1].mean():
            break
    knobs, covered, nats, uneven, users = (np.array(column) for column in zip(*rows, strict=True))
    return Points(knobs, covered, nats, uneven, users.astype(np.float32), perf_counter() - began, dict(settings))


def measured(lists: TopK, held: sparse.csr_array) -> tuple[float, float, float, Array]:
    """Coverage, entropy, Gini, and every user's nDCG."""
    counts = lists.counts
    hits = found_in(held, lists.items, lists.width)
    return coverage(counts), entropy(counts), gini(counts), ndcg(hits, np.diff(held.indptr))


Lists = Iterator[tuple[float, TopK]]


def seen_in(part: str) -> Seen:
    """What stays out of the lists that are measured on a part of the split."""
    return "train+valid" if part == "test" else "train"


def market_lists(name: str, model: Recommender, split: Split, k: int, settings: Mapping[str, Any], part: str) -> Lists:
    """The model's own lists, then those of the market along ρ."""
    config = TrainConfig(k=k, diversity_epochs=LONGEST, deepest=1.0, **settings)
    with tempfile.TemporaryDirectory() as folder:
        run = Run.start(folder, split, config, model=model.scoring)
        for point in fit_scores(run, split, config, model.scoring):
            made = run.read_chosen(point)
            if made is None:
                yield 0.0, model.lists(k=k, seen=seen_in(part))
                continue
            scores = np.zeros(made.lists[part].shape, dtype=np.float32)
            yield float(point.knob or 0.0), TopK(made.lists[part].copy(), scores, split.user_ids, split.item_ids)


def divmf_lists(name: str, model: Recommender, split: Split, k: int, settings: Mapping[str, Any], part: str) -> Lists:
    """The model's own lists, then those of every epoch of DivMF's diversity phase."""
    phases: dict[str, Any] = {"model": "bpr", "accuracy_epochs": 0, "diversity_epochs": LONGEST}
    config = TrainConfig(method="divmf", k=k, dim=model.weights.dim, **phases, **settings)
    with tempfile.TemporaryDirectory() as folder:
        start = MF(model.weights.users.clone(), model.weights.items.clone(), model.weights.bias)  # trained in place
        run = Run.start(folder, split, config, model=start)
        for number, point in enumerate(fit(run, split, config, start)):
            yield float(number), Recommender.at(run, point, split).lists(seen=seen_in(part))


MAKERS = {"market": market_lists, "divmf": divmf_lists}


def reranked_lists(
    name: str, model: Recommender, split: Split, k: int, settings: Mapping[str, Any], part: str
) -> Lists:
    """The lists of a reranker over its grid."""
    method, candidates = METHODS[name], candidates_of(model, min(settings["candidates"], split.n_items), part)
    given = {key: value for key, value in settings.items() if key != "candidates"}
    lowest = lowest_of(model, part)
    for knob in method.grid:
        yield float(knob), method.run(candidates, k, {**given, method.knob: knob}, split.train, seed=0, lowest=lowest)


@lru_cache(maxsize=8)
def candidates_of(model: Recommender, width: int, part: str) -> TopK:
    """What rerankers choose from: a model's best items."""
    return model.lists(k=width, seen=seen_in(part))


@lru_cache(maxsize=2)
def lowest_of(model: Recommender, part: str) -> Array:
    """Each user's lowest score of all unseen items."""
    return lowest_scores(model.scoring, model.split.seen if part == "test" else model.split.train.matrix)
