"""What groups of items get, on the terminal: --groups with --catalog."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from divmf.cli.console import Out
from divmf.engine.files import naming

if TYPE_CHECKING:
    from divmf.data.split import Split
    from divmf.ranking.curve import Point
    from divmf.ranking.groups import GroupExposure, Groups
    from divmf.train.runs import Run

ENDS = 5  # groups shown of those with the most and with the least


def say_groups(out: Out, exposure: "GroupExposure") -> None:
    """The numbers of groups, and the groups at both ends, on the terminal."""
    from divmf.ranking.groups import DEFINITIONS

    column, frame = exposure.groups.column, exposure.frame
    rows: list[list[object]] = [[DEFINITIONS[name][0], value, DEFINITIONS[name][1]]
                             for name, value in exposure.measures.items()]  # fmt: skip
    out.table(f"\n{len(frame):,} groups by {column}", ["", "value", "definition"], rows)
    ends = frame if len(frame) <= 2 * ENDS else frame.head(ENDS).vstack(frame.tail(ENDS))
    shown = [[str(row[column]), row["items"], row["items_shown"], row["showings"], f"{row['share']:.2%}",
              f"{row['merit']:.2%}", "starved" if row["starved"] else ""]
             for row in ends.iter_rows(named=True)]  # fmt: skip
    title = f"\nthe most and the least shown of {len(frame):,}" if len(frame) > 2 * ENDS else ""
    out.table(title, [column, "items", "shown", "showings", "share", "by merit", ""], shown)


def read_groups(column: str, catalog: Path | None, split: "Split") -> "Groups":
    """The groups of --groups; refused before anything is trained."""
    from divmf.data.catalogs import read_items
    from divmf.engine import comm
    from divmf.ranking.groups import Groups

    if catalog is None:
        raise ValueError(f"--groups {column} names a column of a catalog; give the file with --catalog")
    if comm.size() > 1:
        raise ValueError("--groups goes with one process; afterwards, `divmf audit` says it of the lists of any run")
    with naming(catalog):
        return Groups.read(read_items(catalog), column, split.item_ids)


def say_both(out: Out, run: "Run", split: "Split", picked: "Point", groups: "Groups") -> dict[str, Any]:
    """What groups get in the test lists of the model and of the picked point."""
    from divmf.estimator import Recommender
    from divmf.ranking.groups import DEFINITIONS, GroupExposure

    found = {}
    for name, point in (("model", run.read_curve().base), ("picked", picked)):
        counts = Recommender.at(run, point, split).lists(k=run.read_config().k, seen="train+valid").counts
        found[name] = GroupExposure(groups, counts, split.train.popularity)
    rows: list[list[object]] = [
        [label, *(exposure.measures[name] for exposure in found.values()), words]
        for name, (label, words) in DEFINITIONS.items()
    ]
    out.table(f"\n{len(groups):,} groups by {groups.column}, on the test", ["", *found, "definition"], rows)
    return {"groups": {name: exposure.document() for name, exposure in found.items()}}
