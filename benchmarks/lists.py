"""Top-5 lists of all users, seen items out, against implicit's `recommend` with the same vectors."""

from collections.abc import Callable

import numpy as np

from benchmarks.data import REAL, real_split
from benchmarks.side_by_side import THREADS, competing, in_turn, milliseconds, ratio, table

K, DIM = 5, 32


def both(name: str) -> dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]]:
    """The lists of the same model by divmf and by implicit: items and scores."""
    import torch
    from implicit.cpu.bpr import BayesianPersonalizedRanking
    from scipy import sparse
    from threadpoolctl import threadpool_limits

    from divmf.models.mf import MF
    from divmf.ranking.retrieval import recommend

    train = real_split(name).train
    rng = np.random.default_rng(0)
    users, items = (rng.normal(size=(n, DIM)).astype(np.float32) for n in (train.n_users, train.n_items))
    model = MF(torch.from_numpy(users), torch.from_numpy(items), torch.zeros(len(items)))
    theirs = BayesianPersonalizedRanking(factors=DIM, num_threads=THREADS)
    theirs.user_factors, theirs.item_factors = users, items
    seen, everybody = sparse.csr_matrix(train.matrix), np.arange(len(users))

    def by_implicit(blas_threads: int) -> tuple[np.ndarray, np.ndarray]:
        with threadpool_limits(blas_threads, "blas"):
            return theirs.recommend(everybody, seen, N=K, filter_already_liked_items=True)

    return {
        "divmf": lambda: recommend(model, train.matrix, K),
        "implicit, BLAS on one thread": lambda: by_implicit(1),  # as it asks for: it has threads of its own
        f"implicit, BLAS on {THREADS}": lambda: by_implicit(THREADS),
    }


def main() -> None:
    """Measure and print a Markdown table."""
    rows = []
    for name in REAL:
        ways = both(name)
        ours, theirs = (ways[way]()[0].tolist() for way in list(ways)[:2])
        same = np.mean([set(a) == set(b) for a, b in zip(ours, theirs, strict=True)])
        alone = in_turn(ways, 9)
        with competing():
            beside = in_turn(ways, 9)
        for label, took in (("alone", alone), ("beside a busy process", beside)):
            rivals = [seconds for way, seconds in took.items() if way != "divmf"]
            fastest = min(rivals, key=lambda seconds: float(np.median(seconds)))
            rows.append([name, label, milliseconds(took["divmf"]), *map(milliseconds, rivals),
                         f"{ratio(fastest, took['divmf']):.1f} ×", f"{same:.2%}"])  # fmt: skip
    table(["dataset", "machine", *ways, "divmf is faster by", "the same lists"], rows)
