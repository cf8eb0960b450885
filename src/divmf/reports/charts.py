"""Charts of curves and of who gets recommended. Imports altair, as only paper_charts does beside it."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from divmf.engine.arrays import Array
from divmf.ranking.curve import ACCURACY, Curve, Point, sign_of
from divmf.ranking.metrics import METRICS
from divmf.reports.colours import AXIS, GREY, HIGHLIGHTED, INK, LABEL, LINE, PALETTE, PANEL, colours, shapes
from divmf.reports.rows import (
    curve_rows,
    extent,
    in_view,
    labelled,
    lorenz,
    point_row,
    shares_by_tenth,
    short,
    training_rows,
)

Layers = alt.LayerChart | alt.FacetChart  # what altair says its layer() gives

THEME: Mapping[str, Any] = {
    "background": "white",
    "font": 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif',
    "view": {"stroke": None},
    "mark": {"color": PALETTE[0][0]},
    "rule": {"color": AXIS[0]},
    "axis": {
        "domainColor": AXIS[0], "gridColor": LINE[0], "tickColor": AXIS[0], "labelColor": LABEL[0],
        "titleColor": INK[0], "titleFontWeight": "normal", "titleFontSize": 12, "labelFontSize": 11,
        "titlePadding": 8, "labelOverlap": True,
    },
    "legend": {
        "orient": "bottom", "title": None, "labelColor": INK[0], "labelFontSize": 12, "labelLimit": 220,
        "symbolSize": 90, "columns": 6,
    },
    "title": {"color": INK[0], "subtitleColor": LABEL[0]},
    "header": {"labelColor": INK[0], "titleColor": INK[0]},
    "text": {"color": INK[0], "fontSize": 11},
    "concat": {"spacing": 24},
}  # fmt: skip

MEANINGS = {
    "coverage": "share of the catalog shown", "entropy": "right is more even", "gini": "right is more even",
}  # fmt: skip
OTHER_TITLES = {"kept": "share of the slots kept"}
NOTHING_CHOSEN = "!length(data('method_store'))"  # no method was clicked in the legend
TENTHS = ("1 most popular", *(str(tenth) for tenth in range(2, 10)), "10 least popular")
DOTS = 50  # points of a Lorenz curve that answer to the pointer


def curve_chart(
    curves: Mapping[str, Curve],
    metrics: Sequence[str] = ("coverage", "entropy", "gini"),
    part: str = "test",
    picked: Point | None = None,
    k: int | None = None,
    base: str = "model",
    accuracy: str = "ndcg",
    ceiling: float | None = None,
) -> alt.ConcatChart:
    """nDCG against each diversity metric, a panel each: up and right is better everywhere, as in the paper's Figure 3.

    The first five methods have a colour and a shape each, the rest are grey; a method's operating points are joined in
    order; the diamond is what they start from (its name: `base`), the ring the picked point. A metric that is better
    low (Gini) is drawn negative. The first curve is shown whole, the others down to half of the base's nDCG. A click
    on the legend leaves one method, also a grey one.
    accuracy: what stands for nDCG where nothing was held out, such as "kept", the share of the slots kept.
    ceiling: the highest coverage these lists can have, drawn as a dashed line.
    """
    rows = [
        row | {"rest": position >= HIGHLIGHTED}
        for position, (name, curve) in enumerate(curves.items())
        for row in curve_rows(name, curve, metrics, part, accuracy)
    ]
    if not rows:
        raise ValueError("there is no curve to draw; give at least one")
    rows = labelled(rows, None if picked is None else point_row("chosen", picked, metrics, part, accuracy), base)
    shown = in_view(rows)
    chosen = alt.selection_point(fields=["method"], bind="legend", name="method")
    y = alt.Y("y:Q", title=placed_title(accuracy, k, part), scale=fixed(extent(shown, "y")), axis=alt.Axis(tickCount=5))
    tooltip = [alt.Tooltip("method:N"), alt.Tooltip("at:N", title="point")]
    if accuracy not in METRICS:
        tooltip.append(alt.Tooltip("y:Q", title=title_of(accuracy, k), format=".4~g"))
    tooltip += metric_tooltips([name for name in METRICS if name in rows[0]], k)
    size, panels = dot_size(max(map(len, curves.values()))), []
    for metric in metrics:
        least, most = extent(shown, field := f"x_{metric}", ceiling if metric == "coverage" else None)
        x = alt.X(f"{field}:Q", title=x_title(metric), scale=fixed([least, most]), axis=alt.Axis(tickCount=5))
        placed = alt.Chart().encode(x, y)
        marks = curve_marks(placed, list(curves), tooltip, chosen, size)
        names = point_names(placed, f"datum.{field} > {least + 0.7 * (most - least)}")
        limit = ceiling_marks(ceiling) if metric == "coverage" and ceiling is not None else []
        # the first layer carries the selection, which the legend steers only where that layer has a colour
        panels.append(alt.layer(*marks, *limit, *names, width=250, height=250))
    return alt.concat(
        panels[0].add_params(chosen),
        *panels[1:],
        data=alt.InlineData(values=sorted(rows, key=lambda row: not row.get("rest"))),  # what comes first lies below
        columns=len(metrics),
        description=f"{title_of(accuracy, k)} against {', '.join(metrics)} for {', '.join(curves)}",
    )


def curve_marks(
    placed: alt.Chart, names: list[str], tooltip: list[alt.Tooltip], chosen: alt.Parameter, size: float
) -> list[alt.Chart]:
    """The marks of one panel of `curve_chart`: lines, points, the base and the picked point."""
    colour = alt.Color("method:N", scale=alt.Scale(domain=names, range=colours(names)))
    shape = alt.Shape("method:N", scale=alt.Scale(domain=names, range=shapes(names)))
    opacity = (
        alt.when(chosen, empty=False)
        .then(alt.value(1))
        .when(f"{NOTHING_CHOSEN} && datum.rest")
        .then(alt.value(0.55))
        .when(NOTHING_CHOSEN)
        .then(alt.value(0.95))
        .otherwise(alt.value(0.06))
    )
    curves = placed.transform_filter("datum.role !== 'picked'").encode(colour, opacity=opacity)
    base = placed.transform_filter("datum.role === 'base'").encode(tooltip=tooltip)
    picked = placed.transform_filter("datum.role === 'picked'").encode(tooltip=tooltip)
    return [
        curves.mark_line(strokeWidth=1.6, clip=True).encode(alt.Order("step:Q")),
        curves.mark_point(filled=True, size=size, clip=True).encode(shape, tooltip=tooltip),
        base.mark_point(shape="diamond", filled=True, size=150, color=INK[0], opacity=1),
        picked.mark_point(shape="circle", size=240, strokeWidth=2.2, color=INK[0], opacity=1),
    ]


def ceiling_marks(ceiling: float) -> list[alt.Chart]:
    """The line that no lists can pass, and its name: there are not more slots than that."""
    row = {"ceiling": short(ceiling), "name": "most possible"}
    placed = alt.Chart(alt.InlineData(values=[row])).encode(alt.X("ceiling:Q"))
    return [
        placed.mark_rule(strokeDash=[5, 4], color=AXIS[0], strokeWidth=1.2),
        placed.mark_text(align="right", dx=-4, dy=-3, baseline="bottom", color=LABEL[0]).encode(
            y=alt.value("height"), text="name:N"
        ),
    ]


def point_names(placed: alt.Chart, far_right: str) -> list[alt.Chart]:
    """The names of the marked points, on a soft ground; to the left of a point that is far right in its panel."""
    named = placed.transform_filter("datum.label").encode(text="label:N")
    beside, before = named.transform_filter(f"!({far_right})"), named.transform_filter(far_right)
    return [
        beside.mark_text(align="left", dx=11, dy=-9, stroke=PANEL[0], strokeWidth=3, opacity=0.8),
        beside.mark_text(align="left", dx=11, dy=-9),
        before.mark_text(align="right", dx=-11, dy=-9, stroke=PANEL[0], strokeWidth=3, opacity=0.8),
        before.mark_text(align="right", dx=-11, dy=-9),
    ]


def training_chart(
    curve: Curve, metrics: Sequence[str] = ("ndcg", "coverage", "gini"), part: str = "valid", k: int | None = None
) -> alt.ConcatChart:
    """Each metric over the points of a run; the diamond is the model that is diversified.

    The points of DivMF are epochs of two phases, those of the market have a growing ρ.
    """
    phases = list(dict.fromkeys(point.phase for point in curve.points))
    others = [phase for phase in phases if phase != ACCURACY]
    tones = {ACCURACY: GREY[0]} | dict(zip(others, colours(others), strict=True))
    names = "{'accuracy': 'model', 'diversity': 'market'}[datum.label]" if curve.has_rho else "datum.label + ' phase'"
    title = "points, by their ρ" if curve.has_rho else "epoch of the run"
    x = alt.X("step:Q", title=title, axis=alt.Axis(tickMinStep=1, tickCount=5, grid=False))
    colour = alt.Color(
        "phase:N",
        scale=alt.Scale(domain=phases, range=[tones[phase] for phase in phases]),
        legend=alt.Legend(labelExpr=names),
    )
    tooltip = [alt.Tooltip("at:N", title="point"), *metric_tooltips(metrics, k)]
    panels = []
    for metric in metrics:
        y = alt.Y(f"{metric}:Q", title=title_of(metric, k), scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5))
        placed = alt.Chart().encode(x, y, tooltip=tooltip)
        start = placed.transform_filter("datum.base")
        panels.append(
            alt.layer(
                placed.mark_line(point=alt.OverlayMarkDef(size=dot_size(len(curve))), strokeWidth=1.6).encode(colour),
                start.mark_point(shape="diamond", filled=True, size=130, color=INK[0], opacity=1),
                width=250,
                height=180,
            )
        )
    return alt.concat(
        *panels,
        data=alt.InlineData(values=training_rows(curve, metrics, part)),
        columns=len(metrics),
        description=f"{', '.join(metrics)} by {title}",
    )


def lorenz_chart(counts: Mapping[str, Array], what: str = "items") -> Layers:
    """Lorenz curves of the items' exposure: the share of the slots that the least shown items hold together.

    counts: for some lists, in how many of them each item of the catalog stands (`TopK.counts`); what: or of groups,
    their showings.
    """
    rows = []
    for name, held in counts.items():
        items, slots = lorenz(held)
        every = max(1, len(items) // DOTS)
        rows += [
            {"lists": name, "items": short(x), "slots": short(y), "dot": number % every == 0}
            for number, (x, y) in enumerate(zip(items, slots, strict=True))
        ]
    chosen = alt.selection_point(fields=["lists"], bind="legend", name="lists")
    near = alt.selection_point(on="pointerover", clear="pointerout", empty=False, name="near")
    percent = alt.Axis(format="%", tickCount=5)
    x = alt.X("items:Q", title=f"share of the {what}, least shown first", axis=percent, scale=fixed([0, 1]))
    y = alt.Y("slots:Q", title="share of the slots", axis=percent, scale=fixed([0, 1]))
    tooltip = [
        alt.Tooltip("lists:N"),
        alt.Tooltip("items:Q", format=".1%", title=what),
        alt.Tooltip("slots:Q", format=".2%"),
    ]
    even = alt.Chart(alt.InlineData(values=[{"items": 0, "slots": 0}, {"items": 1, "slots": 1}]))
    lines = alt.Chart(alt.InlineData(values=rows)).encode(x, y, colour_of_lists(list(counts)))
    return alt.layer(
        even.mark_line(strokeDash=[5, 4], color=AXIS[0], strokeWidth=1.2).encode(x, y),
        lines.mark_line(strokeWidth=2.2).encode(opacity=alt.condition(chosen, alt.value(1), alt.value(0.1))),
        lines.transform_filter("datum.dot")
        .mark_point(filled=True, size=110)
        .encode(opacity=alt.condition(near, alt.value(1), alt.value(0)), tooltip=tooltip)
        .add_params(near),
        width=400,
        height=340,
        description=f"Lorenz curves of the exposure of the {what}",
    ).add_params(chosen)


def exposure_chart(counts: Mapping[str, Array], popularity: Array) -> Layers:
    """The share of the slots that each tenth of the catalog holds, most popular tenth first.

    counts as in `lorenz_chart`; popularity: interactions in train.  (n_items,) all
    """
    rows = [
        {"lists": name, "tenth": tenth, "share": short(share)}
        for name, held in counts.items()
        for tenth, share in zip(TENTHS, shares_by_tenth(held, popularity), strict=True)
    ]
    chosen = alt.selection_point(fields=["lists"], bind="legend", name="lists")
    # the words stand under the first and the last number, so that labels stay upright on a phone
    labels = alt.Axis(labelAngle=0, labelOverlap=False, grid=False, labelExpr="split(datum.value, ' ')")
    x = alt.X("tenth:N", sort=TENTHS, title="tenth of the catalog, by popularity", axis=labels)
    y = alt.Y("share:Q", title="share of the slots", axis=alt.Axis(format="%", tickCount=6))
    tooltip = [alt.Tooltip("lists:N"), alt.Tooltip("tenth:N"), alt.Tooltip("share:Q", format=".2%")]
    bars = alt.Chart(alt.InlineData(values=rows)).mark_bar(cornerRadiusEnd=2)
    even = alt.Chart(alt.InlineData(values=[{"share": 0.1}]))
    return alt.layer(
        bars.encode(x, y, alt.XOffset("lists:N", sort=list(counts)), colour_of_lists(list(counts)), tooltip=tooltip)
        .encode(opacity=alt.condition(chosen, alt.value(1), alt.value(0.1)))
        .add_params(chosen),
        even.mark_rule(strokeDash=[5, 4], color=AXIS[0], strokeWidth=1.2).encode(y),
        width=680,
        height=280,
        description="Share of the slots by popularity of the items",
    )


def colour_of_lists(names: list[str]) -> alt.Color:
    """One colour for each set of lists, in the order given."""
    return alt.Color("lists:N", scale=alt.Scale(domain=names, range=colours(names)), sort=names)


def fixed(domain: list[float]) -> alt.Scale:
    """A scale from one number to another, no rounding."""
    return alt.Scale(domain=domain, nice=False, zero=False)


def dot_size(points: int) -> float:
    """The area of a dot, smaller where many follow each other."""
    return min(34.0, max(9.0, 1500 / points))


def metric_tooltips(metrics: Sequence[str], k: int | None) -> list[alt.Tooltip]:
    """A line of a tooltip for each metric, to four figures."""
    return [alt.Tooltip(f"{name}:Q", title=title_of(name, k), format=".4~g") for name in metrics]


def title_of(metric: str, k: int | None) -> str:
    """What a metric is called, nDCG with the length of the lists."""
    if metric not in METRICS:
        return OTHER_TITLES[metric]
    label = METRICS[metric].label
    return f"{label}@{k or 'k'}" if metric == "ndcg" else label


def placed_title(accuracy: str, k: int | None, part: str) -> str:
    """The title of the axis of accuracy, with the part of the split it was measured on."""
    where = f" on {'validation' if part == 'valid' else part}" if accuracy in METRICS else ""
    return title_of(accuracy, k) + where


def x_title(metric: str) -> list[str]:
    """The title, in two lines, of an x axis on which right is better."""
    label = METRICS[metric].label
    name = f"{'negative ' if sign_of(metric) < 0 else ''}{label if sign_of(metric) < 0 else label.lower()}"
    return [name, f"({MEANINGS.get(metric, 'right is better')})"]


def styled(chart: Any) -> Any:
    """The chart in the house's theme. Charts are composed bare: altair takes a theme at the top only."""
    return chart.configure(**THEME)


def spec_of(chart: Any) -> dict[str, Any]:
    """The chart as Vega-Lite, for a page and `save_spec`: altair takes a second for thousands of points."""
    spec: dict[str, Any] = styled(chart).to_dict()
    return spec
