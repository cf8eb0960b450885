"""Charts of the paper's experiments: its Figure 1, and what its other figures need beside curves. Imports altair."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from divmf.ranking.bootstrap import Estimate
from divmf.ranking.curve import Curve, Point, sign_of
from divmf.ranking.metrics import METRICS
from divmf.reports.charts import curve_chart, dot_size, title_of
from divmf.reports.colours import AXIS, GREY, INK, PALETTE, colours, shapes
from divmf.reports.rows import LEAST_KEPT, short

STAR = "M0,-1L0.225,-0.309L0.951,-0.309L0.363,0.118L0.588,0.809L0,0.382L-0.588,0.809L-0.363,0.118L-0.951,-0.309L-0.225,-0.309Z"  # noqa: E501


def best_point_chart(
    curves: Mapping[str, Curve], k: int, ceiling: float, metrics: Sequence[str] = ("coverage", "entropy", "gini")
) -> alt.ConcatChart:
    """`curve_chart` with the paper's `best` as a star: the highest nDCG and diversity of any curve.

    Points that keep less than half of the base's nDCG, which nobody would choose, do not count.
    """
    chart = curve_chart(curves, metrics, k=k, base="MF", ceiling=ceiling)
    least = LEAST_KEPT * next(iter(curves.values())).base.test["ndcg"]
    kept = [point for curve in curves.values() for point in curve.operating if point.test["ndcg"] >= least]
    highest = max(point.test["ndcg"] for point in kept)
    for panel, metric in zip(chart.concat, metrics, strict=True):
        most = max(sign_of(metric) * point.test[metric] for point in kept)
        row = {f"x_{metric}": short(most), "ndcg": short(highest), "label": "best"}
        star = alt.Chart(alt.InlineData(values=[row])).encode(alt.X(f"x_{metric}:Q"), alt.Y("ndcg:Q"))
        panel.layer.append(star.mark_point(shape=STAR, filled=True, size=130, color=INK[0], opacity=1))
        panel.layer.append(star.mark_text(dx=-14, dy=1, align="right").encode(text="label:N"))
    return chart


def bars_chart(values: Mapping[str, Mapping[str, Estimate]]) -> alt.ConcatChart:
    """A panel a metric, a bar a run: how much better than MF, with the interval over the seeds.

    values: by metric, then by run.
    """
    panels = []
    for metric, found in values.items():
        names = list(found)
        rows = [
            {"run": name, "change": short(float(each)), "low": short(each.low), "high": short(each.high)}
            for name, each in found.items()
        ]
        y = alt.Y("change:Q", title=["change from MF:", change_title(metric)], axis=alt.Axis(tickCount=5))
        x = alt.X("run:N", sort=names, title=None, axis=alt.Axis(labels=False, ticks=False))
        placed = alt.Chart(alt.InlineData(values=rows)).encode(x, y)
        tooltip = ["run:N", *(alt.Tooltip(f"{field}:Q", format="+.4~g") for field in ("change", "low", "high"))]
        panels.append(
            alt.layer(
                placed.mark_bar(cornerRadiusEnd=2).encode(
                    alt.Color("run:N", scale=alt.Scale(domain=names, range=colours(names)), sort=names),
                    tooltip=tooltip,
                ),
                placed.mark_rule(color=INK[0], strokeWidth=1.4).encode(alt.Y("low:Q"), alt.Y2("high:Q")),
                width=250,
                height=220,
            )
        )
    return alt.concat(*panels, columns=len(panels), description="Change of the diversity metrics from MF")


def change_title(metric: str) -> str:
    """What a bar of `bars_chart` is."""
    return METRICS[metric].label.lower() if sign_of(metric) > 0 else f"negative {METRICS[metric].label}"


def epochs_chart(
    runs: Mapping[str, Sequence[tuple[int, Point]]], metrics: Sequence[str], k: int, log: bool = False
) -> alt.ConcatChart:
    """Metrics on test by epoch, a line a run; log: epochs on a logarithmic axis."""
    names = list(runs)
    rows = [
        {"run": name, "epoch": epoch, "phase": point.phase} | {metric: short(point.test[metric]) for metric in metrics}
        for name, points in runs.items()
        for epoch, point in points
    ]
    scale = alt.Scale(type="log" if log else "linear", nice=False)
    x = alt.X("epoch:Q", title="epoch", scale=scale, axis=alt.Axis(tickCount=6, tickMinStep=1, grid=False))
    chosen = alt.selection_point(fields=["run"], bind="legend", name="run")
    tooltip = [alt.Tooltip(field) for field in ("run:N", "epoch:Q", "phase:N")]
    tooltip += [alt.Tooltip(f"{each}:Q", title=title_of(each, k), format=".4~g") for each in metrics]
    size = dot_size(max(map(len, runs.values())))
    panels = []
    for metric in metrics:
        y = alt.Y(f"{metric}:Q", title=title_of(metric, k), scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5))
        placed = alt.Chart().encode(
            x,
            y,
            alt.Color("run:N", scale=alt.Scale(domain=names, range=colours(names)), sort=names),
            opacity=alt.condition(chosen, alt.value(0.9), alt.value(0.08)),
        )
        shape = alt.Shape("run:N", scale=alt.Scale(domain=names, range=shapes(names)), sort=names)
        panels.append(
            alt.layer(
                placed.mark_line(strokeWidth=1.6),
                placed.mark_point(filled=True, size=size).encode(shape, tooltip=tooltip),
                width=380,
                height=240,
            )
        )
    return alt.concat(
        panels[0].add_params(chosen),
        *panels[1:],
        data=alt.InlineData(values=rows),
        columns=len(metrics),
        description=f"{', '.join(metrics)} by epoch",
    )


def illustration_chart(results: Mapping[str, Sequence[Sequence[int]]], captions: Mapping[str, str]) -> alt.ConcatChart:
    """Figure 1: who is recommended what; results: for each, the item numbers of every user's list.

    A user likes what one of the results recommends, so all of them are equally accurate.
    """
    panels = []
    likes = [{item for row in rows for item in row} for rows in zip(*results.values(), strict=True)]
    items = sorted(set[int]().union(*likes))
    for name, lists in results.items():
        rows: list[dict[str, Any]] = [
            {"user": f"user {user}", "item": f"{item}", "shown": item in row, "liked": item in liked}
            for user, (row, liked) in enumerate(zip(lists, likes, strict=True), 1)
            for item in items
        ]
        x = alt.X("item:N", title="item", axis=alt.Axis(labelAngle=0, ticks=False, domain=False))
        y = alt.Y("user:N", title=None, axis=alt.Axis(ticks=False, domain=False))
        cells = alt.Chart(alt.InlineData(values=rows)).encode(x, y)
        panels.append(
            alt.layer(
                cells.mark_rect(stroke=AXIS[0], strokeWidth=0.6, fillOpacity=0),
                cells.transform_filter("datum.shown").mark_rect(color=PALETTE[0][0], stroke=AXIS[0], strokeWidth=0.6),
                cells.transform_filter("datum.liked && !datum.shown").mark_point(color=GREY[0], size=40),
                width=210,
                height=150,
                title=alt.TitleParams([f"({name})", captions[name]], fontSize=12, fontWeight="normal", color=INK[0]),
            )
        )
    return alt.concat(*panels, columns=len(panels), description="Three recommendations of two items to four users")
