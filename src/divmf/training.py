"""The two phases of Algorithm 1, an epoch at a time: first accuracy, then diversity, on the same parameters."""

import math

import numpy as np
import torch
from torch.nn.functional import embedding

from divmf import losses
from divmf.config import TrainConfig, check
from divmf.diversity import diversity_gradient
from divmf.ids import Array
from divmf.interactions import Interactions
from divmf.model import MF
from divmf.sampling import draw_key, slabs, submatrices
from divmf.softmax import softmax_gradient


def epoch_rng(seed: int, phase: str, epoch: int) -> np.random.Generator:
    """The generator of one epoch: it depends on nothing that came before, so a resumed run draws the same."""
    return np.random.default_rng([seed, 1 + ("start", "accuracy", "diversity").index(phase), epoch])


def initial_model(n_users: int, n_items: int, config: TrainConfig) -> MF:
    """Random vectors of the configured length."""
    rng = epoch_rng(config.seed, "start", 0)
    return MF.random(n_users, n_items, config.dim, torch.Generator().manual_seed(draw_key(rng)))


def adam(model: MF, learning_rate: float, l2: float, beta: float = 0.999) -> torch.optim.Adam:
    """Adam over both tables of vectors, as the paper sets it; beta: how long it remembers squared gradients."""
    for table in (model.users, model.items):
        table.requires_grad_()
    return torch.optim.Adam(
        [model.users, model.items], lr=learning_rate, betas=(0.9, beta), weight_decay=l2, fused=True
    )


def optimisers_of(model: MF, config: TrainConfig) -> dict[str, torch.optim.Adam]:
    """Adam for each phase. The softmax gradient is exact and holds its own λ, so its squares need less memory."""
    exact = config.accuracy == "softmax"
    return {
        "accuracy": adam(model, config.rate(1), 0.0 if exact else config.decay, 0.99 if exact else 0.999),
        "diversity": adam(model, config.diversity_rate, config.decay),
    }


def accuracy_epoch(
    model: MF, train: Interactions, config: TrainConfig, optimiser: torch.optim.Adam, rng: np.random.Generator
) -> float:
    """One pass over the interactions with sampled negatives, or one step of the full softmax; the mean loss."""
    if config.accuracy == "softmax":
        assert config.l2 is not None, "chosen before training"
        loss = softmax_gradient(model, train.matrix, config.l2)
        optimiser.step()
        return check(loss / len(train), "accuracy")
    steps = compiled_steps if model.users.device.type == "cpu" else steps_by_autograd
    size = max(1, config.batch // config.negatives)
    total = sum(steps(model, config, optimiser, size, slab) for slab in slabs(train, size, config.negatives, rng))
    return check(total / (len(train) * config.negatives), "accuracy")


def steps_by_autograd(
    model: MF, config: TrainConfig, optimiser: torch.optim.Adam, size: int, slab: tuple[Array, Array, Array]
) -> float:
    """A step for each `size` pairs of users, items met and items not met; the sum of their losses."""
    loss_of, total = losses.ACCURACY_LOSSES[config.accuracy], 0.0
    for first in range(0, len(slab[0]), size):
        batch = (torch.from_numpy(part[first : first + size]).to(model.users.device) for part in slab)
        users, positives, negatives = batch
        items = torch.cat([positives[:, None], negatives], dim=1)  # (b, 1 + n)
        # embedding(), not indexing: the backward pass of indexing adds in the order threads happen to come
        scores = torch.einsum("bd,bnd->bn", embedding(users, model.users), embedding(items, model.items))
        scores = scores + model.bias[items]
        unmet = scores[:, 1:]
        if config.accuracy == "mse":  # the negative of a user who met everything is the positive itself: no negative
            unmet = unmet.masked_fill(negatives == positives[:, None], 0.0)
        loss = loss_of(scores[:, :1], unmet)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        total += float(loss.detach())
    return total


def compiled_steps(
    model: MF, config: TrainConfig, optimiser: torch.optim.Adam, size: int, slab: tuple[Array, Array, Array]
) -> float:
    """As `steps_by_autograd`, compiled for the CPU; Adam's moments stay where torch keeps them."""
    from divmf.kernels.pairs import train_pairs

    tables = (model.users, model.items)
    for table in tables:
        if not (state := optimiser.state[table]):
            state |= {
                "step": torch.tensor(0.0),
                "exp_avg": torch.zeros_like(table),
                "exp_avg_sq": torch.zeros_like(table),
            }
    states = [optimiser.state[table] for table in tables]
    users, items = (table.detach().numpy() for table in tables)
    mean_u, square_u, mean_i, square_i = (
        s[name].detach().numpy() for s in states for name in ("exp_avg", "exp_avg_sq")
    )
    group = optimiser.param_groups[0]
    total = train_pairs(
        config.accuracy == "bpr", users, items, model.bias.numpy(), (mean_u, square_u, mean_i, square_i),
        (np.zeros_like(users), np.zeros_like(items)), int(states[0]["step"]), group["lr"], group["weight_decay"],
        size, *slab,
    )  # fmt: skip
    for state in states:
        state["step"] += math.ceil(len(slab[0]) / size)
    return float(total)


def diversity_epoch(
    model: MF, train: Interactions, config: TrainConfig, optimiser: torch.optim.Optimizer, rng: np.random.Generator
) -> float:
    """One step on L_div of the whole matrix, or one on each mini-batch of it; the mean loss of a user."""
    total = 0.0
    for users, items in submatrices(model.n_users, model.n_items, config.rows, config.columns, rng):
        total += diversity_gradient(model, users, items, train.matrix, config, draw_key(rng))
        optimiser.step()
    return check(total / model.n_users, "diversity")


EPOCHS = {"accuracy": accuracy_epoch, "diversity": diversity_epoch}
