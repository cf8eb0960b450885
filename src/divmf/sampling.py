"""What a training step looks at: shuffled positives with negatives, or blocks of users × items."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from divmf import comm
from divmf.ids import Array
from divmf.interactions import Interactions
from divmf.threads import Place, ahead

BITS = 1 << 26  # bytes that a table of who has met what may take, a bit each; beyond, rows are searched
SLAB, SLABS = 1 << 14, 16  # pairs drawn at a time: enough that threads seldom meet, but an epoch has several
SHUFFLED = 1 << 23  # up to so many, each process draws the order of all; of more, the places of its own


def draw_key(rng: np.random.Generator) -> int:
    """A key for draws that belong to a place (`kernels.draw`)."""
    return int(rng.integers(0, 2**63))


class Batches(NamedTuple):
    """What one process has of random batches of a size.

    order    (n,) its numbers, from 0, batch by batch
    bounds   (n_batches + 1,) where in `order` the batches begin; they are those of all processes, so some may be empty
    places   (n,) with `first` added, what a draw for each of them belongs to: the same for any number of processes
    """

    order: Array
    bounds: Array
    places: Array
    first: int


def dealt(n: int, size: int, rng: np.random.Generator, place: Place) -> Batches:
    """All numbers below place.whole, dealt into batches; what is in them of the n of this process."""
    from divmf.kernels.shuffle import shuffled_batches

    first, whole, _ = place
    if whole > SHUFFLED:
        order, bounds = shuffled_batches(first, n, whole, size, draw_key(rng))
        return Batches(order, bounds, order, first)
    shuffled = np.arange(whole, dtype=np.int32)
    rng.shuffle(shuffled)
    if n == whole:
        return Batches(shuffled, np.append(np.arange(0, whole, size), whole), np.arange(whole, dtype=np.int32), 0)
    places = np.flatnonzero((shuffled >= first) & (shuffled < first + n))
    bounds = np.searchsorted(places, np.append(np.arange(0, whole, size), whole))
    return Batches(shuffled[places] - first, bounds, places, 0)


class Slab(NamedTuple):
    """Some batches of pairs, one behind the other.

    users, met   (n,)
    unmet        items not met, (n, negatives)
    bounds       where the batches begin, and where the last one ends; with several processes, one may be empty
    """

    users: Array
    met: Array
    unmet: Array
    bounds: Array

    def batches(self) -> Iterator[tuple[Array, Array, Array]]:
        """The pairs of each batch."""
        for first, last in pairwise(self.bounds):
            yield self.users[first:last], self.met[first:last], self.unmet[first:last]


def slabs(train: Interactions, size: int, negatives: int, rng: np.random.Generator) -> Iterator[Slab]:
    """All pairs once, in random batches of `size`, many batches at a time.

    Of several processes, each has the pairs of its own users of every batch. A draw belongs to a pair, or to its place
    in the order, so nothing of it depends on how many processes, threads or batches there are.
    """
    from divmf.kernels.draw import mark
    from divmf.kernels.draw import negatives as draw_negatives

    matrix = train.matrix
    order, bounds, places, first = dealt(len(train), size, rng, comm.place(len(train)))
    key, row = draw_key(rng), (train.n_items + 7) // 8
    met = np.zeros((train.n_users, row) if train.n_users * row <= BITS else (0, 0), dtype=np.uint8)
    mark(matrix.indptr, matrix.indices, met)
    at_once = max(1, min(SLAB // size, (len(bounds) - 1) // SLABS))

    def draw(batch: int) -> Slab:
        own = bounds[batch : batch + at_once + 1]
        chosen, where = order[own[0] : own[-1]], places[own[0] : own[-1]]
        users, items = train.users[chosen], train.items[chosen]
        drawn = np.empty((len(chosen), negatives), dtype=items.dtype)
        draw_negatives(users, items, where, first, matrix.indptr, matrix.indices, met, train.n_items, key, drawn)
        return Slab(users, items, drawn, own - own[0])

    yield from ahead(draw, range(0, len(bounds) - 1, at_once))


def submatrices(
    n_users: int, n_items: int, rows: int | None, columns: int | None, rng: np.random.Generator,
    place: Place | None = None,
) -> Iterator[tuple[Array, Array | None]]:  # fmt: skip
    """Mini-batches of Sec. 3.3.3: every (block of users, block of items) once, both shuffled; None = all items.

    place: where these users stand among those of all processes; a block is of all of them, its users are one's own
    """
    place = place or Place(0, n_users, 1)
    rows, columns = min(rows or place.whole, place.whole), min(columns or n_items, n_items)
    order, bounds = np.arange(n_users), np.array([0, n_users])
    if rows < place.whole:
        order, bounds, *_ = dealt(n_users, rows, rng, place)
    for start, end in pairwise(bounds):
        block = np.sort(order[start:end]).astype(np.int64)
        if columns == n_items:
            yield block, None
            continue
        items = rng.permutation(n_items)
        for first_item in range(0, n_items, columns):
            yield block, np.sort(items[first_item : first_item + columns])
