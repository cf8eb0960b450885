"""An epoch of steps on sampled pairs (BPR, MSE): by autograd, which says what is meant, and compiled for the CPU.

Each takes the same arguments and returns the sum of the losses; Adam's moments stay where torch keeps them.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding

from divmf import losses
from divmf.config import TrainConfig
from divmf.ids import Array
from divmf.interactions import Interactions
from divmf.model import MF
from divmf.sampling import slabs
from divmf.threads import in_parts

Steps = Callable[[MF, Interactions, TrainConfig, torch.optim.Adam, np.random.Generator], float]


def steps_for(model: MF, config: TrainConfig) -> Steps:
    """The steps that suit the device and the size of the model."""
    if model.users.device.type != "cpu":
        return by_autograd
    return on_touched_rows if touches_rows(model, config) else on_all_rows


def touches_rows(model: MF, config: TrainConfig) -> bool:
    """Whether a step is to cost what its batch costs, not what the model's size does: asked for, or a large model.

    Measured in cache: a row passed over costs 14 ns, a row fetched and put back 42, and a sample touches about one.
    """
    large = model.n_users + model.n_items > 4 * config.batch
    return config.adam == "rows" or (config.adam is None and large)


def pairs_per_step(config: TrainConfig) -> int:
    """Items met in a batch."""
    return max(1, config.batch // config.negatives)


def by_autograd(
    model: MF, train: Interactions, config: TrainConfig, optimiser: torch.optim.Adam, rng: np.random.Generator
) -> float:
    """The equations of `losses`, differentiated by torch."""
    total, size = 0.0, pairs_per_step(config)
    for slab in slabs(train, size, config.negatives, rng):
        for first in range(0, len(slab[0]), size):
            batch = (torch.from_numpy(part[first : first + size]).to(model.users.device) for part in slab)
            users, positives, negatives = batch
            items = torch.cat([positives[:, None], negatives], dim=1)  # (b, 1 + n)
            loss = batch_loss(model, config, users, items)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            if touches_rows(model, config):
                decay_touched(model.users, users, config.decay)
                decay_touched(model.items, items, config.decay)
            optimiser.step()
            total += float(loss.detach())
    return total


def batch_loss(model: MF, config: TrainConfig, users: Tensor, items: Tensor) -> Tensor:
    """The loss of some pairs: users (b,), items (b, 1 + n), the item met first."""
    # embedding(), not indexing: the backward pass of indexing adds in the order threads happen to come
    scores = torch.einsum("bd,bnd->bn", embedding(users, model.users), embedding(items, model.items))
    scores = scores + model.bias[items]
    met, unmet = scores[:, :1], scores[:, 1:]
    if config.accuracy == "mse":  # the negative of a user who met everything is the positive itself: no negative
        unmet = unmet.masked_fill(items[:, 1:] == items[:, :1], 0.0)
    return losses.ACCURACY_LOSSES[config.accuracy](met, unmet)


def decay_touched(table: Tensor, rows: Tensor, l2: float) -> None:
    """Add L2 to the gradient of the rows of a batch, each once."""
    assert table.grad is not None
    touched = torch.unique(rows)
    table.grad[touched] += l2 * table.detach()[touched]


def on_all_rows(
    model: MF, train: Interactions, config: TrainConfig, optimiser: torch.optim.Adam, rng: np.random.Generator
) -> float:
    """As `by_autograd`, compiled: Adam passes over every row at every step."""
    from divmf.kernels.pairs import train_pairs

    users, items = (arrays_of(table, optimiser) for table in (model.users, model.items))
    gradients, group = (np.zeros_like(users[0]), np.zeros_like(items[0])), optimiser.param_groups[0]
    done, size, total = steps_done(model, optimiser), pairs_per_step(config), 0.0
    for slab in slabs(train, size, config.negatives, rng):
        total += train_pairs(
            config.accuracy == "bpr", users[0], items[0], model.bias.numpy(), (*users[1:], *items[1:]), gradients,
            done, group["lr"], group["weight_decay"], size, *slab,
        )  # fmt: skip
        done += math.ceil(len(slab[0]) / size)
    count_steps(model, optimiser, done)
    return float(total)


def on_touched_rows(
    model: MF, train: Interactions, config: TrainConfig, optimiser: torch.optim.Adam, rng: np.random.Generator
) -> float:
    """As `by_autograd`, compiled: rows are brought up to date when a batch needs them, and all at the end."""
    from divmf.kernels.pair_rows import fading, settle, train_rows

    users, items = (arrays_of(table, optimiser) for table in (model.users, model.items))
    seen = np.zeros((model.n_users, 2), dtype=np.int32), np.zeros((model.n_items, 2), dtype=np.int32)
    done, size = steps_done(model, optimiser), pairs_per_step(config)
    n_steps, rate = math.ceil(len(train) / size), optimiser.param_groups[0]["lr"]
    left, step, total = fading(done, n_steps, users[0].dtype), 0, 0.0
    for slab in slabs(train, size, config.negatives, rng):
        total += train_rows(
            config.accuracy == "bpr", users, items, model.bias.numpy(), seen, left, done, step, rate, config.decay,
            size, *slab,
        )  # fmt: skip
        step += math.ceil(len(slab[0]) / size)
    in_parts(partial(settle, users, seen[0], n_steps, rate, left), model.n_users)
    in_parts(partial(settle, items, seen[1], n_steps, rate, left), model.n_items)
    count_steps(model, optimiser, done + n_steps)
    return float(total)


def arrays_of(table: Tensor, optimiser: torch.optim.Adam) -> tuple[Array, Array, Array]:
    """A table of vectors and Adam's two moments of it, as arrays over the same memory."""
    state = optimiser.state[table]
    if not state:
        state["step"] = torch.tensor(0.0)
        for moment in ("exp_avg", "exp_avg_sq"):  # numpy asks for large pages, where rows far apart are found sooner
            state[moment] = torch.from_numpy(np.zeros_like(table.detach().numpy()))
    return table.detach().numpy(), state["exp_avg"].detach().numpy(), state["exp_avg_sq"].detach().numpy()


def steps_done(model: MF, optimiser: torch.optim.Adam) -> int:
    """How many steps Adam has made."""
    return int(optimiser.state[model.users]["step"])


def count_steps(model: MF, optimiser: torch.optim.Adam, done: int) -> None:
    """Say how many steps Adam has made."""
    for table in (model.users, model.items):
        optimiser.state[table]["step"].fill_(done)
