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
from divmf.kernels.pairs import BETA_1, BETA_2, EPSILON, add_gradients
from divmf.kernels.prefetch import AHEAD, prefetch

RATIO = BETA_1 / np.sqrt(BETA_2)
NEGLIGIBLE = 1e-30  # a mean that has fallen so far is zero; smaller numbers are slow to compute with

Rows = Array  # values, mean and square of the gradient, side by side: (n, 3, dim)
Seen = tuple[Array, Array]  # (n, 2): step of a row's last update, its position in that batch
LazyDecay = tuple[Array, Array, Array, Array, Array]  # T(s) and ε of every step s; β₁ⁿ, β₂ⁿ, ρⁿ of every gap n


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
    return tail[: n_steps + 1], epsilon.astype(dtype), mean, square, RATIO**gaps


@njit(cache=True)
def _number(ids: Array, seen: Array, step: int, touched: Array, gaps: Array, count: int, positions: Array) -> int:
    """positions = where each row stands among those this step touches; how many there are, with the new ones."""
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
def _fetch(rows: Rows, touched: Array, gaps: Array, step: int, rate: float, lazy: LazyDecay, now: Array) -> None:
    """now = the values of the rows touched at the end of a step; they were last updated `gaps` steps before."""
    tail, epsilons, _, _, ratio = lazy
    for position in range(len(touched)):
        if position + AHEAD < len(touched):
            prefetch(rows, touched[position + AHEAD])
        row, gap = touched[position], gaps[position]
        if gap == 0:
            for d in range(rows.shape[2]):
                now[position, d] = rows[row, 0, d]
            continue
        way = rows.dtype.type(rate * (tail[step - gap] - ratio[gap] * tail[step]))
        epsilon = epsilons[step - gap]
        for d in range(rows.shape[2]):
            now[position, d] = rows[row, 0, d] - way * rows[row, 1, d] / (np.sqrt(rows[row, 2, d]) + epsilon)


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def _step(
    rows: Rows, touched: Array, gaps: Array, now: Array, gradient: Array, step: int, rate: float, l2: float,
    lazy: LazyDecay,
) -> None:  # fmt: skip
    """A step of Adam, the step-th of all, on the rows touched, from `now` on; the gradient is left at zero."""
    _, _, mean_decay, square_decay, _ = lazy
    number = rows.dtype.type
    scale, correction = number(rate / (1 - BETA_1**step)), number(1 / np.sqrt(1 - BETA_2**step))
    new, new_square, epsilon, decay = number(1 - BETA_1), number(1 - BETA_2), number(EPSILON), number(l2)
    for position in range(len(touched)):
        if position + AHEAD < len(touched):
            prefetch(rows, touched[position + AHEAD])
        row, left, left_square = touched[position], mean_decay[gaps[position] + 1], square_decay[gaps[position] + 1]
        for d in range(rows.shape[2]):
            slope = gradient[position, d] + decay * now[position, d]
            gradient[position, d] = 0
            mean = left * rows[row, 1, d] + new * slope
            square = left_square * rows[row, 2, d] + new_square * slope * slope
            rows[row, 1, d], rows[row, 2, d] = mean, square
            rows[row, 0, d] = now[position, d] - scale * mean / (np.sqrt(square) * correction + epsilon)


class Touched(NamedTuple):
    """Room for the rows a batch touches: which they are, the steps since they were last, their values, their gradient.

    The gradient is zero between batches.
    """

    rows: Array
    gaps: Array
    now: Array
    gradient: Array


def room_for(most: int, like: Array) -> Touched:
    """Room for so many rows of a table."""
    shape = (most, like.shape[-1])
    rows, gaps = np.empty((2, most), dtype=np.int64)
    return Touched(rows, gaps, np.empty(shape, like.dtype), np.zeros(shape, like.dtype))


