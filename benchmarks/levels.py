"""On the scale of accuracy itself: what all models and methods reach at a given test nDCG, as tables and pictures."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.frontier import DATASETS, KS, Place, Points
from benchmarks.matched import METRICS, Pair, at_accuracy, pairs_of
from divmf.engine.arrays import Array
from divmf.ranking.curve import Curve, Point
from divmf.reports.charts import curve_chart, styled

K = KS[0]
LEVELS = (1.03, 1.0, 0.95, 0.9, 0.8, 0.7)  # of the test nDCG of MF by softmax
CHECKED = {"ml-1m": 0.4228, "epinions-15": 0.0854}  # test nDCG@5 of MF by softmax
EVEN = 0.0005  # values this close are shown as one
RIVALS = 4  # drawn beside the market
SCALE = 1.2  # of the picture: sharp enough on a page, and a small file


def section(folder: Path, images: Path) -> str:
    """Tables and pictures of every dataset with curves on MF by softmax."""
    parts = [INTRODUCTION, checked(folder)]
    for name in DATASETS:
        pairs = pairs_of(name, folder, K)
        if ("softmax", "market") not in pairs:
            continue
        top = float(pairs["softmax", "market"].ndcg[0].mean())
        found = {level: at_accuracy(pairs, level * top) for level in LEVELS}
        image = images / f"frontier-{name}.png"
        draw({pair: pairs[pair] for pair in to_draw(found)}, image)
        picture = f"![{DATASETS[name][0]}: accuracy against diversity](img/{image.name})"
        parts += [f"### All models and methods on {DATASETS[name][0]}", table(found, top, len(pairs))]
        parts += [*beaten(found, top), picture]
    return "\n\n".join(parts)


def beaten(found: Mapping[float, Mapping[Pair, Array]], top: float) -> list[str]:
    """The metrics and levels of which another method than the market is the best, as a sentence."""
    said = []
    for level, values in found.items():
        others = [pair for pair in values if pair[1] != "market"]
        for column, (metric, sign) in enumerate(METRICS.items()):
            first, second = (
                max((sign * values[pair][column] for pair in group), default=-np.inf)
                for group in ([pair for pair in values if pair[1] == "market"], others)
            )
            if second > first + EVEN:
                said.append(f"{metric} at {level * top:.4f} ({abs(first):.4f} against {abs(second):.4f})")
    return [f"The market is not the best in {', '.join(said)}, {WHY}"] if said else []


def checked(folder: Path) -> str:
    """The market where it is as accurate as MF by softmax is before diversifying."""
    lines = ["| dataset | test nDCG@5 | model | nDCG@5 before | coverage | Gini |", "|---" * 6 + "|"]
    for name, level in CHECKED.items():
        for base in ("ease", "auto"):
            file = Place(name, base, 0, folder).file("market", K)
            if not file.exists():
                continue
            made = Points.load(file)
            values = at_accuracy({(base, "market"): made}, level)[base, "market"]
            shown = f"{values[0]:.3f} | {values[2]:.3f}"
            lines.append(f"| {DATASETS[name][0]} | {level:.4f} | {base} | {made.ndcg[0].mean():.4f} | {shown} |")
    return "\n".join([CHECK, "", *lines])


def table(found: Mapping[float, Mapping[Pair, Array]], top: float, n_pairs: int) -> str:
    """The best of each metric at each level, by which pair, and the best that is not of the market."""
    heads = " | ".join(f"{metric} | without the market" for metric in METRICS)
    lines = [
        f"{n_pairs} pairs of a model and a method, seed 0, k = {K}.",
        "",
        f"| nDCG@{K} | {heads} |",
        "|---" * 7 + "|",
    ]
    for level, values in found.items():
        others = {pair: value for pair, value in values.items() if pair[1] != "market"}
        shown = [best(group, column) for column in range(len(METRICS)) for group in (values, others)]
        lines.append(f"| {level * top:.4f} ({level:.0%} of softmax) | {' | '.join(shown)} |")
    return "\n".join(lines)


def best(values: Mapping[Pair, Array], column: int) -> str:
    """The best value and the pair it is of, with how many others have the same."""
    if not values:
        return "–"
    sign = list(METRICS.values())[column]
    most = max(sign * value[column] for value in values.values())
    same = [pair for pair, value in values.items() if sign * value[column] >= most - EVEN]
    others = f" and {len(same) - 1} more" if len(same) > 1 else ""
    return f"{sign * most:.3f}: {named(same[0])}{others}"


def named(pair: Pair) -> str:
    """A pair in words."""
    return f"{'DivMF' if pair[1] == 'divmf' else pair[1]} on {pair[0]}"


def to_draw(found: Mapping[float, Mapping[Pair, Array]]) -> list[Pair]:
    """The market on every model, and the pairs that are most often the best of the others in Gini or entropy."""
    markets = list(dict.fromkeys(pair for values in found.values() for pair in values if pair[1] == "market"))
    won: dict[Pair, int] = {}
    for values in found.values():
        others = [pair for pair in values if pair[1] != "market"]
        for column, sign in list(enumerate(METRICS.values()))[1:] if others else ():
            first = max(others, key=lambda pair: sign * values[pair][column])
            won[first] = won.get(first, 0) + 1
    return markets + sorted(won, key=lambda pair: -won[pair])[:RIVALS]


def draw(pairs: Mapping[Pair, Points], file: Path) -> None:
    """nDCG against each metric."""
    file.parent.mkdir(exist_ok=True)
    chart = styled(curve_chart({named(pair): curve_of(made) for pair, made in pairs.items()}, k=K))
    chart.save(str(file), format="png", scale_factor=SCALE)


def curve_of(points: Points) -> Curve:
    """The test metrics of the points as a curve."""
    rows = zip(points.knob, points.coverage, points.entropy, points.gini, points.ndcg.mean(axis=1), strict=True)
    made = []
    for number, (knob, *values) in enumerate(rows):
        test = dict(zip((*METRICS, "ndcg"), map(float, values), strict=True))
        made.append(Point("setting" if number else "accuracy", number, test, test, knob=float(np.nan_to_num(knob))))
    return Curve(tuple(made))


WHY = """by differences without
intervals. Likely reasons, not tested: next to the model's own lists, a penalty on popularity can raise nDCG itself, and
the market takes the scores as they are; further on, its bonus ends at nine tenths of the even share and does not ask
how far above it popular items are, which weighs more in entropy than in Gini."""

INTRODUCTION = """## On the scale of accuracy itself

A user does not care whose model it is. Here the curves of all models and methods stand beside each other, and the best
of each metric is read off where test nDCG has a given value. A pair whose model is not so accurate to begin with is
left out of the row."""

CHECK = """Two marks: a test nDCG@5 of .4228 on MovieLens-1M and of .0854 on Epinions-15 is that of MF by softmax with
32 dimensions, seed 0, before anything is diversified. Where the market has come down to it from another model
(`auto` is what `DivMF()` chooses; no rival is made on it, so that it is in no other table):"""
