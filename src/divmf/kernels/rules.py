"""The exposure market with rules, compiled: the best list of a user where totals of showings have bounds."""

from typing import Any

import numpy as np
from numba import njit

from divmf.engine.arrays import Array
from divmf.kernels.limits import TRACKED, Trace, best_within, broken, keeps_limits, room_of, trace_for, without_more
from divmf.kernels.market import (
    NEVER,
    ONE,
    ONE_BITS,
    Columns,
    Desk,
    Terms,
    best_list,
    desk_for,
    gain_of,
    keep_highest,
)
from divmf.kernels.totals import Ruled, bonus_at, fills, is_in, move


@njit(cache=True, nogil=True)
def _own_gain(item: int, exposed: Array, more: int, terms: Terms, rules: Ruled) -> Any:
    """What `more` exposure earns an item, by the bonus of all or by its own."""
    if len(rules.own_level) == 0:
        return gain_of(exposed[item], more, terms.bonus)
    one = float(1 << 20)
    at = exposed[item] / one
    return rules.rho * bonus_at(rules.own_level[item], at, rules.steepness, rules.delta) * (more / one)


@njit(cache=True, nogil=True)
def _pull_on(item: int, rules: Ruled, pull: Array) -> Any:
    """What one more showing of an item is worth by its totals."""
    more = 0.0
    for position in range(rules.offsets[item], rules.offsets[item + 1]):
        more += pull[rules.totals[position]]
    return more


@njit(cache=True, nogil=True)
def _gather(
    columns: Columns, user: int, kind: int, terms: Terms, rules: Ruled, exposed: Array, pull: Array, trace: Trace,
    n_tracked: int, desk: Desk,
) -> int:  # fmt: skip
    """Put the candidates that may be in the user's list on the desk, with what they would earn; how many they are.

    Where all slots expose alike, an item is passed over that follows k others worth at least as much in the last slot,
    and so in each, which no tracked limit concerns; or as many of its only tracked total as a list may hold.
    """
    items, values, opens, exposure = columns.items, columns.values, columns.opens, terms.exposure
    offsets, totals, table, plain = rules.offsets, rules.totals, terms.bonus, len(rules.own_level) == 0
    k, size, n_highest = len(terms.slots), 0, 0
    flat, last = exposure[0] == exposure[k - 1], terms.slots[k - 1]
    whole = flat and plain and exposure[0] == ONE
    trace.n_best[:n_tracked] = 0
    for at in range(columns.starts[user], columns.ends[user]):
        if not opens[at] & kind:
            continue
        item, more = items[at], 0.0
        for position in range(offsets[item], offsets[item + 1]):
            more += pull[totals[position]]
        if more == NEVER:
            continue
        gain = table[exposed[item] >> ONE_BITS] + more if whole else 0.0
        if not whole:
            gain = _own_gain(item, exposed, exposure[0], terms, rules) + more
        if flat:
            worth = last * values[at] + gain
            if n_highest == k and worth <= desk.highest[0]:
                continue
            of, several = -1, False
            if n_tracked:
                of, several = _tracked_of(item, rules, trace, n_tracked)
            if of < 0:
                n_highest = keep_highest(desk.highest, n_highest, worth)
            elif not several and trace.sizes[of] <= k:
                room = trace.sizes[of] - 1
                if trace.n_best[of] == room and (room == 0 or worth <= trace.best_of[of, 0]):
                    continue
                trace.n_best[of] = keep_highest(trace.best_of[of, :room], trace.n_best[of], worth)
        desk.items[size] = item
        desk.values[size] = values[at]
        for r in range(k):
            desk.gains[size, r] = gain if flat else _own_gain(item, exposed, exposure[r], terms, rules) + more
        size += 1
    return size


@njit(cache=True, nogil=True)
def _tracked_of(item: int, rules: Ruled, trace: Trace, n_tracked: int) -> tuple[int, bool]:
    """The position of a tracked total of an item, −1 for none, and whether there are several."""
    found, several = -1, False
    for position in range(rules.offsets[item], rules.offsets[item + 1]):
        for t in range(n_tracked):
            if trace.tracked[t] == rules.totals[position]:
                several = several or found >= 0
                found = t
    return found, several


