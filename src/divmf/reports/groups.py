"""The section of a page that shows what lists give to groups of items: sellers, categories."""

from collections.abc import Mapping

from divmf.engine.arrays import Array
from divmf.ranking.groups import DEFINITIONS, GroupExposure, Groups
from divmf.reports.section import Cell, Figure, Section, Table, Text, percent

NAMED = 15  # starved groups named


def groups_section(groups: Groups, counts: Mapping[str, Array], popularity: Array | None = None) -> Section:
    """Who of the groups is shown, who is starved, and how even it is.

    counts       for some lists, in how many of them each item stands; the first are those that the words are about
    popularity   (n_items,): interactions, where they are known
    """
    from divmf.reports.charts import lorenz_chart  # altair, which takes a second to load

    found = {name: GroupExposure(groups, held, popularity) for name, held in counts.items()}
    (first, now), *_ = found.items()
    measures = {name: exposure.measures for name, exposure in found.items()}
    shown, n_groups = int((now.showings > 0).sum()), len(groups)
    share = "interactions" if popularity is not None else "items"
    prose: list[Text] = [
        f"In the lists of “{first}”, {shown:,} of the {n_groups:,} groups by {groups.column} are shown at least once."
        f" Starved, with less than half of the slots that their share of the {share} would give them:"
        f" {len(now.starved):,}.",
    ]
    chart = lorenz_chart({name: exposure.showings for name, exposure in found.items()}, "groups")
    rows: list[list[Cell]] = [
        [label, *(numbers[name] if name != "starved" else int(numbers[name]) for numbers in measures.values()), words]
        for name, (label, words) in DEFINITIONS.items()
    ]
    header = ["", *counts, "definition"]
    tables = [Table(header, rows, left=(0, len(counts) + 1), fold="How even it is between groups, in numbers")]
    if len(now.starved):
        starved: list[list[Cell]] = [
            [str(groups.names[group]), percent(now.merit[group], 2), *(percent(e.showings[group] / e.slots, 2)
             for e in found.values())]
            for group in now.starved[:NAMED]
        ]  # fmt: skip
        caption = f"Shares of the slots; of the {len(now.starved):,} starved, those that lack the most."
        fold = "The starved groups"
        tables.append(Table([groups.column, f"by {share}", *counts], starved, caption, fold=fold))
    figure = Figure(
        chart, f"Lorenz curves of the groups by {groups.column}: on the dashed line, all groups are shown alike."
    )
    return Section(f"Groups by {groups.column}", prose, charts=[figure], tables=tables)
