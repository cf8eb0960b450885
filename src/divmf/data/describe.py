"""What a dataset is like: the paper's Table 1 and the skew of Figure 2."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from divmf.data.interactions import Interactions
from divmf.engine.arrays import Array

if TYPE_CHECKING:
    import altair

CHART_POINTS = 2000  # ranks drawn at most


@dataclass(frozen=True)
class Description:
    """The numbers of Table 1 and Figure 2, and a few more.

    head_share   share of the interactions held by the most popular tenth of the items, rounded up
    gini         of the items' popularity, as for recommendations: 0 when even, 1 when one item has all
    users_with_one       users with a single interaction
    per_user, per_item   least, median and most interactions
    first, last  times of the earliest and the latest interaction, where the times are dates
    merged       repeated pairs that were merged away while reading
    """

    users: int
    items: int
    interactions: int
    density: float
    head_share: float
    gini: float
    users_with_one: int
    per_user: tuple[int, float, int]
    per_item: tuple[int, float, int]
    first: datetime | None
    last: datetime | None
    merged: int


def describe(data: Interactions) -> Description:
    """Count: users, items, interactions, density (Table 1), and how skewed towards few items they are (Figure 2)."""
    if not len(data):
        raise ValueError("there are no interactions to describe; give data with at least one")
    popularity = np.sort(data.popularity)[::-1]  # (n_items,), the most popular first
    n_items = len(popularity)
    counts = np.bincount(data.users, minlength=data.n_users)  # (n_users,)
    steps = n_items + 1 - 2 * np.arange(1, n_items + 1)  # as in metrics.gini, which lies beside and not below
    return Description(
        users=data.n_users,
        items=n_items,
        interactions=len(data),
        density=data.density,
        head_share=float(popularity[: tenth(n_items)].sum() / len(data)),
        gini=float(steps @ popularity) / (len(data) * max(1, n_items - 1)),
        users_with_one=int((counts == 1).sum()),
        per_user=spread(counts),
        per_item=spread(popularity),
        first=None if data.times is None else as_date(int(data.times.min())),
        last=None if data.times is None else as_date(int(data.times.max())),
        merged=data.merged,
    )


def tenth(n_items: int) -> int:
    """A tenth of the items, rounded up."""
    return (n_items + 9) // 10


def spread(counts: Array) -> tuple[int, float, int]:
    """The least, the median and the most."""
    return int(counts.min()), float(np.median(counts)), int(counts.max())


def as_date(time: int) -> datetime | None:
    """A time as a date, if it is one from 1990 to 2100 in seconds, or in milli-, micro- or nanoseconds."""
    for unit in (1, 10**3, 10**6, 10**9):
        if 631_152_000 <= time // unit < 4_102_444_800:
            return datetime.fromtimestamp(time // unit, UTC)
    return None


def skew_chart(data: Interactions) -> "altair.Chart | altair.LayerChart":
    """Figure 2: how many interactions the item at each popularity rank has."""
    import altair

    stats = describe(data)
    popularity = np.sort(data.popularity[data.popularity > 0])[::-1]
    n_items = len(popularity)
    # half of the points where the head falls steeply, half along the tail
    ranks = np.concatenate([np.geomspace(1, n_items, CHART_POINTS // 2), np.linspace(1, n_items, CHART_POINTS // 2)])
    ranks = np.unique(ranks.round().astype(np.int64))  # (at most CHART_POINTS,)
    points = pl.DataFrame({"rank": ranks, "interactions": popularity[ranks - 1]})
    title = altair.Title(
        f"{stats.head_share:.0%} of the interactions are with the most popular 10% of the items",
        subtitle=f"{stats.interactions:,} interactions of {stats.users:,} users with {stats.items:,} items",
    )
    rank = altair.X("rank:Q", title="items, from the most to the least popular", scale=altair.Scale(nice=False))
    number = altair.Y("interactions:Q", title="number of interactions", scale=altair.Scale(type="log"))
    line: Any = altair.Chart(points).mark_line().encode(x=rank, y=number, tooltip=["rank:Q", "interactions:Q"])
    head = altair.Chart(pl.DataFrame({"rank": [tenth(n_items)]})).mark_rule(strokeDash=[4, 4]).encode(x="rank:Q")
    chart: altair.LayerChart = (line + head).properties(title=title, width=480, height=300)
    return chart
