"""iALS: matrix factorization by alternating least squares, with everything not met counted as a weak zero.

    min Σ_(u,i) met w_ui (1 − u·v_i)² + α Σ_u Σ_i (u·v_i)² + Σ_u λ_u ‖u‖² + Σ_i λ_i ‖v_i‖²
    with λ_u = λ (n_u + α |I|) and λ_i = λ (n_i + α |U|), n the sum of the weights w of a user or item

Y. Hu, Y. Koren, C. Volinsky: Collaborative Filtering for Implicit Feedback Datasets. ICDM 2008; as written by S. Rendle
et al.: Revisiting the Performance of iALS on Item Recommendation Benchmarks. RecSys 2022. Each row is solved by a few
conjugate gradients from where it is (G. Takács et al., RecSys 2011), in the end the users' to the last digits: a user's
vector is then the solution for the items' vectors, so that people who were not in training can be treated alike.

    scorer = ials(split.train.matrix, dim=64)                    # Factors
    more = ials(later.train.matrix, dim=64, epochs=4, start=scorer)

The solver is our own (`divmf.kernels.least_squares`). On MovieLens-1M, 64 dimensions, 16 epochs, two threads, it takes
half the time of irspack's and of implicit's and reaches their nDCG or more (`python -m benchmarks solvers`;
docs/architecture.md). The same seed gives the same vectors for any number of threads.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from divmf.engine.arrays import Array
from divmf.engine.threads import in_parts
from divmf.kernels.least_squares import solve_part
from divmf.models.scorer import Factors, gram_of

EPOCHS, STEPS = 16, 3
EXACT_STEPS, TOLERANCE = 200, 1e-6  # of the last solution for the users: as exact as float32 is
SPREAD = 0.1  # of a score's parts at the start: vectors are drawn from N(0, SPREAD² / dim)


@dataclass(frozen=True, eq=False)
class Side:
    """Users or items: what each met, with weights, and its λ.

    met   (n, n_others)
    l2    (n,) float32
    """

    met: sparse.csr_array
    l2: Array

    @classmethod
    def of(cls, met: sparse.csr_array, alpha: float, l2: float) -> "Side":
        """The rows of a matrix of weights."""
        weights = met.astype(np.float32).tocsr()
        return cls(weights, (l2 * (row_sums(weights) + alpha * met.shape[1])).astype(np.float32))

    def solve(
        self, rows: Array, others: Array, alpha: float, steps: int = STEPS, tolerance: float = 0.0,
        gram: Array | None = None,
    ) -> None:  # fmt: skip
        """The vectors of these rows, from what they are, in place.

        others   the vectors of the other side; gram: `gram_of` all of that side, if it is known or these are not all
        """
        met, background = self.met, (alpha * (gram_of(others) if gram is None else gram)).astype(np.float32)
        in_parts(
            lambda first, last: solve_part(
                others, background, met.indptr, met.indices, met.data, self.l2, first, last, steps, tolerance, rows
            ),
            len(rows),
        )


def ials(
    met: sparse.csr_array,
    dim: int = 64,
    alpha: float = 0.5,
    l2: float = 0.005,
    epochs: int = EPOCHS,
    seed: int = 0,
    start: Factors | None = None,
) -> Factors:
    """iALS of what users have met, 0/1 or with weights.

    alpha    weight of a pair that was not met beside one that was
    l2       λ, for each interaction and each weak zero
    start    vectors to begin from, of at most so many dimensions; there may be more users and items than it has
    """
    check(met, dim, alpha, l2, epochs)
    users, items = beginning(met.shape, dim, seed, start)
    by_user, by_item = Side.of(met, alpha, l2), Side.of(met.T.tocsr(), alpha, l2)
    for _ in range(epochs):
        by_user.solve(users, items, alpha)
        by_item.solve(items, users, alpha)
    by_user.solve(users, items, alpha, EXACT_STEPS, TOLERANCE)
    return Factors.from_arrays(users, items)


def beginning(shape: tuple[int, ...], dim: int, seed: int, start: Factors | None) -> tuple[Array, Array]:
    """Small random vectors of users and items, with what is known of them in place."""
    rng = np.random.default_rng(seed)
    tables = tuple(rng.normal(0, SPREAD / dim**0.5, (n, dim)).astype(np.float32) for n in shape[:2])
    if start is None:
        return tables[0], tables[1]
    for name, table, known in zip(("users", "items"), tables, (start.users, start.items_t.T), strict=True):
        if len(known) > len(table) or known.shape[1] > dim:
            raise ValueError(
                f"start has {known.shape[1]} dimensions for {len(known):,} {name}; it may have at most {dim} for"
                f" {len(table):,}: give a larger dim, or the data it was trained on and more"
            )
        table[: len(known), : known.shape[1]] = known
    return tables[0], tables[1]


def user_vectors(items: Array, met: sparse.csr_array, alpha: float, l2: float, gram: Array | None = None) -> Array:
    """The vectors of users with such interactions, given those of the items, of which only those met are read.

    items (n_items, dim), gram: `gram_of` the items, if it is known → (n_users, dim)
    """
    side, users = Side.of(met, alpha, l2), np.zeros((met.shape[0], items.shape[1]), dtype=np.float32)
    read, some = those_read(side.met)
    others = np.ascontiguousarray(items[read], dtype=np.float32)
    Side(some, side.l2).solve(users, others, alpha, EXACT_STEPS, TOLERANCE, gram_of(items) if gram is None else gram)
    return users


def those_read(met: sparse.csr_array) -> tuple[Array, sparse.csr_array]:
    """The columns that hold anything, and the matrix of these alone: of a large catalog a few people read little."""
    read, columns = np.unique(met.indices, return_inverse=True)
    return read, sparse.csr_array((met.data, columns, met.indptr), shape=(met.shape[0], len(read)))


def row_sums(weights: sparse.csr_array) -> Array:
    """The sum of each row.  (n,) float64"""
    return np.asarray(weights.sum(axis=1, dtype=np.float64)).ravel()


def check(met: sparse.csr_array, dim: int, alpha: float, l2: float, epochs: int) -> None:
    """Refuse settings and weights that have no meaning."""
    if dim < 1 or epochs < 0:
        raise ValueError(f"dim={dim} and epochs={epochs}: choose a dim of 1 or more and 0 epochs or more")
    for name, value in (("alpha", alpha), ("l2", l2)):
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{name}={value} must be a number above 0; the usual ones are 0.5 and 0.005")
    if met.nnz and not (np.isfinite(met.data).all() and met.data.min() >= 0):
        raise ValueError(f"weights must be finite and not negative; the smallest is {met.data.min():g}: leave it out")
