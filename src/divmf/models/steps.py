"""An epoch of steps on sampled pairs (BPR, MSE): by autograd, which says what is meant, and compiled for the CPU.

Each takes the same arguments and returns the sum of the losses; Adam's moments stay where torch keeps them.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding

from divmf.data.interactions import Interactions
from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.threads import in_parts
from divmf.kernels.batches import Batch, Chunk, Gradients, Moments, Rates, Tables
from divmf.models import losses
from divmf.models.config import TrainConfig
from divmf.models.mf import MF
from divmf.models.sampling import sample_chunks

if TYPE_CHECKING:
    from divmf.kernels.pair_rows import LazyAdam, Side

MEAN, SQUARE = "exp_avg", "exp_avg_sq"  # as torch calls Adam's moments
Steps = Callable[[MF, Interactions, TrainConfig, torch.optim.Adam, np.random.Generator], float]


def steps_for(model: MF, config: TrainConfig) -> Steps:
    """The steps that suit the device and the size of the model."""
    if model.users.device.type != "cpu":
        return by_autograd
    return on_touched_rows if touches_rows(model, config) else on_all_rows


def touches_rows(model: MF, config: TrainConfig) -> bool:
    """Whether a step is to cost what its batch costs, not what the model's size does: asked for, or a large model."""
    if config.adam is None:
        return is_large(comm.row_range(model.n_users).whole + model.n_items, config)
    return config.adam == "rows"


def is_large(n_rows: int, config: TrainConfig) -> bool:
    """Whether passing over all rows costs more than fetching those of a batch.

    Measured in cache: a row passed over costs 14 ns, a row fetched and put back 42, and a batch fetches most of its
    rows once: of triples, three each.
    """
    size, each = batch_shape(config)
    return 3 * n_rows > 8 * size * (2 + each)


