"""Adam on the rows a batch touches, with what it would have done to them while they were not touched, in closed form.

A row without gradient for n steps after step s: its mean falls as β₁ⁿ, its square as β₂ⁿ, and its values move on by

    rate · mean / √square · Σ_{j=1…n} ρʲ c(s + j),   ρ = β₁ / √β₂,   c(t) = √(1 − β₂ᵗ) / (1 − β₁ᵗ)

which is T(s) − ρⁿ T(s + n) with the tail T(s) = Σ_{j≥1} ρʲ c(s + j). So rows are brought up to date when a batch needs
them, the batch is a step on a small model of these rows alone, and its cost does not depend on how many others there
are. In the steps between, L2 is left out (docs/method.md), and Adam's ε counts as at step s. A test holds this equal to
`torch.optim.Adam`.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from divmf.engine.arrays import Array
from divmf.kernels.batches import Batch, Chunk, Gradients, Tables
from divmf.kernels.pairs import BETA_1, BETA_2, EPSILON, add_gradients
from divmf.kernels.prefetch import AHEAD, prefetch

RATIO = BETA_1 / np.sqrt(BETA_2)
NEGLIGIBLE = 1e-30  # a mean that has fallen so far is zero; smaller numbers are slow to compute with

Rows = Array  # values, mean and square of the gradient, side by side: (n, 3, dim)


class LazyDecay(NamedTuple):
    """What is left after steps without a gradient.

    tails, epsilons       T(s) and ε of every step s
    mean, square, ratio   β₁ⁿ, β₂ⁿ and ρⁿ of every gap n
    """

    tails: Array
    epsilons: Array
    mean: Array
    square: Array
    ratio: Array


class LazyAdam(NamedTuple):
    """How Adam steps: its rate, λ, the steps before this epoch, and what is left of rows that were not touched."""

    rate: float
    l2: float
    done: int
    decay: LazyDecay


class Touched(NamedTuple):
    """Room for the rows a batch touches: which they are, the steps since they were last, their values, their gradient.

    The gradient is zero between batches.
    """

    rows: Array
    gaps: Array
    now: Array
    gradient: Array


class Side(NamedTuple):
    """Users or items.

    rows      their values and moments
    seen      (n, 2): the step of this epoch in which a row was last updated, and its position in that batch
    touched   room for those of a batch
    """

    rows: Rows
    seen: Array
    touched: Touched


def lazy_decay(done: int, n_steps: int, dtype: Any) -> LazyDecay:
    """What is left of the way to go, of a mean and of a square, for the steps done + 1 … done + n_steps."""
    step = done + np.arange(1, n_steps + 502, dtype=np.float64)  # ρ to the power 500 is nothing
    correction = np.sqrt(1 - BETA_2**step) / (1 - BETA_1**step)
    tail = np.zeros(len(step) + 1)
    for position in range(len(step) - 1, -1, -1):
        tail[position] = RATIO * (correction[position] + tail[position + 1])
    gaps = np.arange(n_steps + 2, dtype=np.float64)
    mean, square = (np.where(base**gaps < NEGLIGIBLE, 0.0, base**gaps).astype(dtype) for base in (BETA_1, BETA_2))
    epsilon = EPSILON * np.sqrt(1 - BETA_2 ** step[: n_steps + 1])
    return LazyDecay(tail[: n_steps + 1], epsilon.astype(dtype), mean, square, RATIO**gaps)


def side_of(rows: Rows, most: int) -> Side:
    """Users or items at the beginning of an epoch, with room for so many rows in a batch."""
    shape = (most, rows.shape[-1])
    numbers, gaps = np.empty((2, most), dtype=np.int64)
    room = Touched(numbers, gaps, np.empty(shape, rows.dtype), np.zeros(shape, rows.dtype))
    return Side(rows, np.zeros((len(rows), 2), dtype=np.int32), room)


@njit(cache=True)
def _number(ids: Array, side: Side, step: int, count: int, positions: Array) -> int:
    """positions = where each row stands among those this step touches; how many there are, with the new ones."""
    seen, touched, gaps = side.seen, side.touched.rows, side.touched.gaps
    for number in range(len(ids)):
        if number + AHEAD < len(ids):
            prefetch(seen, ids[number + AHEAD])
        row = ids[number]
        if seen[row, 0] != step:
            touched[count], gaps[count] = row, step - 1 - seen[row, 0]
            seen[row, 0], seen[row, 1] = step, count
            count += 1
        positions[number] = seen[row, 1]
    return count


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def _fetch(rows: Rows, touched: Array, gaps: Array, step: int, adam: LazyAdam, now: Array) -> None:
    """now = the values of the rows touched at the end of a step; they were last updated `gaps` steps before."""
    tails, epsilons, _, _, ratio = adam.decay
    for position in range(len(touched)):
        if position + AHEAD < len(touched):
            prefetch(rows, touched[position + AHEAD])
        row, gap = touched[position], gaps[position]
        if gap == 0:
            for d in range(rows.shape[2]):
                now[position, d] = rows[row, 0, d]
            continue
        way = rows.dtype.type(adam.rate * (tails[step - gap] - ratio[gap] * tails[step]))
        epsilon = epsilons[step - gap]
        for d in range(rows.shape[2]):
            now[position, d] = rows[row, 0, d] - way * rows[row, 1, d] / (np.sqrt(rows[row, 2, d]) + epsilon)


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def step_rows(side: Side, count: int, step: int, adam: LazyAdam) -> None:
    """A step of Adam, the step-th of all, on the first `count` rows touched; their gradient is left at zero."""
    rows, (touched, gaps, now, gradient), decay = side.rows, side.touched, adam.decay
    number = rows.dtype.type
    scale, correction = number(adam.rate / (1 - BETA_1**step)), number(1 / np.sqrt(1 - BETA_2**step))
    new, new_square, epsilon, l2 = number(1 - BETA_1), number(1 - BETA_2), number(EPSILON), number(adam.l2)
    for position in range(count):
        if position + AHEAD < count:
            prefetch(rows, touched[position + AHEAD])
        row, left, left_square = touched[position], decay.mean[gaps[position] + 1], decay.square[gaps[position] + 1]
        for d in range(rows.shape[2]):
            slope = gradient[position, d] + l2 * now[position, d]
            gradient[position, d] = 0
            mean = left * rows[row, 1, d] + new * slope
            square = left_square * rows[row, 2, d] + new_square * slope * slope
            rows[row, 1, d], rows[row, 2, d] = mean, square
            rows[row, 0, d] = now[position, d] - scale * mean / (np.sqrt(square) * correction + epsilon)


@njit(cache=True, nogil=True)
def batch_gradients(
    is_bpr: bool, users: Side, items: Side, bias: Array, adam: LazyAdam, step: int, elsewhere: Array, batch: Batch
) -> tuple[float, int, int]:
    """The loss of a batch, and how many users and items it touches; users.touched and items.touched then hold them.

    step        how many steps of this epoch are done with this one
    elsewhere   items that the batch touches in any process, in the same order for all of them; none for one process
    """
    size = len(batch.met)
    user_position, met_position = np.empty(size, np.int64), np.empty(size, np.int64)
    unmet_position = np.empty(batch.unmet.shape, np.int64)
    n_users = _number(batch.users, users, step, 0, user_position)
    n_items = _number(elsewhere, items, step, 0, np.empty(len(elsewhere), np.int64))
    n_items = _number(batch.met, items, step, n_items, met_position)
    n_items = _number(batch.unmet.ravel(), items, step, n_items, unmet_position.ravel())
    which_items = items.touched.rows[:n_items]
    _fetch(users.rows, users.touched.rows[:n_users], users.touched.gaps, step - 1, adam, users.touched.now)
    _fetch(items.rows, which_items, items.touched.gaps, step - 1, adam, items.touched.now)
    loss = add_gradients(
        is_bpr,
        Tables(users.touched.now, items.touched.now, bias[which_items]),
        Gradients(users.touched.gradient, items.touched.gradient),
        Batch(user_position, met_position, unmet_position),
    )
    return loss, n_users, n_items


@njit(cache=True, nogil=True)
def train_rows(is_bpr: bool, users: Side, items: Side, bias: Array, adam: LazyAdam, step: int, chunk: Chunk) -> float:
    """A step of Adam for each batch of a chunk, on the rows they touch; the sum of their losses.

    step   steps of this epoch that are done
    """
    total, nothing = 0.0, chunk.met[:0]
    for number in range(len(chunk.bounds) - 1):
        pairs = slice(chunk.bounds[number], chunk.bounds[number + 1])
        batch = Batch(chunk.users[pairs], chunk.met[pairs], chunk.unmet[pairs])
        step += 1
        loss, n_users, n_items = batch_gradients(is_bpr, users, items, bias, adam, step, nothing, batch)
        total += loss
        step_rows(users, n_users, adam.done + step, adam)
        step_rows(items, n_items, adam.done + step, adam)
    return total


@njit(cache=True, nogil=True)
def catch_up(values: Array, side: Side, step: int, adam: LazyAdam, first: int, last: int) -> None:
    """values, and the moments in rows = those of first … last − 1 at the end of a step, as by Adam on all rows."""
    rows, gaps = side.rows, step - side.seen[first:last, 0]
    _fetch(rows, np.arange(first, last), gaps, step, adam, values[first:last])
    for row in range(first, last):
        gap = gaps[row - first]
        for d in range(values.shape[1]):
            rows[row, 1, d] *= adam.decay.mean[gap]
            rows[row, 2, d] *= adam.decay.square[gap]
