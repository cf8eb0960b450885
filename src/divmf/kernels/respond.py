"""Lists at fixed discounts, compiled: what each user takes where nobody else's list matters."""

import numpy as np
from numba import njit

from divmf.engine.arrays import Array
from divmf.kernels.market import ONE, Columns, Terms, best_list, desk_for, widest


@njit(cache=True, nogil=True)
def respond_part(
    columns: Columns, kind: int, first: int, last: int, terms: Terms, discount: Array, lists: Array
) -> None:
    """Fill the lists of users first … last−1 with those that are best at these discounts, −1 where there are too few.

    discount (n_items,): what a full showing of an item earns; lists (n_users, k)
    """
    k = len(terms.slots)
    desk, chosen = desk_for(widest(columns, first, last), k), np.empty(k, dtype=np.int64)
    for user in range(first, last):
        size = 0
        for at in range(columns.starts[user], columns.ends[user]):
            if columns.opens[at] & kind:
                desk.items[size], desk.values[size] = columns.items[at], columns.values[at]
                for r in range(k):
                    desk.gains[size, r] = discount[columns.items[at]] * (terms.exposure[r] / ONE)
                size += 1
        best_list(size, terms.slots, desk, chosen)
        for r in range(k):
            lists[user, r] = desk.items[chosen[r]] if chosen[r] >= 0 else -1
