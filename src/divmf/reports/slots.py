"""The table that says where in the lists diversity is."""

from collections.abc import Mapping

from divmf.ranking.lists import TopK
from divmf.ranking.slots import exposure_by_slots
from divmf.reports.section import Cell, Table


def slots_table(lists: Mapping[str, TopK], k: int) -> Table:
    """Coverage and Gini of the first slots and by attention, for each of some lists of the same users."""
    made = {name: exposure_by_slots(each, k) for name, each in lists.items()}
    header = ["Slots", *(f"{metric}, {name}" for metric in ("coverage", "Gini") for name in made), "coverage at most"]
    first = next(iter(made.values()))
    rows: list[list[Cell]] = [
        [slots, *(each[slots][metric] for metric in ("coverage", "gini") for each in made.values()),
         first[slots]["coverage_ceiling"]]
        for slots in first
    ]  # fmt: skip
    caption = (
        "The first slots are seen most. By attention, a showing in slot r counts 1/log2(r + 1); lists made with"
        " --exposure attention spread that instead of the number of showings."
    )
    return Table(header, rows, caption, fold="Where in the list: the first slots, and slots by attention")
