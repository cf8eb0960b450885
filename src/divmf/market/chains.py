"""Chains of swaps: what single changes of lists cannot fill, some lists can together.

A total lacks showings, and whoever could show one of its items shows what another total would then lack. The swaps that
lead from a place that is off to one that is not are looked for breadth first over all users, the shortest chains first,
the cheapest of equal length. Where no total overlaps another and none is left that is full, what no chain can fill
cannot be filled: a chain is an augmenting path (Berge, PNAS 1957).
"""

import numpy as np

from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.kernels.chains import Swaps, find_swaps, swap
from divmf.kernels.market import Columns
from divmf.kernels.totals import Ruled
from divmf.market.ruled import RuledMarket, State

LOOKED_AT, LEAST = 2_000_000, 2  # so many lists are looked at in all, at the most; so many times at each at the least


def link(ruled: RuledMarket, columns: Columns, kind: int, rho: float, state: State) -> None:
    """Fill what totals lack by chains of swaps, in place, as long as there are any."""
    rules = ruled.ruled(rho, ruled.freed(state), ruled.binding)
    looks = max(LEAST, LOOKED_AT // max(1, comm.row_range(len(state.lists.items)).whole))
    low, n_totals, made = ruled.bound.low, ruled.bound.n_totals, 1
    while looks > 0 and made and (state.counts < low).any():
        off = np.concatenate([state.counts < low, np.zeros(n_totals, dtype=np.bool_)])
        known, frontier, found, ends = off.copy(), off, _nothing(n_totals), _nothing(n_totals)
        while looks > 0 and frontier.any() and not np.isfinite(ends.cost).any():
            looks -= 1
            swaps = _nothing(n_totals)
            _look(ruled, columns, kind, state, rules, frontier, known, swaps, ends)
            frontier = np.isfinite(swaps.cost)
            for table, new in zip(found, swaps, strict=True):
                table[frontier] = new[frontier]
            known |= frontier
        places = np.flatnonzero(np.isfinite(ends.cost))
        made = 0
        for place in places[np.argsort(ends.cost[places], kind="stable")].tolist():
            made += _take(ruled, columns, state, _chain(found, ends, place, off))
    state.lists = ruled.market.lists(state.lists.items)


def _nothing(n_totals: int) -> Swaps:
    places = 2 * n_totals
    return Swaps(np.full(places, np.inf), *(np.full(places, -1, dtype=np.int64) for _ in range(4)))


def _look(
    ruled: RuledMarket, columns: Columns, kind: int, state: State, rules: Ruled, frontier: Array, known: Array,
    swaps: Swaps, ends: Swaps,
) -> None:  # fmt: skip
    """One look at the lists of all processes, one after the other."""
    span = comm.row_range(len(state.lists.items))
    for process in range(comm.size()):
        if comm.rank() == process:
            find_swaps(
                columns, kind, span.first, state.lists.items, ruled.market.slots, rules, state.counts, frontier, known,
                swaps, ends,
            )  # fmt: skip
        for table in (*swaps, *ends):
            comm.broadcast(table, process)


def _chain(found: Swaps, ends: Swaps, place: int, off: Array) -> list[tuple[int, int, int]]:
    """The swaps (user, taken, given) from the end of a chain to the place where it begins."""
    chain = [(int(ends.user[place]), int(ends.taken[place]), int(ends.given[place]))]
    while not off[place]:
        chain.append((int(found.user[place]), int(found.taken[place]), int(found.given[place])))
        place = int(found.mended[place])
    return chain


def _take(ruled: RuledMarket, columns: Columns, state: State, chain: list[tuple[int, int, int]]) -> bool:
    """Make the swaps of a chain, if all are possible and less is off after them; whether they were made."""
    bound, items = ruled.bound, state.lists.items
    if len({user for user, _, _ in chain}) < len(chain):
        return False
    counts = state.counts.copy()
    for _, taken, given in chain:
        counts[bound.totals[bound.offsets[taken] : bound.offsets[taken + 1]]] += 1
        counts[bound.totals[bound.offsets[given] : bound.offsets[given + 1]]] -= 1
    if (counts > np.maximum(bound.high, state.counts)).any():
        return False
    if np.maximum(bound.low - counts, 0).sum() >= np.maximum(bound.low - state.counts, 0).sum():
        return False
    span = comm.row_range(len(items))
    own = [(user - span.first, taken, given) for user, taken, given in chain if span.first <= user < span.last]
    before = [items[user].copy() for user, _, _ in own]
    wrong = sum(not swap(columns, user, taken, given, items[user]) for user, taken, given in own)
    if comm.total(wrong):
        for (user, _, _), kept in zip(own, before, strict=True):
            items[user] = kept
        return False
    state.counts[:] = counts
    return True