@njit(cache=True, nogil=True)
def batch_gradients(
    is_bpr: bool, users: Rows, items: Rows, bias: Array, seen: Seen, lazy: LazyDecay, step: int, rate: float,
    some_users: Touched, some_items: Touched, elsewhere: Array, user_of: Array, met: Array, unmet: Array,
) -> tuple[float, int, int]:  # fmt: skip
    """The loss of a batch, and how many users and items it touches; `some_users` and `some_items` then hold them.

    step        how many steps of this epoch are done with this one
    elsewhere   items that the batch touches in any process, in the same order for all of them; none for one process
    """
    size = len(met)
    user_position, met_position, unmet_position = (
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(unmet.shape, np.int64),
    )
    n_users = _number(user_of, seen[0], step, some_users.rows, some_users.gaps, 0, user_position)
    n_items = _number(elsewhere, seen[1], step, some_items.rows, some_items.gaps, 0, np.empty(len(elsewhere), np.int64))
    n_items = _number(met, seen[1], step, some_items.rows, some_items.gaps, n_items, met_position)
    n_items = _number(unmet.ravel(), seen[1], step, some_items.rows, some_items.gaps, n_items, unmet_position.ravel())
    which_items = some_items.rows[:n_items]
    _fetch(users, some_users.rows[:n_users], some_users.gaps, step - 1, rate, lazy, some_users.now)
    _fetch(items, which_items, some_items.gaps, step - 1, rate, lazy, some_items.now)
    loss = add_gradients(
        is_bpr, some_users.now, some_items.now, bias[which_items], (some_users.gradient, some_items.gradient),
        user_position, met_position, unmet_position,
    )  # fmt: skip
    return loss, n_users, n_items


@njit(cache=True, nogil=True)
def step_rows(rows: Rows, touched: Touched, count: int, step: int, rate: float, l2: float, lazy: LazyDecay) -> None:
    """A step of Adam, the step-th of all, on the first `count` rows touched."""
    _step(rows, touched.rows[:count], touched.gaps, touched.now, touched.gradient, step, rate, l2, lazy)


@njit(cache=True, nogil=True)
def train_rows(
    is_bpr: bool, users: Rows, items: Rows, bias: Array, seen: Seen, lazy: LazyDecay, done: int, step: int,
    rate: float, l2: float, some_users: Touched, some_items: Touched, user_of: Array, met: Array, unmet: Array,
    bounds: Array,
) -> float:  # fmt: skip
    """A step of Adam for each batch of the pairs, on the rows they touch; the sum of their losses.

    seen   when users and items were last updated, in steps of this epoch
    done   steps before this epoch; `step` of them came since
    """
    total, nothing = 0.0, met[:0]
    for batch in range(len(bounds) - 1):
        pairs = slice(bounds[batch], bounds[batch + 1])
        step += 1
        loss, n_users, n_items = batch_gradients(
            is_bpr, users, items, bias, seen, lazy, step, rate, some_users, some_items, nothing,
            user_of[pairs], met[pairs], unmet[pairs],
        )  # fmt: skip
        total += loss
        step_rows(users, some_users, n_users, done + step, rate, l2, lazy)
        step_rows(items, some_items, n_items, done + step, rate, l2, lazy)
    return total


@njit(cache=True, nogil=True)
def catch_up(
    values: Array, rows: Rows, seen: Array, step: int, rate: float, lazy: LazyDecay, first: int, last: int
) -> None:
    """values, and the moments in rows = those of first … last − 1 at the end of a step, as by Adam on all rows."""
    _, _, mean_decay, square_decay, _ = lazy
    gaps = step - seen[first:last, 0]
    _fetch(rows, np.arange(first, last), gaps, step, rate, lazy, values[first:last])
    for row in range(first, last):
        gap = gaps[row - first]
        for d in range(values.shape[1]):
            rows[row, 1, d] *= mean_decay[gap]
            rows[row, 2, d] *= square_decay[gap]