def batch_shape(config: TrainConfig) -> tuple[int, int]:
    """Rows of a batch, and items not met in each.

    The squared error counts an item met once, however many are drawn for it, so its rows are pairs.
    """
    each = config.negatives if config.shuffle == "pairs" or config.model == "mse" else 1
    return max(1, config.batch // each), each


def n_steps_of(n_pairs: int, config: TrainConfig) -> int:
    """Steps of an epoch over so many pairs."""
    size, each = batch_shape(config)
    return math.ceil(n_pairs * (config.negatives // each) / size)


def batches_of(
    train: Interactions, config: TrainConfig, rng: np.random.Generator, n_batches: int | None = None
) -> Iterator[Chunk]:
    """What the steps of an epoch look at; n_batches: how many there are, whatever the configured size."""
    size, each = batch_shape(config)
    return sample_chunks(train, size, config.negatives, rng, each, n_batches)


def add_accuracy_gradient(model: MF, config: TrainConfig, samples: Batch) -> float:
    """Add the gradient of L_acc of some samples (users, items met, not met) to the parameters' .grad; its value.

    Of several processes, each has the samples of its own users; the gradient of the items is summed.
    """
    user_gradient, item_gradient = model.users.grad, model.items.grad
    assert user_gradient is not None
    assert item_gradient is not None
    if model.users.device.type == "cpu":
        from divmf.kernels.pairs import add_gradients

        tables = tables_of(model)
        added = Gradients(np.zeros_like(tables.users), np.zeros_like(tables.items))
        loss = add_gradients(config.model == "bpr", tables, added, samples)
        of_users, of_items = map(torch.from_numpy, added)
    else:
        chosen, met, unmet = (torch.from_numpy(part).to(model.users.device) for part in samples)
        with torch.enable_grad():
            whole = batch_loss(model, config, chosen, torch.cat([met[:, None], unmet], dim=1))
            of_users, of_items = torch.autograd.grad(whole, [model.users, model.items])
        loss = float(whole.detach())
    comm.all_reduce(of_items)
    user_gradient += of_users
    item_gradient += of_items
    return loss


def by_autograd(
    model: MF, train: Interactions, config: TrainConfig, optimiser: torch.optim.Adam, rng: np.random.Generator
) -> float:
    """The equations of `losses`, differentiated by torch."""
    total, rows_alone = 0.0, touches_rows(model, config)
    for chunk in batches_of(train, config, rng):
        for batch in chunk.batches():
            users, positives, negatives = (torch.from_numpy(part).to(model.users.device) for part in batch)
            items = torch.cat([positives[:, None], negatives], dim=1)  # (b, 1 + n)
            loss = batch_loss(model, config, users, items)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            comm.all_reduce(model.items.grad)
            if rows_alone:
                touched = torch.bincount(items.ravel(), minlength=model.n_items)
                comm.all_reduce(touched)  # by any process
                decay_touched(model.users, torch.unique(users), config.decay)
                decay_touched(model.items, touched.nonzero()[:, 0], config.decay)
            optimiser.step()
            total += float(loss.detach())
    return float(comm.total(total))


def batch_loss(model: MF, config: TrainConfig, users: Tensor, items: Tensor) -> Tensor:
    """The loss of some pairs: users (b,), items (b, 1 + n), the item met first."""
    # embedding(), not indexing: the backward pass of indexing adds in the order threads happen to come
    scores = torch.einsum("bd,bnd->bn", embedding(users, model.users), embedding(items, model.items))
    scores = scores + model.bias[items]
    met, unmet = scores[:, :1], scores[:, 1:]
    if config.model == "mse":  # the negative of a user who met everything is the positive itself: no negative
        unmet = unmet.masked_fill(items[:, 1:] == items[:, :1], 0.0)
    return losses.ACCURACY_LOSSES[config.model](met, unmet)


def decay_touched(table: Tensor, rows: Tensor, l2: float) -> None:
    """Add L2 to the gradient of the rows of a batch."""
    assert table.grad is not None
    table.grad[rows] += l2 * table.detach()[rows]


def on_all_rows(
    model: MF, train: Interactions, config: TrainConfig, optimiser: torch.optim.Adam, rng: np.random.Generator
) -> float:
    """As `by_autograd`, compiled: Adam passes over every row at every step."""
    from divmf.kernels.pairs import adam_step, add_gradients, train_pairs

    tables, states = tables_of(model), [moments_of(table, optimiser) for table in (model.users, model.items)]
    moments = Moments(*(state[name].numpy() for state in states for name in (MEAN, SQUARE)))
    gradients, group = Gradients(np.zeros_like(tables.users), np.zeros_like(tables.items)), optimiser.param_groups[0]
    rates, is_bpr = Rates(group["lr"], group["weight_decay"]), config.model == "bpr"
    done, total, alone = steps_done(model, optimiser), 0.0, comm.size() == 1
    for chunk in batches_of(train, config, rng):
        if alone:
            total += train_pairs(is_bpr, tables, moments, gradients, done, rates, chunk)
        else:
            for number, batch in enumerate(chunk.batches(), start=1):
                total += add_gradients(is_bpr, tables, gradients, batch)
                comm.all_reduce(gradients.items)
                adam_step(tables, moments, gradients, done + number, rates)
        done += len(chunk.bounds) - 1
    count_steps(model, optimiser, done)
    return float(comm.total(total))


def on_touched_rows(
    model: MF, train: Interactions, config: TrainConfig, optimiser: torch.optim.Adam, rng: np.random.Generator
) -> float:
    """As `by_autograd`, compiled: rows are brought up to date when a batch needs them, and all at the end."""
    from divmf.kernels.pair_rows import LazyAdam, catch_up, lazy_decay, side_of, train_rows

    size, each = batch_shape(config)
    users = side_of(side_by_side(model.users, optimiser), size)
    items = side_of(side_by_side(model.items, optimiser), size * (1 + each))
    done = steps_done(model, optimiser)
    n_steps, rate = n_steps_of(comm.row_range(len(train)).whole, config), optimiser.param_groups[0]["lr"]
    adam = LazyAdam(rate, config.decay, done, lazy_decay(done, n_steps, users.rows.dtype))
    train_chunk, step, total = train_rows if comm.size() == 1 else train_shared_rows, 0, 0.0
    for chunk in batches_of(train, config, rng):
        total += train_chunk(config.model == "bpr", users, items, model.bias.numpy(), adam, step, chunk)
        step += len(chunk.bounds) - 1
    for table, side in ((model.users, users), (model.items, items)):
        in_parts(partial(catch_up, table.detach().numpy(), side, n_steps, adam), len(side.rows))
    count_steps(model, optimiser, done + n_steps)
    return float(comm.total(total))


def side_by_side(table: Tensor, optimiser: torch.optim.Adam) -> Array:
    """A table and its moments as one, so that what a step needs of a row is fetched at once.  (n, 3, dim)

    The moments stay there from epoch to epoch: what torch has of them are views.
    """
    (n, dim), state = table.shape, moments_of(table, optimiser)
    mean = state[MEAN]
    if mean.stride(0) == 3 * dim:
        rows = mean.as_strided((n, 3, dim), (3 * dim, dim, 1), mean.storage_offset() - dim)
    else:
        rows = torch.from_numpy(np.empty((n, 3, dim), dtype=table.detach().numpy().dtype))
        for number, name in enumerate((MEAN, SQUARE), start=1):
            rows[:, number] = state[name]
            state[name] = rows[:, number]
    rows[:, 0] = table.detach()
    return rows.numpy()


def train_shared_rows(
    is_bpr: bool, users: "Side", items: "Side", bias: Array, adam: "LazyAdam", step: int, chunk: Chunk
) -> float:
    """As `kernels.pair_rows.train_rows`, where each of several processes has some of a batch's pairs.

    Users are each process's own. The items that a batch touches are those of any process, in one order for all, so that
    their gradients are rows of one small table that is summed.
    """
    from divmf.kernels.pair_rows import batch_gradients, step_rows

    total = 0.0
    theirs = comm.gathered_rows(np.column_stack([chunk.met, chunk.unmet])), comm.gathered(chunk.bounds)
    for number, batch in enumerate(chunk.batches(), start=1):
        ids = [rows[ends[number - 1] : ends[number]].ravel() for rows, ends in zip(*theirs, strict=True)]
        elsewhere = np.concatenate(ids)
        loss, n_users, n_items = batch_gradients(is_bpr, users, items, bias, adam, step + number, elsewhere, batch)
        comm.all_reduce(items.touched.gradient[:n_items])
        step_rows(users, n_users, adam.done + step + number, adam)
        step_rows(items, n_items, adam.done + step + number, adam)
        total += loss
    return total


def tables_of(model: MF) -> Tables:
    """The parameters of a model as arrays that share their memory."""
    return Tables(*(table.detach().numpy() for table in (model.users, model.items, model.bias)))


def moments_of(table: Tensor, optimiser: torch.optim.Adam) -> dict[str, Tensor]:
    """What torch keeps of Adam for a table; zeros at first."""
    state: dict[str, Tensor] = optimiser.state[table]
    if not state:
        state["step"] = torch.tensor(0.0)
        for moment in (MEAN, SQUARE):  # numpy asks for large pages, where rows far apart are found sooner
            state[moment] = torch.from_numpy(np.zeros_like(table.detach().numpy()))
    return state


def steps_done(model: MF, optimiser: torch.optim.Adam) -> int:
    """How many steps Adam has made."""
    return int(optimiser.state[model.users]["step"])


def count_steps(model: MF, optimiser: torch.optim.Adam, done: int) -> None:
    """Say how many steps Adam has made."""
    for table in (model.users, model.items):
        optimiser.state[table]["step"].fill_(done)
