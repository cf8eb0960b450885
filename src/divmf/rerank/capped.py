"""Rules for rerankers that keep capacities and filters: how many lists each item may stand in."""

from typing import NamedTuple

import numpy as np

from divmf.data.interactions import Interactions
from divmf.engine.arrays import Array
from divmf.market.rules import Rules
from divmf.ranking.lists import TopK
from divmf.rerank.market import bound_to_lists


class Capped(NamedTuple):
    """Candidates without what is filtered out, and of each item the most and the fewest lists.  (n_items,) int64"""

    candidates: TopK
    most: Array
    least: Array


def capped(
    rules: Rules | None, candidates: TopK, k: int, method: str, train: Interactions | None = None, floors: bool = False
) -> Capped:
    """What rules mean for a method that keeps capacities and filters, and floors of items where it can."""
    most = np.full(candidates.n_items, len(candidates))
    least = np.zeros(candidates.n_items, dtype=np.int64)
    if rules is None:
        return Capped(candidates, most, least)
    refuse_others(rules, method, floors)
    bound = bound_to_lists(rules, candidates, k, train)
    items = np.repeat(np.arange(candidates.n_items), np.diff(bound.offsets))
    most[items] = np.minimum(bound.high[bound.totals], len(candidates))
    least[items] = bound.low[bound.totals]
    return Capped(candidates.without(bound.blocked), most, least)


def refuse_others(rules: Rules, method: str, floors: bool) -> None:
    """Refuse rules that a method cannot keep, by name."""
    given = {"floor": rules.floor is not None and not floors, "target": rules.target, "promote": rules.promote}
    others = [name for name, rule in given.items() if rule] + [f"groups.{name}" for name in rules.groups]
    if others:
        kept = "capacity, floor and filter" if floors else "capacity and filter"
        raise ValueError(f"{method} keeps {kept}, not {', '.join(others)}; use market, or leave that rule out")
