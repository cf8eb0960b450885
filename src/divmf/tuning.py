"""λ of the softmax loss, chosen on validation by a few short fits."""

import logging
from dataclasses import replace

import torch

from divmf.config import TrainConfig
from divmf.curve import ACCURACY
from divmf.files import write_json
from divmf.metrics import measure
from divmf.runs import Run
from divmf.split import Split
from divmf.topk import TopK, recommend
from divmf.training import EPOCHS, epoch_rng, initial_model, optimisers_of

log = logging.getLogger(__name__)
# larger vectors at the start than those of a real fit: out of small ones scores grow the later, the larger λ, and a
# short fit would favour a small one
TRIAL_EPOCHS, GROWN = 20, 10
# λ = 2^(half/2): half octaves tried first (8 and 11, the best on all data sets we know), the last to try
FIRST, ENDS = (6, 7), (-10, 18)


def tuned(run: Run, split: Split, config: TrainConfig) -> TrainConfig:
    """The settings with λ of the softmax loss, chosen on validation by a few short fits if it was not given.

    Goes up or down in half octaves until both neighbours of the best so far are worse.
    """
    if config.accuracy != "softmax" or config.l2 is not None or config.epochs == 0:
        return config
    if not run.tuned:
        short, tried = replace(config, accuracy_epochs=min(config.epochs, TRIAL_EPOCHS)), dict[int, float]()
        to_try = list(FIRST)
        while to_try:
            for half in to_try:
                tried[half] = trial(split, replace(short, l2=l2_of(half)))
                log.info("λ = %.3g: validation nDCG %.4f after %d epochs", l2_of(half), tried[half], short.epochs)
            best = max(tried, key=lambda half: (tried[half], -half))
            to_try = [half for half in (best - 1, best + 1) if half not in tried and ENDS[0] <= half <= ENDS[1]]
        rows = [{"l2": l2_of(half), "valid_ndcg": ndcg} for half, ndcg in sorted(tried.items())]
        found = {"l2": l2_of(best), "tried": rows}
        write_json(run.tuned_file, found)
    return replace(config, l2=float(run.tuned["l2"]))


def l2_of(half: int) -> float:
    """λ of a half octave."""
    return float(2 ** (half / 2))


def trial(split: Split, config: TrainConfig) -> float:
    """Validation nDCG at the end of a short fit."""
    model = initial_model(split.n_users, split.n_items, config)
    with torch.no_grad():
        for table in (model.users, model.items):
            table *= GROWN
    optimiser = optimisers_of(model, config)[ACCURACY]
    for epoch in range(1, config.epochs + 1):
        optimiser.param_groups[0]["lr"] = config.rate(epoch)
        EPOCHS[ACCURACY](model, split.train, config, optimiser, epoch_rng(config.seed, ACCURACY, epoch))
    items, scores = recommend(model, split.train.matrix, config.k)
    return measure(TopK(items, scores, split.user_ids, split.item_ids), split.valid.matrix)["ndcg"]
