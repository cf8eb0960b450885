"""The model that suits the data: tried, and chosen on validation within a time budget.

    chosen = choose(split, k=5, budget=60.0)
    chosen.scorer, chosen.name, chosen.settings           # Scorer, "ials", {"dim": 128, "alpha": .05, "l2": .005}
    chosen.tried                                          # Trial(name, settings, seconds, ndcg), in the order made
    chosen.left_out                                       # {"ease": "EASE of 100,000 items needs …"}
    choose(split, candidates=["ease"])                    # one kind of model, its settings chosen
    refit(chosen.name, chosen.settings, everything)       # the same settings on more interactions

Each kind of model (`ARMS`) is a search that goes on from stage to stage, from small and fast to large and slow. The
searches take turns, a stage each, the fastest first; after every turn the worse half of those still in the race is
dropped, as far as it is clearly behind. A trial begins only if it is expected to end within the budget. The most
accurate trial wins; of those within TIE of it, the one with the fewest numbers.

The trials and their accuracy depend on the seed alone (EASE of many items, in the last digits, on the number of
threads); how many of them there are depends on the budget and on how fast the machine is. A budget that is not
exhausted gives the same choice everywhere.
"""

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from divmf.data.interactions import Interactions
from divmf.data.split import Split
from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.models.accuracy import valid_ndcg
from divmf.models.ease import check_memory, ease, gram, weights_of
from divmf.models.ials import ials
from divmf.models.scorer import Factors, ItemItem, Scorer
from divmf.models.softmax import STEPS, softmax

log = logging.getLogger(__name__)

TIE = 0.002  # of the best nDCG: how much may be lost for a model with fewer numbers
BEHIND = 2.58  # standard errors of the users' difference by which a search must be behind to be dropped
WORTH = 0.005  # of the nDCG: what twice the dimensions must bring for the search to go on to four times
DIMS = (32, 64, 128, 256, 512)
IALS_EPOCHS, WARM_EPOCHS = 8, 4  # of a trial from chance, and of one from the vectors of the best trial so far
SOFTMAX_DIMS = (64, 128)


@dataclass(frozen=True)
class Trial:
    """One model that was fitted: which, how long it took, and how accurate it is on validation."""

    name: str
    settings: Mapping[str, float]
    seconds: float
    ndcg: float


