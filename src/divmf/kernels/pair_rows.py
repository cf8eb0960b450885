"""Adam on the rows a batch touches, with what it would have done to them while they were not touched, in closed form.

A row without gradient for n steps after step s: its mean falls as β₁ⁿ, its square as β₂ⁿ, and its values move on by

    rate · mean / √square · Σ_{j=1…n} ρʲ c(s + j),   ρ = β₁ / √β₂,   c(t) = √(1 − β₂ᵗ) / (1 − β₁ᵗ)

which is T(s) − ρⁿ T(s + n) with the tail T(s) = Σ_{j≥1} ρʲ c(s + j). So rows are brought up to date when a batch needs
them, the batch is a step on a small model of these rows alone, and its cost does not depend on how many others there
are. In the steps between, L2 is left out (docs/method.md), and Adam's ε counts as at step s. A test holds this equal to
`torch.optim.Adam`.
"""

from typing import Any

import numpy as np
from numba import njit

from divmf.ids import Array
from divmf.kernels.pairs import BETA_1, BETA_2, EPSILON, adam_flat, add_gradients

RATIO = BETA_1 / np.sqrt(BETA_2)
NEGLIGIBLE = 1e-30  # a mean that has fallen so far is zero; smaller numbers are slow to compute with

Rows = tuple[Array, Array, Array]  # values, mean and square of the gradient: each (n, dim)
Seen = tuple[Array, Array]  # (n, 2): step of a row's last update, its place in that batch
Fading = tuple[Array, Array, Array, Array, Array]  # T(s) and ε of every step s; β₁ⁿ, β₂ⁿ, ρⁿ of every gap n


def fading(done: int, n_steps: int, dtype: Any) -> Fading:
    """What is left of the way to go, of a mean and of a square, for the steps done + 1 … done + n_steps."""
    step = done + np.arange(1, n_steps + 502, dtype=np.float64)  # ρ to the power 500 is nothing
    correction = np.sqrt(1 - BETA_2**step) / (1 - BETA_1**step)
    tail = np.zeros(len(step) + 1)
    for place in range(len(step) - 1, -1, -1):
        tail[place] = RATIO * (correction[place] + tail[place + 1])
    gaps = np.arange(n_steps + 1, dtype=np.float64)
    mean, square = (np.where(base**gaps < NEGLIGIBLE, 0.0, base**gaps).astype(dtype) for base in (BETA_1, BETA_2))
    epsilon = EPSILON * np.sqrt(1 - BETA_2 ** step[: n_steps + 1])
    return tail[: n_steps + 1], epsilon.astype(dtype), mean, square, RATIO**gaps


@njit(cache=True)
def _number(ids: Array, seen: Array, step: int, touched: Array, gaps: Array, count: int, places: Array) -> int:
    """places = where each of the rows stands among those this step touches; how many there are, with the new ones."""
    for number in range(len(ids)):
        row = ids[number]
        if seen[row, 0] != step:
            touched[count], gaps[count] = row, step - 1 - seen[row, 0]
            seen[row, 0], seen[row, 1] = step, count
            count += 1
        places[number] = seen[row, 1]
    return count


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def _up_to_date(rows: Rows, touched: Array, gaps: Array, step: int, rate: float, fading: Fading, out: Rows) -> None:
    """out = the rows touched as they are at the end of a step; they were last updated `gaps` steps before."""
    values, means, squares = rows
    new_values, new_means, new_squares = out
    tail, epsilons, fallen, fallen_square, ratio = fading
    dim = values.shape[1]
    for place in range(len(touched)):
        row, gap = touched[place], gaps[place]
        way = values.dtype.type(rate * (tail[step - gap] - ratio[gap] * tail[step]))
        epsilon, mean_left, square_left = epsilons[step - gap], fallen[gap], fallen_square[gap]
        # a loop for each array: the more of them in one, the longer it takes to see that they do not overlap
        for d in range(dim):
            new_values[place, d] = values[row, d] - way * means[row, d] / (np.sqrt(squares[row, d]) + epsilon)
        for d in range(dim):
            new_means[place, d] = mean_left * means[row, d]
        for d in range(dim):
            new_squares[place, d] = square_left * squares[row, d]


