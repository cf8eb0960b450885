"""The candidates of two searches as one, compiled."""

from numba import njit

from divmf.kernels.market import Columns


@njit(cache=True, nogil=True)
def _comes_first(columns: Columns, candidate: int, others: Columns, other: int) -> bool:
    """Whether a candidate comes before another: by the higher value, of equals the lower number."""
    if columns.values[candidate] != others.values[other]:
        return bool(columns.values[candidate] > others.values[other])
    return bool(columns.items[candidate] < others.items[other])


@njit(cache=True, nogil=True)
def join(columns: Columns, others: Columns, joined: Columns) -> None:
    """The candidates of both, into `joined` from its starts on."""
    for user in range(len(columns.starts)):
        candidate, other, end = columns.starts[user], others.starts[user], joined.starts[user]
        while candidate < columns.ends[user] or other < others.ends[user]:
            rest = other < others.ends[user]
            if candidate < columns.ends[user] and (not rest or not _comes_first(others, other, columns, candidate)):
                same = rest and others.items[other] == columns.items[candidate]
                joined.items[end], joined.values[end] = columns.items[candidate], columns.values[candidate]
                joined.opens[end] = columns.opens[candidate] | (others.opens[other] if same else 0)
                candidate, other = candidate + 1, other + (1 if same else 0)
            else:
                joined.items[end], joined.values[end] = others.items[other], others.values[other]
                joined.opens[end] = others.opens[other]
                other += 1
            end += 1
        joined.ends[user] = end
