"""λ of the softmax loss, chosen on validation by a few short fits."""

import logging
from dataclasses import replace

from divmf.config import TrainConfig
from divmf.curve import ACCURACY
from divmf.metrics import measure
from divmf.runs import Run, write_json
from divmf.split import Split
from divmf.topk import TopK, recommend
from divmf.training import EPOCHS, epoch_rng, initial_model, optimisers_of

log = logging.getLogger(__name__)
TRIAL_EPOCHS, TRIED = 24, (4.0, 8.0, 16.0)


def tuned(run: Run, split: Split, config: TrainConfig) -> TrainConfig:
    """The settings with λ of the softmax loss, chosen on validation by a few short fits if it was not given.

    Doubles or halves from the best so far until both neighbours are worse, then tries half steps.
    """
    if config.accuracy != "softmax" or config.l2 is not None or config.epochs == 0:
        return config
    if not run.tuned:
        short, tried = replace(config, accuracy_epochs=min(config.epochs, TRIAL_EPOCHS)), dict[float, float]()

        def best() -> float:
            return max(tried, key=lambda l2: (tried[l2], -l2))

        def attempt(*l2s: float) -> None:
            for l2 in l2s:
                if l2 not in tried:
                    tried[l2] = trial(split, replace(short, l2=l2))
                    log.info("λ = %.3g: validation nDCG %.4f after %d epochs", l2, tried[l2], short.epochs)

        attempt(*TRIED)
        while 0.03 < (centre := best()) < 300 and not {centre / 2, centre * 2} <= set(tried):
            attempt(centre / 2, centre * 2)
        attempt(best() * 2**-0.5, best() * 2**0.5)
        found = {"l2": best(), "tried": [{"l2": l2, "valid_ndcg": ndcg} for l2, ndcg in sorted(tried.items())]}
        write_json(run.tuned_file, found)
    return replace(config, l2=float(run.tuned["l2"]))


def trial(split: Split, config: TrainConfig) -> float:
    """The best validation nDCG over the second half of a short fit."""
    model = initial_model(split.n_users, split.n_items, config)
    optimiser = optimisers_of(model, config)[ACCURACY]
    best = 0.0
    for epoch in range(1, config.epochs + 1):
        optimiser.param_groups[0]["lr"] = config.rate(epoch)
        EPOCHS[ACCURACY](model, split.train, config, optimiser, epoch_rng(config.seed, ACCURACY, epoch))
        if epoch > config.epochs // 2 and (config.epochs - epoch) % 3 == 0:
            items, scores = recommend(model, split.train.matrix, config.k)
            found = TopK(items, scores, split.user_ids, split.item_ids)
            best = max(best, measure(found, split.valid.matrix)["ndcg"])
    return best
