"""What rules mean for given data: bounds on totals of showings, limits in a list, what is blocked.

A total is the number of showings of some items: of one that has a capacity or a floor, of a group, of what is promoted.
An item counts in each total that it belongs to. What arithmetic shows to be impossible is said before anything is
computed: contradictions are errors, floors that too few users can fill are named and asked for as far as possible.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from divmf.data.catalogs import column_of, groups_of, holds, named_items, of_items, same_type
from divmf.data.filters import Filters
from divmf.data.ids import numbers_of
from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.market.bound import MANY, Bound, Shop, Total
from divmf.market.feasible import checked
from divmf.market.rules import Amount, Group, Rules, Some


def bind(rules: Rules, shop: Shop, count_all: bool = False) -> Bound:
    """The rules for these users and items; an error, in one line, where they contradict each other or the data.

    count_all   totals count also what is blocked, for lists that were made without the rules
    """
    try:
        return Binder(rules, shop).bound(count_all)
    except ValueError as error:
        if rules.source == "rules" or str(error).startswith(rules.source):
            raise
        raise ValueError(f"{rules.source}: {error}") from error


class Binder:
    """Works out what rules mean for a shop."""

    def __init__(self, rules: Rules, shop: Shop) -> None:
        self.rules, self.shop = rules, shop
        self.catalog = None if rules.catalog is None else of_items(rules.catalog, shop.item_ids)
        self.n_items, self.n_users = len(shop.item_ids), int(comm.total(len(shop.user_ids)))
        filters = Filters(shop.item_ids, shop.user_ids, self.catalog, rules.folder)
        named = rules.filter
        names = ("filter.exclude", "filter.allow")
        self.blocked = filters.blocked(named and named.exclude, named and named.allow, names)
        self.slots = self.n_users * shop.k

    def bound(self, count_all: bool = False) -> Bound:
        """All totals one behind the other, checked."""
        parts = [part for part in (self.items_part(), *self.group_parts(), self.promoted()) if part is not None]
        firsts = np.cumsum([0, *(len(part.names) for part in parts)])
        items = np.concatenate([np.zeros(0, np.int64), *(part.items for part in parts)])
        numbers = [part.totals + first for part, (first, _) in zip(parts, pairwise(firsts), strict=True)]
        totals = np.concatenate([np.zeros(0, np.int64), *numbers])
        open_ = ~self.blocked.items[items] | count_all
        items, totals = items[open_], totals[open_]
        order = np.lexsort((totals, items))
        offsets = np.concatenate([[0], np.cumsum(np.bincount(items, minlength=self.n_items))])

        def joined(name: str, kind: Any) -> Array:
            return np.concatenate([np.zeros(0, kind), *(getattr(part, name) for part in parts)]).astype(kind)

        made = Bound(
            [part.rule for part in parts for _ in part.names], [name for part in parts for name in part.names],
            offsets.astype(np.int64), totals[order].astype(np.int32), joined("low", np.int64), joined("high", np.int64),
            joined("per_list", np.int64), joined("low", np.int64), joined("level", np.float64),
            np.repeat([part.weight for part in parts], np.diff(firsts)).astype(np.float64), joined("share", np.float64),
            self.target(), self.blocked,
        )  # fmt: skip
        return checked(made, self.shop, parts)

    def items_part(self) -> Total | None:
        """A total for each item that has a capacity or a floor."""
        capacity = self.numbers(self.rules.capacity, "capacity", MANY)
        floor = self.numbers(self.rules.floor, "floor", 0)
        ruled = np.flatnonzero((capacity < MANY) | (floor > 0))
        if not len(ruled):
            return None
        for item in ruled[floor[ruled] > capacity[ruled]][:1]:
            raise ValueError(
                f"item {self.shop.item_ids[int(item)]!r}: its floor of {floor[item]:,} lists is above its capacity of"
                f" {capacity[item]:,}"
            )
        blocked = ruled[self.blocked.items[ruled] & (floor[ruled] > 0)]
        if len(blocked):
            raise ValueError(
                f"item {self.shop.item_ids[int(blocked[0])]!r} has a floor of {floor[blocked[0]]:,} lists and is left"
                f" out by filter ({len(blocked):,} such items); they contradict each other"
            )
        names = [repr(name) for name in self.shop.item_ids.gather(ruled).to_list()]
        made = Total.over("item", names, ruled, np.arange(len(ruled)))
        return made._replace(low=floor[ruled], high=capacity[ruled])

    def numbers(self, rule: Some | None, name: str, none: int) -> Array:
        """What a rule says for each item, `none` where it says nothing.  (n_items,) int64"""
        found = np.full(self.n_items, none, dtype=np.int64)
        if rule is None:
            return found
        where = np.ones(self.n_items, dtype=np.bool_)
        if rule.where is not None:
            where = holds(self.catalog, rule.where, f"{name}.where =")
            if not where.any():
                raise ValueError(f"{name}.where = {rule.where!r} holds for none of {self.n_items:,} items")
        if rule.count is not None:
            return np.where(where, rule.count, found)
        if rule.column is not None:
            column = column_of(self.catalog, rule.column, f"{name}.column")
            if not column.dtype.is_numeric():
                raise ValueError(f"{name}.column = {rule.column!r} holds {column.dtype}; it must hold whole numbers")
            column = column.cast(pl.Float64).fill_nan(None)
            if column.null_count() == len(column):
                raise ValueError(f"{name}.column = {rule.column!r} holds nothing for these {self.n_items:,} items")
            given = column.fill_null(none).to_numpy()
            if (given < 0).any() or (given != np.floor(given)).any():
                wrong = given[(given < 0) | (given != np.floor(given))][0]
                raise ValueError(
                    f"{name}.column = {rule.column!r} holds {wrong:g}; numbers of lists are whole, 0 or more"
                )
            return np.where(where, np.minimum(given, MANY).astype(np.int64), found)
        assert rule.items is not None
        ids = same_type(pl.Series("item_id", list(rule.items)), self.shop.item_ids)
        named_items(ids, self.shop.item_ids, f"{name}.items")
        found[numbers_of(ids, self.shop.item_ids)] = list(rule.items.values())
        return found

    def group_parts(self) -> list[Total]:
        """A total for each value of each group column."""
        return [self.group_part(name, group) for name, group in self.rules.groups.items()]

    def group_part(self, name: str, group: Group) -> Total:
        """The totals of one group column; a column of lists puts an item in several."""
        rule = f"groups.{name}"
        column = column_of(self.catalog, group.column or name, f"{rule}.column")
        values, items, totals = groups_of(column, f"{rule}.column")
        if not values:
            raise ValueError(f"{rule}.column = {column.name!r} holds nothing for these {self.n_items:,} items")
        made = Total.over(name, [repr(value) for value in values], items, totals)
        low, high = (
            self.amounts(given, values, f"{rule}.{which}", none, which == "floor")
            for which, given, none in (("floor", group.floor, 0), ("cap", group.cap, MANY))
        )
        for at in np.flatnonzero(low > high)[:1]:
            raise ValueError(
                f"{name} {made.names[at]}: its floor of {low[at]:,} showings is above its cap of {high[at]:,}"
            )
        caps = [group.cap.get(str(value)) if isinstance(group.cap, dict) else group.cap for value in values]
        share = [cap.number if cap is not None and cap.is_share else 0.0 for cap in caps]
        made = made._replace(low=low, high=high, share=np.array(share))
        if group.per_list is not None:
            made = made._replace(per_list=np.full(len(values), group.per_list))
        if group.target is not None:
            level = self.shares(group.target, group.power, f"{rule}.target", items, totals, len(values))
            made = made._replace(level=level * self.slots, weight=group.weight)
        return made

    def amounts(
        self, given: Amount | dict[str, Amount] | None, values: list[Any], rule: str, none: int, least: bool
    ) -> Array:
        """A floor or a cap for each group, in showings.  (groups,) int64"""
        found = np.full(len(values), none, dtype=np.int64)

        def showings(amount: Amount) -> int:
            return amount.at_least(self.slots) if least else amount.at_most(self.slots)

        if isinstance(given, Amount):
            found[:] = showings(given)
            if least and given.is_share and given.number * len(values) > 1 + 1e-9:
                raise ValueError(
                    f"{rule} = '{given}' for each of {len(values):,} groups adds up to"
                    f" {100 * given.number * len(values):,.0f}% of all slots; choose at most {100 / len(values):.3g}%"
                )
        elif given is not None:
            number = {str(value): at for at, value in enumerate(values)}
            for value, amount in given.items():
                if value not in number:
                    raise ValueError(f"{rule} names {value!r}, which no item of the catalog has")
                found[number[value]] = showings(amount)
        return found

    def shares(self, by: str, power: float, rule: str, items: Array, totals: Array, n: int) -> Array:
        """Shares of a target that add up to 1: even, by merit, or of a column.  (n,) float64"""
        if by == "even":
            return np.full(n, 1 / max(1, n))
        if by == "merit":
            if self.shop.popularity is None:
                raise ValueError(f"{rule} = 'merit' counts interactions, which are not given; give --train (train=…)")
            weight = self.shop.popularity.astype(np.float64)
        else:
            column = column_of(self.catalog, by, rule)
            if not column.dtype.is_numeric():
                raise ValueError(f"{rule} = {by!r}: the column holds {column.dtype}, not numbers")
            weight = column.cast(pl.Float64).fill_null(0).fill_nan(0).to_numpy()
            if (weight < 0).any() or not np.isfinite(weight).all():
                raise ValueError(f"{rule} = {by!r}: the column holds {weight.min():g}; targets are 0 or more")
        total = np.bincount(totals, weight[items], minlength=n) ** power
        if not total.sum():
            raise ValueError(f"{rule} = {by!r} is 0 for every item; nothing can be proportional to it")
        return np.asarray(total / total.sum())

    def target(self) -> Array | None:
        """Shares of all exposure that items aim at; none: even."""
        rule = self.rules.target
        if rule is None or rule.by == "even":
            return None
        everything = np.arange(self.n_items)
        return self.shares(rule.by, rule.power, "target.by", everything, everything, self.n_items)

    def promoted(self) -> Total | None:
        """One total of all that is promoted."""
        rule = self.rules.promote
        if rule is None:
            return None
        items = np.flatnonzero(holds(self.catalog, rule.where, "promote.where ="))
        if not len(items):
            raise ValueError(f"promote.where = {rule.where!r} holds for none of {self.n_items:,} items")
        made = Total.over("promote", [""], items, np.zeros(len(items), np.int64))
        return made._replace(low=np.array([rule.share.at_least(self.slots)]))
