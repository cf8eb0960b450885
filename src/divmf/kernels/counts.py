"""Counting over lists: which positions hold a wanted item, how often each item is recommended.

In one thread: a pass over a million lists takes milliseconds, as long as threads take to start on a busy machine.
"""

from numba import njit

from divmf.engine.arrays import Array


@njit(cache=True)
def _holds(items: Array, start: int, end: int, item: int) -> bool:
    """Whether the sorted items[start:end] hold the item."""
    while end - start > 4:
        middle = (start + end) // 2
        if items[middle] <= item:
            start = middle
        else:
            end = middle
    for position in range(start, end):  # noqa: SIM110 (numba has no any())
        if items[position] == item:
            return True
    return False


@njit(cache=True)
def mark(lists: Array, offsets: Array, items: Array, found: Array) -> None:
    """found[r, p] = whether row r of a sorted CSR matrix (offsets, items) holds lists[r, p]."""
    width = min(lists.shape[1], found.shape[1])
    for row in range(lists.shape[0]):
        start, end = offsets[row], offsets[row + 1]
        for position in range(width):
            found[row, position] = _holds(items, start, end, lists[row, position])


@njit(cache=True)
def row_sums(marks: Array, values: Array, sums: Array) -> None:
    """sums[r] = the sum of values[p] over the marked positions p of row r: marks @ values, marks being bool."""
    for row in range(marks.shape[0]):
        total = 0.0
        for position in range(marks.shape[1]):
            total += values[position] if marks[row, position] else 0.0
        sums[row] = total


@njit(cache=True)
def add_counts(lists: Array, weights: Array, counts: Array) -> None:
    """counts[i] += weights[r] for each item i of each list r; −1 is no item."""
    for row in range(lists.shape[0]):
        weight = weights[row]
        if weight != 0:
            for position in range(lists.shape[1]):
                item = lists[row, position]
                if item >= 0:
                    counts[item] += weight


@njit(cache=True)
def list_means(lists: Array, values: Array, means: Array) -> None:
    """means[r] = the mean of values[i] over the items i of list r; 0 of none."""
    for row in range(lists.shape[0]):
        total = 0.0
        size = 0
        for position in range(lists.shape[1]):
            item = lists[row, position]
            if item >= 0:
                total += values[item]
                size += 1
        means[row] = total / size if size else 0.0


@njit(cache=True)
def weighted_sum(values: Array, counted: Array, weights: Array) -> tuple[float, float]:
    """Σ w v and Σ w over the lists that count. Summed in one fixed order, so equal lists give equal bits."""
    total = 0.0
    weight = 0
    for row in range(values.shape[0]):
        if counted[row]:
            total += weights[row] * values[row]
            weight += weights[row]
    return total, float(weight)
