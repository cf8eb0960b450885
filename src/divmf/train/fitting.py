"""Schedules: which phase comes next, and when it is enough. Every epoch is measured and kept."""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from divmf.data.split import Split
from divmf.engine import comm
from divmf.engine.clock import Clock
from divmf.engine.device import device_of
from divmf.models.config import TrainConfig
from divmf.models.epochs import EPOCHS, Epoch, epoch_rng, initial_model, joint_epoch, optimisers_of
from divmf.models.mf import MF
from divmf.ranking.curve import ACCURACY, DIVERSITY, Curve, Point
from divmf.ranking.lists import TopK
from divmf.ranking.metrics import Measures, measure_each
from divmf.ranking.retrieval import recommend_each
from divmf.train.choosing import Progress, check_fits, is_chosen, model_of, tell_weights
from divmf.train.market import Exchange, along_rho, market_of
from divmf.train.moments import restore_optimiser
from divmf.train.runs import Run
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
            begins = self.config.accuracy_end == "last" or self.curve.base is point
            if phase == ACCURACY and self.config.carry_adam and begins:
                self.run.record_moments(self.optimisers[ACCURACY])  # before the state: an epoch made again is the same
            self.run.record(self.curve, self.model, self.optimisers)
        log.info(
            "%s epoch %d: loss %s, validation nDCG %.4f, coverage %.3f, Gini %.3f",
            phase, number, f"{loss:.4f}" if loss is not None else "–", valid["ndcg"], valid["coverage"], valid["gini"],
        )  # fmt: skip
        return point

    def restore_best(self) -> None:
        """Go back to the most accurate weights."""
        best = self.run.read_model(self.curve.base, comm.row_range(self.model.n_users))
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
    tell_weights(split, config)
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
    points = list(run.read_curve().points)
    if not any(point.phase == DIVERSITY for point in points):
        with clock.phase("choosing λ"):
            config = tuned(run, split, config)
    training = Training(run, split, config, model, optimisers, points, clock)
    yield from SCHEDULES[config.schedule](training)


def sequential(training: Training) -> Iterator[Point]:
    """Algorithm 1: accuracy to its end, then from its best weights, or its last, the diversity phase."""
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
        if config.accuracy_end == "best":
            training.restore_best()
        if config.carry_adam:
            training.run.restore_moments(training.optimisers[DIVERSITY], training.model.n_users)
    while training.done(DIVERSITY) < config.diversity_epochs:
        yield training.epoch(DIVERSITY)


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
    epochs, config = [point.valid["ndcg"] for point in training.points], training.config
    if config.model == "softmax" or config.accuracy_end == "last":  # softmax: its step size goes to zero by then
        return len(epochs) >= config.epochs
    best = epochs.index(max(epochs)) + 1 if epochs else 0
    return len(epochs) - best >= config.patience or len(epochs) >= config.epochs


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
