"""iALS by three solvers on MovieLens-1M: 64 dimensions, 16 epochs, validation nDCG@5 and seconds.

Each solver has a few settings, the best on validation is timed: the shortest of three, the solvers in turn. irspack
minimises what divmf does and gets the same settings; implicit weights what was met and has one λ for all rows.
"""

import io
import itertools
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.models import ndcg_of, split_of

DIM, EPOCHS = 64, 16
SHARED = tuple({"alpha": alpha, "l2": l2} for alpha, l2 in itertools.product((0.5, 0.8, 1.2), (0.003, 0.005)))
WEIGHTED = tuple(
    {"weight": weight, "l2": l2} for weight, l2 in itertools.product((2.25, 3.0, 4.0), (20.0, 60.0, 120.0))
)
Solver = Callable[..., Any]


def by_divmf(met: Any, alpha: float, l2: float) -> Any:
    """Our own."""
    from divmf.models.ials import ials

    return ials(met, DIM, alpha, l2, EPOCHS)


def by_irspack(met: Any, alpha: float, l2: float) -> Any:
    """irspack's IALSRecommender."""
    from irspack import IALSRecommender

    from divmf.engine.threads import threads
    from divmf.models.scorer import Factors

    model = IALSRecommender(
        sparse.csr_matrix(met), n_components=DIM, alpha0=alpha, reg=l2, n_threads=threads(), train_epochs=EPOCHS
    )
    with redirect_stdout(io.StringIO()):  # it draws a progress bar
        model.learn()
    return Factors.from_arrays(model.get_user_embedding(), model.get_item_embedding())


def by_implicit(met: Any, weight: float, l2: float) -> Any:
    """implicit's AlternatingLeastSquares."""
    from implicit.cpu.als import AlternatingLeastSquares
    from threadpoolctl import threadpool_limits

    from divmf.engine.threads import threads
    from divmf.models.scorer import Factors

    model = AlternatingLeastSquares(
        factors=DIM, regularization=l2, alpha=weight, iterations=EPOCHS, num_threads=threads(), random_state=0
    )
    with threadpool_limits(1, "blas"):  # as implicit asks for: it has threads of its own
        model.fit(sparse.csr_matrix(met), show_progress=False)
    return Factors.from_arrays(model.user_factors, model.item_factors)


SOLVERS: dict[str, tuple[Solver, tuple[dict[str, float], ...]]] = {
    "divmf": (by_divmf, SHARED),
    "irspack": (by_irspack, SHARED),
    "implicit": (by_implicit, WEIGHTED),
}


def main() -> None:
    """Print the table."""
    split = split_of("ml-1m", 0)
    met = split.train.matrix
    best: dict[str, tuple[float, dict[str, float]]] = {}
    for name, (solver, grid) in SOLVERS.items():
        values = [ndcg_of(solver(met, **settings), split.valid.matrix, met) for settings in grid]
        best[name] = (max(values), grid[int(np.argmax(values))])
    took: dict[str, list[float]] = {name: [] for name in SOLVERS}
    for name in (*SOLVERS, *SOLVERS, *SOLVERS):
        began = time.perf_counter()
        SOLVERS[name][0](met, **best[name][1])
        took[name].append(time.perf_counter() - began)
    print("| solver | settings | valid nDCG@5 | seconds | ratio |\n|---|---|---|---|---|")
    for name, (value, settings) in best.items():
        seconds, ours = min(took[name]), min(took["divmf"])
        told = ", ".join(f"{key} {number:g}" for key, number in settings.items())
        print(f"| {name} | {told} | {value:.4f} | {seconds:.2f} | {seconds / ours:.2f} |", flush=True)


if __name__ == "__main__":
    main()
