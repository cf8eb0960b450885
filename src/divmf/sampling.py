"""What a training step looks at: shuffled positives with negatives, or blocks of users × items."""

from collections.abc import Iterator

import numpy as np

from divmf.ids import Array
from divmf.interactions import Interactions
from divmf.threads import ahead

BITS = 1 << 26  # bytes that a table of who has met what may take, a bit each; beyond, rows are searched
SLAB = 1 << 14  # pairs drawn at a time: enough that threads seldom meet, and a small epoch has several


def draw_key(rng: np.random.Generator) -> int:
    """A key for draws that belong to a place (`kernels.draw`)."""
    return int(rng.integers(0, 2**63))


def slabs(
    train: Interactions, size: int, negatives: int, rng: np.random.Generator
) -> Iterator[tuple[Array, Array, Array]]:
    """All pairs once, in random order, many batches at a time: users (n,), items met (n,), not met (n, negatives)."""
    from divmf.kernels.draw import mark
    from divmf.kernels.draw import negatives as draw_negatives

    order, key, matrix = rng.permutation(len(train)), draw_key(rng), train.matrix
    row = (train.n_items + 7) // 8
    met = np.zeros((train.n_users, row) if train.n_users * row <= BITS else (0, 0), dtype=np.uint8)
    mark(matrix.indptr, matrix.indices, met)
    slab = size * max(1, SLAB // size)  # whole batches

    def draw(first: int) -> tuple[Array, Array, Array]:
        chosen = order[first : first + slab]
        users, items = train.users[chosen], train.items[chosen]
        drawn = np.empty((len(chosen), negatives), dtype=items.dtype)
        draw_negatives(users, items, first, matrix.indptr, matrix.indices, met, train.n_items, key, drawn)
        return users, items, drawn

    yield from ahead(draw, range(0, len(train), slab))


def submatrices(
    n_users: int, n_items: int, rows: int | None, columns: int | None, rng: np.random.Generator
) -> Iterator[tuple[Array, Array | None]]:
    """Mini-batches of Sec. 3.3.3: every (block of users, block of items) once, both shuffled; None = all items."""
    rows, columns = min(rows or n_users, n_users), min(columns or n_items, n_items)
    users = np.arange(n_users) if rows == n_users else rng.permutation(n_users)
    for first_user in range(0, n_users, rows):
        block = np.sort(users[first_user : first_user + rows])
        if columns == n_items:
            yield block, None
            continue
        items = rng.permutation(n_items)
        for first_item in range(0, n_items, columns):
            yield block, np.sort(items[first_item : first_item + columns])
