"""The exposure market with rules, compiled: the best list of a user where totals of showings have bounds."""

from typing import Any

import numpy as np
from numba import njit

from divmf.engine.arrays import Array
from divmf.kernels.limits import TRACKED, Trace, best_within, broken, keeps_limits, room_of, trace_for, without_more
from divmf.kernels.market import NEVER, Columns, Desk, Terms, best_list, desk_for, keep_highest
from divmf.kernels.totals import BARE, COUNT, PULL, Ruled, Shown, fills, is_in, move, own_gain, shown_by


@njit(**BARE)
def _gain_of(item: int, exposure: int, flat: bool, terms: Terms, rules: Ruled, shown: Shown) -> Any:
    """What one more showing of an item is worth in a slot that exposes it so."""
    gain, price = shown.gains[item], (rules.rho, rules.steepness, rules.delta)
    for position in range(rules.large[item], rules.offsets[item + 1]):
        gain += shown.book[rules.totals[position], PULL]
    if not flat:
        gain += own_gain(item, exposure, shown.exposed, terms.bonus, rules.own_level, price)
    return gain


@njit(**BARE)
def _gather(
    columns: Columns, user: int, kind: int, terms: Terms, rules: Ruled, shown: Shown, trace: Trace, n_tracked: int,
    own: Array, desk: Desk,
) -> tuple[int, int, float]:  # fmt: skip
    """Put the candidates that may be in the user's list on the desk, with what they would earn; how many they are.

    Also how many of the user's own list are open candidates in its order, from the first on, and what these are worth.
    Where all slots expose alike, an item is passed over that follows k others worth at least as much in the last slot,
    and so in each, which no tracked limit concerns; or as many of its only tracked total as a list may hold.
    """
    items, values, opens, slots, exposure = columns.items, columns.values, columns.opens, terms.slots, terms.exposure
    offsets, large, totals, own_level = rules.offsets, rules.large, rules.totals, rules.own_level
    exposed, gains, book, highest = shown.exposed, shown.gains, shown.book, desk.highest
    on_desk, their_values, their_gains, table = desk.items, desk.values, desk.gains, terms.bonus
    k, size, n_highest, some_large = len(slots), 0, 0, rules.starts[-1] < len(totals)
    flat, last, price = exposure[0] == exposure[k - 1], slots[k - 1], (rules.rho, rules.steepness, rules.delta)
    there, worth = 0, 0.0
    trace.n_best[:n_tracked] = 0
    for candidate in range(columns.starts[user], columns.ends[user]):
        if not opens[candidate] & kind:
            continue
        item, value = items[candidate], values[candidate]
        gain = gains[item]
        if some_large:
            for position in range(large[item], offsets[item + 1]):
                gain += book[totals[position], PULL]
        if there < k and own[there] == item:
            worth += slots[there] * value + gain
            if not flat:
                worth += own_gain(item, exposure[there], exposed, table, own_level, price)
            there += 1
        if gain == NEVER:
            continue
        if flat:
            least = last * value + gain
            if n_highest == k and least <= highest[0]:
                continue
            tracked, several = -1, False
            if n_tracked:
                tracked, several = _tracked_of(item, rules, trace, n_tracked)
            if tracked < 0:
                n_highest = keep_highest(highest, n_highest, least)
            elif not several and trace.sizes[tracked] <= k:
                room = trace.sizes[tracked] - 1
                if trace.n_best[tracked] == room and (room == 0 or least <= trace.best_of[tracked, 0]):
                    continue
                trace.n_best[tracked] = keep_highest(trace.best_of[tracked, :room], trace.n_best[tracked], least)
        on_desk[size] = item
        their_values[size] = value
        for r in range(k):
            earned = 0.0 if flat else own_gain(item, exposure[r], exposed, table, own_level, price)
            their_gains[size, r] = gain + earned
        size += 1
    return size, there, worth


@njit(**BARE)
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
def _within_limits(
    columns: Columns, user: int, kind: int, terms: Terms, rules: Ruled, shown: Shown, own: Array, size: int,
    desk: Desk, trace: Trace, chosen: Array,
) -> None:  # fmt: skip
    """Where the best list of the candidates on the desk breaks limits, the best that keeps them, as numbers there."""
    n_tracked, states, crowded, counts = 0, 1, False, shown.book[:, COUNT]
    while True:
        total = broken(desk, chosen, rules, counts, trace.tracked, n_tracked)
        if total < 0:
            return
        room = room_of(total, rules, counts)
        if not crowded and n_tracked < TRACKED and states * (room + 1) <= trace.best.shape[1]:
            trace.tracked[n_tracked] = total
            trace.sizes[n_tracked] = room + 1
            states *= room + 1
            n_tracked += 1
            size, _, _ = _gather(columns, user, kind, terms, rules, shown, trace, n_tracked, own, desk)
        else:
            crowded = True
            size = without_more(total, size, room, rules, desk, chosen)
        best_within(size, terms.slots, desk, rules, trace, n_tracked, chosen)


