"""What a comparison found, for its page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from divmf.data.split import Split
from divmf.ranking.curve import Curve, Point, sign_of
from divmf.ranking.metrics import coverage_ceiling
from divmf.reports.section import Table

USUAL_LOSS = 0.05


@dataclass(frozen=True, eq=False)
class Comparison:
    """All that the page tells.

    rows      a row a method and loss: test metrics with `_low` and `_high`, `ndcg_change` relative to the model
    curves    each method's whole curve; the run's own first
    settings  of each method's point with the best validation Gini within each loss, for the commands
    examples  tables of people's lists, before and after; may be empty
    """

    rows: Sequence[Mapping[str, Any]]
    curves: Mapping[str, Curve]
    settings: Mapping[tuple[str, float], Mapping[str, Any]]
    split: Split
    k: int
    run: str
    candidates: int
    examples: Sequence[Table] = ()

    @property
    def losses(self) -> list[float]:
        """The losses of accuracy compared at, ascending."""
        return sorted({row["loss"] for row in self.rows})

    @property
    def usual(self) -> float:
        """The loss the page speaks of first: 5%, or the one nearest to it."""
        return min(self.losses, key=lambda loss: abs(loss - USUAL_LOSS))

    @property
    def ndcg(self) -> str:
        """nDCG with the length of the lists."""
        return f"nDCG@{self.k}"

    @property
    def ceiling(self) -> float:
        """The highest coverage that lists of k can have."""
        return coverage_ceiling(self.split.n_users * self.k, self.split.n_items)

    @property
    def base(self) -> Point:
        """The model before diversifying."""
        return next(iter(self.curves.values())).base

    def row(self, method: str, loss: float) -> Mapping[str, Any]:
        """The test numbers of a method at a loss."""
        return next(row for row in self.rows if row["method"] == method and row["loss"] == loss)

    def point(self, method: str, loss: float, metric: str = "gini") -> Point:
        """The best point of a method within a loss, on validation."""
        return self.curves[method].best_within(loss, metric)

    def choice(self, loss: float, metric: str = "gini") -> str:
        """The method to choose at a loss: the best on validation; of equals, the first."""
        return max(self.curves, key=lambda name: sign_of(metric) * self.point(name, loss, metric).valid[metric])

    def as_good(self, loss: float) -> list[str]:
        """The other methods whose test Gini is lower than that of the choice, or whose interval overlaps its."""
        chosen = self.choice(loss)
        end = self.row(chosen, loss)["gini_high"]
        return [name for name in self.curves if name != chosen and self.row(name, loss)["gini_low"] <= end]

    def most_even(self, loss: float) -> str:
        """The method with the lowest Gini on test; of equals, the choice."""
        chosen = self.choice(loss)
        return min([chosen, *self.curves], key=lambda name: float(self.row(name, loss)["gini"]))