@dataclass(frozen=True, eq=False)
class Chosen:
    """The model that was chosen, its settings, all that was tried, and which searches were cut short or not begun."""

    scorer: Scorer
    name: str
    settings: Mapping[str, float]
    tried: tuple[Trial, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def ahead(self) -> float:
        """By how much of its nDCG the choice is ahead of the best of every other kind; NaN if there is none."""
        own = max(trial.ndcg for trial in self.tried if trial.name == self.name)
        others = [trial.ndcg for trial in self.tried if trial.name != self.name]
        return own / max(others) - 1 if others and max(others) > 0 else math.nan


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
    """Where models are tried: the data, the clock, and what was found so far."""

    split: Split
    k: int
    seed: int
    progress: Callable[[Trial], None] | None = None
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

    @property
    def winner(self) -> Found:
        """Of the most accurate and those that are as good as it, the one with the fewest numbers."""
        return min(self.close, key=lambda found: (found.size, -found.trial.ndcg))


class Next(NamedTuple):
    """What a search would do next: how long it is expected to take, and in which of its stages it is."""

    seconds: float
    stage: int


# A search says what it would do next; when it is asked again, it does it.
Search = Iterator[Next]


def told(settings: Mapping[str, float]) -> str:
    """Settings in a line."""
    return ", ".join(f"{name} {value:.3g}" for name, value in settings.items())


def walk(start: tuple[float, ...], factor: float, trial: Callable[[tuple[float, ...]], float]) -> Iterator[None]:
    """From a place to whichever of its neighbours is better, to where none is.

    Yields before every trial. A direction that was good is tried first the next time.
    """
    tried, steps = {key_of(start)}, neighbours(len(start), factor)
    yield
    best, value, going = start, trial(start), True
    while going:
        going = False
        for step in list(steps):
            place = tuple(setting * by for setting, by in zip(best, step, strict=True))
            if key_of(place) in tried:
                continue
            tried.add(key_of(place))
            yield
            found = trial(place)
            if found > value:
                best, value, going = place, found, True
                steps.remove(step)
                steps.insert(0, step)
                break


def neighbours(settings: int, factor: float) -> list[tuple[float, ...]]:
    """What settings are multiplied with: one more, one less; of two, also the one more and the other less."""
    powers = [(1,), (-1,)] if settings == 1 else [(0, 1), (0, -1), (1, -1), (-1, 1), (1, 0), (-1, 0)]
    return [tuple(factor**power for power in each) for each in powers]


def key_of(place: tuple[float, ...]) -> tuple[float, ...]:
    """The same for places that differ by rounding only."""
    return tuple(float(f"{setting:.6g}") for setting in place)


def ials_search(bench: Bench) -> Search:
    """iALS: weight of what was not met, and λ, with few dimensions; then more dimensions, as long as they help.

    Each trial begins from the best vectors so far.
    """
    met = bench.split.train.matrix
    # a first guess that is too long rather than too short; from then on by what the trials took
    cost = 1e-9 * (met.nnz + sum(met.shape) * DIMS[0]) * DIMS[0] * (IALS_EPOCHS + 4) * 2
    start: Factors | None = None

    def at(dim: int, place: tuple[float, ...]) -> float:
        nonlocal start, cost
        alpha, l2 = place
        settings = {"dim": dim, "alpha": alpha, "l2": l2}
        grown = start is None or start.users.shape[1] < dim
        epochs = IALS_EPOCHS if grown else WARM_EPOCHS
        found = bench.trial("ials", settings, lambda: ials(met, dim, alpha, l2, epochs, bench.seed, start))
        assert isinstance(found.scorer, Factors)
        if bench.best["ials"] is found or start is None or grown:
            start = found.scorer
        cost = found.trial.seconds
        return found.trial.ndcg

    before = 0.0
    for dim in (dim for dim in DIMS if dim == DIMS[0] or dim < min(met.shape)):
        if before and dim > DIMS[0]:
            cost *= 3  # twice the numbers, from chance for half of them, and a search around it
        held = bench.best.get("ials")
        place = (0.1, 0.02) if held is None else (held.trial.settings["alpha"], held.trial.settings["l2"])
        factor = 2.0 if held is None else math.sqrt(2)
        for number, _ in enumerate(walk(place, factor, partial(at, dim))):
            # with twice the dimensions the settings are looked for once around, with more they stay
            if before and (number > len(neighbours(2, factor)) or (number and dim > DIMS[1])):
                break
            yield Next(cost, max(0, DIMS.index(dim) - 1))
        now = max(trial.ndcg for trial in bench.tried if trial.name == "ials" and trial.settings["dim"] == dim)
        if before and now < (1 + WORTH) * before:
            return
        before = max(now, before)


def ease_search(bench: Bench) -> Search:
    """EASE: λ from four times the mean popularity of an item on, to where half and double are no better."""
    met = bench.split.train.matrix
    check_memory(met.shape[1])
    cost = ease_seconds(met.shape[1]) + 2e-10 * met.nnz * met.shape[1]
    between: Array | None = None

    def at(place: tuple[float, ...]) -> float:
        nonlocal between, cost
        between = gram(met) if between is None else between
        found = bench.trial("ease", {"l2": place[0]}, lambda: ease(met, place[0], between))
        cost = found.trial.seconds
        return found.trial.ndcg

    popularity = max(1.0, met.nnz / met.shape[1])
    for _ in walk((2.0 ** round(math.log2(4 * popularity)),), 2.0, at):
        yield Next(cost, 0)


def ease_seconds(n_items: int) -> float:
    """How long the inverse of so many items takes, from that of few."""
    few, took = 1024, []
    for size in (2, few, few):  # the first to have everything loaded
        began = time.perf_counter()
        weights_of(np.eye(size, dtype=np.float32), 1.0)
        took.append(time.perf_counter() - began)
    return min(took[1:]) * (n_items / few) ** 3 / 2  # a large one goes faster for each number


def softmax_search(bench: Bench) -> Search:
    """Softmax from iALS of the best settings: λ with 64 dimensions, then with 128."""
    met = bench.split.train.matrix
    cost = 2e-11 * STEPS * met.shape[0] * met.shape[1] * SOFTMAX_DIMS[0] * 6
    place, before = (8 * math.sqrt(2),), 0.0
    for dim in (dim for dim in SOFTMAX_DIMS if dim == SOFTMAX_DIMS[0] or dim < min(met.shape)):
        start: Factors | None = None

        def at(place: tuple[float, ...], dim: int = dim) -> float:
            nonlocal start, cost
            weights = ials_settings(bench)
            if start is None:
                start = ials(met, dim, weights["alpha"], weights["l2"], IALS_EPOCHS, bench.seed)
            settings = {"dim": dim, "l2": place[0], "pairs": met.nnz / met.shape[0]}
            settings |= {f"ials_{name}": value for name, value in weights.items()}
            begins = start
            found = bench.trial("softmax", settings, lambda: softmax(bench.split.train, begins, place[0]))
            cost = found.trial.seconds
            return found.trial.ndcg

        for number, _ in enumerate(walk(place, math.sqrt(2), at)):
            if before and number:  # λ stays what it was with fewer dimensions
                break
            yield Next(cost, SOFTMAX_DIMS.index(dim))
        now = bench.best["softmax"].trial
        if before and now.ndcg < (1 + WORTH) * before:
            return
        before, place, cost = now.ndcg, (now.settings["l2"],), 2 * cost


def ials_settings(bench: Bench) -> dict[str, float]:
    """The weights and λ of the best iALS so far, or the usual ones."""
    found = bench.best.get("ials")
    return {"alpha": 0.1, "l2": 0.01} if found is None else {
        name: found.trial.settings[name] for name in ("alpha", "l2")
    }  # fmt: skip


# in the order in which they begin, the fastest first
ARMS: Mapping[str, Callable[[Bench], Search]] = {
    "ials": ials_search, "ease": ease_search, "softmax": softmax_search,
}  # fmt: skip


def choose(
    split: Split,
    k: int = 5,
    budget: float | None = None,
    candidates: Sequence[str] = tuple(ARMS),
    seed: int = 0,
    progress: Callable[[Trial], None] | None = None,
) -> Chosen:
    """The most accurate model on validation that is found within so many seconds.

    budget       seconds; by default `usual_budget`
    candidates   kinds of models, of ARMS
    progress     called with every trial as it ends
    """
    budget = usual_budget(split) if budget is None else budget
    check_choice(split, k, budget, candidates)
    bench, ends = Bench(split, k, seed, progress), time.perf_counter() + budget
    searches = {name: ARMS[name](bench) for name in ARMS if name in candidates}
    live: dict[str, Next] = {}
    left_out: dict[str, str] = {}
    for name, search in searches.items():
        try:
            live[name] = next(search)
        except MemoryError as error:
            left_out[name] = str(error)
    fastest = min(live.items(), key=lambda entry: entry[1].seconds, default=None)
    while live:
        for name in sorted(live, key=lambda name: live[name].seconds):
            stage = live[name].stage
            while name in live and live[name].stage == stage:
                left = ends - time.perf_counter()
                if (wanted := live.pop(name)).seconds > left:
                    left_out[name] = f"a trial takes about {wanted.seconds:.2g} s; {max(0.0, left):.2g} s are left"
                elif (following := next(searches[name], None)) is not None:
                    live[name] = following
        for name in clearly_behind(bench, live):
            del live[name]
    if not bench.tried:
        raise nothing_fits(budget, fastest, left_out)
    won = bench.winner
    return Chosen(won.scorer, won.trial.name, won.trial.settings, tuple(bench.tried), left_out)


def clearly_behind(bench: Bench, live: Collection[str]) -> list[str]:
    """Of the searches in the race, those of the worse half that are clearly behind the best of all."""
    best = max(bench.best.values(), key=lambda found: found.trial.ndcg, default=None)
    ranked = sorted((name for name in live if name in bench.best), key=lambda name: -bench.best[name].trial.ndcg)
    worse = ranked[(len(ranked) + 1) // 2 :] if len(ranked) > 1 else ranked
    return [name for name in worse if best is not None and lead(best.users, bench.best[name].users) > BEHIND]


def lead(ones: Array, others: Array) -> float:
    """By how many standard errors of their difference users fare better with the one than with the other."""
    difference = ones - others
    error = float(difference.std()) / math.sqrt(max(1, len(difference)))
    return float(difference.mean()) / error if error else 0.0


def usual_budget(split: Split) -> float:
    """Seconds that a search may take if nothing is said: half a minute, more for more data, ten minutes at most.

    As much again for each million interactions, and for each sixty million pairs of a user and an item.
    """
    return min(600.0, 30 + 30 * len(split.train) / 1e6 + 30 * split.n_users * split.n_items / 6e7)


def check_choice(split: Split, k: int, budget: float, candidates: Sequence[str]) -> None:
    """Refuse what cannot be chosen from, or on."""
    if unknown := [name for name in candidates if name not in ARMS]:
        raise ValueError(f"candidates holds {unknown[0]!r}; choose from {', '.join(ARMS)}")
    if not candidates:
        raise ValueError(f"candidates is empty; name at least one of {', '.join(ARMS)}")
    if not budget > 0:
        raise ValueError(f"budget={budget} leaves no time for any model; give seconds above 0, such as 60")
    if not 1 <= k <= split.n_items:
        raise ValueError(f"k={k} must be between 1 and the {split.n_items:,} items there are")
    if not len(split.valid):
        raise ValueError("nothing is held out for validation, so no model can be chosen; name one, or hold out some")
    if comm.size() > 1:
        raise ValueError("a model is chosen by one process; start one, or name the model")


def nothing_fits(budget: float, fastest: tuple[str, Next] | None, left_out: Mapping[str, str]) -> ValueError:
    """What to say when not one model could be tried."""
    if fastest is None:
        return ValueError("; ".join(left_out.values()))
    name, wanted = fastest
    return ValueError(
        f"budget={budget:g} s is too short for any model: the fastest, {name}, takes about {wanted.seconds:.2g} s to"
        " try; give more"
    )


def refit(
    name: str, settings: Mapping[str, float], train: Interactions, seed: int = 0, start: Scorer | None = None
) -> Scorer:
    """A model with settings once chosen, on other interactions: everything, for production, or what has come since.

    start   yesterday's model, of whose users and items these are the first; with it, a few epochs are enough. EASE
            needs none.
    """
    met, given = train.matrix, dict(settings)
    if name == "ease":
        return ease(met, given["l2"])
    dim = int(given.pop("dim"))
    begins = start if isinstance(start, Factors) else None
    if name == "ials":
        epochs = IALS_EPOCHS + WARM_EPOCHS if begins is None else WARM_EPOCHS
        return ials(met, dim, given["alpha"], given["l2"], epochs, seed, begins)
    if name != "softmax":
        raise ValueError(f"there is no way to fit {name!r} here; choose from {', '.join(ARMS)}")
    vectors = ials(met, dim, given["ials_alpha"], given["ials_l2"], 0 if begins else IALS_EPOCHS, seed, begins)
    return softmax(train, vectors, given["l2"]) if begins is None else softmax(
        train, vectors, given["l2"], STEPS // 2, 1.0
    )  # fmt: skip
