"""Schedules: which phase comes next, and when it is enough. Every epoch is measured and kept."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch

from divmf.data.interactions import Interactions
from divmf.data.split import Split
from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.clock import Clock
from divmf.engine.device import device_of
from divmf.kernels.market import ONE
from divmf.market.bonus import Bonus
from divmf.market.bound import Bound
from divmf.market.certificate import certify
from divmf.market.chosen import Chosen
from divmf.market.columns import WIDER, WIDTH, Finder, Held, Source
from divmf.market.given import tell_unmet
from divmf.market.keeping import Allowed, certify_ruled, held_within, shut, solve_ruled
from divmf.market.ruled import RuledMarket
from divmf.market.solve import Lists, Market, solve
from divmf.market.stakes import stake_of, stakes_of
from divmf.market.values import exposure_weights, slot_weights
from divmf.models.config import TrainConfig
from divmf.models.epochs import EPOCHS, Epoch, epoch_rng, initial_model, joint_epoch, optimisers_of
from divmf.models.mf import MF
from divmf.models.scorer import Scorer
from divmf.ranking.curve import ACCURACY, DIVERSITY, Curve, Point
from divmf.ranking.lists import TopK
from divmf.ranking.metrics import Measures, measure, measure_each
from divmf.ranking.retrieval import recommend_each
from divmf.train.choosing import Progress, check_choice, check_processes, is_chosen, model_of
from divmf.train.runs import Run, restore_optimiser
from divmf.train.tuning import tuned

log = logging.getLogger(__name__)


@dataclass
class Training:
    """A run under way: the one thing here that changes."""

    run: Run
    split: Split
    config: TrainConfig
    model: MF
    optimisers: dict[str, torch.optim.Adam]
    points: list[Point] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)

    @property
    def curve(self) -> Curve:
        """The points so far."""
        return Curve(tuple(self.points))

    def done(self, phase: str) -> int:
        """How many epochs of a phase there were."""
        return sum(point.phase == phase for point in self.points)

    def epoch(self, phase: str, work: Epoch | None = None) -> Point:
        """Train one more epoch of a phase (by `work`, if it is not the phase's own), measure it, keep it."""
        number, began = self.done(phase) + 1, time.perf_counter()
        rng = epoch_rng(self.config.seed, phase, number)
        if phase == ACCURACY:
            self.optimisers[phase].param_groups[0]["lr"] = self.config.rate(number)
        with self.clock.phase(f"{phase} epochs"):
            loss = (work or EPOCHS[phase])(self.model, self.split.train, self.config, self.optimisers[phase], rng)
        return self.keep(phase, number, loss, time.perf_counter() - began)

    def keep(self, phase: str, number: int, loss: float | None = None, seconds: float | None = None) -> Point:
        """Measure the model as it is now and write the point down."""
        with self.clock.phase("validation metrics"):
            valid, test = measure_both(self.model, self.split, self.config.k, self.config.diversity_k)
        point = Point(phase, number, valid, test, loss=loss, seconds=seconds)
        self.points.append(point)
        with self.clock.phase("writing"):
            if phase == ACCURACY and self.config.carry_adam and self.curve.base is point:
                self.run.record_moments(self.optimisers[ACCURACY])  # before the state: an epoch made again is the same
            self.run.record(self.curve, self.model, self.optimisers)
        log.info(
            "%s epoch %d: loss %s, validation nDCG %.4f, coverage %.3f, Gini %.3f",
            phase, number, f"{loss:.4f}" if loss is not None else "–", valid["ndcg"], valid["coverage"], valid["gini"],
        )  # fmt: skip
        return point

    def restore_best(self) -> None:
        """Go back to the most accurate weights."""
        best = self.run.model(self.curve.base, comm.row_range(self.model.n_users))
        with torch.no_grad():
            for now, then in zip(self.model.tensors().values(), best.tensors().values(), strict=True):
                now.copy_(then)


def fit(
    run: Run, split: Split, config: TrainConfig, start: MF | None = None, clock: Clock | None = None,
    progress: Progress | None = None, earlier: Run | None = None,
) -> Iterator[Point]:  # fmt: skip
    """Train, yielding each new point of the curve: nothing is lost when the caller stops asking.

    start: a model trained elsewhere, to begin from; with accuracy_epochs = 0 it is diversified as it is.
    clock: told which phase is on
    progress: told how the choice of a model goes, a line at a time
    earlier: a run whose model is taken on, with its settings, in the place of a choice
    """
    check_fits(split, config)
    clock = clock or Clock()
    with run.locked():
        if start is not None or not is_chosen(run, config):
            yield from locked_fit(run, split, config, start, clock)
            return
        with clock.phase("choosing a model"):
            scorer = model_of(run, split, config, progress, earlier)
        yield from market_of(run, split, config, scorer, clock)


def locked_fit(run: Run, split: Split, config: TrainConfig, start: MF | None, clock: Clock) -> Iterator[Point]:
    """`fit`, once the folder is ours alone."""
    state = run.resume(split.n_users)
    model = MF(state["users"], state["items"], state["bias"]) if state else start
    if model is None:
        model = initial_model(split.n_users, split.n_items, config)
    model = model.to(device_of(config.device))
    optimisers = optimisers_of(model, config)
    for phase, optimiser in optimisers.items():
        restore_optimiser(phase, optimiser, state)
    points = list(run.curve.points)
    if not any(point.phase == DIVERSITY for point in points):
        with clock.phase("choosing λ"):
            config = tuned(run, split, config)
    training = Training(run, split, config, model, optimisers, points, clock)
    yield from SCHEDULES[config.schedule](training)


def sequential(training: Training) -> Iterator[Point]:
    """Algorithm 1: accuracy until validation has converged, its best weights restored, then the diversity phase."""
    config = training.config
    if config.epochs == 0 and not training.points:
        yield training.keep(ACCURACY, 0)
    while not training.done(DIVERSITY) and not converged(training):
        yield training.epoch(ACCURACY)
    if config.method != "divmf":
        with training.clock.phase(config.method):
            maker = Exchange(training.run, training.split, config, training.clock)
        yield from along_rho(training.run, config, training.points, maker, training.clock)
        return
    if not training.done(DIVERSITY):
        training.restore_best()
        if config.carry_adam:
            training.run.restore_moments(training.optimisers[DIVERSITY], training.model.n_users)
    while training.done(DIVERSITY) < config.diversity_epochs:
        yield training.epoch(DIVERSITY)


# ρ of the first point in spreads of a user's scores, and its growth from point to point
FIRST_RHO, GROWTH = 0.02, 1.5


def fit_scores(run: Run, split: Split, config: TrainConfig, scorer: Scorer) -> Iterator[Point]:
    """The market on the scores of a model that is there already, yielding each new point of the curve."""
    check_fits(split, config)
    with run.locked():
        if not run.curve.points:
            run.record_scorer(scorer)
        yield from market_of(run, split, config, scorer, Clock())


def market_of(run: Run, split: Split, config: TrainConfig, scorer: Scorer, clock: Clock) -> Iterator[Point]:
    """The points of the market on a scorer: its own lists first, then along ρ."""
    with clock.phase(config.method):
        maker, points = Exchange(run, split, config, clock, scorer), list(run.curve.points)
    if not points:
        with clock.phase(config.method):
            _, own = maker.market.own
        with clock.phase("validation metrics"):
            base = Point(ACCURACY, 0, *maker.measures({kind: lists.items for kind, lists in own.items()}))
        run.append(base)
        points.append(base)
        yield base
    yield from along_rho(run, config, points, maker, clock)


def along_rho(run: Run, config: TrainConfig, points: list[Point], maker: "Exchange", clock: Clock) -> Iterator[Point]:
    """The market along increasing ρ, until so much accuracy is lost, or nothing changes any more.

    The path is the same whatever points were added beside it: each of its points is solved from the one before.
    """
    if maker.ruled is not None and not any(point.knob == 0 for point in points):
        points.append(maker.point(0.0, Curve(tuple(points)), Curve(tuple(points)).base))
        yield points[-1]
    base = Curve(tuple(points)).base
    floor, path = (1 - config.deepest) * base.valid["ndcg"], [base]
    made = {point.knob: point for point in points if point.phase == DIVERSITY}
    with clock.phase(config.method):
        # the first point made says where the path began, to the last bit; a model may know nothing and have no spread
        first = next((knob for knob in made if knob), None) or FIRST_RHO * (maker.spread or 1.0)
    for number in range(config.diversity_epochs):
        rho = first * GROWTH**number
        point = made.get(rho)
        if point is None:
            point = maker.point(rho, Curve(tuple(points)), path[-1])
            points.append(point)
            yield point
        path.append(point)
        if why := end_of(path, floor, config):
            log.info("the curve ends at ρ = %.4g: %s", rho, why)
            return


GIVE_UP = 4  # ρ in a row, together almost threefold, that change nothing before the path ends


def end_of(path: Sequence[Point], floor: float, config: TrainConfig) -> str:
    """Why nothing worth having lies beyond these points: too much is lost, or larger ρ change nothing; else nothing.

    At the far end exposure is nearly even and the lists stay as they were.
    """
    if path[-1].valid["ndcg"] < floor:
        return f"more than {config.deepest:.0%} of validation nDCG is lost"
    last = list(pairwise(path))[-GIVE_UP:]
    if sum(dict(point.valid) == dict(before.valid) for before, point in last) < GIVE_UP:
        return ""
    return f"larger ρ change nothing; Gini {path[-1].valid['gini']:.3f} is the lowest reached"


class Exchange:
    """Where points of the market are made, from the scores of a run's base model, or of another that is given."""

    def __init__(
        self, run: Run, split: Split, config: TrainConfig, clock: Clock | None = None, scorer: Scorer | None = None,
        rules: Bound | None = None,
    ) -> None:  # fmt: skip
        self.run, self.split, self.config, self.clock = run, split, config, clock or Clock()
        rules, held = rules or run.rules, Held.of(split)
        scorer = scorer or run.scorer(comm.row_range(split.n_users))
        if rules is not None:
            scorer, held = shut(scorer, rules.blocked.items), held_within(held, rules.blocked)
        power = stake_of(split) if config.stake is None else config.stake
        width = max(WIDTH, WIDER * config.k)
        finder: Source = Finder(scorer, held, stakes_of(split.train.matrix, power), width)
        if rules is not None:
            finder = Allowed(finder, rules.blocked.items)
        exposure, n_users = exposure_weights(config.k, config.exposure), comm.row_range(split.n_users).whole
        level = config.level * n_users * float(exposure.sum()) / ONE / split.n_items
        bonus = Bonus(config.delta, level, config.steepness, n_users)
        self.market = Market(finder, slot_weights(config.k), exposure, bonus)
        self.ruled = None if rules is None else RuledMarket(self.market, rules)
        self.spread = self.market.spread

    def point(self, rho: float, curve: Curve, before: Point) -> Point:
        """Solve for ρ from the lists of the point before, measure it, keep it."""
        began = time.perf_counter()
        with self.clock.phase("market"):
            kept = self.run.chosen(before, comm.row_range(self.split.n_users))
            start = self.market.own[1]["valid"] if kept is None else self.market.lists(kept.lists["valid"])
            chosen, gap = self.solved(rho, start)
        seconds = time.perf_counter() - began
        with self.clock.phase("validation metrics"):
            valid, test = self.measures(chosen.lists)
        number = 1 + max((point.epoch for point in curve.points if point.phase == DIVERSITY), default=0)
        point = Point(DIVERSITY, number, valid, test, knob=rho, seconds=seconds, gap=gap)
        with self.clock.phase("writing"):
            self.run.record_chosen(point, chosen)
        log.info(
            "ρ = %.4g: validation nDCG %.4f, coverage %.3f, Gini %.3f; at most %.1f%% of the gain from the optimum",
            rho, valid["ndcg"], valid["coverage"], valid["gini"], 100 * gap,
        )  # fmt: skip
        return point

    def solved(self, rho: float, start: Lists) -> tuple[Chosen, float]:
        """The lists for ρ, and how far they may be from the best; what rules ask for and do not get is said."""
        if self.ruled is None:
            found = solve(self.market, rho, start)
            with self.clock.phase("certificate"):
                certificate = certify(self.market, found)
            return Chosen(
                certificate.discount, {kind: lists.items for kind, lists in found.lists.items()}
            ), certificate.gap
        kept = solve_ruled(self.ruled, rho, start)
        with self.clock.phase("certificate"):
            proof = certify_ruled(self.ruled, kept)
        lists = {kind: each.items for kind, each in kept.solution.lists.items()}
        tell_unmet(self.ruled.bound, lists["all"], f"ρ = {rho:.4g}: ")
        return Chosen(proof.discount, lists), proof.gap

    def measures(self, lists: Mapping[str, Array]) -> tuple[Measures, Measures]:
        """What lists of each kind give on validation and on the test."""
        parts = {"valid": self.split.valid, "test": self.split.test}
        valid, test = (measure_lists(lists[kind].copy(), self.split, part) for kind, part in parts.items())
        return valid, test


def measure_lists(items: Array, split: Split, part: Interactions) -> Measures:
    """All metrics of lists on what a part of the split holds out."""
    lists = TopK(items, np.zeros(items.shape, dtype=np.float32), split.user_ids, split.item_ids)
    return measure(lists, part.matrix, comm.total(split.train.popularity))


FINEST = 0.02  # how close neighbouring ρ may come, as a share of the larger one


def refine(
    run: Run, split: Split, config: TrainConfig, clock: Clock | None = None, scorer: Scorer | None = None,
    **criterion: float | None,
) -> None:  # fmt: skip
    """More points with a ρ, between the two where a criterion of `Curve.choose` stops or begins to hold."""
    ((name, value),) = [(name, value) for name, value in criterion.items() if value is not None] or [("", 0.0)]
    if config.method == "divmf" or name not in ("ndcg_drop", "gini", "coverage", "rho") or not run.curve.has_rho:
        return
    maker: Exchange | None = None
    with run.locked():
        while True:
            curve = run.curve
            between = float(value) if name == "rho" else rho_between(curve, name, float(value))
            if between is None or any(point.knob == between for point in curve.points) or between <= 0:
                return
            maker = maker or Exchange(run, split, config, clock, scorer)
            smaller = [point for point in curve.operating if (point.knob or 0.0) < between]
            maker.point(between, curve, smaller[-1])


def rho_between(curve: Curve, name: str, value: float) -> float | None:
    """The middle of the two neighbouring ρ where the criterion changes; none where it does not, or they are close.

    Losses are noisy, so the last change counts: as in `Curve.choose`, the most diverse point that keeps enough.
    """
    base = curve.base.valid["ndcg"]

    def holds(point: Point) -> bool:
        if name == "ndcg_drop":
            return point.valid["ndcg"] >= (1 - value) * base
        return point.valid["gini"] > value if name == "gini" else point.valid["coverage"] < value

    changes = [(one, other) for one, other in pairwise(curve.operating) if holds(one) and not holds(other)]
    if not changes:
        return None
    low, high, first = (point.knob or 0.0 for point in (*changes[-1], curve.of_epoch(1)))
    return (low + high) / 2 if high - low > FINEST * max(high, first) else None


def alternating(training: Training) -> Iterator[Point]:
    """DivMF_alter of Q3: an accuracy epoch and a diversity epoch in turn, n_ep of each."""
    while training.done("diversity") < training.config.diversity_epochs:
        if training.done("accuracy") == training.done("diversity"):
            yield training.epoch("accuracy")
        yield training.epoch("diversity")


def joint(training: Training) -> Iterator[Point]:
    """L_total = L_acc + L_div minimised directly, Sec. 3.3.1: n_ep epochs of steps on both at once."""
    while training.done(DIVERSITY) < training.config.diversity_epochs:
        yield training.epoch(DIVERSITY, joint_epoch)


SCHEDULES = {"sequential": sequential, "alternating": alternating, "joint": joint}


def converged(training: Training) -> bool:
    """Whether the last `patience` epochs brought no better validation nDCG, or there were enough."""
    epochs = [point.valid["ndcg"] for point in training.points]
    if training.config.model == "softmax":  # its step size goes to zero, so its end is a choice of its own
        return len(epochs) >= training.config.epochs
    best = epochs.index(max(epochs)) + 1 if epochs else 0
    return len(epochs) - best >= training.config.patience or len(epochs) >= training.config.epochs


def measure_both(model: MF, split: Split, k: int, other: int | None = None) -> tuple[Measures, Measures]:
    """Validation (train out of the lists) and test (train and validation out), scoring once.

    other: another length of a list, whose metrics are called `ndcg@10` and so on
    """
    results = []
    lengths = [k] if other is None else [k, other]
    lists = recommend_each(model, [split.train.matrix, split.seen], min(max(lengths), split.n_items))
    popularity = comm.total(split.train.popularity)
    for (items, scores), part in zip(lists, (split.valid, split.test), strict=True):
        found = TopK(items, scores, split.user_ids, split.item_ids)
        each = measure_each(found, part.matrix, popularity, lengths)
        further = {f"{name}@{other}": value for name, value in each[lengths[-1]].items() if other is not None}
        results.append(each[k] | further)
    return results[0], results[1]


def check_fits(split: Split, config: TrainConfig) -> None:
    """Data too small for what was asked, or a model that several processes do not fit."""
    check_processes(config)
    if comm.size() > 1 and split.train.share is None:
        raise ValueError("each of several processes trains on a share; give it split.of_process(rank, size)")
    n_users, n_valid, n_test = (int(comm.total(n)) for n in (split.n_users, len(split.valid), len(split.test)))
    if n_users < 2 or split.n_items < 2:
        raise ValueError(
            f"the data has {n_users} user(s) and {split.n_items} item(s); recommending needs at least two of each"
        )
    if config.k > split.n_items:
        raise ValueError(
            f"k={config.k} is longer than the {split.n_items} items there are; choose k <= {split.n_items}"
        )
    if not n_valid or not n_test:
        raise ValueError("nothing is held out for validation or test: no user has three interactions; give more data")
    check_choice(split, config)
