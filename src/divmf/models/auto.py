"""The model that suits the data: tried, and chosen on validation within a budget.

    chosen = choose(split, k=5, budget=60.0)
    chosen.scorer, chosen.name, chosen.settings           # Scorer, "ials", {"dim": 128, "alpha": .05, "l2": .005}
    chosen.tried                                          # Trial(name, settings, seconds, ndcg), in the order made
    chosen.left_out                                       # {"ease": "EASE of 100,000 items needs …"}
    choose(split, candidates=["ease"])                    # one kind of model, its settings chosen
    refit(chosen.name, chosen.settings, everything)       # the same settings on more interactions

Each kind of model (`ARMS`) is a search that goes on from stage to stage, from small and fast to large and slow
(`divmf.models.searches`). The searches take turns, a stage each, the cheapest first. After every turn those are dropped
that are so far behind after their first stage that no stage will make up for it (HOPE), and of the others the worse
half, as far as it is clearly behind. A trial begins only if its counted cost is left in the budget. The most accurate
trial wins; of those within TIE of it, the one with the fewest numbers.

The budget counts operations, not time, so the same data, seed and budget give the same trials and the same choice on
any machine, busy or not (EASE of many items, in the last digits, depends on the number of threads). The clock is a cap
alone: no trial begins after the budget that was given, or four times the usual one, has passed since the first trial
ended. `Chosen.capped` says whether it was reached.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from divmf.data.interactions import Interactions
from divmf.data.split import Split
from divmf.engine import comm
from divmf.models.ease import ease
from divmf.models.ials import beginning, ials
from divmf.models.scorer import Factors, Scorer
from divmf.models.searches import ARMS, IALS_EPOCHS, WARM_EPOCHS, Bench, Next, Search, Trial, lead
from divmf.models.softmax import STEPS, softmax

log = logging.getLogger(__name__)

BEHIND = 2.58  # standard errors of the users' difference by which a search must be behind to be dropped
# of the nDCG: what a search may still gain, by the stage that it would begin: iALS after a single trial and after the
# walk of 32 dimensions, the others after a single trial; softmax, which begins from iALS, on top of the best of iALS
HOPE = {"ials": {1: 0.2, 2: 0.1}, "ease": {1: 0.05}, "softmax": {0: 0.2, 1: 0.012}}
NO_HOPE = {1: 0.0}
LIKELY = 1.64  # standard errors by which a search without hope must be behind to be dropped
PATIENCE = 4.0  # times the usual budget that may pass by the clock, on a slow or busy machine


@dataclass(frozen=True, eq=False)
class Chosen:
    """The model that was chosen, its settings, all that was tried, and which searches were cut short or not begun."""

    scorer: Scorer
    name: str
    settings: Mapping[str, float]
    tried: tuple[Trial, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    capped: bool = False

    @property
    def ahead(self) -> float:
        """By how much of its nDCG the choice is ahead of the best of every other kind; NaN if there is none."""
        own = max(trial.ndcg for trial in self.tried if trial.name == self.name)
        others = [trial.ndcg for trial in self.tried if trial.name != self.name]
        return own / max(others) - 1 if others and max(others) > 0 else math.nan


def choose(
    split: Split,
    k: int = 5,
    budget: float | None = None,
    candidates: Sequence[str] = tuple(ARMS),
    seed: int = 0,
    progress: Callable[[Trial], None] | None = None,
    dim: int | None = None,
    l2: float | None = None,
) -> Chosen:
    """The most accurate model on validation that is found within a budget.

    budget       counted seconds, and the most that the clock may show; by default `usual_budget`
    candidates   kinds of models, of ARMS
    progress     called with every trial as it ends
    dim, l2      the length of vectors, and λ of EASE, where they are not to be chosen
    """
    bench, usual = Bench(split, k, seed, progress, dim, l2), usual_budget(split)
    searches, live, left_out = openings(bench, candidates, usual if budget is None else budget)
    purse = Purse(usual, PATIENCE * usual) if budget is None else Purse(budget, budget)
    while live:
        for name in sorted(live, key=lambda name: live[name].seconds):
            if name == "softmax" and begins_too_low(bench, live[name]):
                del live[name]
            else:
                left_out |= stage_of(name, searches[name], live, purse)
        for name in clearly_behind(bench, live):
            del live[name]
    won = bench.winner
    return Chosen(won.scorer, won.trial.name, won.trial.settings, tuple(bench.tried), left_out, purse.capped)


def openings(
    bench: Bench, candidates: Sequence[str], budget: float
) -> tuple[dict[str, Search], dict[str, Next], dict[str, str]]:
    """The searches, what each would do first, and those that memory has no room for; refuses what has no choice."""
    check_choice(bench.split, bench.k, budget, candidates)
    searches = {name: ARMS[name](bench) for name in ARMS if name in candidates}
    live, left_out = {}, {}
    for name, search in searches.items():
        try:
            live[name] = next(search)
        except MemoryError as error:
            left_out[name] = str(error)
    fastest = min(live.items(), key=lambda entry: entry[1].seconds, default=None)
    if fastest is None:
        raise ValueError("; ".join(left_out.values()))
    if fastest[1].seconds > budget:
        raise ValueError(
            f"budget={budget:g} s is too short for any model: the fastest, {fastest[0]}, takes about"
            f" {fastest[1].seconds:.2g} s to try; give more"
        )
    return searches, live, left_out


@dataclass(eq=False)
class Purse:
    """What is left of a budget: counted seconds, and seconds of the clock from the end of the first trial on.

    The first trial may have kernels to compile, which happens once on a machine.
    """

    left: float
    most: float
    ends: float = math.inf
    capped: bool = False

    def refusal(self, cost: float) -> str:
        """Why a trial of such a cost may not begin; empty if it may, and then it is paid for."""
        if cost > self.left:
            return f"a trial takes about {cost:.2g} s; {self.left:.2g} s are left"
        if time.perf_counter() > self.ends:
            self.capped = True
            return f"{self.most:.4g} s have passed"
        self.left -= cost
        return ""

    def begin(self) -> None:
        """A trial has ended: the clock runs, if it did not yet."""
        if math.isinf(self.ends):
            self.ends = time.perf_counter() + self.most


def stage_of(name: str, search: Search, live: dict[str, Next], purse: Purse) -> dict[str, str]:
    """The trials of a search up to its next stage, as far as the budget goes; why it was cut short, if it was."""
    stage = live[name].stage
    while name in live and live[name].stage == stage:
        if why := purse.refusal(live.pop(name).seconds):
            return {name: why}
        following = next(search, None)
        purse.begin()
        if following is not None:
            live[name] = following
    return {}


def begins_too_low(bench: Bench, softmax: Next) -> bool:
    """Whether the vectors of iALS are so far behind that a softmax from them will not make up for it."""
    start = bench.best.get("ials")
    if start is None or softmax.stage:
        return False
    best = max(bench.best.values(), key=lambda found: found.trial.ndcg)
    low = start.trial.ndcg < (1 - HOPE["softmax"][0]) * best.trial.ndcg
    return low and lead(best.users, start.users) > LIKELY


def clearly_behind(bench: Bench, live: Mapping[str, Next]) -> list[str]:
    """Of the searches in the race, those that are clearly behind the best of all.

    After its first stage, one that is HOPE behind: what follows may be that much better. Later, one of the worse half.
    """
    best = max(bench.best.values(), key=lambda found: found.trial.ndcg, default=None)
    ranked = sorted((name for name in live if name in bench.best), key=lambda name: -bench.best[name].trial.ndcg)
    worse = ranked[(len(ranked) + 1) // 2 :] if len(ranked) > 1 else ranked
    if best is None:
        return []
    hopes = {name: HOPE.get(name, NO_HOPE).get(live[name].stage) for name in ranked}
    early = {name: hope for name, hope in hopes.items() if hope is not None}
    hopeless = {name for name, hope in early.items() if bench.best[name].trial.ndcg < (1 - hope) * best.trial.ndcg}
    enough = dict.fromkeys(set(worse) - set(early), BEHIND) | dict.fromkeys(hopeless, LIKELY)
    return [name for name in ranked if name in enough and lead(best.users, bench.best[name].users) > enough[name]]


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
        raise ValueError("a model is chosen by one process; start one, or train softmax, bpr or mse by epochs")


def refit(
    name: str, settings: Mapping[str, float], train: Interactions, seed: int = 0, start: Scorer | None = None
) -> Scorer:
    """A model with settings once chosen, on other interactions: everything, for production, or what has come since.

    start   yesterday's model, of whose users and items these are the first; with it, a few epochs are enough. EASE
            needs none.
    """
    met, given = train.weighted, dict(settings)
    if name == "ease":
        return ease(met, given["l2"])
    dim = int(given.pop("dim"))
    begins = start if isinstance(start, Factors) else None
    if name == "ials":
        epochs = IALS_EPOCHS + WARM_EPOCHS if begins is None else WARM_EPOCHS
        return ials(met, dim, given["alpha"], given["l2"], epochs, seed, begins)
    if name != "softmax":
        raise ValueError(f"there is no way to fit {name!r} here; choose from {', '.join(ARMS)}")
    if begins is not None:
        beginners = Factors.from_arrays(*beginning(met.shape, dim, seed, begins))
        return softmax(train, beginners, given["l2"], STEPS // 2, 1.0)
    vectors = ials(met, dim, given["ials_alpha"], given["ials_l2"], IALS_EPOCHS, seed)
    return softmax(train, vectors, given["l2"])
