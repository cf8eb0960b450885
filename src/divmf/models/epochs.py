"""The two phases of Algorithm 1, an epoch at a time: first accuracy, then diversity, on the same parameters."""

from collections.abc import Callable

import numpy as np
import torch

from divmf.data.interactions import Interactions
from divmf.engine import comm
from divmf.engine.device import device_of
from divmf.models.config import TrainConfig, check
from divmf.models.diversity import diversity_gradient
from divmf.models.full_softmax import softmax_gradient
from divmf.models.mf import MF
from divmf.models.sampling import draw_key, n_blocks, submatrices
from divmf.models.steps import add_accuracy_gradient, batches_of, steps_for, touches_rows


def epoch_rng(seed: int, phase: str, epoch: int) -> np.random.Generator:
    """The generator of one epoch: it depends on nothing that came before, so a resumed run draws the same."""
    return np.random.default_rng([seed, 1 + ("start", "accuracy", "diversity").index(phase), epoch])


def initial_model(n_users: int, n_items: int, config: TrainConfig) -> MF:
    """Random vectors of the configured length; with several processes, for the n_users of this one."""
    rng, span = epoch_rng(config.seed, "start", 0), comm.row_range(n_users)
    generator = torch.Generator().manual_seed(draw_key(rng))
    model = MF.random(span.whole, n_items, config.n_dims, generator, slice(span.first, span.first + n_users))
    return model.to(device_of(config.device))


def adam(model: MF, learning_rate: float, l2: float, beta: float = 0.999) -> torch.optim.Adam:
    """Adam over both tables of vectors, as the paper sets it; beta: how long it remembers squared gradients."""
    for table in (model.users, model.items):
        table.requires_grad_()
    return torch.optim.Adam(
        [model.users, model.items], lr=learning_rate, betas=(0.9, beta), weight_decay=l2, fused=True
    )


def optimisers_of(model: MF, config: TrainConfig) -> dict[str, torch.optim.Adam]:
    """Adam for each phase. The softmax gradient is exact and holds its own λ, so its squares need less memory.

    Where a step touches the rows of its batch alone, their L2 comes with the batch (`divmf.models.steps`).
    """
    exact = config.model == "softmax"
    decay = 0.0 if exact or touches_rows(model, config) else config.decay
    return {
        "accuracy": adam(model, config.rate(1), decay, 0.99 if exact else 0.999),
        "diversity": adam(model, config.diversity_rate, config.decay),
    }


def accuracy_epoch(
    model: MF, train: Interactions, config: TrainConfig, optimiser: torch.optim.Adam, rng: np.random.Generator
) -> float:
    """One pass over the interactions with sampled negatives, or one step of the full softmax; the mean loss."""
    if config.model == "softmax":
        assert config.l2 is not None, "chosen before training"
        loss = softmax_gradient(model, train.weighted, config.l2, config.l2_power)
        optimiser.step()
        return check(loss / comm.row_range(len(train)).whole, "accuracy")
    total = steps_for(model, config)(model, train, config, optimiser, rng)
    return check(total / (comm.row_range(len(train)).whole * config.negatives), "accuracy")


def diversity_epoch(
    model: MF, train: Interactions, config: TrainConfig, optimiser: torch.optim.Optimizer, rng: np.random.Generator
) -> float:
    """One step on L_div of the whole matrix, or one on each mini-batch of it; the mean loss of a user."""
    total, span = 0.0, comm.row_range(model.n_users)
    for users, items in submatrices(model.n_users, model.n_items, config.rows, config.columns, rng, span):
        total += diversity_gradient(model, users, items, train.matrix, config, draw_key(rng))
        optimiser.step()
    return check(total / span.whole, "diversity")


def joint_epoch(
    model: MF, train: Interactions, config: TrainConfig, optimiser: torch.optim.Optimizer, rng: np.random.Generator
) -> float:
    """Steps on L_total = L_acc + L_div, Sec. 3.3.1; the mean loss of a user.

    A step has a mini-batch of L_div, and as large a share of the samples of L_acc: all, where it has the whole matrix.
    """
    span, sizes = comm.row_range(model.n_users), (config.rows, config.columns)
    blocks = submatrices(model.n_users, model.n_items, *sizes, rng, span)
    chunks = batches_of(train, config, rng, n_blocks(span.whole, model.n_items, *sizes))
    total, own = 0.0, 0.0
    for (users, items), samples in zip(blocks, (batch for chunk in chunks for batch in chunk.batches()), strict=True):
        total += diversity_gradient(model, users, items, train.matrix, config, draw_key(rng))
        own += add_accuracy_gradient(model, config, samples)
        optimiser.step()
    return check((total + float(comm.total(own))) / span.whole, "joint")


Epoch = Callable[[MF, Interactions, TrainConfig, torch.optim.Adam, np.random.Generator], float]
EPOCHS: dict[str, Epoch] = {"accuracy": accuracy_epoch, "diversity": diversity_epoch}
