"""What the charts draw, as plain rows and arrays: numbers only, no altair."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from divmf.engine.arrays import Array
from divmf.ranking.curve import ACCURACY, Curve, Point, sign_of
from divmf.ranking.metrics import METRICS

Row = dict[str, Any]
LORENZ_POINTS = 500
LEAST_KEPT = 0.5  # of the base's accuracy: below, nobody would choose


def curve_rows(name: str, curve: Curve, metrics: Sequence[str], part: str, accuracy: str = "ndcg") -> list[Row]:
    """The operating points of a method; `role` tells the base from the others, `step` is their order."""
    base = curve.base
    return [
        point_row(name, point, metrics, part, accuracy) | {"step": step, "role": "base" if point is base else "point"}
        for step, point in enumerate(curve.operating)
    ]


def labelled(rows: list[Row], picked: Row | None, base: str) -> list[Row]:
    """The rows with the picked point behind them; that point and the first base have their names beside them.

    Of bases at one place, such as MF's for all rerankers of its lists, only the first is marked as one.
    """
    first, *others = rows
    others = [row | {"role": "point"} if same_place(row, first) else row for row in others]
    if picked is None:
        return [first | {"label": base}, *others]
    labels = (f"{base}, chosen", "") if same_place(picked, first) else (base, "chosen")
    return [first | {"label": labels[0]}, *others, picked | {"step": 0, "role": "picked", "label": labels[1]}]


def same_place(one: Row, other: Row) -> bool:
    """Whether two points coincide in every panel."""
    return all(one[field] == other[field] for field in one if field.startswith("x_") or field == "y")


def point_row(name: str, point: Point, metrics: Sequence[str], part: str, accuracy: str = "ndcg") -> Row:
    """All that was measured at a point, `y`: its accuracy, and `x_…`: its places on axes where right is better."""
    measured = {metric: short(point.value(part, metric)) for metric in METRICS if metric in getattr(point, part)}
    coordinates = {f"x_{metric}": short(sign_of(metric) * point.value(part, metric)) for metric in metrics}
    return {"method": name, "at": point_name(point), "y": short(point.value(part, accuracy))} | measured | coordinates


def point_name(point: Point) -> str:
    """What a point is called where people read it."""
    return f"accuracy epoch {point.epoch}" if point.phase == ACCURACY and point.epoch else point.name


def in_view(rows: Sequence[Row]) -> list[Row]:
    """The rows the panels must hold: the first method, the picked point, of the others what keeps half the accuracy."""
    least = LEAST_KEPT * rows[0]["y"]
    whole = (rows[0]["method"], "chosen")
    return [row for row in rows if row["y"] >= least or row["method"] in whole]


def training_rows(curve: Curve, metrics: Sequence[str], part: str) -> list[Row]:
    """Every point of a run in the order it was made (by its ρ, if it has one), also those that one may not choose."""
    base, points = curve.base, list(curve.points)
    if curve.has_rho:
        points = [point for point in points if point.phase == ACCURACY] + list(curve.operating[1:])
    return [
        {"step": step, "phase": point.phase, "at": point_name(point), "base": point is base}
        | {metric: short(point.value(part, metric)) for metric in metrics}
        for step, point in enumerate(points, 1)
    ]


def lorenz(counts: Array, points: int = LORENZ_POINTS) -> tuple[Array, Array]:
    """The Lorenz curve from (0, 0) to (1, 1), at most this many points: shares of the items and of the slots.

    With A the area under the whole curve, the Gini index of `metrics.gini` is (1 − 2A) |I| / (|I| − 1).
    """
    n_items = len(counts)
    held = np.append(0, np.cumsum(np.sort(counts)))  # (n_items + 1,)
    kept = np.linspace(0, n_items, min(points, n_items + 1)).round().astype(np.int64)
    return kept / max(1, n_items), held[kept] / max(1, held[-1])


def shares_by_tenth(counts: Array, popularity: Array) -> Array:
    """The share of the slots each tenth of the catalog holds, the most popular first; its first is `head_share`."""
    ranking = np.argsort(-popularity.astype(np.float64), kind="stable")  # (n_items,)
    held = [counts[tenth].sum() for tenth in np.array_split(ranking, 10)]
    return np.array(held, dtype=np.float64) / max(1, int(counts.sum()))  # (10,)


def extent(rows: Sequence[Mapping[str, Any]], field: str, also: float | None = None) -> list[float]:
    """From the lowest to the highest value, and a little air; also: a value that must be seen beside them."""
    values = [row[field] for row in rows] + ([] if also is None else [also])
    lowest, highest = (min(values), max(values)) if values else (0.0, 1.0)
    air = 0.06 * (highest - lowest) or 0.05 * abs(highest) or 1.0
    return [lowest - air, highest + air]


def short(value: float) -> float:
    """A number as exact as a picture needs it."""
    return float(f"{value:.6g}")
