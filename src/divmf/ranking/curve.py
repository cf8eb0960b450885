"""Point, Curve: the accuracy–diversity curve, its frontier, and the choice of an operating point."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl

from divmf.data.display import html_table
from divmf.ranking.metrics import METRICS

if TYPE_CHECKING:
    from divmf.reports.drawing import Drawing

ACCURACY, DIVERSITY = "accuracy", "diversity"
SHOWN_POINTS = 12  # rows of a curve in a notebook
LARGEST_RHO = 1e9  # beyond it scores are lost in rounding


@dataclass(frozen=True, repr=False)
class Point:
    """What one epoch, or one setting of a reranker's knob, gives.

    Attributes:
        phase: "accuracy", "diversity" or a reranker's name.
        epoch: The number of the epoch within the run.
        valid: Metric names and values on validation (see METRICS).
        test: The same on the test items.
        knob: The setting that made the point, where there is one: ρ of the market.
        loss: The mean training loss of the epoch.
        seconds: How long it took.
        gap: How far the lists of the market may be from the optimum, as a fraction of what they have gained over
            the model's own.
    """

    phase: str
    epoch: int
    valid: Mapping[str, float]
    test: Mapping[str, float]
    knob: float | None = None
    loss: float | None = None
    seconds: float | None = None
    gap: float | None = None

    @property
    def name(self) -> str:
        """What people call it: the model, an epoch, a ρ, or the setting of a reranker's knob."""
        if self.phase == ACCURACY:
            return "the model itself"
        if self.knob is None:
            return f"{self.phase} epoch {self.epoch}"
        return f"ρ = {self.knob:.4g}" if self.phase == DIVERSITY else f"knob {self.knob:g}"

    def __repr__(self) -> str:
        shown = ("ndcg", "coverage", "gini")
        numbers = ", ".join(f"{name} {self.valid[name]:.4g}" for name in shown if name in self.valid)
        return f"Point({self.name}; validation {numbers})"

    def _repr_html_(self) -> str:
        names = [name for name in METRICS if name in self.valid]
        rows = [[METRICS[name].label, self.valid[name], self.test.get(name)] for name in names]
        return html_table(self.name, ["", "validation", "test"], rows)

    def to_json(self) -> dict[str, Any]:
        """As the commands print it and the run folder keeps it; what is None is left out."""
        values = {name: getattr(self, name) for name in ("knob", "loss", "seconds", "gap")}
        known = {name: float(value) for name, value in values.items() if value is not None}
        # JSON knows no infinity, which is where some knobs are neutral
        found = {name: value if isfinite(value) else str(value) for name, value in known.items()}
        valid, test = ({name: float(value) for name, value in part.items()} for part in (self.valid, self.test))
        return {"phase": self.phase, "epoch": self.epoch} | found | {"valid": valid, "test": test}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        """From what `to_json` gave; other keys are passed over."""
        found = {name: row[name] for name in cls.__dataclass_fields__ if name in row}
        return cls(**found | {name: float(row[name]) for name in ("knob", "loss", "seconds", "gap") if name in row})

    def value(self, part: str, metric: str) -> float:
        """One number; what was not measured is an error that says what was.

        Args:
            part: "valid" or "test".
            metric: Its name, such as "ndcg".

        Returns:
            The value.
        """
        values = {"valid": self.valid, "test": self.test}.get(part)
        if values is None:
            raise ValueError(f"part={part!r} is not a part of a curve; choose 'valid' or 'test'")
        if metric not in values:
            raise ValueError(f"metric={metric!r} was not measured; choose one of {', '.join(values)}")
        return values[metric]


