"""How each kind of model looks for its settings: from small and fast to large and slow, each trial written down.

A search is a generator: it says what it would do next, what that costs, and in which of its stages it is; asked again,
it does it. Costs are counted, not timed: the operations of a trial at the pace of one thread of a usual machine. So
what is tried does not depend on how busy the machine is.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import sparse

from divmf.data.split import Split
from divmf.engine.arrays import Array
from divmf.models.accuracy import valid_ndcg
from divmf.models.ease import check_memory, ease, gram
from divmf.models.ials import STEPS as IALS_STEPS
from divmf.models.ials import ials
from divmf.models.scorer import Factors, ItemItem, Scorer
from divmf.models.softmax import STEPS, softmax

log = logging.getLogger(__name__)

TIE = 0.002  # of the best nDCG: how much may be lost for a model with fewer numbers
WORTH = 0.005  # of the nDCG: what twice the dimensions must bring for the search to go on to four times
BETTER = 0.5  # standard errors of the users' difference by which a point must be better to go on from it
DIMS = (32, 64, 128, 256, 512)
IALS_EPOCHS, WARM_EPOCHS = 8, 4  # of a trial from chance, and of one from the vectors of the best trial so far
SOFTMAX_DIMS = (64, 128)
IALS_START = (0.1, 0.01)  # weight of what was not met, and λ
QUICK = 0.1  # counted seconds of a trial that is made without asking whether it can still win
HEAD = 0.8  # of the interactions: the items that hold so many of them are enough to choose λ of EASE
SMALL_PART = 0.65  # of the items: as long as these are no more than so many of all
USUAL_STEPS = 5  # of a walk


@dataclass(frozen=True)
class Trial:
    """One model that was fitted: which, how long it took, and how accurate it is on validation."""

    name: str
    settings: Mapping[str, float]
    seconds: float
    ndcg: float


@dataclass(frozen=True, eq=False)
class Found:
    """A trial with what it made: the scorer, and the nDCG of each user."""

    trial: Trial
    scorer: Scorer
    users: Array

    @property
    def size(self) -> int:
        """How many numbers the model holds."""
        if isinstance(self.scorer, ItemItem):
            return int(self.scorer.weights.size)
        assert isinstance(self.scorer, Factors)
        return self.scorer.users.size + self.scorer.items_t.size

    def beats(self, other: "Found") -> bool:
        """Whether it is at least as small and at least as accurate."""
        return self.size <= other.size and self.trial.ndcg >= other.trial.ndcg


@dataclass(eq=False)
class Bench:
    """Where models are tried: the data, and what was found so far.

    dim, l2   the length of vectors, and λ of EASE, where they are given
    """

    split: Split
    k: int
    seed: int
    progress: Callable[[Trial], None] | None = None
    dim: int | None = None
    l2: float | None = None
    tried: list[Trial] = field(default_factory=list)
    best: dict[str, Found] = field(default_factory=dict)
    # those that may win: within TIE of the best, and none both larger and less accurate than another
    close: list[Found] = field(default_factory=list)

    def trial(self, name: str, settings: Mapping[str, float], fit: Callable[[], Scorer]) -> Found:
        """Fit a model, measure it, write it down."""
        began = time.perf_counter()
        scorer = fit()
        users = valid_ndcg(scorer, self.split, self.k)
        mean = float(f"{users.mean():.12g}")
        found = Found(Trial(name, dict(settings), time.perf_counter() - began, mean), scorer, users)
        self.tried.append(found.trial)
        log.info("%s %s: validation nDCG %.4f, %.1f s", name, told(settings), mean, found.trial.seconds)
        if self.progress is not None:
            self.progress(found.trial)
        if name not in self.best or mean > self.best[name].trial.ndcg:
            self.best[name] = found
        floor = (1 - TIE) * max(each.trial.ndcg for each in self.best.values())
        if not any(each.beats(found) for each in self.close):
            self.close = [each for each in self.close if not found.beats(each)] + [found]
        self.close = [each for each in self.close if each.trial.ndcg >= floor]
        return found

    def dims_of(self, usual: tuple[int, ...]) -> list[int]:
        """The dimensions to try: the one given, or the usual ones that the data has room for."""
        smallest = min(self.split.n_users, self.split.n_items)
        return [dim for dim in usual if dim == usual[0] or dim < smallest] if self.dim is None else [self.dim]

    @property
    def winner(self) -> Found:
        """Of the most accurate and those that are as good as it, the one with the fewest numbers."""
        return min(self.close, key=lambda found: (found.size, -found.trial.ndcg))


class Next(NamedTuple):
    """What a search would do next: its cost in counted seconds, and in which of its stages it is."""

    seconds: float
    stage: int


# A search says what it would do next; when it is asked again, it does it.
Search = Iterator[Next]


def told(settings: Mapping[str, float]) -> str:
    """Settings in a line."""
    return ", ".join(f"{name} {value:.3g}" for name, value in settings.items())


def lead(ones: Array, others: Array) -> float:
    """By how many standard errors of their difference users fare better with the one than with the other."""
    difference = ones - others
    error = float(difference.std()) / math.sqrt(max(1, len(difference)))
    return float(difference.mean()) / error if error else 0.0


def walk(start: tuple[float, ...], factor: float, trial: Callable[[tuple[float, ...]], Found]) -> Iterator[None]:
    """From a point to whichever of its neighbours is better by more than chance, to where none is.

    Yields before every trial. A direction that was good is tried first the next time.
    """
    tried, steps = {key_of(start)}, neighbours(len(start), factor)
    yield
    best, held, going = start, trial(start), True
    while going:
        going = False
        for step in list(steps):
            point = tuple(setting * by for setting, by in zip(best, step, strict=True))
            if key_of(point) in tried:
                continue
            tried.add(key_of(point))
            yield
            found = trial(point)
            if lead(found.users, held.users) > BETTER:
                best, held, going = point, found, True
                steps.remove(step)
                steps.insert(0, step)
                break


def neighbours(settings: int, factor: float) -> list[tuple[float, ...]]:
    """What settings are multiplied with: one more, one less; of two, also the one more and the other less."""
    powers = [(1,), (-1,)] if settings == 1 else [(0, 1), (0, -1), (1, -1), (-1, 1), (1, 0), (-1, 0)]
    return [tuple(factor**power for power in each) for each in powers]


def key_of(point: tuple[float, ...]) -> tuple[float, ...]:
    """The same for points that differ by rounding only."""
    return tuple(float(f"{setting:.6g}") for setting in point)


def lists_cost(met: sparse.csr_array, dim: int) -> float:
    """Counted seconds of everybody's scores by vectors, and of the best of them."""
    return 5e-11 * met.shape[0] * met.shape[1] * (dim + 32)