@njit(cache=True)
def _put_back(rows: Rows, touched: Array, batch: Rows) -> None:
    """rows[touched] = batch."""
    for place in range(len(touched)):
        row = touched[place]
        for d in range(rows[0].shape[1]):
            rows[0][row, d] = batch[0][place, d]
        for d in range(rows[0].shape[1]):
            rows[1][row, d] = batch[1][place, d]
        for d in range(rows[0].shape[1]):
            rows[2][row, d] = batch[2][place, d]


@njit(cache=True)
def _adam_rows(rows: Rows, touched: Array, batch: Rows, gradient: Array, step: int, rate: float, l2: float) -> None:
    """A step of Adam on the rows of a batch, put back where they come from; the gradient is left at zero."""
    size = len(touched) * gradient.shape[1]
    values, mean, square = batch
    adam_flat(
        values.ravel()[:size], gradient.ravel()[:size], mean.ravel()[:size], square.ravel()[:size], step, rate, l2
    )
    _put_back(rows, touched, batch)


@njit(cache=True)
def _scratch(most: int, like: Array) -> Any:
    """Room for a batch: the rows with their moments, their gradient, their numbers and the gaps before them."""
    shape = (most, like.shape[1])
    rows = (np.empty(shape, like.dtype), np.empty(shape, like.dtype), np.empty(shape, like.dtype))
    return rows, np.zeros(shape, like.dtype), np.empty(most, np.int64), np.empty(most, np.int64)


@njit(cache=True, nogil=True)
def train_rows(
    is_bpr: bool, users: Rows, items: Rows, bias: Array, seen: Seen, fading: Fading, done: int, step: int,
    rate: float, l2: float, size: int, user_of: Array, met: Array, unmet: Array,
) -> float:  # fmt: skip
    """A step of Adam for each `size` of the pairs, on the rows they touch; the sum of their losses.

    seen   when users and items were last updated, in steps of this epoch
    done   steps before this epoch; `step` of them came since
    """
    each = unmet.shape[1]
    some_users, user_gradient, touched_users, user_gaps = _scratch(size, users[0])
    some_items, item_gradient, touched_items, item_gaps = _scratch(size * (1 + each), items[0])
    user_place, met_place, unmet_place = (
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty((size, each), np.int64),
    )
    total = 0.0
    for first in range(0, len(user_of), size):
        pairs = slice(first, min(first + size, len(user_of)))
        step += 1
        n_users = _number(user_of[pairs], seen[0], step, touched_users, user_gaps, 0, user_place)
        n_items = _number(met[pairs], seen[1], step, touched_items, item_gaps, 0, met_place)
        drawn = unmet[pairs].ravel()
        n_items = _number(drawn, seen[1], step, touched_items, item_gaps, n_items, unmet_place.ravel())
        which_users, which_items = touched_users[:n_users], touched_items[:n_items]
        _up_to_date(users, which_users, user_gaps, step - 1, rate, fading, some_users)
        _up_to_date(items, which_items, item_gaps, step - 1, rate, fading, some_items)
        total += add_gradients(
            is_bpr, some_users[0], some_items[0], bias[which_items], (user_gradient, item_gradient),
            user_place, met_place, unmet_place, 0, pairs.stop - first,
        )  # fmt: skip
        _adam_rows(users, which_users, some_users, user_gradient, done + step, rate, l2)
        _adam_rows(items, which_items, some_items, item_gradient, done + step, rate, l2)
    return total


@njit(cache=True, nogil=True)
def settle(rows: Rows, seen: Array, step: int, rate: float, fading: Fading, first: int, last: int) -> None:
    """Bring the rows first … last − 1 to the end of a step, as Adam on all rows would have them there."""
    some = (rows[0][first:last], rows[1][first:last], rows[2][first:last])
    _up_to_date(some, np.arange(last - first), step - seen[first:last, 0], step, rate, fading, some)
    seen[first:last, 0] = step
