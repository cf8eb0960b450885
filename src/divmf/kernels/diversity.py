"""L_div and its gradient in two passes over rows of scores, a few rows at a time, that never leave the cache.

The same mathematics as `losses.score_gradient_`, proven equal by a test. Each pass takes a range of users from
beginning to end on one thread (see `divmf.engine.threads`); float32, but sums over users are float64.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.threads import RowRange, in_parts
from divmf.kernels.best import VECTOR, best_of_row, scratch_for
from divmf.kernels.rows import exp, exp_row, rows_at_once


class Block(NamedTuple):
    """Users and items whose L_div is wanted.

    users         vectors, (n_users, dim)
    items         vectors, (n_items, dim), and items_t their transpose, (dim, n_items), both contiguous
    bias          (n_items,)
    offsets, met  the items each user has seen, as a CSR matrix, and the score they get instead
    """

    users: Array
    items: Array
    items_t: Array
    bias: Array
    offsets: Array
    met: Array
    unreachable: np.float32


class Kept(NamedTuple):
    """What the first pass finds and the second one reads.

    items        (n_users, the larger of both): the items in T or read by Reg_skew, those of both first
    highest, z   (n_users,): the highest score m of each user, and Σ_j exp(r̂_j − m)
    """

    items: Array
    highest: Array
    z: Array


def gradient_of(
    block: Block, width: int, n_skewed: int, eps: float | None, span: RowRange | None = None
) -> tuple[float, Array, Array]:
    """L_div of a block with `width` items kept for each user; its gradient for the users and for the items.

    n_skewed   how many of the best scores Reg_skew reads, 0 without it
    eps        ε of Reg_cov, None without it
    span       where the block's users stand among those of all processes

    A loss that is no number comes without gradient. Sums over users, of all processes, are made part by part in a fixed
    order, so the number of threads does not change them.
    """
    n_users, n_items = len(block.users), len(block.items)
    kept = Kept(np.empty((n_users, max(width, n_skewed)), dtype=np.int32), *np.empty((2, n_users), dtype=np.float32))
    user_gradient = np.zeros_like(block.users)

    def mass_of(first: int, last: int) -> tuple[float, Array]:
        mass, at_once = np.zeros(n_items), rows_at_once(last - first, n_items)
        return mass_part(block, width, n_skewed, first, last, at_once, kept, mass), mass

    def share_of(first: int, last: int) -> Array:
        share, at_once = np.zeros_like(block.items_t), rows_at_once(last - first, n_items)
        gradient_part(block, width, n_skewed, first, last, at_once, kept, inverse, user_gradient, share)
        return share

    inverse = np.zeros(n_items)
    found = in_parts(mass_of, n_users, 8 * n_items, span)
    sums = np.zeros(1 if eps is None else 1 + n_items)  # Reg_skew, then c
    for skewness, mass in found:
        sums[0] += skewness
        sums[1:] += mass[: len(sums) - 1]
    comm.all_reduce(sums)
    loss = float(sums[0])
    if np.isnan(loss):
        return loss, user_gradient, np.zeros_like(block.items)
    if eps is not None:  # in the precision of T, so that it does not show in which order processes were added up
        mass = sums[1:].astype(np.float32).astype(np.float64)
        loss, inverse = loss - float(np.log(mass + eps).sum()), 1 / (mass + eps)
    item_gradient = comm.total_of_parts(in_parts(share_of, n_users, block.items.nbytes, span), block.items_t)
    return loss, user_gradient, np.ascontiguousarray(item_gradient.T)


@njit(cache=True, nogil=True, fastmath=VECTOR, error_model="numpy")
def _sum_exp(row: Array, highest: Any) -> Any:
    """Σ exp(row − highest)."""
    total = np.float32(0)
    for j in range(len(row)):
        total += exp(row[j] - highest)
    return total


_sum_exp.compile("float32(float32[::1], float32)")  # as `exp_row`: the same order of the sum for every caller


@njit(cache=True, nogil=True, fastmath=VECTOR, error_model="numpy")
def _add_bias(row: Array, bias: Array) -> bool:
    """row ← row + bias; whether all of it are numbers."""
    total = np.float32(0)
    for j in range(len(row)):
        row[j] += bias[j]
        total += row[j]
    return bool(np.isfinite(total))


@njit(cache=True, nogil=True, error_model="numpy")
def _skewness(values: Array) -> tuple[float, float]:
    """log Σ_i e^{x_i} of the values x, and Reg_skew of one row: Σ_i p_i log p_i with p = softmax(x)."""
    highest = values.max()
    total, mean = 0.0, 0.0
    for value in values:
        weight = np.exp(np.float64(value - highest))
        total += weight
        mean += weight * (value - highest)
    return highest + np.log(total), mean / total - np.log(total)


@njit(cache=True, nogil=True, error_model="numpy")
def mass_part(
    block: Block, width: int, n_skewed: int, first: int, last: int, at_once: int, kept: Kept, mass: Array
) -> float:
    """Pass 1 for users first … last−1: Reg_skew of them (NaN where a score is no number), and their share of c.

    width         how many of a user's items are in T
    n_skewed      how many of the best scores Reg_skew reads, 0 without it
    kept          written
    mass          added to: c_i = Σ_u t_ui.  (n_items,) float64
    """
    n_items = len(block.items)
    held = np.empty((at_once, n_items), dtype=np.float32)
    scratch = scratch_for(n_items)
    total = 0.0
    for start in range(first, last, at_once):
        rows = held[: min(at_once, last - start)]
        np.dot(block.users[start : start + len(rows)], block.items_t, rows)
        for r in range(len(rows)):
            row, user = rows[r], start + r
            if not _add_bias(row, block.bias):
                return np.nan
            for position in range(block.offsets[user], block.offsets[user + 1]):
                row[block.met[position]] = block.unreachable
            kept.highest[user] = best_of_row(row, min(width, n_skewed), kept.items[user], scratch)
            kept.z[user] = _sum_exp(row, kept.highest[user])
            for item in kept.items[user, :width]:
                mass[item] += exp(row[item] - kept.highest[user]) / kept.z[user]
            if n_skewed:
                total += _skewness(row[kept.items[user, :n_skewed]])[1]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _slope(
    row: Array, kept: Array, width: int, n_skewed: int, highest: Any, z: Any, inverse: Array, spread: Array
) -> Any:
    """row ← ∂L_div/∂r̂_u / w, for the scores r̂_u of one user; the number w.

    With E_j = exp(r̂_j − m), s = E/z and P = Σ_i s_i/(c_i + ε) over the kept items, ∂Reg_cov/∂r̂_j = s_j P, and
    − s_j/(c_j + ε) for those kept: w = P/z times E_j, and − E_j/(P(c_j + ε)).
    """
    if n_skewed:
        log_total, skewness = _skewness(row[kept[:n_skewed]])
        for number in range(n_skewed):
            log_p = row[kept[number]] - log_total
            spread[number] = np.exp(log_p) * (log_p - skewness)
    exp_row(row, highest)
    pull = 0.0
    for item in kept[:width]:
        pull += row[item] * inverse[item]
    if pull > 0:
        for item in kept[:width]:
            row[item] -= row[item] * inverse[item] * (z / pull)
        weight = pull / (z * z)
    else:  # without Reg_cov, or where ε leaves nothing of it
        row[:] = 0
        weight = 1.0
    for number in range(n_skewed):
        row[kept[number]] += spread[number] / weight
    return weight


@njit(cache=True, nogil=True, error_model="numpy")
def gradient_part(
    block: Block, width: int, n_skewed: int, first: int, last: int, at_once: int, kept: Kept, inverse: Array,
    user_gradient: Array, item_gradient: Array,
) -> None:  # fmt: skip
    """Pass 2 for users first … last−1: their gradient, and added to item_gradient their share of the items'.

    kept                as pass 1 wrote it
    inverse             1/(c_i + ε), or 0 without Reg_cov.  (n_items,) float64
    item_gradient       transposed, (dim, n_items): so the product is made in half the time
    """
    n_items, dim = block.items.shape
    held = np.empty((at_once, n_items), dtype=np.float32)
    pulled = np.empty((at_once, dim), dtype=np.float32)
    share = np.empty((dim, n_items), dtype=np.float32)
    weight, spread = np.empty(at_once, dtype=np.float32), np.empty(max(1, n_skewed), dtype=np.float32)
    for start in range(first, last, at_once):
        size = min(at_once, last - start)
        rows, weighted = held[:size], np.empty((dim, size), dtype=np.float32)
        np.dot(block.users[start : start + size], block.items_t, rows)
        for r in range(size):
            row, user = rows[r], start + r
            seen = block.met[block.offsets[user] : block.offsets[user + 1]]
            _add_bias(row, block.bias)
            for item in seen:
                row[item] = block.unreachable
            weight[r] = _slope(
                row, kept.items[user], width, n_skewed, kept.highest[user], kept.z[user], inverse, spread
            )
            for item in seen:  # matters for a user who has seen all of the block's items
                row[item] = 0
            for d in range(dim):
                weighted[d, r] = weight[r] * block.users[user, d]
        np.dot(rows, block.items, pulled[:size])
        for r in range(size):
            for d in range(dim):
                user_gradient[start + r, d] = weight[r] * pulled[r, d]
        np.dot(weighted, rows, share)
        item_gradient += share