def ials_cost(met: sparse.csr_array, dim: int, epochs: int) -> float:
    """Counted seconds of a trial of iALS."""
    pairs, rows = 4e-10 * met.nnz * dim, 1.2e-10 * sum(met.shape) * dim**2
    return IALS_STEPS * ((2 * epochs + 4) * pairs + (epochs + 2) * rows) + lists_cost(met, dim)


def ease_cost(met: sparse.csr_array) -> float:
    """Counted seconds of a trial of EASE: an inverse, and everybody's scores."""
    return 1.2e-11 * met.shape[1] ** 3 + 2e-10 * met.nnz * met.shape[1]


def softmax_cost(met: sparse.csr_array, dim: int) -> float:
    """Counted seconds of a trial of the softmax from vectors that are there."""
    return 1e-10 * STEPS * met.shape[0] * met.shape[1] * dim + lists_cost(met, dim)


def ials_search(bench: Bench) -> Search:
    """iALS: weight of what was not met, and λ, with few dimensions; then more dimensions, as long as they help.

    Each trial begins from the best vectors so far. The first one is a stage of its own, unless all of few dimensions
    take no time: where data is small, it says little about the others.
    """
    met = bench.split.train.weighted
    quick = ials_cost(met, DIMS[0], IALS_EPOCHS) < QUICK
    start: Factors | None = None

    def epochs_at(dim: int) -> int:
        return IALS_EPOCHS if start is None or start.users.shape[1] < dim else WARM_EPOCHS

    def trial_at(dim: int, point: tuple[float, ...]) -> Found:
        nonlocal start
        alpha, l2 = point
        settings, epochs = {"dim": dim, "alpha": alpha, "l2": l2}, epochs_at(dim)
        found = bench.trial("ials", settings, lambda: ials(met, dim, alpha, l2, epochs, bench.seed, start))
        assert isinstance(found.scorer, Factors)
        if bench.best["ials"] is found or epochs == IALS_EPOCHS:
            start = found.scorer
        return found

    before = 0.0
    for stage, dim in enumerate(bench.dims_of(DIMS)):
        held = bench.best.get("ials")
        point = IALS_START if held is None else (held.trial.settings["alpha"], held.trial.settings["l2"])
        factor = 2.0 if held is None else math.sqrt(2)
        for number, _ in enumerate(walk(point, factor, partial(trial_at, dim))):
            # with twice the dimensions the settings are looked for once around, with more they stay
            if before and (number > len(neighbours(2, factor)) or (number and stage > 1)):
                break
            later = stage > 0 or (number > 0 and not quick)
            yield Next(ials_cost(met, dim, epochs_at(dim)), stage + later)
        now = max(trial.ndcg for trial in bench.tried if trial.name == "ials" and trial.settings["dim"] == dim)
        if before and now < (1 + WORTH) * before:
            return
        before = max(now, before)