@dataclass(frozen=True)
class Curve:
    """The points of a run, in the order they were made."""

    points: tuple[Point, ...]

    def __repr__(self) -> str:
        phases = {point.phase: None for point in self.points}
        sizes = ", ".join(f"{sum(point.phase == phase for point in self.points)} {phase}" for phase in phases)
        return f"Curve({sizes or 'no points'})"

    def _repr_html_(self) -> str:
        if not self.points:
            return html_table(repr(self), [], [])
        points = self.operating
        every = max(1, -(-len(points) // SHOWN_POINTS))
        names = [name for name in ("ndcg", "coverage", "entropy", "gini") if name in self.base.valid]
        rows = [
            [point.name, *(point.valid.get(name) for name in names), *(point.test.get(name) for name in names)]
            for number, point in enumerate(points)
            if number % every == 0 or number == len(points) - 1
        ]
        header = [f"{part} {METRICS[name].label}" for part in ("valid", "test") for name in names]
        return html_table(repr(self), ["point", *header], rows)

    def chart(self, name: str = "this curve", k: int | None = None) -> "Drawing":
        """The curve as a picture, which a notebook shows offline; its `save` writes .html, .png, .svg or .json.

        Args:
            name: Of the method that made it.
            k: The length of its lists, for the title.

        Returns:
            The picture.
        """
        from divmf.reports.drawing import draw_curve  # the one import upwards: a picture is asked of the curve itself

        return draw_curve(self, name, k)

    def __len__(self) -> int:
        return len(self.points)

    @property
    def frame(self) -> pl.DataFrame:
        """phase, epoch, knob, loss, seconds, gap, valid_ndcg, valid_…, test_ndcg, …: a row a point."""
        columns: dict[str, Any] = {"phase": [point.phase for point in self.points]}
        columns |= {"epoch": [point.epoch for point in self.points]}
        optional = ("knob", "loss", "seconds", "gap")
        columns |= {name: [getattr(point, name) for point in self.points] for name in optional}
        for part in ("valid", "test"):
            rows = [getattr(point, part) for point in self.points]
            names = {name: None for row in rows for name in row}
            columns |= {f"{part}_{name}": [row.get(name) for row in rows] for name in names}
        schema = {name: {"phase": pl.String, "epoch": pl.Int64}.get(name, pl.Float64) for name in columns}
        return pl.DataFrame(columns, schema=schema)

    @property
    def base(self) -> Point:
        """The model before diversifying: the accuracy point with the highest validation nDCG, else the first point.

        With rules it is the point at ρ = 0: the model's lists where they keep the rules.
        """
        if not self.points:
            raise ValueError("the curve has no points; train at least one epoch")
        if ruled := [point for point in self.points if point.phase == DIVERSITY and point.knob == 0]:
            return ruled[0]
        accuracy = [point for point in self.points if point.phase == ACCURACY]
        return max(accuracy, key=lambda point: point.value("valid", "ndcg")) if accuracy else self.points[0]

    @property
    def without_rules(self) -> Point:
        """The model's own lists, whatever rules there are: the most accurate point of the accuracy phase."""
        accuracy = [point for point in self.points if point.phase == ACCURACY]
        return max(accuracy, key=lambda point: point.value("valid", "ndcg")) if accuracy else self.base

    @property
    def operating(self) -> tuple[Point, ...]:
        """The points one may choose: the base, then all after the accuracy phase, by their ρ if they have one."""
        base = self.base
        later = [point for point in self.points if point.phase != ACCURACY and point is not base]
        if all(point.phase == DIVERSITY and point.knob is not None for point in later):
            later.sort(key=lambda point: point.knob or 0.0)
        return (base, *later)

    @property
    def has_rho(self) -> bool:
        """Whether the points after the model's own are named by their ρ: those of the market."""
        return any(point.phase == DIVERSITY and point.knob is not None for point in self.points)

    def frontier(self, metric: str = "gini", part: str = "valid") -> "Curve":
        """The operating points that no other equals or beats in both nDCG and a metric.

        Args:
            metric: What stands beside nDCG.
            part: "valid" or "test".

        Returns:
            Those points, highest nDCG first.
        """
        return Curve(tuple(point for point, _, _ in frontier_of(self.operating, metric, part)))

    def hypervolume(
        self, metric: str = "gini", part: str = "valid", reference: tuple[float, float] | None = None
    ) -> float:
        """The area of (nDCG, metric) pairs that are worse than some operating point and better than the reference.

        Args:
            metric: What stands beside nDCG.
            part: "valid" or "test".
            reference: (nDCG, metric); (0, the worst value of the metric: Gini 1, coverage 0, entropy 0) if not given.

        Returns:
            The area; larger is better.
        """
        sign = sign_of(metric)
        if reference is None and not np.isfinite(METRICS[metric].worst):
            raise ValueError(f"metric={metric!r} has no worst value; give reference=(ndcg, {metric})")
        worst_ndcg, worst = reference or (0.0, METRICS[metric].worst)
        floor, area = sign * worst, 0.0
        for _, accuracy, diversity in frontier_of(self.operating, metric, part):
            area += max(0.0, accuracy - worst_ndcg) * max(0.0, diversity - floor)
            floor = max(floor, diversity)
        return area

    def at_loss(self, drop: float, metric: str, part: str = "test") -> float | None:
        """The best value of a metric at an nDCG of (1 − drop) × the base's, both on this part of the split.

        Read off the frontier of the operating points, straight lines between neighbours, so a noisy epoch that loses in
        both leaves no trace.

        Args:
            drop: The fraction of nDCG lost.
            metric: Its name.
            part: "valid" or "test".

        Returns:
            The value; None where no operating point has lost that much.
        """
        if not 0 <= drop <= 1:
            raise ValueError(f"drop={drop} is not a share of the nDCG; choose 0 to 1, such as 0.05 for five per cent")
        target = (1 - drop) * self.base.value(part, "ndcg")
        if min(point.value(part, "ndcg") for point in self.operating) > target:
            return None
        _, accuracy, diversity = zip(*reversed(frontier_of(self.operating, metric, part)), strict=True)
        return sign_of(metric) * float(np.interp(target, accuracy, diversity))

    def ndcg_at(self, metric: str, value: float, part: str = "test") -> float | None:
        """The best nDCG where a metric has a value, read off the frontier as in `at_loss`.

        Args:
            metric: Its name.
            value: What it is to be.
            part: "valid" or "test".

        Returns:
            The nDCG; the frontier's highest where every point is better than the value, None where none reaches it.
        """
        _, accuracy, diversity = zip(*frontier_of(self.operating, metric, part), strict=True)
        target = sign_of(metric) * value
        return None if target > diversity[-1] else float(np.interp(target, diversity, accuracy))

    def best_within(self, drop: float, metric: str, ndcg: float | None = None) -> Point:
        """The operating point with the best value of a metric that loses at most a share of nDCG, on validation.

        Args:
            drop: The fraction of nDCG that may be lost.
            metric: What is to be best.
            ndcg: What is lost from, if it is not the base's.

        Returns:
            The point; the base where no point keeps enough.
        """
        floor = (1 - drop) * (self.base.valid["ndcg"] if ndcg is None else ndcg)
        kept = [point for point in self.operating if point.valid["ndcg"] >= floor] or [self.base]
        return max(kept, key=lambda point: (sign_of(metric) * point.value("valid", metric), point.valid["ndcg"]))

    def choose(
        self, rule: str | None = None, *, ndcg_drop: float | None = None, gini: float | None = None,
        coverage: float | None = None, epoch: int | None = None, rho: float | None = None,
    ) -> Point:  # fmt: skip
        """The operating point by exactly one criterion, read on validation; of points that tie, the earliest.

        Args:
            rule: "knee": the point of the (nDCG, Gini) frontier farthest above the straight line between its two ends,
                both axes scaled to [0, 1]; the end with the higher nDCG if none is.
            ndcg_drop: The lowest Gini among the points with nDCG ≥ (1 − ndcg_drop) × the base's (the base is one).
            gini: The highest nDCG among the points with at most this Gini index.
            coverage: The highest nDCG among the points with at least this coverage.
            epoch: The point of this epoch.
            rho: The point whose ρ is nearest.

        Returns:
            The point.
        """
        criteria: dict[str, str | float | None] = {"rule": rule, "ndcg_drop": ndcg_drop, "gini": gini}
        criteria |= {"coverage": coverage, "epoch": epoch, "rho": rho}
        given = {name: value for name, value in criteria.items() if value is not None}
        if len(given) != 1:
            seen = ", ".join(f"{name}={value!r}" for name, value in given.items()) or "nothing"
            raise ValueError(
                f"choose a point by exactly one of 'knee', ndcg_drop, gini, coverage, epoch, rho; given: {seen}"
            )
        if rule is not None:
            if rule != "knee":
                raise ValueError(f"rule={rule!r} is unknown; the rule there is: 'knee'")
            return self.knee
        if epoch is not None:
            return self.of_epoch(epoch)
        if rho is not None:
            return self.nearest(rho)
        ((name, share),) = ((name, float(value)) for name, value in given.items())
        if not 0 <= share <= 1:
            raise ValueError(f"{name}={share:g} is not a share; choose 0 to 1, such as 0.05 for five per cent")
        return self.within(share) if name == "ndcg_drop" else self.reaching(name, share)

    def within(self, drop: float) -> Point:
        """The lowest validation Gini among the points that keep (1 − drop) of the base's validation nDCG."""
        least = (1 - drop) * self.base.value("valid", "ndcg")
        kept = [point for point in self.operating if point.value("valid", "ndcg") >= least]
        return min(kept, key=lambda point: (point.value("valid", "gini"), -point.value("valid", "ndcg")))

    def reaching(self, metric: str, value: float) -> Point:
        """The highest validation nDCG among the points whose validation metric is at least as good as the value."""
        sign = sign_of(metric)
        reached = [point for point in self.operating if sign * point.value("valid", metric) >= sign * value]
        if not reached:
            best = sign * max(sign * point.value("valid", metric) for point in self.operating)
            further = "train more diversity epochs"
            if self.has_rho:
                last = self.operating[-1].knob or 0.0
                further = f"make a point beyond ρ = {last:.4g} with --rho (rho=…), or a longer curve with --deepest"
            raise ValueError(
                f"{metric}={value:g} is not reached on validation: the best is {best:.4f}; ask for less, or {further}"
            )
        return max(reached, key=lambda point: (point.value("valid", "ndcg"), sign * point.value("valid", metric)))

    def of_epoch(self, epoch: int) -> Point:
        """The point of an epoch after the accuracy phase.

        Args:
            epoch: 0 is the model before diversifying.

        Returns:
            The point.
        """
        base, *later = self.operating
        if epoch == 0 or (base.phase == DIVERSITY and base.epoch == epoch):
            return base
        for point in later:
            if point.epoch == epoch:
                return point
        epochs = [point.epoch for point in later]
        range_of = f", or {min(epochs)} to {max(epochs)}" if epochs else ""
        raise ValueError(f"epoch={epoch} cannot be chosen; choose 0 (before diversifying){range_of}")

    def nearest(self, rho: float) -> Point:
        """The point whose ρ is nearest.

        Args:
            rho: 0 is the model before diversifying.

        Returns:
            The point.
        """
        along = [point for point in self.operating if point.phase == DIVERSITY and point.knob is not None]
        if not along or not 0 <= rho <= LARGEST_RHO:
            without = "its points have none (--method divmf); name an epoch"
            why = f"ρ is a number, 0 or more, up to {LARGEST_RHO:g}" if along else without
            raise ValueError(f"rho={rho:g} cannot be chosen: {why}")
        return self.base if rho == 0 else min(along, key=lambda point: abs((point.knob or 0.0) - rho))

    @property
    def knee(self) -> Point:
        """The point of the validation frontier farthest above the chord between its ends; see `choose`."""
        rows = frontier_of(self.operating, "gini", "valid")
        (_, highest, least), (_, lowest, most) = rows[0], rows[-1]
        if len(rows) == 1:
            return rows[0][0]

        def above(row: tuple[Point, float, float]) -> float:
            """√2 × the distance to the chord, which runs from (1, 0) to (0, 1) once the axes are scaled."""
            _, accuracy, diversity = row
            scaled = (accuracy - lowest) / (highest - lowest) + (diversity - least) / (most - least)
            return round(scaled - 1, 12)  # so that on the chord is not above it

        return max(rows, key=above)[0]


def sign_of(metric: str) -> int:
    """1 for a metric that is better high, −1 for one that is better low."""
    if metric not in METRICS:
        raise ValueError(f"metric={metric!r} is unknown; choose one of {', '.join(METRICS)}")
    return 1 if METRICS[metric].better == "high" else -1


def frontier_of(points: Sequence[Point], metric: str, part: str) -> list[tuple[Point, float, float]]:
    """The points that no other equals or beats in both: (point, nDCG, metric with its sign), highest nDCG first."""
    sign = sign_of(metric)
    rows = [(point, point.value(part, "ndcg"), sign * point.value(part, metric)) for point in points]
    kept: list[tuple[Point, float, float]] = []
    for row in sorted(rows, key=lambda row: (-row[1], -row[2])):
        if not kept or row[2] > kept[-1][2]:
            kept.append(row)
    return kept
