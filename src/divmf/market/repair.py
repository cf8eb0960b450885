"""What turns cannot mend: lists of some users chosen together, exactly, so that floors are met and no slot is empty."""

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.threads import RowRange, in_parts
from divmf.kernels.market import Columns
from divmf.kernels.rules import mark_movable, mark_wanted
from divmf.market.bound import MANY
from divmf.market.ruled import RuledMarket, State

ALL, SOME = 300, 100  # so many users are mended together; of more, so many of those who can help
ROUNDS = 20  # of users who are mended together, at the most
NODES = 50  # of the solver's tree, at the most: the same lists on a busy machine and on an idle one
SECONDS = 60.0  # a cap alone, for programmes that are hard before the tree begins
EMPTY, LACKING = 1e6, 1e3  # what an empty slot and a missing showing cost, in spreads


class Pairs(NamedTuple):
    """Candidates of some users: whose each is, which item, and its value."""

    owners: Array
    items: Array
    values: Array


def mend_all(ruled: RuledMarket, columns: Columns, kind: int, state: State) -> None:
    """Mend what turns left, in place, some users at a time, as long as that helps."""
    for _ in range(ROUNDS):
        if not empty(state.lists.items) and not (state.counts < ruled.bound.low).any():
            break
        if not mend(ruled, columns, kind, state):
            break


def mend(ruled: RuledMarket, columns: Columns, kind: int, state: State) -> bool:
    """Choose the lists of users who can help together, in place; whether anything was mended.

    The first of several processes chooses for all of them.
    """
    span = comm.row_range(len(state.lists.items))
    users = helpers(ruled, columns, state, span)
    if not len(users):
        return False
    own = np.flatnonzero((users >= span.first) & (users < span.last))
    rows = users[own] - span.first
    pairs = Pairs(*(np.concatenate(comm.gathered_rows(each)) for each in pairs_of(columns, kind, rows, own)))
    others = state.counts - comm.total(ruled.bound.counted(state.lists.items[rows]))
    chosen = comm.shared(solved(ruled, pairs, others, len(users)) if comm.first() else None)
    if chosen is None:
        return False
    items = state.lists.items.copy()
    items[rows] = chosen[own]
    counts = np.asarray(comm.total(ruled.bound.counted(items)))
    after = empty(items), np.maximum(ruled.bound.low - counts, 0).sum()
    if after >= (empty(state.lists.items), np.maximum(ruled.bound.low - state.counts, 0).sum()):
        return False
    state.lists, state.counts = ruled.market.lists(items), counts
    return True


def empty(items: Array) -> int:
    """How many slots are empty, of all processes."""
    return int(comm.total((items < 0).sum()))


def helpers(ruled: RuledMarket, columns: Columns, state: State, span: RowRange) -> Array:
    """Users whose lists are short, then those who have a candidate that some floor lacks; all where they are few.

    They are numbered over all processes, which agree on them.
    """
    if span.whole <= ALL:
        return np.arange(span.whole)
    bound, n_users = ruled.bound, len(state.lists.items)
    lacking = ruled.over_items((state.counts < bound.low).astype(np.float64)) > 0
    can_give = np.zeros(n_users, dtype=np.bool_)
    in_parts(lambda first, last: mark_wanted(columns, lacking, first, last, can_give), n_users)
    short, can_give = (
        np.concatenate(comm.gathered_rows(span.first + np.flatnonzero(marks)))
        for marks in ((state.lists.items < 0).any(axis=1), can_give)
    )
    short = short[:SOME]
    makes_room = movable(ruled, columns, state, short[(short >= span.first) & (short < span.last)] - span.first)
    others = np.concatenate(comm.gathered_rows(span.first + makes_room))
    if not len(others):
        others = np.arange(span.whole)
    return np.unique(np.concatenate([short, spread(can_give), spread(others)]))[:ALL]


