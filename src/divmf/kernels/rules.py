"""The exposure market with rules, compiled: the best list of a user where totals of showings have bounds.

A total is the number of showings of some items (`divmf.market.bound`). What one more showing of a total is worth stands
in `pull`, and is kept as totals change. Soft bounds cost the more, the further a total is outside of them (an augmented
Lagrangian); with hard ones an item of a full total is out of reach, and a total below its floor pays for a showing.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from divmf.engine.arrays import Array
from divmf.kernels.market import NEVER, Columns, Desk, Terms, desk_for, gain_of, keep_highest

STATES = 1 << 12  # of the dynamic programme: counts of the totals whose limits bind, at the most
TRACKED = 12  # totals whose limits are tracked in one list, at the most


class Ruled(NamedTuple):
    """Rules as arrays, and where their multipliers stand.

    offsets, totals   the totals of each item, as a CSR matrix
    low, high, limit  (totals,) int64: at least, at most, and at most in one list
    floor, cap        (totals,) float64: multipliers of the two bounds, both ≥ 0
    step              (totals,) float64: what a showing outside a bound costs more than the one before it; where bounds
                      are hard, what one below the floor earns
    level, weight     (totals,) float64: the showings at which the bonus of a total ends (0: it has none), times ρ
    own_level         (n_items,) float64, or empty: the exposure at which the bonus of an item ends
    rho, steepness, delta   of the bonus where it is not the table's
    hard              whether bounds hold whatever it costs
    limited           whether some total has a limit in one list
    """

    offsets: Array
    totals: Array
    low: Array
    high: Array
    limit: Array
    floor: Array
    cap: Array
    step: Array
    level: Array
    weight: Array
    own_level: Array
    rho: float
    steepness: float
    delta: float
    hard: bool
    limited: bool


@njit(cache=True, nogil=True)
def bonus_at(level: float, shown: float, steepness: float, delta: float) -> Any:
    """b(x) = log(1 + (c/(x + δ))^q)/q."""
    if level <= 0.0:
        return 0.0
    height = steepness * np.log(level / (shown + delta))
    if height > 30.0:
        return height / steepness
    return np.log1p(np.exp(height)) / steepness


@njit(cache=True, nogil=True)
def pull_of(total: int, count: int, rules: Ruled) -> Any:
    """What one more showing of a total is worth."""
    pull = 0.0
    if rules.level[total] > 0.0:
        pull += rules.weight[total] * bonus_at(rules.level[total], count, rules.steepness, rules.delta)
    if rules.hard:
        pull += rules.floor[total] - rules.cap[total]
        if count < rules.low[total]:
            pull += rules.step[total]
        return pull
    if rules.low[total] > 0:
        pull += max(0.0, rules.floor[total] + rules.step[total] * (rules.low[total] - count - 0.5))
    pull -= max(0.0, rules.cap[total] + rules.step[total] * (count + 0.5 - rules.high[total]))
    return pull


@njit(cache=True, nogil=True)
def pull_all(counts: Array, rules: Ruled, pull: Array) -> None:
    """What one more showing of each total is worth, into `pull`."""
    for total in range(len(counts)):
        pull[total] = pull_of(total, counts[total], rules)


@njit(cache=True, nogil=True)
def _move(items: Array, sign: int, terms: Terms, rules: Ruled, exposed: Array, counts: Array, pull: Array) -> None:
    """Add a list to what is shown, or take it away."""
    for r in range(len(items)):
        item = items[r]
        if item < 0:
            continue
        exposed[item] += sign * terms.exposure[r]
        for at in range(rules.offsets[item], rules.offsets[item + 1]):
            total = rules.totals[at]
            counts[total] += sign
            pull[total] = pull_of(total, counts[total], rules)


@njit(cache=True, nogil=True)
def _own_gain(item: int, exposed: Array, more: int, terms: Terms, rules: Ruled) -> Any:
    """What `more` exposure earns an item, by the bonus of all or by its own."""
    if len(rules.own_level) == 0:
        return gain_of(exposed[item], more, terms.bonus)
    one = float(1 << 20)
    at = exposed[item] / one
    return rules.rho * bonus_at(rules.own_level[item], at, rules.steepness, rules.delta) * (more / one)


@njit(cache=True, nogil=True)
def _gather(
    columns: Columns, user: int, kind: int, terms: Terms, rules: Ruled, exposed: Array, counts: Array, pull: Array,
    pruned: bool, desk: Desk,
) -> int:  # fmt: skip
    """Put the candidates that may be in the user's list on the desk, with what they would earn; how many they are.

    pruned: where all slots expose alike, an item that follows k others of at least its gain and value is passed over
    """
    k, size, n_highest = len(terms.slots), 0, 0
    flat = terms.exposure[0] == terms.exposure[k - 1]
    for at in range(columns.starts[user], columns.ends[user]):
        if not columns.opens[at] & kind:
            continue
        item, more, out = columns.items[at], 0.0, False
        for place in range(rules.offsets[item], rules.offsets[item + 1]):
            total = rules.totals[place]
            out = out or (rules.hard and counts[total] >= rules.high[total])
            more += pull[total]
        if out:
            continue
        gain = _own_gain(item, exposed, terms.exposure[0], terms, rules) + more
        if flat and pruned:
            if n_highest == k and gain <= desk.highest[0]:
                continue
            n_highest = keep_highest(desk.highest, n_highest, gain)
        desk.items[size] = item
        desk.values[size] = columns.values[at]
        for r in range(k):
            desk.gains[size, r] = gain if flat else _own_gain(item, exposed, terms.exposure[r], terms, rules) + more
        size += 1
    return size


class Trace(NamedTuple):
    """Room for the dynamic programme with limits.

    best    (slots + 1, states): the most that a partial list is worth, by the counts of what is tracked
    taken   (width, slots, states): whether the candidate was taken there
    tracked, sizes   (TRACKED,): the totals whose limits are tracked, and how many counts each has
    """

    best: Array
    taken: Array
    tracked: Array
    sizes: Array


@njit(cache=True, nogil=True)
def _room(total: int, rules: Ruled, counts: Array) -> int:
    """How many items of a total one list may hold."""
    room = rules.limit[total]
    if rules.hard:
        room = min(room, rules.high[total] - counts[total])
    return int(room)


@njit(cache=True, nogil=True)
def _step_of(item: int, rules: Ruled, tracked: Array, sizes: Array, n_tracked: int) -> int:
    """How far an item moves the state: one count of each tracked total that it is in."""
    step = 0
    for place in range(rules.offsets[item], rules.offsets[item + 1]):
        width = 1
        for t in range(n_tracked):
            if tracked[t] == rules.totals[place]:
                step += width
            width *= sizes[t]
    return step


@njit(cache=True, nogil=True)
def _fits(state: int, item: int, rules: Ruled, tracked: Array, sizes: Array, n_tracked: int) -> bool:
    """Whether an item may be added to a state."""
    for place in range(rules.offsets[item], rules.offsets[item + 1]):
        rest = state
        for t in range(n_tracked):
            if tracked[t] == rules.totals[place] and rest % sizes[t] == sizes[t] - 1:
                return False
            rest //= sizes[t]
    return True


@njit(cache=True, nogil=True)
def _best_within(
    size: int, slots: Array, desk: Desk, rules: Ruled, trace: Trace, n_tracked: int, chosen: Array
) -> None:
    """The best list of the candidates on the desk, in which no tracked total has more than its limit."""
    k, states = len(slots), 1
    for t in range(n_tracked):
        states *= trace.sizes[t]
    trace.best[:, :states] = NEVER
    trace.best[0, 0] = 0.0
    for at in range(size):
        item, value = desk.items[at], desk.values[at]
        step = _step_of(item, rules, trace.tracked, trace.sizes, n_tracked)
        for r in range(min(at, k - 1), -1, -1):
            worth = slots[r] * value + desk.gains[at, r]
            for state in range(states - 1, -1, -1):
                trace.taken[at, r, state] = False
            for state in range(states - step):
                before = trace.best[r, state]
                if before == NEVER or not _fits(state, item, rules, trace.tracked, trace.sizes, n_tracked):
                    continue
                if before + worth > trace.best[r + 1, state + step]:
                    trace.best[r + 1, state + step] = before + worth
                    trace.taken[at, r, state + step] = True
    chosen[:] = -1
    length, state = 0, 0
    for r in range(min(k, size), 0, -1):
        state = int(np.argmax(trace.best[r, :states]))
        if trace.best[r, state] > NEVER:
            length = r
            break
    r = length
    for at in range(size - 1, -1, -1):
        if r == 0:
            break
        if r - 1 <= at and trace.taken[at, r - 1, state]:
            chosen[r - 1] = at
            state -= _step_of(desk.items[at], rules, trace.tracked, trace.sizes, n_tracked)
            r -= 1


@njit(cache=True, nogil=True)
def _broken(desk: Desk, chosen: Array, rules: Ruled, counts: Array, tracked: Array, n_tracked: int) -> int:
    """A total, not tracked yet, of which a list holds more than it may; −1 for none."""
    k = len(chosen)
    for r in range(k):
        if chosen[r] < 0:
            continue
        item = desk.items[chosen[r]]
        for place in range(rules.offsets[item], rules.offsets[item + 1]):
            total, held = rules.totals[place], 0
            if _room(total, rules, counts) >= k:
                continue
            for other in range(k):
                if chosen[other] >= 0:
                    its = desk.items[chosen[other]]
                    for at in range(rules.offsets[its], rules.offsets[its + 1]):
                        held += rules.totals[at] == total
            if held > _room(total, rules, counts):
                known = False
                for t in range(n_tracked):
                    known = known or tracked[t] == total
                if not known:
                    return int(total)
    return -1


@njit(cache=True, nogil=True)
def _is_in(item: int, total: int, rules: Ruled) -> bool:
    """Whether an item counts in a total."""
    found = False
    for place in range(rules.offsets[item], rules.offsets[item + 1]):
        found = found or rules.totals[place] == total
    return found


@njit(cache=True, nogil=True)
def _without_more(total: int, size: int, room: int, rules: Ruled, desk: Desk, chosen: Array) -> int:
    """Where too many limits bind to track them: of a total, its first chosen stay; how many candidates are left."""
    left, kept = 0, 0
    for at in range(size):
        if _is_in(desk.items[at], total, rules):
            held = False
            for r in range(len(chosen)):
                held = held or chosen[r] == at
            if not held or kept == room:
                continue
            kept += 1
        desk.items[left] = desk.items[at]
        desk.values[left] = desk.values[at]
        desk.gains[left] = desk.gains[at]
        left += 1
    return left


@njit(cache=True, nogil=True)
def _keeps_limits(own: Array, rules: Ruled, counts: Array) -> bool:
    """Whether a list that was taken away may be put back: no total has more of it than it may."""
    k = len(own)
    for r in range(k):
        if own[r] < 0:
            continue
        for place in range(rules.offsets[own[r]], rules.offsets[own[r] + 1]):
            total, held = rules.totals[place], 0
            room = _room(total, rules, counts)
            if room >= k:
                continue
            for other in range(k):
                held += own[other] >= 0 and _is_in(own[other], total, rules)
            if held > room:
                return False
    return True


@njit(cache=True, nogil=True)
def _fills(items: Array, rules: Ruled, counts: Array) -> int:
    """How many showings a list brings to totals that lack them."""
    filled = 0
    for r in range(len(items)):
        if items[r] < 0:
            continue
        for place in range(rules.offsets[items[r]], rules.offsets[items[r] + 1]):
            total, before = rules.totals[place], 0
            if counts[total] < rules.low[total]:
                for other in range(r):
                    before += items[other] >= 0 and _is_in(items[other], total, rules)
                filled += counts[total] + before < rules.low[total]
    return filled


@njit(cache=True, nogil=True)
def _worth_now(
    columns: Columns, user: int, kind: int, terms: Terms, rules: Ruled, exposed: Array, pull: Array, own: Array
) -> tuple[bool, float, int]:
    """Whether a list is one of open candidates in order; what it is worth, and how many items it holds."""
    worth, r, length = 0.0, 0, 0
    for slot in range(len(own)):
        length += own[slot] >= 0
    for at in range(columns.starts[user], columns.ends[user]):
        if r == length:
            break
        if columns.opens[at] & kind and columns.items[at] == own[r]:
            worth += terms.slots[r] * columns.values[at] + _own_gain(own[r], exposed, terms.exposure[r], terms, rules)
            for place in range(rules.offsets[own[r]], rules.offsets[own[r] + 1]):
                worth += pull[rules.totals[place]]
            r += 1
    return r == length, worth, length


@njit(cache=True, nogil=True)
def _respond(
    columns: Columns, user: int, kind: int, terms: Terms, rules: Ruled, exposed: Array, counts: Array, pull: Array,
    desk: Desk, trace: Trace, chosen: Array,
) -> None:  # fmt: skip
    """The best list of a user, given everybody else's, as numbers on the desk."""
    size = _gather(columns, user, kind, terms, rules, exposed, counts, pull, True, desk)
    _best_within(size, terms.slots, desk, rules, trace, 0, chosen)
    if not rules.limited:
        return
    n_tracked, states, whole = 0, 1, False
    while True:
        total = _broken(desk, chosen, rules, counts, trace.tracked, n_tracked)
        if total < 0:
            return
        if not whole:  # what was passed over may be needed where a limit binds
            size, whole = _gather(columns, user, kind, terms, rules, exposed, counts, pull, False, desk), True
        room = _room(total, rules, counts)
        if n_tracked < TRACKED and states * (room + 1) <= trace.best.shape[1]:
            trace.tracked[n_tracked] = total
            trace.sizes[n_tracked] = room + 1
            states *= room + 1
            n_tracked += 1
        else:
            size = _without_more(total, size, room, rules, desk, chosen)
        _best_within(size, terms.slots, desk, rules, trace, n_tracked, chosen)


