"""Schedules: which phase comes next, and when it is enough. Every epoch is measured and kept."""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from divmf.curve import Curve, Point
from divmf.metrics import Measures, measure
from divmf.model import MF
from divmf.runs import Run, restore_optimiser
from divmf.split import Split
from divmf.topk import TopK, recommend_each
from divmf.training import EPOCHS, TrainConfig, adam, epoch_rng, initial_model

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

    @property
    def curve(self) -> Curve:
        """The points so far."""
        return Curve(tuple(self.points))

    def done(self, phase: str) -> int:
        """How many epochs of a phase there were."""
        return sum(point.phase == phase for point in self.points)

    def epoch(self, phase: str) -> Point:
        """Train one more epoch of a phase, measure it, keep it."""
        number, began = self.done(phase) + 1, time.perf_counter()
        rng = epoch_rng(self.config.seed, phase, number)
        loss = EPOCHS[phase](self.model, self.split.train, self.config, self.optimisers[phase], rng)
        return self.keep(phase, number, loss, time.perf_counter() - began)

    def keep(self, phase: str, number: int, loss: float | None = None, seconds: float | None = None) -> Point:
        """Measure the model as it is now and write the point down."""
        valid, test = measure_both(self.model, self.split, self.config.k)
        point = Point(phase, number, valid, test, loss=loss, seconds=seconds)
        self.points.append(point)
        self.run.record(self.curve, self.model, self.optimisers)
        log.info(
            "%s epoch %d: loss %s, validation nDCG %.4f, coverage %.3f, Gini %.3f",
            phase, number, f"{loss:.4f}" if loss is not None else "–", valid["ndcg"], valid["coverage"], valid["gini"],
        )  # fmt: skip
        return point

    def restore_best(self) -> None:
        """Go back to the most accurate weights."""
        best = self.run.model(self.curve.base)
        with torch.no_grad():
            for now, then in zip(self.model.tensors().values(), best.tensors().values(), strict=True):
                now.copy_(then)


def fit(run: Run, split: Split, config: TrainConfig, start: MF | None = None) -> Iterator[Point]:
    """Train, yielding each new point of the curve: nothing is lost when the caller stops asking.

    start: a model trained elsewhere, to begin from; with accuracy_epochs = 0 it is diversified as it is.
    """
    check_fits(split, config)
    with run.locked():
        yield from locked_fit(run, split, config, start)


def locked_fit(run: Run, split: Split, config: TrainConfig, start: MF | None) -> Iterator[Point]:
    """`fit`, once the folder is ours alone."""
    state = run.resume()
    model = MF(state["users"], state["items"], state["bias"]) if state else start
    if model is None:
        model = initial_model(split.n_users, split.n_items, config)
    optimisers = {
        "accuracy": adam(model, config.learning_rate, config.l2),
        "diversity": adam(model, config.diversity_rate, config.l2),
    }
    for phase, optimiser in optimisers.items():
        restore_optimiser(phase, optimiser, state)
    training = Training(run, split, config, model, optimisers, list(run.curve.points))
    yield from SCHEDULES[config.schedule](training)


def sequential(training: Training) -> Iterator[Point]:
    """Algorithm 1: accuracy until validation has converged, its best weights restored, then n_ep diversity epochs."""
    config = training.config
    if config.accuracy_epochs == 0 and not training.points:
        yield training.keep("accuracy", 0)
    while not training.done("diversity") and not converged(training):
        yield training.epoch("accuracy")
    if not training.done("diversity"):
        training.restore_best()
        if config.carry_adam:
            carry(training.optimisers["accuracy"], training.optimisers["diversity"])
    while training.done("diversity") < config.diversity_epochs:
        yield training.epoch("diversity")


def alternating(training: Training) -> Iterator[Point]:
    """DivMF_alter of Q3: an accuracy epoch and a diversity epoch in turn, n_ep of each."""
    while training.done("diversity") < training.config.diversity_epochs:
        if training.done("accuracy") == training.done("diversity"):
            yield training.epoch("accuracy")
        yield training.epoch("diversity")


SCHEDULES = {"sequential": sequential, "alternating": alternating}


def converged(training: Training) -> bool:
    """Whether the last `patience` epochs brought no better validation nDCG, or there were enough."""
    epochs = [point.valid["ndcg"] for point in training.points]
    best = epochs.index(max(epochs)) + 1 if epochs else 0
    return len(epochs) - best >= training.config.patience or len(epochs) >= training.config.accuracy_epochs


def carry(before: torch.optim.Adam, after: torch.optim.Adam) -> None:
    """Adam's moments of one phase for the next."""
    for parameter, moments in before.state.items():
        after.state[parameter] = {name: tensor.clone() for name, tensor in moments.items()}


def measure_both(model: MF, split: Split, k: int) -> tuple[Measures, Measures]:
    """Validation (train out of the lists) and test (train and validation out), scoring once."""
    results = []
    lists = recommend_each(model, [split.train.matrix, split.seen], k)
    for (items, scores), part in zip(lists, (split.valid, split.test), strict=True):
        found = TopK(items, scores, split.user_ids, split.item_ids)
        results.append(measure(found, part.matrix, split.train.popularity))
    return results[0], results[1]


def check_fits(split: Split, config: TrainConfig) -> None:
    """Data too small for what was asked."""
    if split.n_users < 2 or split.n_items < 2:
        raise ValueError(
            f"the data has {split.n_users} user(s) and {split.n_items} item(s); recommending needs at least two of each"
        )
    if config.k > split.n_items:
        raise ValueError(
            f"k={config.k} is longer than the {split.n_items} items there are; choose k <= {split.n_items}"
        )
    if not len(split.valid) or not len(split.test):
        raise ValueError("nothing is held out for validation or test: no user has three interactions; give more data")
