"""Bounds on totals of showings, limits in a list, what is blocked: rules for given users and items, as arrays."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple, Self

import numpy as np
import polars as pl
from scipy import sparse

from divmf.data.filters import Blocked
from divmf.engine.arrays import Array

MANY = 1 << 40  # showings: no bound
ARRAYS = {
    "offsets": np.int64, "totals": np.int32, "low": np.int64, "high": np.int64, "per_list": np.int64, "floor": np.int64,
    "level": np.float64, "weight": np.float64, "share": np.float64,
}  # fmt: skip


class Total(NamedTuple):
    """Totals of one rule before they are put one behind the other.

    rule      what the rule is called, such as groups.seller
    names     what each total is of
    items, totals         the item of each membership, and the number of its total
    low, high, per_list   (totals,) int64; level (totals,): shares of the bonus of a total, 0 for none
    share     (totals,): of all slots, where that is how the cap was said; else 0
    """

    rule: str
    names: list[str]
    items: Array
    totals: Array
    low: Array
    high: Array
    per_list: Array
    level: Array
    share: Array
    weight: float = 0.0

    @classmethod
    def over(cls, rule: str, names: list[str], items: Array, totals: Array) -> "Total":
        """Totals without bounds."""
        n = len(names)
        return cls(
            rule, names, items, totals, np.zeros(n, np.int64), np.full(n, MANY), np.full(n, MANY), np.zeros(n),
            np.zeros(n),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Bound:
    """Rules for given data.

    rules, names     (totals,): of which rule a total is, and of what
    offsets, totals  the totals of each item, as a CSR matrix
    low, high        (totals,) int64: so many showings at least, and at most
    per_list         (totals,) int64: so many in one list at the most
    floor            (totals,) int64: the showings at least, as the rules say; low is what is possible of them
    level, weight    (totals,) float64: the showings at which the bonus of a total ends, 0 for none; what it counts
    share            (totals,) float64: of all slots, where the upper bound was said so; else 0
    target           (n_items,) float64 or None: the exposure of items at which their bonus ends, as shares of all
    blocked          what may not be recommended
    impossible       what cannot be met, one line each
    """

    rules: list[str]
    names: list[str]
    offsets: Array
    totals: Array
    low: Array
    high: Array
    per_list: Array
    floor: Array
    level: Array
    weight: Array
    share: Array
    target: Array | None
    blocked: Blocked
    impossible: tuple[str, ...] = ()

    @property
    def n_totals(self) -> int:
        """How many totals there are."""
        return len(self.low)

    def called(self, total: int) -> str:
        """What messages call a total."""
        return f"{self.rules[total]} {self.names[total]}".strip()

    @property
    def digest(self) -> str:
        """A hash of all that is ruled."""
        return blake2b(json.dumps(self.to_json(), sort_keys=True).encode(), digest_size=16).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """As a run folder keeps it."""
        kept: dict[str, Any] = {"rules": self.rules, "names": self.names, "impossible": list(self.impossible)}
        kept |= {name: getattr(self, name).tolist() for name in ARRAYS}
        kept["target"] = None if self.target is None else self.target.tolist()
        kept["blocked"] = np.flatnonzero(self.blocked.items).tolist()
        pairs = self.blocked.pairs
        kept["pairs"] = None if pairs is None else [array.tolist() for array in pairs.nonzero()]
        return kept

    @classmethod
    def from_json(cls, kept: Mapping[str, Any], n_users: int) -> Self:
        """From what `to_json` gave; n_users: how many there are."""
        arrays = {name: np.array(kept[name], dtype=kind) for name, kind in ARRAYS.items()}
        n_items = len(arrays["offsets"]) - 1
        blocked = np.zeros(n_items, dtype=np.bool_)
        blocked[kept["blocked"]] = True
        pairs = None
        if kept["pairs"] is not None:
            rows, items = (np.array(each, dtype=np.int64) for each in kept["pairs"])
            pairs = sparse.csr_array((np.ones(len(rows), np.float32), (rows, items)), shape=(n_users, n_items))
        target = None if kept["target"] is None else np.array(kept["target"], dtype=np.float64)
        return cls(kept["rules"], kept["names"], **arrays, target=target, blocked=Blocked(blocked, pairs),
                   impossible=tuple(kept["impossible"]))  # fmt: skip

    def counted(self, items: Array) -> Array:
        """The totals of some lists.  items (n_lists, k) → (totals,) int64"""
        shown = np.bincount(items[items >= 0], minlength=len(self.offsets) - 1)
        found = np.zeros(self.n_totals, dtype=np.int64)
        np.add.at(found, self.totals, np.repeat(shown, np.diff(self.offsets)))
        return found


class Shop(NamedTuple):
    """What rules are bound to.

    open_to   (n_users, n_items) sparse: whom an item may be shown to where `is_open`, else who has met it
    k         the length of a list; popularity (n_items,): interactions, for merit
    """

    item_ids: pl.Series
    user_ids: pl.Series
    open_to: sparse.csr_array
    is_open: bool
    k: int
    popularity: Array | None = None