def ease_search(bench: Bench) -> Search:
    """EASE: λ from four times the mean popularity of an item on (by squares of weights), to where no other is better.

    The next are half and double. Where a part of the items holds most of the interactions, λ is looked for on it alone,
    which takes a fraction of the time: on four datasets the λ best for 80% of the interactions is the best for all.
    """
    met = bench.split.train.weighted
    check_memory(met.shape[1])
    cost, head = ease_cost(met), head_of(met)
    between: Array | None = None

    def trial_at(point: tuple[float, ...]) -> Found:
        nonlocal between
        between = gram(met) if between is None else between
        return bench.trial("ease", {"l2": point[0]}, lambda: ease(met, point[0], between))

    popularity = max(1.0, float(met.data @ met.data) / met.shape[1])
    first = 2.0 ** round(math.log2(4 * popularity))
    if bench.l2 is not None:
        yield Next(cost, 0)
        trial_at((bench.l2,))
    elif cost < QUICK or len(head) > SMALL_PART * met.shape[1]:
        for number, _ in enumerate(walk((first,), 2.0, trial_at)):
            yield Next(cost, min(number, 1))
    else:
        part = met[:, head]
        yield Next(cost + USUAL_STEPS * ease_cost(part), 0)
        products = gram(part)

        def part_at(point: tuple[float, ...]) -> Found:
            scorer = ease(part, point[0], products)
            users = valid_ndcg(scorer, bench.split, bench.k, head)
            tried[point[0]] = Found(Trial("ease", {"l2": point[0]}, 0.0, float(users.mean())), scorer, users)
            return tried[point[0]]

        tried: dict[float, Found] = {}
        for _ in walk((first,), 2.0, part_at):
            pass
        trial_at((max(tried, key=lambda l2: tried[l2].trial.ndcg),))


def head_of(met: sparse.csr_array) -> Array:
    """The most popular items, which together hold HEAD of the interactions, in order of number."""
    popularity = np.asarray(met.sum(axis=0, dtype=np.float64)).ravel()
    order = np.argsort(-popularity, kind="stable")
    n_items = 1 + int(np.searchsorted(np.cumsum(popularity[order]), HEAD * popularity.sum()))
    return np.sort(order[:n_items])


def softmax_search(bench: Bench) -> Search:
    """Softmax from iALS: with 64 dimensions its usual settings and the best ones so far, then λ; then 128 dimensions.

    The best λ grows with the interactions of a user; the first is what five datasets suggest, in steps of √2.
    """
    met = bench.split.train.weighted
    point, begun = (2 ** (round(2 * math.log2(1.25 * (met.nnz / met.shape[0]) ** 0.6)) / 2),), IALS_START
    starts: dict[tuple[int, tuple[float, float]], Factors] = {}
    made: dict[tuple[float, ...], Found] = {}

    def trial_at(dim: int, point: tuple[float, ...]) -> Found:
        key = (dim, *begun, *key_of(point))
        if key not in made:
            alpha, l2 = begun
            if (dim, begun) not in starts:
                starts[dim, begun] = ials(met, dim, alpha, l2, IALS_EPOCHS, bench.seed)
            begins = starts[dim, begun]
            settings = {"dim": dim, "l2": point[0], "pairs": met.nnz / met.shape[0], "ials_alpha": alpha, "ials_l2": l2}
            made[key] = bench.trial("softmax", settings, lambda: softmax(bench.split.train, begins, point[0]))
        return made[key]

    def cost(dim: int) -> float:
        return softmax_cost(met, dim) + (0 if (dim, begun) in starts else ials_cost(met, dim, IALS_EPOCHS))

    few, *more = bench.dims_of(SOFTMAX_DIMS)
    yield Next(cost(few), 0)
    usual = trial_at(few, point)
    yield Next(cost(few), 1)  # iALS may find better settings before it goes on
    begun = ials_settings(bench)
    paid = begun == IALS_START  # for the first trial of the walk
    if not paid and lead(trial_at(few, point).users, usual.users) <= 0:
        begun = IALS_START
    for number, _ in enumerate(walk(point, math.sqrt(2), partial(trial_at, few))):
        if number and not paid:  # the first is there
            yield Next(cost(few), 1)
        paid = paid and not number
    before = bench.best["softmax"].trial
    for stage, dim in enumerate(more, 2):
        yield Next(cost(dim), stage)
        now = trial_at(dim, (before.settings["l2"],)).trial
        if now.ndcg < (1 + WORTH) * before.ndcg:
            return
        before = now


def ials_settings(bench: Bench) -> tuple[float, float]:
    """The weight of what was not met and λ of the best iALS so far, or the usual ones."""
    found = bench.best.get("ials")
    return IALS_START if found is None else (found.trial.settings["alpha"], found.trial.settings["l2"])


# in the order in which they begin, the fastest first
ARMS: Mapping[str, Callable[[Bench], Search]] = {
    "ials": ials_search, "ease": ease_search, "softmax": softmax_search,
}  # fmt: skip
