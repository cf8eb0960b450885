"""Confidence intervals by resampling users."""

from collections.abc import Callable, Sequence
from typing import Self

import numpy as np

from divmf.engine.arrays import Array

NORMAL_95 = 1.96  # standard errors to each side of a 95% interval


class Estimate(float):
    """A number with its 95% interval, `low` to `high`; computes and serialises as the number.

    >>> Estimate(0.25, 0.2, 0.3)
    0.25 (0.2 to 0.3)
    >>> print(Estimate(0.25, 0.2, 0.3))
    0.25
    """

    low: float
    high: float

    def __new__(cls, value: float, low: float, high: float) -> Self:
        """The value and the ends of its interval."""
        estimate = super().__new__(cls, value)
        estimate.low, estimate.high = float(low), float(high)
        return estimate

    def __repr__(self) -> str:
        return f"{float(self):.4g} ({self.low:.4g} to {self.high:.4g})"

    def __str__(self) -> str:
        return str(float(self))

    def _repr_html_(self) -> str:
        return f"{float(self):.4g} <small>({self.low:.4g} to {self.high:.4g})</small>"

    def __getnewargs__(self) -> tuple[float, float, float]:  # type: ignore[override]
        return float(self), self.low, self.high

    @classmethod
    def around(cls, value: float, error: float, lowest: float, highest: float) -> Self:
        """value ± 1.96 standard errors, cut to the range of the metric."""
        return cls(value, max(lowest, value - NORMAL_95 * error), min(highest, value + NORMAL_95 * error))


def resampled(
    statistics: Callable[[Array], Sequence[float] | Array], n_users: int, resamples: int, rng: np.random.Generator
) -> Array:
    """The statistics of each of many resamples of the users; they are given how often each user was drawn.

    (resamples, statistics). Users are drawn with replacement, so the weights (n_users,) are multinomial. One
    resample is made at a time: memory does not grow with their number.
    """
    draws = (rng.integers(0, n_users, n_users, dtype=np.int32) for _ in range(resamples))
    return np.array([statistics(np.bincount(draw, minlength=n_users)) for draw in draws])


def mean_estimates(
    values: Array, counted: Array, ranges: Sequence[tuple[float, float]], resamples: int = 200, seed: int = 0
) -> list[Estimate]:
    """The mean of each column over the users that count, with its 95% interval; all columns share their draws.

    values (n_users, columns), counted (n_users,) bool, ranges: what a mean can be, a pair a column. A column of
    differences gives what `metrics.compare` gives, without counting the whole catalog for every resample.
    """

    def means(weights: Array) -> Array:
        weights = np.where(counted, weights, 0)
        return np.asarray(weights @ values / max(1, int(weights.sum())))  # (columns,)

    middle = means(np.ones(len(values), dtype=np.int64))
    errors = resampled(means, len(values), resamples, np.random.default_rng(seed)).std(axis=0, ddof=1)
    columns = zip(middle.tolist(), errors.tolist(), ranges, strict=True)
    return [Estimate.around(value, error, *ends) for value, error, ends in columns]