@njit(cache=True, nogil=True)
def trace_for(width: int, k: int, limited: bool) -> Trace:
    """Room for the dynamic programme."""
    states = max(64, min(STATES, (1 << 23) // max(1, width * k))) if limited else 1
    return Trace(
        np.empty((k + 1, states)), np.empty((width, k, states), dtype=np.bool_), np.empty(TRACKED, dtype=np.int64),
        np.empty(TRACKED, dtype=np.int64),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def take_ruled_turns(
    columns: Columns, kind: int, first: int, last: int, terms: Terms, rules: Ruled, exposed: Array, counts: Array,
    pull: Array, lists: Array,
) -> int:  # fmt: skip
    """Users first … last−1, in turn, each take the list that is best given everybody else's; how many lists changed.

    exposed (n_items,), counts and pull (totals,) and lists (n_users, k) are changed in place. A list as good as the
    best stays; where bounds are hard, one that breaks them goes, however good it is.
    """
    k, width = len(terms.slots), 0
    for user in range(first, last):
        width = max(width, columns.ends[user] - columns.starts[user])
    desk, trace = desk_for(width, k), trace_for(width, k, rules.limited)
    chosen, made, changed = np.empty(k, dtype=np.int64), np.empty(k, dtype=np.int32), 0
    for user in range(first, last):
        own = lists[user]
        _move(own, -1, terms, rules, exposed, counts, pull)
        _respond(columns, user, kind, terms, rules, exposed, counts, pull, desk, trace, chosen)
        best, length = 0.0, 0
        for r in range(k):
            made[r] = desk.items[chosen[r]] if chosen[r] >= 0 else -1
            if chosen[r] >= 0:
                best += terms.slots[r] * desk.values[chosen[r]] + desk.gains[chosen[r], r]
                length += 1
        there, worth, held = _worth_now(columns, user, kind, terms, rules, exposed, pull, own)
        stays = there and held >= length and _keeps_limits(own, rules, counts)
        better = best > worth + 1e-12 * abs(worth)
        if better and stays and rules.hard:  # two items of a total that lacks one are paid as if it lacked two
            better = _fills(made, rules, counts) >= _fills(own, rules, counts)
        if not stays or better:
            same = True
            for r in range(k):
                same = same and own[r] == made[r]
                own[r] = made[r]
            changed += not same
        _move(own, 1, terms, rules, exposed, counts, pull)
    return changed


@njit(cache=True, nogil=True)
def earned_by(levels: Array, counts: Array, steepness: float, delta: float, out: Array) -> None:
    """B(f) = Σ_{x<f} b(x) of totals or items with levels of their own, into `out`."""
    for at in range(len(levels)):
        out[at] = 0.0
        if levels[at] > 0.0:
            for shown in range(counts[at]):
                out[at] += bonus_at(levels[at], shown, steepness, delta)


@njit(cache=True, nogil=True)
def best_total(
    level: float, weight: float, asked: float, low: int, high: int, steepness: float, delta: float
) -> tuple[float, int]:
    """max over low ≤ x ≤ high of weight·B(x) − asked·x, and the x: b falls, so it is where b meets what is asked."""
    if level <= 0.0 or weight <= 0.0:
        return (-asked * low, low) if asked >= 0.0 else (-asked * high, high)
    first, last = low, high
    while first < last:
        middle = (first + last) // 2
        if weight * bonus_at(level, middle, steepness, delta) > asked:
            first = middle + 1
        else:
            last = middle
    worth = 0.0
    for shown in range(first):
        worth += weight * bonus_at(level, shown, steepness, delta)
    return worth - asked * first, first


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
