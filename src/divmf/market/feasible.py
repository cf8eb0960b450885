"""What arithmetic says about rules before anything is computed: contradictions, and floors that cannot be met."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from scipy import sparse

from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.threads import in_parts
from divmf.kernels.counts import add_counts
from divmf.kernels.reach import count_open, count_showings
from divmf.market.bound import MANY, Bound, Shop, Total

log = logging.getLogger(__name__)
SHOWN = 5  # of what cannot be met, so many are named one by one


def checked(bound: Bound, shop: Shop, parts: Sequence[Total]) -> Bound:
    """The rules with floors that are possible; an error where rules contradict each other."""
    reach = Reach(bound, shop, parts)
    check_lists(bound, shop, reach)
    check_sums(bound, shop, parts, reach)
    floored = np.flatnonzero(bound.low > 0)
    possible = reach.most(floored)
    impossible = []
    low = bound.low.copy()
    for total, most in zip(floored.tolist(), possible.tolist(), strict=True):
        if most < low[total]:
            impossible.append(f"{bound.called(total)}: {low[total]:,} showings asked for, {reach.why(total, most)}")
            low[total] = most
    for line in impossible[:SHOWN]:
        log.warning("%s", line)
    if len(impossible) > SHOWN:
        log.warning("%s further floors cannot be met; they are met as far as possible", f"{len(impossible) - SHOWN:,}")
    return replace(bound, low=low, impossible=tuple(impossible))


class Reach:
    """Who can be shown what."""

    def __init__(self, bound: Bound, shop: Shop, parts: Sequence[Total]) -> None:
        self.bound, self.shop, self.parts = bound, shop, parts
        self.n_users = int(comm.total(len(shop.user_ids)))
        pairs = bound.blocked.pairs
        out = shop.open_to if pairs is None or shop.is_open else bound.blocked.with_seen(shop.open_to)
        self.matrix = out  # who may be shown what, or who may not
        counts = np.zeros(out.shape[1], dtype=np.int64)
        add_counts(out.indices.reshape(1, -1), np.ones(1, dtype=np.int64), counts)
        comm.all_reduce(counts)
        self.open_to = counts if shop.is_open else self.n_users - counts
        self.open_to = np.where(bound.blocked.items, 0, self.open_to)
        self.members = np.bincount(bound.totals, minlength=bound.n_totals)
        # the fewest showings that any total of an item leaves it
        self.room = np.minimum(self.open_to, self.tightest())

    @cached_property
    def left(self) -> Array:
        """How many items may be shown to each user.  (n_users,) int64"""
        matrix, blocked = self.matrix, self.bound.blocked.items
        inside = np.empty(matrix.shape[0], dtype=np.int64)
        in_parts(
            lambda first, last: count_open(matrix.indptr, matrix.indices, blocked, first, last, inside), len(inside)
        )
        return inside if self.shop.is_open else int((~blocked).sum()) - inside

    @property
    def slots(self) -> int:
        """How many slots there are to fill: a user with fewer than k items left has fewer."""
        return int(comm.total(np.minimum(self.left, self.shop.k).sum()))

    def tightest(self) -> Array:
        """The lowest bound over the totals of each item.  (n_items,)"""
        bound, room = self.bound, np.full(len(self.bound.offsets) - 1, MANY)
        np.minimum.at(room, np.repeat(np.arange(len(room)), np.diff(bound.offsets)), bound.high[bound.totals])
        return room

    def most(self, totals: Array) -> Array:
        """How many showings of some totals are possible, at the most.  (totals,) int64"""
        bound, shop = self.bound, self.shop
        by_items = np.zeros(bound.n_totals, dtype=np.int64)
        np.add.at(by_items, bound.totals, np.repeat(self.room, np.diff(bound.offsets)))
        limit = np.minimum(np.minimum(bound.per_list, shop.k), self.members)
        found = np.minimum(by_items, self.n_users * limit)
        if not shop.is_open:
            met = np.zeros(bound.n_totals, dtype=np.int64)
            np.add.at(met, bound.totals, np.repeat(self.n_users - self.open_to, np.diff(bound.offsets)))
            sure = self.n_users * limit - met  # each item that a user has met takes at most one showing
            doubtful = totals[(sure < bound.low)[totals]]
        else:
            doubtful = totals
        if len(doubtful):
            found[doubtful] = np.minimum(found[doubtful], self.by_users(limit)[doubtful])
        return np.asarray(np.minimum(found[totals], self.by_caps(totals)[0]))

    @cached_property
    def of_items(self) -> sparse.csr_array:
        """Which totals items are in.  (n_items, totals)"""
        bound, shape = self.bound, (len(self.room), self.bound.n_totals)
        return sparse.csr_array((np.ones(len(bound.totals), np.int64), bound.totals, bound.offsets), shape=shape)

    def beside(self, of: slice) -> Array:
        """For each total that has a floor, what those of a part that share no item with it ask for.  (totals,)"""
        low = self.bound.low
        found, asked = np.zeros(len(low), dtype=np.int64), np.flatnonzero(low > 0)
        shared = sparse.csr_array(self.of_items[:, asked].T @ self.of_items[:, of])
        shared.data[:] = 1
        found[asked] = low[of].sum() - shared @ low[of]
        return found

    def by_caps(self, totals: Array) -> tuple[Array, Array]:
        """How many showings of some totals the caps of groups leave, and of which rule these are.  (totals,) both"""
        of_items, first = self.of_items, 0
        inside = (of_items.multiply(self.room[:, None])).T.tocsr()[totals]  # (totals, items): the room of theirs
        found, rules = np.full(len(totals), MANY), np.full(len(totals), -1)
        for number, part in enumerate(self.parts):
            group = of_items[:, first : first + len(part.names)]
            first += len(part.names)
            if part.rule == "item" or not (part.high < MANY).any():
                continue
            shared = sparse.csr_array(inside @ group)  # the room of the items that a total shares with a group
            shared.data = np.minimum(shared.data, part.high[shared.indices])
            left = np.asarray(shared.sum(axis=1)).ravel() + inside @ (np.asarray(group.sum(axis=1)).ravel() == 0)
            rules = np.where(left < found, number, rules)
            found = np.minimum(found, left)
        return found, rules

    def by_users(self, limit: Array) -> Array:
        """Σ_u min(the limit in a list, the items of the total that are open to u).  (totals,)"""
        bound, n_local = self.bound, self.matrix.shape[0]
        parts = in_parts(
            lambda first, last: count_showings(
                self.matrix.indptr, self.matrix.indices, self.shop.is_open, bound.offsets, bound.totals, self.members,
                limit, first, last,
            ),
            n_local, limit.nbytes, comm.row_range(n_local),
        )  # fmt: skip
        return np.asarray(comm.total(sum(parts, np.zeros(len(limit), dtype=np.int64))))

    def why(self, total: int, most: int) -> str:
        """Why no more showings of a total are possible, in words."""
        bound, size = self.bound, self.members[total]
        items = "its item" if size == 1 else f"its {size:,} items"
        if bound.rules[total] == "item":
            items = "it"
        inside = np.isin(np.arange(len(self.room)), self.items_of(total))
        if not size:
            return "none possible: all its items are left out by filter"
        capacity = int(self.room[inside].sum())
        (capped,), (rule,) = self.by_caps(np.array([total]))
        if capped <= most and capped < capacity:
            return f"at most {most:,} possible: that is what groups.{self.parts[rule].rule}.cap leaves"
        if capacity <= most and (self.tightest()[inside] < self.open_to[inside]).any():
            return f"at most {most:,} possible: that is the capacity of {items}"
        if self.shop.is_open:
            return f"at most {most:,} possible among the candidates"
        users = self.open_users(total)
        return f"at most {most:,} possible: {users:,} users have not met {items}"

    def items_of(self, total: int) -> Array:
        """The items of a total."""
        bound = self.bound
        items: Array = np.repeat(np.arange(len(bound.offsets) - 1), np.diff(bound.offsets))
        return np.asarray(items[bound.totals == total])

    def open_users(self, total: int) -> int:
        """How many users have not met every item of a total."""
        items = self.items_of(total)
        met = np.asarray(self.matrix[:, items].astype(bool).sum(axis=1)).ravel()
        return int(comm.total((met < len(items)).sum()))


def check_lists(bound: Bound, shop: Shop, reach: Reach) -> None:
    """Every user who has k items left without the rules has k with them."""
    blocked, k = bound.blocked, shop.k
    if not shop.is_open and not blocked.is_empty:
        n_items = len(blocked.items)
        before = n_items - np.diff(shop.open_to.indptr)
        after = reach.left
        short = np.flatnonzero((after < k) & (before >= k))
        if len(short):
            user = shop.user_ids[int(short[0])]
            raise ValueError(
                f"filter leaves {len(short):,} users (such as {user!r}: {int(after[short[0]])}) with fewer than k={k}"
                " items; allow more, or choose a smaller k"
            )
    for rule in dict.fromkeys(bound.rules):
        totals = np.flatnonzero([each == rule for each in bound.rules])
        if (bound.per_list[totals] >= k).all():
            continue
        grouped = np.zeros(len(blocked.items), dtype=np.bool_)
        member = np.isin(bound.totals, totals)
        grouped[np.repeat(np.arange(len(grouped)), np.diff(bound.offsets))[member]] = True
        of_groups = np.minimum(bound.per_list[totals], reach.members[totals])
        most = int(of_groups.sum()) + int((~grouped & ~blocked.items).sum())
        if most < k:
            raise ValueError(
                f"groups.{rule}.per_list = {bound.per_list[totals].min()} leaves room for {most} items in a list of"
                f" k={k}: there are {len(totals)} groups; choose a larger per_list or a smaller k"
            )


def check_sums(bound: Bound, shop: Shop, parts: Sequence[Total], reach: Reach) -> None:
    """Floors of what does not overlap fit into all slots, and caps leave room for all of them."""
    slots, every = reach.slots, reach.n_users * shop.k
    open_items = ~bound.blocked.items
    first = 0
    for part in parts:
        totals = slice(first, first + len(part.names))
        first += len(part.names)
        low, high = bound.low[totals], bound.high[totals]
        rule = {"item": "floor", "promote": "promote.share"}.get(part.rule, f"groups.{part.rule}.floor")
        apart = np.bincount(part.items, minlength=len(open_items)).max(initial=0) <= 1
        if apart and low.sum() > every:
            raise ValueError(
                f"{rule}: {int(low.sum()):,} showings asked for in all, more than the {every:,} slots of"
                f" {reach.n_users:,} lists of k={shop.k}"
            )
        together = bound.low + (reach.beside(totals) if apart and low.any() else 0)
        together[totals] = 0
        if (together > every).any():
            most = int(np.argmax(together))
            raise ValueError(
                f"{rule} and {bound.called(most)}: {int(together[most]):,} showings asked for together, more than the"
                f" {every:,} slots of {reach.n_users:,} lists of k={shop.k}"
            )
        if (high < MANY).any() and (room := possible_slots(reach, part, high)) < slots:
            rule = "capacity" if part.rule == "item" else f"groups.{part.rule}.cap"
            raise ValueError(
                f"{rule}: all items together may have {room:,} showings, fewer than the {slots:,} slots of"
                f" {reach.n_users:,} lists of k={shop.k}; raise it, or choose a smaller k"
            )


def possible_slots(reach: Reach, part: Total, high: Array) -> int:
    """How many showings the caps of some totals allow, at the most: each showing counts in one of them, if in any."""
    by_items = np.bincount(part.totals, reach.room[part.items], minlength=len(high)).astype(np.int64)
    others = np.ones(len(reach.room), dtype=np.bool_)
    others[part.items] = False
    return int(np.minimum(by_items, high).sum()) + int(reach.room[others].sum())
