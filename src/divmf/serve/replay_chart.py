"""The picture of a replay."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from divmf.serve.replay import PANELS, rows_for_chart


def replay_chart(periods: Sequence[dict[str, Any]]) -> alt.FacetChart:
    """Accuracy, coverage, Gini and latency over the requests, a panel each."""
    lines = (
        alt.Chart()
        .mark_line(point=True)
        .encode(
            alt.X("requests:Q", title="requests"),
            alt.Y("value:Q", title=None, scale=alt.Scale(zero=False)),
            alt.Color("line:N", title=None, legend=alt.Legend(orient="bottom")),
        )
        .properties(width=320, height=180)
    )
    made: alt.FacetChart = lines.facet(
        alt.Facet("panel:N", title=None, sort=list(PANELS)),
        columns=2,
        data=alt.InlineData(values=list(rows_for_chart(periods))),
    ).resolve_scale(y="independent")
    return made