@njit(cache=True, nogil=True)
def take_ruled_turns(
    columns: Columns, kind: int, users: Array, terms: Terms, rules: Ruled, exposed: Array, counts: Array, lists: Array
) -> int:
    """These users, in turn, each take the list that is best given everybody else's; how many lists changed.

    exposed (n_items,), counts (totals,) and lists (n_users, k) are changed in place. A list as good as the best stays;
    where bounds are hard, one that breaks them goes, however good it is.
    """
    k, width, shown = len(terms.slots), 0, shown_by(exposed, counts, terms, rules)
    slots, hard, limited, now = terms.slots, rules.hard, rules.limited, shown.book[:, COUNT]
    for user in users:
        width = max(width, columns.ends[user] - columns.starts[user])
    desk, trace = desk_for(width, k), trace_for(width, k, limited)
    chosen, made, changed = np.empty(k, dtype=np.int64), np.empty(k, dtype=np.int32), 0
    on_desk, values, gains = desk.items, desk.values, desk.gains
    for user in users:
        own = lists[user]
        move(own, -1, terms, rules, shown)
        size, there, worth = _gather(columns, user, kind, terms, rules, shown, trace, 0, own, desk)
        best_list(size, slots, desk, chosen)
        if limited:
            _within_limits(columns, user, kind, terms, rules, shown, own, size, desk, trace, chosen)
        best, length, held = 0.0, 0, 0
        for r in range(k):
            held += own[r] >= 0
            made[r] = on_desk[chosen[r]] if chosen[r] >= 0 else -1
            if chosen[r] >= 0:
                best += slots[r] * values[chosen[r]] + gains[chosen[r], r]
                length += 1
        stays = there == held and held >= length and worth > NEVER and keeps_limits(own, rules, now)
        better = best > worth + 1e-12 * abs(worth)
        if better and stays and hard:  # two items of a total that lacks one are paid as if it lacked two
            better = fills(made, rules, now) >= fills(own, rules, now)
        if not stays or better:
            same = True
            for r in range(k):
                same = same and own[r] == made[r]
                own[r] = made[r]
            changed += not same
        move(own, 1, terms, rules, shown)
    for total in range(len(counts)):
        counts[total] = int(now[total])
    return changed


@njit(cache=True, nogil=True)
def keep_allowed(columns: Columns, blocked: Array, first: int, last: int) -> None:
    """Take what is blocked out of the candidates of users first … last−1."""
    for user in range(first, last):
        end = columns.starts[user]
        for candidate in range(columns.starts[user], columns.ends[user]):
            if not blocked[columns.items[candidate]]:
                columns.items[end] = columns.items[candidate]
                columns.values[end] = columns.values[candidate]
                columns.opens[end] = columns.opens[candidate]
                end += 1
        columns.ends[user] = end


@njit(cache=True, nogil=True)
def mark_wanted(columns: Columns, wanted: Array, first: int, last: int, found: Array) -> None:
    """found[u]: whether one of the candidates of u is wanted, for users first … last−1."""
    for user in range(first, last):
        for candidate in range(columns.starts[user], columns.ends[user]):
            found[user] |= wanted[columns.items[candidate]]


@njit(**BARE)
def mark_movable(
    columns: Columns, wanted: Array, full: Array, first: int, last: int, lists: Array, found: Array
) -> None:
    """found[u]: whether the list of u holds what is wanted, and could hold another candidate that is not full."""
    for user in range(first, last):
        holds, other = False, False
        for candidate in range(columns.starts[user], columns.ends[user]):
            item, own = columns.items[candidate], False
            for r in range(lists.shape[1]):
                own = own or lists[user, r] == item
            holds = holds or (own and wanted[item])
            other = other or not (own or full[item])
        found[user] = holds and other


@njit(**BARE)
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
    columns: Columns, kind: int, first: int, last: int, terms: Terms, rules: Ruled, shown: Shown, lists: Array,
    wanted: Array, costs: Array, totals: Array,
) -> None:  # fmt: skip
    """What the lists of users first … last−1 lose, at most, by an item of a total that lacks showings.

    The item takes the place of one of the list, the cheapest it can; what is shown ends as it is.
    wanted          (n_items,): a total of each item that lacks showings, −1 for none; rules say hard bounds at which
                    showings of these earn nothing
    costs, totals   (n_users,): the least cost, +inf where there is none, and the total it is for
    """
    k, flat = len(terms.slots), terms.exposure[0] == terms.exposure[-1]
    kept = np.empty(k)
    for user in range(first, last):
        own, r, some = lists[user], 0, False
        costs[user], totals[user] = np.inf, -1
        for candidate in range(columns.starts[user], columns.ends[user]):
            some |= wanted[columns.items[candidate]] >= 0
        if not some:
            continue
        move(own, -1, terms, rules, shown)
        kept[:] = 0.0
        for candidate in range(columns.starts[user], columns.ends[user]):
            if r < k and columns.items[candidate] == own[r]:
                kept[r] = np.inf if wanted[own[r]] >= 0 else terms.slots[r] * columns.values[candidate]
                kept[r] += _gain_of(own[r], terms.exposure[r], flat, terms, rules, shown)
                r += 1
        for candidate in range(columns.starts[user], columns.ends[user]):
            item = columns.items[candidate]
            if wanted[item] < 0 or not columns.opens[candidate] & kind:
                continue
            if (own == item).any() or not _keeps_room(item, own, rules):
                continue
            for r in range(k):
                gain = terms.slots[r] * columns.values[candidate]
                gain += _gain_of(item, terms.exposure[r], flat, terms, rules, shown)
                if kept[r] - gain < costs[user]:
                    costs[user], totals[user] = kept[r] - gain, wanted[item]
        move(own, 1, terms, rules, shown)


@njit(**BARE)
def breaking_part(
    columns: Columns, kind: int, first: int, last: int, rules: Ruled, counts: Array, lists: Array, found: Array
) -> None:
    """Which lists of users first … last−1 cannot stay: short ones, with what is not open, with more than may be."""
    for user in range(first, last):
        own, r, n_open = lists[user], 0, 0
        for candidate in range(columns.starts[user], columns.ends[user]):
            if columns.opens[candidate] & kind:
                n_open += 1
                r += r < len(own) and columns.items[candidate] == own[r]
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
