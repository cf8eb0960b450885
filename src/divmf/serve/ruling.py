"""Rules of a service: bound to the items as they are now, told, and taken from a request."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from scipy import sparse

from divmf.data.filters import FILES
from divmf.data.split import Split
from divmf.engine.arrays import Array
from divmf.market.binding import bind
from divmf.market.bonus import Bonus
from divmf.market.bound import MANY, Bound, Shop
from divmf.market.rules import Amount, Rules
from divmf.market.totals import Totals
from divmf.models.config import TrainConfig
from divmf.ranking.curve import Point
from divmf.serve.catalog import Catalog
from divmf.serve.store import Limit, Limits
from divmf.train.runs import Run

TOLD = 100  # totals that are told of
AMOUNT = {field.name for field in fields(Amount)}


def bound_now(rules: Rules, catalog: Catalog, split: Split, k: int) -> Bound:
    """Rules for the items that there are now, with the catalog of the service; an error where they cannot be."""
    n_items, known = len(catalog.names), split.known
    known = sparse.csr_array((known.data, known.indices, known.indptr), shape=(split.n_users, n_items))
    popularity = np.append(split.train.popularity, np.zeros(n_items - split.n_items, dtype=np.int64))
    frame = catalog.frame()
    given = rules.model_copy(update={"catalog": frame})
    given._folder, given._source = rules.folder, rules.source
    return bind(given, Shop(frame["item_id"], split.user_ids, known, False, k, popularity))


def rules_of(tables: Mapping[str, Any]) -> Rules:
    """Rules that somebody sent: the tables of rules.toml. They may not name files of this machine."""
    if "catalog" in tables:
        raise ValueError("catalog is not a rule; the catalog is that of the service")
    made = Rules(**tables)
    named = [] if made.filter is None else [made.filter.exclude, made.filter.allow]
    for each in named:
        if isinstance(each, str) and (each.startswith("/") or each.lower().endswith(FILES)):
            raise ValueError(f"filter: {each[:200]!r} is a file; name a column, a condition or ids")
    return made


def tables_of(rules: Rules) -> dict[str, Any]:
    """Rules as tables that `rules_of` reads."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping) and value.keys() == AMOUNT:
            return f"{100 * value['number']:.12g}%" if value["is_share"] else int(value["number"])
        if isinstance(value, Mapping):
            return {name: plain(each) for name, each in value.items() if each is not None}
        return value

    found: dict[str, Any] = plain(rules.model_dump(exclude={"catalog"}))
    return {name: table for name, table in found.items() if table}


def split_discount(run: Run, point: Point, config: TrainConfig) -> tuple[Array, Array | None]:
    """The discounts of a run's items at a point, and what its totals were paid; none where it has no rules.

    A run with rules keeps their sum. What the items of a total are paid beyond what their own next showing is worth, in
    the middle, is taken for the pay of the total.
    """
    chosen, bound, n_items = run.read_chosen(point), run.read_rules(), run.read_sizes().items
    if chosen is None:
        return np.zeros(n_items), None
    discount = chosen.discount.astype(np.float64)
    if bound is None:
        return discount, None
    lists = chosen.lists["all"]
    even = config.level * lists.size / n_items
    levels = np.full(n_items, even) if bound.target is None else bound.target * n_items * even
    shown = np.bincount(lists[lists >= 0], minlength=n_items)
    own = np.zeros(n_items)
    for level in np.unique(levels[levels > 0]):
        there = levels == level
        bonus = Bonus(config.delta, float(level), config.steepness, len(lists))
        own[there] = (point.knob or 0.0) * bonus.table[np.minimum(shown[there], len(lists))]
    extra = (discount - own)[np.repeat(np.arange(n_items), np.diff(bound.offsets))]
    pay = np.array([
        np.median(extra[bound.totals == total]) if (bound.totals == total).any() else 0.0
        for total in range(bound.n_totals)
    ])  # fmt: skip
    sums = np.zeros(n_items)
    np.add.at(sums, np.repeat(np.arange(n_items), np.diff(bound.offsets)), pay[bound.totals])
    return discount - sums, pay


def limits_of(totals: Totals | None, version: str, ids: list[int | str]) -> Limits:
    """What the store has to hold to: the caps of totals, with their items."""
    if totals is None:
        return Limits(version, {})
    bound = totals.bound
    owners = np.repeat(np.arange(len(bound.offsets) - 1), np.diff(bound.offsets))
    order = np.argsort(bound.totals, kind="stable")
    cuts = np.searchsorted(bound.totals[order], np.arange(bound.n_totals + 1))
    made = {}
    for total in np.flatnonzero(totals.capped).tolist():
        members = owners[order[cuts[total] : cuts[total + 1]]]
        share = float(bound.share[total])
        cap = None if share else int(bound.high[total])
        made[bound.called(total)] = Limit(cap, share, tuple(str(ids[item]) for item in members.tolist()))
    return Limits(version, made)


def told_of(totals: Totals, item: int | None = None) -> list[dict[str, Any]]:
    """A row a total, or those of an item: floors, those furthest from theirs first, then groups, then single items."""
    bound, room = totals.bound, totals.room()
    of_item = None if item is None else totals.totals_of(np.array([item]))[1]
    due = np.where(bound.low > 0, totals.present / np.maximum(bound.low, 1), np.inf)
    order = np.lexsort((np.arange(bound.n_totals), np.array(bound.rules) == "item", due))
    order = order[:TOLD] if of_item is None else order[np.isin(order, of_item)]
    return [
        {
            "rule": bound.rules[total], "name": bound.names[total], "at_least": int(bound.low[total]),
            "at_most": None if bound.high[total] >= MANY or totals.is_share[total] else int(bound.high[total]),
            "share_at_most": float(bound.share[total]) or None, "per_list": limit_of(int(bound.per_list[total])),
            "given": int(totals.given[total]), "in_horizon": int(totals.present[total]),
            "pay": float(totals.pay[total]),
            "full": bool(totals.capped[total] and room[total] <= 0),
        }
        for total in order.tolist()
    ]  # fmt: skip


def limit_of(number: int) -> int | None:
    """A bound, or none."""
    return None if number >= MANY else number


def summary_of(totals: Totals) -> dict[str, int]:
    """How many totals there are, how many have a floor and have reached it in this horizon, and how many are full."""
    bound, room = totals.bound, totals.room()
    floored = bound.low > 0
    return {
        "totals": bound.n_totals, "floors": int(floored.sum()),
        "reached": int((floored & (totals.present >= bound.low)).sum()),
        "full": int((totals.capped & (room <= 0)).sum()), "blocked": int(bound.blocked.items.sum()),
        "impossible": len(bound.impossible),
    }  # fmt: skip
