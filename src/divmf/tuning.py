"""λ of the softmax loss, chosen on validation by a few short fits that begin as one."""

import copy
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
TRIAL_EPOCHS = 36
# λ = 2^(half/2): half octaves. All begin with the first (8, the best on the data sets we know); the last ones to try
FIRST, ENDS = 6, (-10, 18)


def tuned(run: Run, split: Split, config: TrainConfig) -> TrainConfig:
    """The settings with λ of the softmax loss, chosen on validation by a few short fits if it was not given.

    Goes up or down in half octaves until both neighbours of the best so far are worse.
    """
    if config.accuracy != "softmax" or config.l2 is not None or config.epochs == 0:
        return config
    if not run.tuned:
        short = replace(config, accuracy_epochs=min(config.epochs, TRIAL_EPOCHS), l2=l2_of(FIRST))
        trials, tried = Trials(split, short), dict[int, float]()
        to_try = [FIRST - 1, FIRST, FIRST + 1]
        while to_try:
            for half in to_try:
                tried[half] = trials.ndcg(l2_of(half))
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


class Trials:
    """Fits that share the epochs of full step size, with the λ of `config`, and end each with its own λ.

    Short fits that each began anew would favour small λ: the larger it is, the later the scores have grown.
    """

    def __init__(self, split: Split, config: TrainConfig) -> None:
        self.split, self.config = split, config
        self.model = initial_model(split.n_users, split.n_items, config)
        self.optimiser = optimisers_of(self.model, config)[ACCURACY]
        self.train(config, range(1, config.full_rate + 1))
        self.begun = [table.detach().clone() for table in (self.model.users, self.model.items)]
        self.moments = copy.deepcopy(self.optimiser.state_dict())

    def train(self, config: TrainConfig, epochs: range) -> None:
        """Some epochs more."""
        for epoch in epochs:
            self.optimiser.param_groups[0]["lr"] = config.rate(epoch)
            rng = epoch_rng(config.seed, ACCURACY, epoch)
            EPOCHS[ACCURACY](self.model, self.split.train, config, self.optimiser, rng)

    def ndcg(self, l2: float) -> float:
        """On validation, when the step size has gone to zero with this λ."""
        with torch.no_grad():
            for table, begun in zip((self.model.users, self.model.items), self.begun, strict=True):
                table.copy_(begun)
        self.optimiser.load_state_dict(copy.deepcopy(self.moments))
        config = replace(self.config, l2=l2)
        self.train(config, range(config.full_rate + 1, config.epochs + 1))
        items, scores = recommend(self.model, self.split.train.matrix, config.k)
        found = TopK(items, scores, self.split.user_ids, self.split.item_ids)
        return measure(found, self.split.valid.matrix)["ndcg"]
