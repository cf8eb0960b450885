"""λ and the learning rate of the softmax loss, chosen on validation by a few short fits."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from divmf.data.split import Split
from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.files import write_json
from divmf.models.config import SOFTMAX_RATE, TrainConfig, TrainingDiverged
from divmf.models.epochs import EPOCHS, epoch_rng, initial_model, optimisers_of
from divmf.ranking.curve import ACCURACY
from divmf.ranking.metrics import found_in, ndcg
from divmf.ranking.retrieval import recommend
from divmf.train.runs import Run

log = logging.getLogger(__name__)
# larger vectors at the start, for out of small ones scores grow the later, the larger λ, and a short fit would favour a
# small one
TRIAL_EPOCHS, GROWN = 20, 10


@dataclass(frozen=True)
class Search:
    """How the value of a setting is looked for: step by step, until both neighbours of the best are no better.

    start, octaves   the value at step 0, and the octaves from step to step
    first, ends      the steps tried first, and the last that may be
    margin           standard errors of the users' nDCG by which another step must be better than the best so far
    """

    name: str
    start: float
    octaves: float
    first: tuple[int, ...]
    ends: tuple[int, int]
    margin: float

    def value(self, step: int) -> float:
        """The setting at a step."""
        return float(self.start * 2 ** (self.octaves * step))

    def best(self, trial: Callable[[float], Array]) -> float:
        """The best value, by what a trial of it gives each user."""
        found: dict[int, Array] = {}
        best, to_try = self.first[0], list(self.first)
        while to_try:
            found |= {step: trial(self.value(step)) for step in to_try}
            ahead = [step for step in to_try if better(found[step], found[best], self.margin)]
            best = max(ahead, key=lambda step: mean_of(found[step]), default=best)
            to_try = [step for step in (best - 1, best + 1) if step not in found]
            to_try = [step for step in to_try if self.ends[0] <= step <= self.ends[1]]
        return self.value(best)


# λ from 8 and 11, the best on all datasets we know: a factor of two costs 5 to 20%, so it is looked for closely, and
# the best is taken. Of learning rates half and double are hardly worse on any: another is taken only where it is
# clearly better (99%), else chance would choose.
SEARCHES = (
    Search("l2", 1.0, 0.5, first=(6, 7), ends=(-10, 18), margin=0.0),
    Search("learning_rate", SOFTMAX_RATE, 1.0, first=(0,), ends=(-4, 2), margin=2.58),
)


def tuned(run: Run, split: Split, config: TrainConfig) -> TrainConfig:
    """The settings with what the softmax loss needs and was not given: λ, then the learning rate with that λ."""
    wanted = [search for search in SEARCHES if getattr(config, search.name) is None]
    if config.model != "softmax" or not wanted or config.epochs == 0:
        return config
    # a run begun before learning rates were chosen keeps the one it was begun with
    if not run.read_tuned() and not run.read_curve().points:
        write_json(run.tuned_file, searched(split, config, wanted))
    found = run.read_tuned()
    return replace(config, **{each.name: found[each.name] for each in wanted if each.name in found})


def searched(split: Split, config: TrainConfig, wanted: Sequence[Search]) -> dict[str, Any]:
    """The values found, one setting after the other, and all that was tried."""
    settings: dict[str, Any] = {"l2": config.l2 or 0.0, "learning_rate": config.learning_rate or SOFTMAX_RATE}
    short = replace(config, accuracy_epochs=min(config.epochs, TRIAL_EPOCHS))
    tried: dict[tuple[float, ...], Array] = {}

    def reached(name: str, value: float) -> Array:
        now = settings | {name: value}
        key = tuple(now.values())
        if key not in tried:
            tried[key] = trial(split, replace(short, **now))
            log.info(
                "λ = %.3g, learning rate %.3g: validation nDCG %.4f after %d epochs",
                *key, mean_of(tried[key]), short.epochs,
            )  # fmt: skip
        return tried[key]

    for search in wanted:
        settings[search.name] = search.best(partial(reached, search.name))
    log.info("chosen: λ = %.3g, learning rate %.3g (another rate only if it is clearly better)", *settings.values())
    rows = [
        dict(zip(settings, key, strict=True)) | {"valid_ndcg": mean_of(users)} for key, users in sorted(tried.items())
    ]
    return {search.name: settings[search.name] for search in wanted} | {"tried": rows}


def trial(split: Split, config: TrainConfig, grown: float = GROWN) -> Array:
    """Validation nDCG at the end of a short fit, of each user (of this process) who has anything held out.

    grown: how much larger vectors are at the start than those of a real fit
    """
    model = initial_model(split.n_users, split.n_items, config)
    with torch.no_grad():
        for table in (model.users, model.items):
            table *= grown
    optimiser = optimisers_of(model, config)[ACCURACY]
    held_out = split.valid.matrix
    held = np.diff(held_out.indptr)
    try:
        for epoch in range(1, config.epochs + 1):
            optimiser.param_groups[0]["lr"] = config.rate(epoch)
            EPOCHS[ACCURACY](model, split.train, config, optimiser, epoch_rng(config.seed, ACCURACY, epoch))
    except TrainingDiverged:  # such settings are not for this data; that is all a trial has to say
        return np.zeros(np.count_nonzero(held))
    items, _ = recommend(model, split.train.matrix, config.k)
    return ndcg(found_in(held_out, items, config.k), held)[held > 0]


def better(ones: Array, others: Array, margin: float) -> bool:
    """Whether users fare better with the one than with the other, by so many standard errors of their difference."""
    lead = mean_of(ones) - mean_of(others)
    error = math.sqrt(mean_of((ones - others - lead) ** 2) / max(1, int(comm.total(len(ones)))))
    return lead > margin * error


def mean_of(values: Array) -> float:
    """The mean over the users of all processes, to twelve digits, so that sums in another order give the same."""
    total, n = (float(comm.total(part)) for part in (values.sum(), len(values)))
    return float(f"{total / max(1.0, n):.12g}")
