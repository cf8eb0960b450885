"""What turns cannot mend: lists of some users chosen together, exactly, so that floors are met and no slot is empty."""

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.kernels.market import Columns
from divmf.market.bound import MANY
from divmf.market.ruled import RuledMarket, Standing

ALL, SOME = 300, 100  # so many users are mended together; of more, so many of those who can help
NODES = 50  # of the solver's tree, at the most: the same lists on a busy machine and on an idle one
SECONDS = 60.0  # a cap alone, for programmes that are hard before the tree begins
EMPTY, LACKING = 1e6, 1e3  # what an empty slot and a missing showing cost, in spreads


def mend(ruled: RuledMarket, columns: Columns, kind: int, at: Standing) -> bool:
    """Choose the lists of users who can help together, in place; whether anything was mended.

    Several processes leave what turns could not mend as it is: each has the lists of its users alone.
    """
    if comm.size() > 1:
        return False
    users = helpers(ruled, columns, kind, at)
    if not len(users):
        return False
    chosen = solved(ruled, columns, kind, at, users)
    if chosen is None:
        return False
    items = at.lists.items.copy()
    items[users] = chosen
    counts = ruled.bound.counted(items)
    before = np.maximum(ruled.bound.low - at.counts, 0).sum(), (at.lists.items < 0).sum()
    after = np.maximum(ruled.bound.low - counts, 0).sum(), (items < 0).sum()
    if (after[1], after[0]) >= (before[1], before[0]):
        return False
    at.lists, at.counts = ruled.market.lists(items), counts
    return True


def helpers(ruled: RuledMarket, columns: Columns, kind: int, at: Standing) -> Array:
    """Users whose lists are short, then those who have a candidate that some floor lacks; all where they are few."""
    n_users = len(at.lists.items)
    if n_users <= ALL:
        return np.arange(n_users)
    lacking = ruled.over_items((at.counts < ruled.bound.low).astype(np.float64)) > 0
    short = np.flatnonzero((at.lists.items < 0).any(axis=1))
    found = [
        user for user in range(n_users)
        if lacking[columns.items[columns.starts[user] : columns.ends[user]]].any()
    ]  # fmt: skip
    every = max(1, len(found) // SOME)
    others = np.arange(0, n_users, max(1, n_users // SOME))  # who may make room
    return np.unique(np.concatenate([short[:SOME], np.array(found[::every][:SOME], dtype=np.int64), others]))[:ALL]


def solved(ruled: RuledMarket, columns: Columns, kind: int, at: Standing, users: Array) -> Array | None:
    """The best lists of some users with everybody else's as they are, by HiGHS.  (users, k) int32; none if none."""
    bound, k = ruled.bound, len(ruled.market.slots)
    owner, item, value = [], [], []
    for row, user in enumerate(users):
        span = slice(columns.starts[user], columns.ends[user])
        open_ = (columns.opens[span] & kind) > 0
        item.append(columns.items[span][open_])
        value.append(columns.values[span][open_])
        owner.append(np.full(int(open_.sum()), row))
    items, values, owners = np.concatenate(item), np.concatenate(value).astype(np.float64), np.concatenate(owner)
    n_pairs, n_totals, n_lists = len(items), bound.n_totals, len(users)
    pair = np.repeat(np.arange(n_pairs), np.diff(bound.offsets)[items])
    spans = [bound.totals[bound.offsets[each] : bound.offsets[each + 1]] for each in items]
    total = np.concatenate([*spans, np.zeros(0, np.int32)]).astype(np.int64)
    others = at.counts - bound.counted(at.lists.items[users])
    # columns: a pair each, then what each total lacks, then the empty slots of each list
    size = n_pairs + n_totals + n_lists
    sums = sparse.csr_array((np.ones(len(pair)), (total, pair)), shape=(n_totals, size))
    lacks = sparse.csr_array((np.ones(n_totals), (np.arange(n_totals), n_pairs + np.arange(n_totals))), sums.shape)
    rows = np.concatenate([owners, np.arange(n_lists)])
    at_columns = np.concatenate([np.arange(n_pairs), n_pairs + n_totals + np.arange(n_lists)])
    full = sparse.csr_array((np.ones(len(rows)), (rows, at_columns)), shape=(n_lists, size))
    high = np.where(bound.high < MANY, bound.high - others, np.inf)
    constraints = [
        LinearConstraint(sums, -np.inf, high),
        LinearConstraint(sparse.csr_array(sums + lacks), bound.low - others, np.inf),
        LinearConstraint(full, k, k),
    ]
    limited = ruled.limits[total] < k
    if limited.any():
        key = owners[pair[limited]] * n_totals + total[limited]
        keys, position = np.unique(key, return_inverse=True)
        inside = sparse.csr_array((np.ones(len(position)), (position, pair[limited])), shape=(len(keys), size))
        constraints.append(LinearConstraint(inside, -np.inf, ruled.limits[keys % n_totals]))
    cost = np.concatenate([
        -values, np.full(n_totals, LACKING * ruled.scale), np.full(n_lists, EMPTY * ruled.scale)
    ])  # fmt: skip
    most = np.concatenate([np.ones(n_pairs), np.maximum(bound.low, 0), np.full(n_lists, k)])
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
