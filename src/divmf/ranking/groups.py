"""What lists give to groups of items: sellers, categories.

A group's exposure is the number of showings of its items. An item may stand in several groups, as a film in several
genres; its showing counts in each.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import polars as pl

from divmf.data.catalogs import column_of, groups_of, of_items
from divmf.engine.arrays import Array
from divmf.ranking.metrics import coverage, gini

DEFINITIONS = {
    "group_coverage": ("Groups shown", "share of the groups of which at least one item stands in a list"),
    "group_gini": ("Gini index of groups", "Gini index of the groups' showings, over all groups; 0 is even"),
    "worst_off": ("Worst-off share", "share of all slots that the least shown group has"),
    "max_min": ("Max–min share", "showings of the least shown group over those of the most shown"),
    "starved": (
        "Starved groups",
        "groups with less than half of their share by interactions (by items, where unknown)",
    ),
}


@dataclass(frozen=True, eq=False)
class Groups:
    """Which items belong to which group.

    column   the column of the catalog; names: its values, sorted
    items, codes   (memberships,): the item and the number of its group
    """

    column: str
    names: list[Any]
    items: Array
    codes: Array
    n_items: int

    @classmethod
    def read(cls, catalog: Any, column: str, item_ids: pl.Series) -> Self:
        """From a column of a catalog; a column of lists puts an item in several groups, a missing value in none."""
        values = column_of(of_items(catalog, item_ids), column, "groups")
        names, items, codes = groups_of(values, "groups")
        if not names:
            raise ValueError(f"groups = {column!r}: the column holds nothing for these {len(item_ids):,} items")
        return cls(column, names, items, codes, len(item_ids))

    def __len__(self) -> int:
        return len(self.names)

    def sums(self, values: Array) -> Array:
        """The sum of the items' values in each group.  (n_items,) → (groups,)"""
        return np.bincount(self.codes, np.asarray(values, dtype=np.float64)[self.items], minlength=len(self))


@dataclass(frozen=True, eq=False)
class GroupExposure:
    """What some lists give to groups.

    counts       (n_items,) in how many lists each item stands
    popularity   (n_items,) interactions, where they are known
    """

    groups: Groups
    counts: Array
    popularity: Array | None = None

    @cached_property
    def showings(self) -> Array:
        """The showings of each group.  (groups,) int64"""
        return self.groups.sums(self.counts).astype(np.int64)

    @cached_property
    def slots(self) -> int:
        """All slots of the lists."""
        return max(1, int(self.counts.sum()))

    @cached_property
    def merit(self) -> Array:
        """The share of the slots that a group would have by its interactions, or by its items where none are known."""
        weight = np.ones(self.groups.n_items) if self.popularity is None else self.popularity
        return self.groups.sums(weight) / max(1.0, float(np.sum(weight)))

    @cached_property
    def starved(self) -> Array:
        """Groups that have less than half of their share, those that lack the most first.  Group numbers"""
        lack = self.merit - self.showings / self.slots
        found = np.flatnonzero(self.showings < self.merit * self.slots / 2)
        return np.asarray(found[np.argsort(-lack[found], kind="stable")])

    @property
    def measures(self) -> dict[str, float]:
        """The numbers of `DEFINITIONS`."""
        most = int(self.showings.max(initial=0))
        return {
            "group_coverage": coverage(self.showings),
            "group_gini": gini(self.showings),
            "worst_off": float(self.showings.min(initial=self.slots) / self.slots),
            "max_min": float(self.showings.min() / most) if most else 0.0,
            "starved": float(len(self.starved)),
        }

    @property
    def frame(self) -> pl.DataFrame:
        """A row a group, the most shown first: items, items shown, showings, share, share by merit, Gini within."""
        groups, shown = self.groups, self.groups.sums(self.counts > 0).astype(np.int64)
        sizes = np.bincount(groups.codes, minlength=len(groups))
        order = np.argsort(groups.codes, kind="stable")
        parts = np.split(self.counts[groups.items[order]], np.cumsum(sizes)[:-1])
        starved = np.zeros(len(groups), dtype=np.bool_)
        starved[self.starved] = True
        return pl.DataFrame(
            {
                groups.column: groups.names,
                "items": sizes,
                "items_shown": shown,
                "coverage": shown / np.maximum(sizes, 1),
                "showings": self.showings,
                "share": self.showings / self.slots,
                "merit": self.merit,
                "gini": [gini(part) for part in parts],
                "starved": starved,
            },
            strict=False,
        ).sort("showings", descending=True, maintain_order=True)

    def document(self, most: int = 20) -> dict[str, Any]:
        """The numbers for JSON: the measures, and the groups that lack the most."""
        names = [self.groups.names[number] for number in self.starved[:most]]
        return {"column": self.groups.column, "groups": len(self.groups), **self.measures, "most_starved": names}
