"""Greedy rounds over score, entropy and coverage, for the reranker `popcon`."""

import numpy as np
from numba import njit

from divmf.engine.arrays import Array


@njit(cache=True)
def _x_log_x(x: float) -> float:
    return x * np.log(x) if x > 0 else 0.0


@njit(cache=True)
def popcon_columns(users: Array, items: Array, a: Array, n_items: int) -> Array:
    """Lists of columns (n_lists, k): in round t the users in the order users[t] take their best candidate."""
    k = len(users)
    columns = np.full((len(items), k), -1)
    taken = np.zeros(items.shape, dtype=np.bool_)
    counts = np.zeros(n_items)
    total, mass = 0, 0.0  # Σ f and Σ f log f: the entropy is log total − mass / total
    log_n = np.log(max(n_items, 2))
    for rank in range(k):
        for user in users[rank]:
            entropy = np.log(total) - mass / total if total else 0.0
            chosen, most = -1, -np.inf
            for column in range(items.shape[1]):
                item = items[user, column]
                if item < 0:
                    break
                if taken[user, column]:
                    continue
                f = counts[item]
                added = np.log(total + 1) - (mass - _x_log_x(f) + _x_log_x(f + 1)) / (total + 1) - entropy
                gain = added / log_n + (1 / n_items if f == 0 else 0.0)
                value = a[user, column] + (1 - a[user, column]) * gain
                if value > most:
                    chosen, most = column, value
            if chosen >= 0:
                f = counts[items[user, chosen]]
                mass += _x_log_x(f + 1) - _x_log_x(f)
                total += 1
                counts[items[user, chosen]] += 1
                taken[user, chosen] = True
                columns[user, rank] = chosen
    return columns
