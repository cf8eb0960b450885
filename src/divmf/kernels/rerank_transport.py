"""Scaling of rows and columns of a capped transport plan min(1, a_u · b_i · K_ui), for the reranker `sinkhorn`."""

from numba import njit, prange

from divmf.engine.arrays import Array


@njit(cache=True)
def _scale(values: Array, total: float) -> float:
    """The x with Σ min(1, x·value) = total; where total is all of them, the least x that brings each to 1."""
    if total >= len(values):
        return float(1 / values.min())
    x = total / values.sum()
    while True:
        n_capped, rest = 0, 0.0
        for value in values:
            if x * value >= 1:
                n_capped += 1
            else:
                rest += value
        better = (total - n_capped) / rest if rest > 0 else x
        if not better > x:
            return float(x)
        x = better


@njit(cache=True, parallel=True)
def scale_rows(kernel: Array, items: Array, column: Array, totals: Array, row: Array) -> None:
    """Set `row` so that each row of the plan has its total; kernel (n_lists, width)."""
    for user in prange(len(row)):
        length = 0
        while length < items.shape[1] and items[user, length] >= 0:
            length += 1
        if length:
            row[user] = _scale(kernel[user, :length] * column[items[user, :length]], totals[user])


@njit(cache=True, parallel=True)
def scale_columns(kernel: Array, users: Array, offsets: Array, row: Array, totals: Array, column: Array) -> None:
    """Set `column` so that each column has its total; kernel and users (n_pairs,), those of an item together."""
    for item in prange(len(column)):
        pairs = slice(offsets[item], offsets[item + 1])
        if offsets[item] < offsets[item + 1]:
            column[item] = _scale(kernel[pairs] * row[users[pairs]], totals[item])


@njit(cache=True, parallel=True)
def column_sums(kernel: Array, users: Array, offsets: Array, row: Array, column: Array) -> Array:
    """Σ_u of the plan; arguments as in `scale_columns`.  (n_items,)"""
    sums = column * 0
    for item in prange(len(column)):
        for pair in range(offsets[item], offsets[item + 1]):
            sums[item] += min(1.0, column[item] * row[users[pair]] * kernel[pair])
    return sums
