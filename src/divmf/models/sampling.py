"""What a training step looks at: shuffled positives with negatives, or blocks of users × items."""

from collections.abc import Iterator

import numpy as np

from divmf.data.interactions import Interactions
from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.threads import RowRange, ahead
from divmf.kernels.batches import Chunk

BITS = 1 << 26  # bytes that a table of who has met what may take, a bit each; beyond, rows are searched
CHUNK, CHUNKS = 1 << 14, 16  # rows drawn at a time: enough that threads seldom meet, but an epoch has several


def draw_key(rng: np.random.Generator) -> int:
    """A key for draws that belong to a position (`kernels.draw`)."""
    return int(rng.integers(0, 2**63))


def own_in_shuffle(first: int, last: int, whole: int, key: int, own: range) -> tuple[Array, Array]:
    """What of a process's own numbers stands at the positions first … last − 1 of a random order of 0 … whole − 1.

    The numbers, and where among those positions they stand, ascending; the order is the same however many processes.
    """
    from divmf.kernels.shuffle import shuffled

    numbers = shuffled(first, last, whole, key)
    if len(own) == whole:
        return numbers, np.arange(last - first)
    positions = np.flatnonzero((numbers >= own.start) & (numbers < own.stop))
    return numbers[positions], positions


def sample_chunks(
    train: Interactions,
    size: int,
    negatives: int,
    rng: np.random.Generator,
    each: int = 1,
    n_batches: int | None = None,
) -> Iterator[Chunk]:
    """Every pair with `negatives` items not met, in random batches of `size` rows, many batches at a time.

    n_batches: so many, nearly equal ones instead
    each: items not met in a row. 1: rows are triples (user, item met, item not met), shuffled one by one; `negatives`:
    they are pairs with all their items not met. The items drawn for a pair are the same either way.

    Of several processes, each has the rows of its own users of every batch. A draw belongs to a pair, so nothing of it
    depends on how many processes, threads or batches there are.
    """
    from divmf.kernels.draw import mark
    from divmf.kernels.draw import negatives as draw_negatives

    matrix, span, repeats = train.matrix, comm.row_range(len(train)), negatives // each
    whole, own = repeats * span.whole, range(repeats * span.first, repeats * (span.first + len(train)))
    order, key, row = draw_key(rng), draw_key(rng), (train.n_items + 7) // 8
    met = np.zeros((train.n_users, row) if train.n_users * row <= BITS else (0, 0), dtype=np.uint8)
    mark(matrix.indptr, matrix.indices, met)
    ends = np.append(np.arange(0, whole, size), whole)
    if n_batches is not None:
        size, ends = max(1, whole // n_batches), whole * np.arange(n_batches + 1) // n_batches
    at_once = max(1, min(CHUNK // size, (len(ends) - 1) // CHUNKS))

    def draw(batch: int) -> Chunk:
        bounds = ends[batch : batch + at_once + 1]
        rows, positions = own_in_shuffle(bounds[0], bounds[-1], whole, order, own)
        chosen = rows // repeats - span.first
        users, items = train.users[chosen], train.items[chosen]
        drawn = np.empty((len(chosen), each), dtype=items.dtype)
        draw_negatives(users, items, rows, matrix.indptr, matrix.indices, met, train.n_items, key, drawn)
        return Chunk(users, items, drawn, np.searchsorted(positions, bounds - bounds[0]))

    yield from ahead(draw, range(0, len(ends) - 1, at_once))


def n_blocks(n_users: int, n_items: int, rows: int | None, columns: int | None) -> int:
    """How many mini-batches `submatrices` gives, of the users of all processes."""
    return -(-n_users // min(rows or n_users, n_users)) * -(-n_items // min(columns or n_items, n_items))


def submatrices(
    n_users: int, n_items: int, rows: int | None, columns: int | None, rng: np.random.Generator,
    span: RowRange | None = None,
) -> Iterator[tuple[Array, Array | None]]:  # fmt: skip
    """Mini-batches of Sec. 3.3.3: every (block of users, block of items) once, both shuffled; None = all items.

    span: where these users stand among those of all processes; a block is of all of them, its users are one's own
    """
    span = span or RowRange(0, n_users, n_users)
    rows, columns = min(rows or span.whole, span.whole), min(columns or n_items, n_items)
    key, own = draw_key(rng), range(span.first, span.first + n_users)
    for start in range(0, span.whole, rows):
        block = np.arange(n_users)
        if rows < span.whole:
            block = np.sort(own_in_shuffle(start, min(start + rows, span.whole), span.whole, key, own)[0] - span.first)
        if columns == n_items:
            yield block, None
            continue
        items = rng.permutation(n_items)
        for first_item in range(0, n_items, columns):
            yield block, np.sort(items[first_item : first_item + columns])
