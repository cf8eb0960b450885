"""What any recommender's lists do to a catalog, and what each reranker would change.

The first k of each list are what was shown; what follows are candidates, from which the rerankers choose. How strong a
reranker is set is decided without any held-out item, by how many of the shown slots it replaces, so a test set plays no
part in the choice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, log2
from time import perf_counter
from typing import Any

import numpy as np
from scipy import sparse

from divmf.data.interactions import Interactions
from divmf.engine.arrays import Array
from divmf.kernels.counts import mark
from divmf.ranking.bootstrap import mean_estimates
from divmf.ranking.curve import Curve, Point
from divmf.ranking.lists import TopK, popularity_of
from divmf.ranking.metrics import Estimate, Measures, coverage_ceiling, measure, tallies
from divmf.rerank import METHODS, Method
from divmf.rerank.candidates import in_given_order
from divmf.rerank.sweep import grid_place, knob_between

# the opposite of diversity, there to check evaluators with
NOT_TRIED = ("most_popular",)
REFINEMENTS = 3  # settings tried between two of a grid
WARM, PROBE = 100, 1000  # lists on which a method is started, and timed, before it is let loose on all


@dataclass(frozen=True, eq=False)
class Subject:
    """What is audited: lists, how many of each were shown, and what else is known.

    train   interactions the recommender learnt from, for the popularity of the items
    test    what people really went on to choose, for the accuracy
    """

    lists: TopK
    k: int
    train: Interactions | None = None
    test: Interactions | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.k <= self.lists.width:
            raise ValueError(f"k={self.k} does not fit lists of {self.lists.width}; choose 1 to {self.lists.width}")

    @cached_property
    def shown(self) -> TopK:
        """The first k of each list."""
        return self.lists.head(self.k)

    @cached_property
    def candidates(self) -> TopK:
        """The lists with scores that put them in the order they have: ranks for scores where those say otherwise."""
        return in_given_order(self.lists, self.k)

    @cached_property
    def by_place(self) -> bool:
        """Whether the scores say no more than the order does: they are ranks, or do not give the order."""
        listed, scores = self.candidates.items >= 0, self.candidates.scores
        steps = scores[:, :1] - np.arange(self.lists.width, dtype=np.float32)
        return bool((scores == steps)[listed].all())

    @cached_property
    def spare(self) -> int:
        """How many lists hold more than k."""
        return int((self.lists.lengths > self.k).sum())

    @cached_property
    def popularity(self) -> Array:
        """Interactions in train; without train, in how many of the shown lists each item stands.  (n_items,)"""
        return self.shown.counts if self.train is None else popularity_of(self.lists, self.train)

    @cached_property
    def without_list(self) -> int:
        """How many people of the test have no list; they count as misses."""
        return 0 if self.test is None else len(self.lists.for_users_of(self.test)) - len(self.lists)

    @cached_property
    def truth(self) -> sparse.csr_array:
        """What is held out, a row a list, then for people without one in their own rows; empty without a test."""
        if self.test is None:
            offsets, none = np.zeros(len(self.lists) + 1, dtype=np.int32), np.zeros(0, dtype=np.int32)
            return sparse.csr_array((none, none, offsets), shape=(len(self.lists), self.lists.n_items))
        return self.measured(self.lists).matrix_of(self.test)

    def measured(self, lists: TopK) -> TopK:
        """Lists in the rows of `truth`."""
        return lists.for_users_of(self.test) if self.test is not None and self.without_list else lists

    def measures(self, lists: TopK) -> Measures:
        """All that can be said of lists of k of these people; `kept`: the share of the shown slots they keep."""
        found = measure(self.measured(lists), self.truth, self.popularity, self.k)
        unknown = (() if self.test is not None else ("ndcg", "hit")) + (
            () if self.train is not None else ("popularity",)
        )
        return {name: value for name, value in found.items() if name not in unknown} | {"kept": kept(lists, self.shown)}

    @property
    def ceiling(self) -> float:
        """The highest coverage that lists of these lengths can have."""
        return coverage_ceiling(int(self.shown.lengths.sum()), self.lists.n_items)

    @cached_property
    def own(self) -> Measures:
        """The measures of what was shown."""
        return self.measures(self.shown)

    def hits(self, lists: TopK) -> tuple[Array, Array]:
        """nDCG and hit of each row of `truth`, and which of the rows count.  (rows, 2), (rows,)"""
        means = tallies(self.measured(lists), self.truth, None, [self.k])[self.k].per_list
        return np.stack([means[name][0] for name in ("ndcg", "hit")], axis=1), means["ndcg"][1]


def kept(lists: TopK, shown: TopK) -> float:
    """The share of the shown slots whose item stands in the new list of the same person; 1 of no slots."""
    found = np.zeros(lists.items.shape, dtype=np.bool_)
    offsets = np.arange(len(shown) + 1) * shown.width
    mark(lists.items, offsets, np.sort(shown.items, axis=1).ravel(), found)
    return float((found & (lists.items >= 0)).sum() / max(1, (shown.items >= 0).sum()))


@dataclass(frozen=True, eq=False)
class Trial:
    """What one reranker would change, at the strongest setting within what it may replace.

    curve    the settings tried, from the lists as they are to the strongest
    counts   in how many of the lists at the picked setting each item stands
    people   the lists of the example people
    hits     nDCG and hit of each list (see `Subject.hits`); none without a test
    """

    method: str
    settings: Mapping[str, Any]
    curve: Curve
    picked: Point
    counts: Array
    people: Array
    hits: Array | None


@dataclass(frozen=True)
class LeftOut:
    """A reranker that was not tried, and why."""

    method: str
    why: str


def trials(
    subject: Subject, people: Sequence[int], replaced: float = 0.2, budget: float = 25.0, seed: int = 0
) -> Iterator[Trial | LeftOut]:
    """Each reranker that can run, while its expected time is within what is left of the budget.

    The market comes first, where it fits, then the fastest.

    people: rows of the lists to keep as examples; replaced: the share of the slots a reranker may replace;
    budget: seconds for all of them together, counted from when their kernels are compiled; the fastest is tried in any
    case, and a method with little time has its grid bisected instead of swept.
    """
    found = {name: ready(method, subject, seed) for name, method in METHODS.items() if name not in NOT_TRIED}
    runnable = {name: each for name, each in found.items() if isinstance(each, tuple)}
    yield from (each for each in found.values() if isinstance(each, LeftOut))
    start = perf_counter()
    least = {name: seconds * (ceil(log2(len(METHODS[name].grid))) + 1) for name, (_, seconds) in runnable.items()}
    in_order = sorted(runnable, key=lambda name: (name != "market" or least[name] > budget, runnable[name][1]))
    for number, name in enumerate(in_order):
        settings, expected = runnable[name]
        method, left = METHODS[name], budget - (perf_counter() - start)
        if number and least[name] > left:
            why = f"it would take about {in_words(least[name])}, more than was left of the {in_words(budget)}"
            yield LeftOut(name, f"{why} for all rerankers; give them more time with --budget")
            continue
        whole = 2 * expected * (len(method.grid) + REFINEMENTS) <= left / (len(runnable) - number)
        yield trial(method, settings, subject, people, (replaced, whole, seed))


def ready(method: Method, subject: Subject, seed: int) -> tuple[Mapping[str, Any], float] | LeftOut:
    """The settings with which a method can run here, and the seconds one run on all lists is expected to take."""
    if method.missing:
        return LeftOut(method.name, method.missing)
    if method.needs_train and subject.train is None:
        return LeftOut(method.name, "it needs the training interactions; give them with --train")
    value = method.grid[len(method.grid) // 2]
    for settings in ({}, *method.variants):
        chosen = {**settings, method.knob: value}
        try:
            method.run(some(subject.candidates, WARM), subject.k, chosen, subject.train, seed)
        except ValueError as error:  # such as settings that need train
            why = str(error)
            continue
        part, start = some(subject.candidates, PROBE), perf_counter()
        method.run(part, subject.k, chosen, subject.train, seed)
        return settings, (perf_counter() - start) * len(subject.lists) / len(part)
    return LeftOut(method.name, why)


def some(lists: TopK, number: int) -> TopK:
    """About so many of the lists, spread evenly over all."""
    every = max(1, len(lists) // number)
    rows = slice(None, None, every)
    return replace(
        lists, items=lists.items[rows].copy(), scores=lists.scores[rows].copy(), user_ids=lists.user_ids[rows]
    )


def trial(
    method: Method, settings: Mapping[str, Any], subject: Subject, people: Sequence[int], how: tuple[float, bool, int]
) -> Trial:
    """A method at the settings `knobs` asks for; how: the share it may replace, whether the whole grid, the seed."""
    replaced, whole, seed = how
    best, lists = Point(method.name, 0, subject.own, subject.own, knob=float(method.neutral)), subject.shown
    points = [best]
    for knob in knobs(method, points, 1 - replaced, whole):
        start = perf_counter()
        made = method.run(subject.candidates, subject.k, {**settings, method.knob: knob}, subject.train, seed)
        seconds, found = perf_counter() - start, subject.measures(made)
        points.append(Point(method.name, len(points), found, found, knob=float(knob), seconds=seconds))
        if found["kept"] >= 1 - replaced and found["gini"] < best.test["gini"]:
            best, lists = points[-1], made
    points.sort(key=lambda point: grid_place(point.knob, method.grid))
    hits = None if subject.test is None else subject.hits(lists)[0]
    return Trial(method.name, settings, Curve(tuple(points)), best, lists.counts, lists.items[list(people)], hits)


def knobs(method: Method, points: Sequence[Point], floor: float, whole: bool) -> Iterator[float]:
    """The settings to try next, given the points so far, which grow: the grid, then where `kept` crosses the floor.

    Where the whole grid takes too long, a bisection finds where on it that is.
    """
    if whole:
        yield from method.grid[1:]
    else:
        low, high = 0, len(method.grid)
        while (middle := (low + high) // 2) != low:
            yield method.grid[middle]
            low, high = (middle, high) if points[-1].test["kept"] >= floor else (low, middle)
    for _ in range(REFINEMENTS if whole else 1):
        between = knob_between(points, "kept", floor, method.counts)
        if between is None:
            return
        yield between


def accuracy(
    subject: Subject, found: Sequence[Trial], resamples: int = 200, seed: int = 0
) -> tuple[dict[str, Estimate], dict[str, Estimate]]:
    """nDCG and hit rate of the shown lists, and each trial's difference in nDCG from them; empty without a test.

    With 95% intervals from the same draws of the people. The exposure needs none: it is counted, not sampled.
    """
    if subject.test is None:
        return {}, {}
    own, counted = subject.hits(subject.shown)
    changes = [each.hits[:, :1] - own[:, :1] for each in found if each.hits is not None]
    ranges = [(0.0, 1.0)] * 2 + [(-1.0, 1.0)] * len(changes)
    ndcg, hit, *losses = mean_estimates(np.hstack([own, *changes]), counted, ranges, resamples, seed)
    return {"ndcg": ndcg, "hit": hit}, {each.method: loss for each, loss in zip(found, losses, strict=True)}


def in_words(seconds: float) -> str:
    """A duration for people."""
    if seconds < 100:
        return f"{max(1, round(seconds))} seconds"
    return f"{round(seconds / 60)} minutes" if seconds < 6000 else f"{round(seconds / 3600)} hours"
