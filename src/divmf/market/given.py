"""Asked and given: what lists make of rules, total by total."""

import logging

import numpy as np
import polars as pl

from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.market.bound import MANY, Bound

log = logging.getLogger(__name__)
NAMED = 5  # of what is not met, so many are named one by one


def given_table(bound: Bound, items: Array) -> pl.DataFrame:
    """A row a total: rule, name, at_least (as asked for), at_most, given, missing (showings below it), over.

    items   (n_lists, k): the lists. Totals that lack the most come first; of equals, groups before single items
    """
    given = np.asarray(comm.total(bound.counted(items)))
    high = [None if value >= MANY else int(value) for value in bound.high]
    return pl.DataFrame(
        {
            "rule": bound.rules, "name": bound.names, "at_least": bound.floor, "at_most": high, "given": given,
            "missing": np.maximum(bound.floor - given, 0), "over": np.maximum(given - bound.high, 0),
        },
        schema_overrides={"at_most": pl.Int64},
    ).sort("over", "missing", pl.col("rule") != "item", descending=True, maintain_order=True)  # fmt: skip


def crowded(bound: Bound, items: Array) -> int:
    """How many lists hold more of a total than one list may, or what is blocked."""
    broken = np.zeros(len(items), dtype=np.bool_)
    listed = np.maximum(items, 0)
    broken |= (bound.blocked.items[listed] & (items >= 0)).any(axis=1)
    for row in np.flatnonzero(~broken) if (bound.per_list < items.shape[1]).any() else []:
        own = items[row][items[row] >= 0]
        spans = [bound.totals[bound.offsets[item] : bound.offsets[item + 1]] for item in own]
        totals, counts = np.unique(np.concatenate([np.zeros(0, np.int32), *spans]), return_counts=True)
        broken[row] = (counts > bound.per_list[totals.astype(np.int64)]).any()
    return int(comm.total(broken.sum()))


def summary(bound: Bound, items: Array) -> dict[str, int]:
    """How many rules there are, how many are met, and what is missing; for JSON."""
    table = given_table(bound, items)
    return {
        "totals": len(table), "floors": int((table["at_least"] > 0).sum()), "unmet": int((table["missing"] > 0).sum()),
        "missing": int(table["missing"].sum()), "over": int(table["over"].sum()),
        "lists_broken": crowded(bound, items), "impossible": len(bound.impossible),
    }  # fmt: skip


def tell_unmet(bound: Bound, items: Array, own: Array, where: str = "") -> None:
    """Log the floors that lists do not meet and that were not said to be impossible before, and slots left empty.

    own   (n_lists, k): the lists without rules on showings, which say what can be filled
    """
    if short := int(comm.total((items < 0).sum() - (own < 0).sum())):
        log.warning("%s%s slots are empty: whatever could be shown there is full", where, f"{short:,}")
    given = np.asarray(comm.total(bound.counted(items)))
    unmet = np.flatnonzero(given < bound.low)
    for total in unmet[:NAMED].tolist():
        log.warning("%s%s: %s showings asked for, %s given", where, bound.called(total), f"{bound.low[total]:,}",
                    f"{given[total]:,}")  # fmt: skip
    if len(unmet) > NAMED:
        log.warning("%s%s further floors are not met", where, f"{len(unmet) - NAMED:,}")
