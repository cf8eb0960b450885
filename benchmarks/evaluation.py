"""All metrics of a million users' lists of ten, against irspack's evaluator on the same lists.

irspack reads dense scores, not lists: it is given rows in which the listed items stand highest. Its time grows with the
catalog, ours does not, so it gets a small one; making the rows is measured apart and taken off its time.
"""

from collections.abc import Iterator

import numpy as np

from benchmarks.side_by_side import THREADS, in_turn, ratio, table

USERS, ITEMS, K, BLOCK = 1_000_000, 1000, 10, 1024


def lists_of_all(rng: np.random.Generator) -> np.ndarray:
    """Lists of distinct items, some of them in far more lists than others.  (USERS, K)"""
    first = (ITEMS * rng.random((USERS, 1)) ** 3).astype(np.int64)
    gaps = rng.integers(1, ITEMS // K, (USERS, K))  # together less than once around
    return ((first + np.cumsum(gaps, axis=1)) % ITEMS).astype(np.int32)


def rows_of_scores(lists: np.ndarray) -> Iterator[np.ndarray]:
    """Dense scores whose best K are the lists, some users at a time."""
    scores = np.arange(K, 0, -1, dtype=np.float32)
    for start in range(0, len(lists), BLOCK):
        part = lists[start : start + BLOCK]
        rows = np.zeros((len(part), ITEMS), dtype=np.float32)
        np.put_along_axis(rows, part.astype(np.int64), scores[None, :], axis=1)
        yield rows


def main() -> None:
    """Measure and print a Markdown table."""
    import polars as pl
    from irspack.evaluation import Evaluator
    from scipy import sparse

    from divmf.ranking.lists import TopK
    from divmf.ranking.metrics import measure

    rng = np.random.default_rng(0)
    lists, wanted = lists_of_all(rng), rng.integers(0, ITEMS, USERS).astype(np.int32)
    held_out = sparse.csr_array((np.ones(USERS), wanted, np.arange(USERS + 1)), shape=(USERS, ITEMS))
    scores = np.tile(np.arange(K, 0, -1, dtype=np.float32), (USERS, 1))
    ours = TopK(lists, scores, pl.Series(np.arange(USERS)), pl.Series(np.arange(ITEMS)))
    popularity = rng.integers(1, 1000, ITEMS)
    theirs = Evaluator(sparse.csr_matrix(held_out), cutoff=K, n_threads=THREADS)
    one, other = measure(ours, held_out, popularity), theirs.get_score_from_score_chunks(rows_of_scores(lists))
    assert all(np.isclose(one[name], other[name]) for name in ("ndcg", "hit", "entropy")), (one, other)
    took = in_turn({
        "divmf": lambda: measure(ours, held_out, popularity),
        "irspack": lambda: theirs.get_score_from_score_chunks(rows_of_scores(lists)),
        "rows": lambda: sum(len(rows) for rows in rows_of_scores(lists)),
    })  # fmt: skip
    evaluator = took["irspack"] - took["rows"]
    table(
        [f"{USERS:,} lists of {K}", "divmf", "irspack", "divmf is faster by"],
        [["all metrics", f"{np.median(took['divmf']):.2f} s", f"{np.median(evaluator):.2f} s",
          f"{ratio(evaluator, took['divmf']):.0f} ×"]],
    )  # fmt: skip