@njit(cache=True, nogil=True)
def _worth_now(
    columns: Columns, user: int, kind: int, terms: Terms, rules: Ruled, exposed: Array, pull: Array, own: Array
) -> tuple[bool, float, int]:
    """Whether a list is one of open candidates in order; what it is worth, and how many items it holds."""
    items, opens = columns.items, columns.opens
    worth, r, length = 0.0, 0, 0
    for slot in range(len(own)):
        length += own[slot] >= 0
    for at in range(columns.starts[user], columns.ends[user]):
        if r == length:
            break
        if items[at] == own[r] and opens[at] & kind:
            worth += terms.slots[r] * columns.values[at] + _own_gain(own[r], exposed, terms.exposure[r], terms, rules)
            worth += _pull_on(own[r], rules, pull)
            r += 1
    return r == length, worth, length


@njit(cache=True, nogil=True)
def _respond(
    columns: Columns, user: int, kind: int, terms: Terms, rules: Ruled, exposed: Array, counts: Array, pull: Array,
    desk: Desk, trace: Trace, chosen: Array,
) -> None:  # fmt: skip
    """The best list of a user, given everybody else's, as numbers on the desk."""
    size = _gather(columns, user, kind, terms, rules, exposed, pull, trace, 0, desk)
    best_list(size, terms.slots, desk, chosen)
    n_tracked, states, crowded = 0, 1, False
    while rules.limited:
        total = broken(desk, chosen, rules, counts, trace.tracked, n_tracked)
        if total < 0:
            return
        room = room_of(total, rules, counts)
        if not crowded and n_tracked < TRACKED and states * (room + 1) <= trace.best.shape[1]:
            trace.tracked[n_tracked] = total
            trace.sizes[n_tracked] = room + 1
            states *= room + 1
            n_tracked += 1
            size = _gather(columns, user, kind, terms, rules, exposed, pull, trace, n_tracked, desk)
        else:
            crowded = True
            size = without_more(total, size, room, rules, desk, chosen)
        best_within(size, terms.slots, desk, rules, trace, n_tracked, chosen)


@njit(cache=True, nogil=True)
def take_ruled_turns(
    columns: Columns, kind: int, users: Array, terms: Terms, rules: Ruled, exposed: Array, counts: Array, pull: Array,
    lists: Array,
) -> int:  # fmt: skip
    """These users, in turn, each take the list that is best given everybody else's; how many lists changed.

    exposed (n_items,), counts and pull (totals,) and lists (n_users, k) are changed in place. A list as good as the
    best stays; where bounds are hard, one that breaks them goes, however good it is.
    """
    k, width = len(terms.slots), 0
    for user in users:
        width = max(width, columns.ends[user] - columns.starts[user])
    desk, trace = desk_for(width, k), trace_for(width, k, rules.limited)
    chosen, made, changed = np.empty(k, dtype=np.int64), np.empty(k, dtype=np.int32), 0
    for user in users:
        own = lists[user]
        move(own, -1, terms, rules, exposed, counts, pull)
        _respond(columns, user, kind, terms, rules, exposed, counts, pull, desk, trace, chosen)
        best, length = 0.0, 0
        for r in range(k):
            made[r] = desk.items[chosen[r]] if chosen[r] >= 0 else -1
            if chosen[r] >= 0:
                best += terms.slots[r] * desk.values[chosen[r]] + desk.gains[chosen[r], r]
                length += 1
        there, worth, held = _worth_now(columns, user, kind, terms, rules, exposed, pull, own)
        stays = there and held >= length and worth > NEVER and keeps_limits(own, rules, counts)
        better = best > worth + 1e-12 * abs(worth)
        if better and stays and rules.hard:  # two items of a total that lacks one are paid as if it lacked two
            better = fills(made, rules, counts) >= fills(own, rules, counts)
        if not stays or better:
            same = True
            for r in range(k):
                same = same and own[r] == made[r]
                own[r] = made[r]
            changed += not same
        move(own, 1, terms, rules, exposed, counts, pull)
    return changed