def spread(users: Array) -> Array:
    """Some of them, from all over."""
    return users[:: max(1, len(users) // SOME)][:SOME]


def movable(ruled: RuledMarket, columns: Columns, state: State, short: Array) -> Array:
    """Users of this process who have an item in their list that a short list could hold, and could have another.

    short   rows of this process whose lists are short; those of others have candidates that this one does not know
    """
    wanted, n_users = np.zeros(ruled.market.finder.n_items, dtype=np.int64), len(state.lists.items)
    for row in short:
        wanted[columns.items[columns.starts[row] : columns.ends[row]]] = 1
    comm.all_reduce(wanted)
    full, found = (
        ruled.over_items((state.counts >= ruled.bound.high).astype(np.float64)) > 0,
        np.zeros(n_users, np.bool_),
    )
    in_parts(
        lambda first, last: mark_movable(columns, wanted > 0, full, first, last, state.lists.items, found), n_users
    )
    return np.flatnonzero(found)


def pairs_of(columns: Columns, kind: int, rows: Array, owners: Array) -> Pairs:
    """The candidates of some users of this process; owners: what each user is called."""
    spans = [np.arange(columns.starts[row], columns.ends[row]) for row in rows]
    positions = np.concatenate([np.zeros(0, dtype=np.int64), *spans])
    owner = np.repeat(owners, [len(each) for each in spans])
    open_ = (columns.opens[positions] & kind) > 0
    return Pairs(owner[open_], columns.items[positions][open_], columns.values[positions][open_].astype(np.float64))


def solved(ruled: RuledMarket, pairs: Pairs, others: Array, n_lists: int) -> Array | None:
    """The best lists of some users with everybody else's as they are, by HiGHS.  (n_lists, k) int32; none if none.

    others   (totals,): the showings by everybody else's lists
    """
    bound, k, (owners, items, values) = ruled.bound, len(ruled.market.slots), pairs
    n_pairs = len(items)
    pair = np.repeat(np.arange(n_pairs), np.diff(bound.offsets)[items])
    spans = [bound.totals[bound.offsets[each] : bound.offsets[each + 1]] for each in items]
    totals = np.concatenate([*spans, np.zeros(0, np.int32)]).astype(np.int64)
    there, total = np.unique(totals, return_inverse=True)  # no other total can change
    low, high, limits = (table[there] for table in (bound.low - others, bound.high, ruled.limits))
    high, n_totals = np.where(high < MANY, high - others[there], np.inf), len(there)
    # columns: a pair each, then what each total lacks, then the empty slots of each list
    size = n_pairs + n_totals + n_lists
    sums = sparse.csr_array((np.ones(len(pair)), (total, pair)), shape=(n_totals, size))
    lacks = sparse.csr_array((np.ones(n_totals), (np.arange(n_totals), n_pairs + np.arange(n_totals))), sums.shape)
    rows = np.concatenate([owners, np.arange(n_lists)])
    at_columns = np.concatenate([np.arange(n_pairs), n_pairs + n_totals + np.arange(n_lists)])
    full = sparse.csr_array((np.ones(len(rows)), (rows, at_columns)), shape=(n_lists, size))
    constraints = [
        LinearConstraint(sums, -np.inf, high),
        LinearConstraint(sparse.csr_array(sums + lacks), low, np.inf),
        LinearConstraint(full, k, k),
    ]
    limited = limits[total] < k
    if limited.any():
        key = owners[pair[limited]] * n_totals + total[limited]
        keys, position = np.unique(key, return_inverse=True)
        inside = sparse.csr_array((np.ones(len(position)), (position, pair[limited])), shape=(len(keys), size))
        constraints.append(LinearConstraint(inside, -np.inf, limits[keys % n_totals]))
    cost = np.concatenate([
        -values, np.full(n_totals, LACKING * ruled.scale), np.full(n_lists, EMPTY * ruled.scale)
    ])  # fmt: skip
    most = np.concatenate([np.ones(n_pairs), bound.low[there], np.full(n_lists, k)])
    found = milp(
        cost, integrality=np.ones(size, dtype=np.int64), bounds=Bounds(0, most), constraints=constraints,
        options={"node_limit": NODES, "time_limit": SECONDS, "mip_rel_gap": 1e-6},
    )  # fmt: skip
    if found.x is None:
        return None
    chosen = np.full((n_lists, k), -1, dtype=np.int32)
    taken = np.flatnonzero(found.x[:n_pairs] > 0.5)
    for row in range(n_lists):
        own = items[taken[owners[taken] == row]]
        chosen[row, : len(own)] = own
    return chosen
