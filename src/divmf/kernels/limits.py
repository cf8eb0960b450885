"""Limits in one list, compiled: the best list of which no total has more items than it may.

The limits that bind are states of the dynamic programme, found one by one; where they would be too many, what was
chosen first stays.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from divmf.engine.arrays import Array
from divmf.kernels.market import NEVER, Desk
from divmf.kernels.totals import BARE, Ruled, is_in

STATES = 1 << 12  # of the dynamic programme: counts of the totals whose limits bind, at the most
TRACKED = 12  # totals whose limits are tracked in one list, at the most


class Trace(NamedTuple):
    """Room for the dynamic programme with limits.

    best    (slots + 1, states): the most that a partial list is worth, by the counts of what is tracked
    taken   (width, slots, states): whether the candidate was taken there
    tracked, sizes   (TRACKED,): the totals whose limits are tracked, and how many counts each has
    best_of, n_best  (TRACKED, slots), (TRACKED,): the highest gains of each that were seen, ascending, and how many
    """

    best: Array
    taken: Array
    tracked: Array
    sizes: Array
    best_of: Array
    n_best: Array


@njit(cache=True, nogil=True)
def trace_for(width: int, k: int, limited: bool) -> Trace:
    """Room for the dynamic programme."""
    states = max(64, min(STATES, (1 << 23) // max(1, width * k))) if limited else 1
    return Trace(
        np.empty((k + 1, states)), np.empty((width, k, states), dtype=np.bool_), np.empty(TRACKED, dtype=np.int64),
        np.empty(TRACKED, dtype=np.int64), np.empty((TRACKED, k)), np.zeros(TRACKED, dtype=np.int64),
    )  # fmt: skip


@njit(**BARE)
def room_of(total: int, rules: Ruled, counts: Array) -> int:
    """How many items of a total one list may hold."""
    room = rules.limit[total]
    if rules.hard:
        room = min(room, rules.high[total] - counts[total])
    return int(room)


@njit(**BARE)
def _step_of(item: int, rules: Ruled, tracked: Array, sizes: Array, n_tracked: int) -> int:
    """How far an item moves the state: one count of each tracked total that it is in."""
    step = 0
    for position in range(rules.offsets[item], rules.offsets[item + 1]):
        width = 1
        for t in range(n_tracked):
            if tracked[t] == rules.totals[position]:
                step += width
            width *= sizes[t]
    return step


@njit(**BARE)
def _fits(state: int, item: int, rules: Ruled, tracked: Array, sizes: Array, n_tracked: int) -> bool:
    """Whether an item may be added to a state."""
    for position in range(rules.offsets[item], rules.offsets[item + 1]):
        rest = state
        for t in range(n_tracked):
            if tracked[t] == rules.totals[position] and rest % sizes[t] == sizes[t] - 1:
                return False
            rest //= sizes[t]
    return True


@njit(cache=True, nogil=True)
def best_within(size: int, slots: Array, desk: Desk, rules: Ruled, trace: Trace, n_tracked: int, chosen: Array) -> None:
    """The best list of the candidates on the desk, in which no tracked total has more than its limit."""
    k, states = len(slots), 1
    for t in range(n_tracked):
        states *= trace.sizes[t]
    trace.best[:, :states] = NEVER
    trace.best[0, 0] = 0.0
    for candidate in range(size):
        item, value = desk.items[candidate], desk.values[candidate]
        step = _step_of(item, rules, trace.tracked, trace.sizes, n_tracked)
        for r in range(min(candidate, k - 1), -1, -1):
            worth = slots[r] * value + desk.gains[candidate, r]
            for state in range(states - 1, -1, -1):
                trace.taken[candidate, r, state] = False
            for state in range(states - step):
                before = trace.best[r, state]
                if before == NEVER or not _fits(state, item, rules, trace.tracked, trace.sizes, n_tracked):
                    continue
                if before + worth > trace.best[r + 1, state + step]:
                    trace.best[r + 1, state + step] = before + worth
                    trace.taken[candidate, r, state + step] = True
    chosen[:] = -1
    length, state = 0, 0
    for r in range(min(k, size), 0, -1):
        state = int(np.argmax(trace.best[r, :states]))
        if trace.best[r, state] > NEVER:
            length = r
            break
    r = length
    for candidate in range(size - 1, -1, -1):
        if r == 0:
            break
        if r - 1 <= candidate and trace.taken[candidate, r - 1, state]:
            chosen[r - 1] = candidate
            state -= _step_of(desk.items[candidate], rules, trace.tracked, trace.sizes, n_tracked)
            r -= 1


@njit(**BARE)
def broken(desk: Desk, chosen: Array, rules: Ruled, counts: Array, tracked: Array, n_tracked: int) -> int:
    """A total, not tracked yet, of which a list holds more than it may; −1 for none."""
    k = len(chosen)
    for r in range(k):
        if chosen[r] < 0:
            continue
        item = desk.items[chosen[r]]
        for position in range(rules.offsets[item], rules.offsets[item + 1]):
            total, held = rules.totals[position], 0
            if room_of(total, rules, counts) >= k:
                continue
            for other in range(k):
                if chosen[other] >= 0:
                    its = desk.items[chosen[other]]
                    for membership in range(rules.offsets[its], rules.offsets[its + 1]):
                        held += rules.totals[membership] == total
            if held > room_of(total, rules, counts):
                known = False
                for t in range(n_tracked):
                    known = known or tracked[t] == total
                if not known:
                    return int(total)
    return -1


@njit(cache=True, nogil=True)
def without_more(total: int, size: int, room: int, rules: Ruled, desk: Desk, chosen: Array) -> int:
    """Where too many limits bind to track them: of a total, its first chosen stay; how many candidates are left."""
    left, kept = 0, 0
    for candidate in range(size):
        if is_in(desk.items[candidate], total, rules):
            held = False
            for r in range(len(chosen)):
                held = held or chosen[r] == candidate
            if not held or kept == room:
                continue
            kept += 1
        desk.items[left] = desk.items[candidate]
        desk.values[left] = desk.values[candidate]
        desk.gains[left] = desk.gains[candidate]
        left += 1
    return left


@njit(**BARE)
def keeps_limits(own: Array, rules: Ruled, counts: Array) -> bool:
    """Whether a list that was taken away may be put back: no total has more of it than it may."""
    if not rules.limited:
        return True
    k = len(own)
    for r in range(k):
        if own[r] < 0:
            continue
        for position in range(rules.offsets[own[r]], rules.offsets[own[r] + 1]):
            total, held = rules.totals[position], 0
            room = room_of(total, rules, counts)
            if room >= k:
                continue
            for other in range(k):
                held += own[other] >= 0 and is_in(own[other], total, rules)
            if held > room:
                return False
    return True