@njit(cache=True, nogil=True)
def keep_allowed(columns: Columns, blocked: Array, first: int, last: int) -> None:
    """Take what is blocked out of the candidates of users first … last−1."""
    for user in range(first, last):
        end = columns.starts[user]
        for at in range(columns.starts[user], columns.ends[user]):
            if not blocked[columns.items[at]]:
                columns.items[end] = columns.items[at]
                columns.values[end] = columns.values[at]
                columns.opens[end] = columns.opens[at]
                end += 1
        columns.ends[user] = end


@njit(cache=True, nogil=True)
def _keeps_room(item: int, own: Array, rules: Ruled) -> bool:
    """Whether a list may hold one more item of each total of an item."""
    for position in range(rules.offsets[item], rules.offsets[item + 1]):
        total, held = rules.totals[position], 0
        if rules.limit[total] < len(own):
            for r in range(len(own)):
                held += own[r] >= 0 and is_in(own[r], total, rules)
            if held >= rules.limit[total]:
                return False
    return True


@njit(cache=True, nogil=True)
def offer_part(
    columns: Columns, kind: int, first: int, last: int, terms: Terms, rules: Ruled, exposed: Array, counts: Array,
    pull: Array, lists: Array, lacking: Array, costs: Array, of: Array,
) -> None:  # fmt: skip
    """What the lists of users first … last−1 lose, at most, by an item of a total that lacks showings.

    The item takes the place of one of the list, the cheapest it can; exposed, counts and pull end as they are.
    lacking      (totals,) bool; rules say hard bounds at which showings of these earn nothing
    costs, of    (n_users,): the least cost, +inf where there is none, and the total it is for
    """
    k = len(terms.slots)
    kept = np.empty(k)
    for user in range(first, last):
        own, r = lists[user], 0
        costs[user], of[user] = np.inf, -1
        move(own, -1, terms, rules, exposed, counts, pull)
        kept[:] = 0.0
        for at in range(columns.starts[user], columns.ends[user]):
            if r < k and columns.items[at] == own[r]:
                kept[r] = terms.slots[r] * columns.values[at] + _pull_on(own[r], rules, pull)
                kept[r] += _own_gain(own[r], exposed, terms.exposure[r], terms, rules)
                r += 1
        for r in range(k):
            for position in range(rules.offsets[own[r]], rules.offsets[own[r] + 1]) if own[r] >= 0 else range(0):
                if lacking[rules.totals[position]]:
                    kept[r] = np.inf
        for at in range(columns.starts[user], columns.ends[user]):
            item, wanted = columns.items[at], -1
            if not columns.opens[at] & kind:
                continue
            for position in range(rules.offsets[item], rules.offsets[item + 1]):
                if lacking[rules.totals[position]]:
                    wanted = rules.totals[position]
            if wanted < 0 or (own == item).any() or not _keeps_room(item, own, rules):
                continue
            more = _pull_on(item, rules, pull)
            for r in range(k):
                gain = terms.slots[r] * columns.values[at] + more
                gain += _own_gain(item, exposed, terms.exposure[r], terms, rules)
                if kept[r] - gain < costs[user]:
                    costs[user], of[user] = kept[r] - gain, wanted
        move(own, 1, terms, rules, exposed, counts, pull)


@njit(cache=True, nogil=True)
def breaking_part(
    columns: Columns, kind: int, first: int, last: int, rules: Ruled, counts: Array, lists: Array, found: Array
) -> None:
    """Which lists of users first … last−1 cannot stay: short ones, with what is not open, with more than may be."""
    for user in range(first, last):
        own, r, n_open = lists[user], 0, 0
        for at in range(columns.starts[user], columns.ends[user]):
            if columns.opens[at] & kind:
                n_open += 1
                r += r < len(own) and columns.items[at] == own[r]
        found[user] = r < min(len(own), n_open)
        for r in range(len(own)):
            if own[r] < 0:
                continue
            for position in range(rules.offsets[own[r]], rules.offsets[own[r] + 1]):
                total, held = rules.totals[position], 0
                if counts[total] > rules.high[total]:
                    found[user] = True
                if rules.limit[total] < len(own):
                    for other in range(len(own)):
                        held += own[other] >= 0 and is_in(own[other], total, rules)
                    if held > rules.limit[total]:
                        found[user] = True
