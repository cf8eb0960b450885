"""Lists at item prices, from candidates kept of an earlier pass wherever those are certain to hold the list."""

import numpy as np
from numba import njit

from divmf.engine.arrays import Array
from divmf.kernels.rows import score_of

BINS = 12  # of how far an item is from leaving or entering a list; the nearest are the narrowest
SHORTER, LONGER = np.float32(0.5), np.float32(1.5)  # how a user's trials of another scale change
SHORTEST, LONGEST = np.float32(0.01), np.float32(0.7)  # and how short and long they may become, as logarithms
# the pace of a price: how it changes where it passed its goal, or did not, within which bounds, and how it begins
WAY_DOWN, WAY_UP, PACES, FIRST_PACE = 0.5, 1.2, (0.05, 1.5), 1.25
# scales that margins are known for, beside that at which candidates were found: half to twice, by fourth roots of two
PER_OCTAVE = 4
SCALES = 2.0 ** (np.arange(-PER_OCTAVE, PER_OCTAVE + 1) / PER_OCTAVE)


@njit(cache=True, nogil=True)
def respond_part(
    users: Array, items: Array, scores: Array, shares: Array, places: Array, price: Array, windows: Array,
    certainty: tuple[Array, Array, Array, Array], fresh: bool, choose: bool, first: int, last: int, scale: Array,
    strides: Array, lists: Array, ends: Array, worth: Array, certain: Array, demand: Array,
) -> None:  # fmt: skip
    """Lists for places first … last−1 of `users`: the top k of scale · score − price among their candidates.

    items, scores   candidates, −1 at the end where there are fewer; their scores before any price.  (n_users, width)
    shares, places  a list is worth share · Σ_r places[r] · (its r-th score) to its user.  (n_users,), (k,)
    windows         how far from a list's end an item still counts in `demand`.  (n_items,)
    certainty       see `is_certain`
    fresh           whether candidates were found at these very prices
    choose          whether a user may take a scale a little larger or smaller, if that list is worth more after prices
    scale, strides  written, if so: the scale taken, and by how much, as a logarithm, others are tried.  (n_users,)
    lists, ends     written: the lists (n_users, k), and scale · score − price of their last item (n_users,)
    worth           written: what lists are worth.  (n_users,)
    certain         written: whether no item outside the candidates can belong to the list; else nothing is written
    demand          added to: lists an item is in; then by how far its price would have to fall for it to enter more,
                    and to rise for it to leave some.  (n_items, 1 + 2 · BINS)
    """
    width, k = items.shape[1], lists.shape[1]
    fall = np.empty(width, dtype=np.float32)
    best, order = np.empty(k + 1, dtype=np.float32), np.empty(k + 1, dtype=np.int64)
    chosen = np.empty(k, dtype=np.int64)
    for number in range(first, last):
        user = users[number]
        size = 0
        while size < width and items[user, size] >= 0:
            fall[size] = -price[items[user, size]]
            size += 1
        full, now = min(k, size), scale[user]
        taken, most, value = now, np.float32(-np.inf), np.float32(0)
        end, after = np.float32(-np.inf), np.float32(-np.inf)
        step = np.float32(np.exp(strides[user])) if choose else np.float32(1)
        for trial in range(3 if choose else 1):
            own = now
            if trial > 0:
                # with one place left to the user's own best, it is the first that counts; with all, the last
                own = min(max(now * step if trial == 1 else now / step, shares[user]), shares[user] * places[0])
                if own == now:
                    continue
            top(items[user], scores[user], fall, size, own, best, order)
            by_score(items[user], scores[user], order, full)
            gained = np.float32(0)
            for rank in range(full):
                gained += shares[user] * places[rank] * scores[user, order[rank]]
            total = gained
            for rank in range(full):
                total += fall[order[rank]]
            bottom = best[full - 1] if full else np.float32(-np.inf)
            # candidates found at these very prices are certain at the scale they were found at
            if trial == 0 or (total > most and (not fresh or is_certain(user, own, bottom, certainty))):
                taken, most, value = own, total, gained
                end, after = bottom, best[k]
                chosen[:full] = order[:full]
        certain[number] = fresh or is_certain(user, taken, end, certainty)
        if not certain[number]:
            continue
        if choose:
            stride = strides[user] * (SHORTER if taken == now else LONGER)
            strides[user] = min(max(stride, SHORTEST), LONGEST)
        scale[user], ends[user], worth[user] = taken, end if full == k else np.float32(np.inf), value
        lists[user] = -1
        for rank in range(full):
            lists[user, rank] = items[user, chosen[rank]]
            demand[items[user, chosen[rank]], 0] += 1
        if size <= k:
            continue
        for place in range(size):
            reached, item = taken * scores[user, place] + fall[place], items[user, place]
            inside = reached >= end
            far = ((reached - after) if inside else (end - reached)) / windows[item]
            if far < 1:
                demand[item, 1 + (BINS if inside else 0) + int(BINS * np.sqrt(far))] += 1


@njit(cache=True, nogil=True)
def top(items: Array, scores: Array, fall: Array, size: int, own: np.float32, best: Array, order: Array) -> None:
    """The largest own · score + fall of a user's candidates, in order, and their places: as many as `best` holds.

    Of equals the item of the lower number is ahead, whatever the order of the candidates: that may depend on the users
    that were looked at together.
    """
    k = len(best) - 1
    best[:] = -np.inf
    order[:] = -1
    for place in range(size):
        value = own * scores[place] + fall[place]
        # few of the candidates come into the list, so keeping it in order is cheaper than a heap
        if value < best[k] or (value == best[k] and items[order[k]] < items[place]):
            continue
        rank = k
        while rank > 0 and (
            best[rank - 1] < value or (best[rank - 1] == value and items[order[rank - 1]] > items[place])
        ):
            best[rank], order[rank] = best[rank - 1], order[rank - 1]
            rank -= 1
        best[rank], order[rank] = value, place


@njit(cache=True, nogil=True)
def by_score(items: Array, scores: Array, order: Array, size: int) -> None:
    """Put the first places in the order of their scores, in place; of equals the item of the lower number first."""
    for rank in range(1, size):
        place, at = order[rank], rank
        while at > 0 and (
            scores[order[at - 1]] < scores[place]
            or (scores[order[at - 1]] == scores[place] and items[order[at - 1]] > items[place])
        ):
            order[at] = order[at - 1]
            at -= 1
        order[at] = place


@njit(cache=True, nogil=True)
def is_certain(user: int, own: np.float32, end: np.float32, certainty: tuple[Array, Array, Array, Array]) -> bool:
    """Whether no item outside a user's candidates comes up to the end of the list at this scale.

    certainty: what none of them came up to when the candidates were found (−inf: there are none), at which scale, in
    which round; and for each round and `SCALES` s, the most of s · price then − price now.
    Scores u, the scale a then and s·a now: s·a·u − p = s (a·u − p_then) + (s·p_then − p).
    """
    limit, found_at, found_in, margins = certainty
    if limit[user] == -np.inf:
        return True
    ratio = own / found_at[user]
    place = (np.log2(ratio) + 1) * PER_OCTAVE
    if not 0 <= place < 2 * PER_OCTAVE:
        return False
    # a maximum of straight lines: between two scales it lies nowhere above the line from one to the other
    below, margin = int(place), margins[found_in[user]]
    part = (ratio - SCALES[below]) / (SCALES[below + 1] - SCALES[below])
    most = margin[below] + part * (margin[below + 1] - margin[below])
    return bool(end > ratio * limit[user] + most)


@njit(cache=True)
def margins_of(rounds: Array, price: Array) -> Array:
    """For each round's prices and each of `SCALES` s, the most of s · price then − price now.  (n_rounds, n_scales)"""
    margins = np.full((len(rounds), len(SCALES)), -np.inf, dtype=np.float32)
    for turn in range(len(rounds)):
        for item in range(len(price)):
            for number in range(len(SCALES)):
                margin = np.float32(SCALES[number] * rounds[turn, item] - price[item])
                margins[turn, number] = max(margins[turn, number], margin)
    return margins


@njit(cache=True, nogil=True)
def keep_part(
    users: Array, found: Array, price: Array, own: Array, now: Array, vectors: Array, item_vectors: Array,
    turn: int, first: int, last: int, items: Array, scores: Array, certainty: tuple[Array, Array, Array],
) -> None:  # fmt: skip
    """Keep the items found for places first … last−1 of `users` as their candidates, and those of their own lists.

    Scores are multiplied out anew, one by one, so that they do not depend on the prices they were found at, nor on how
    many users were looked at together: the last digits decide which of those at the end are kept.
    """
    limit, found_at, found_in = certainty
    width, k = items.shape[1] - own.shape[1], own.shape[1]
    spare = found.shape[1] - width
    values = np.empty(2 * spare, dtype=np.float32)
    for number in range(first, last):
        user = users[number]
        found_at[user], found_in[user] = now[number], turn
        total = 0
        while total < found.shape[1] and found[number, total] >= 0:
            total += 1
        size = min(total, width)
        items[user, :size] = found[number, :size]
        limit[user] = -np.inf  # without a limit, these are all that the user has left
        if total > width:
            sure = max(0, width - spare)
            rest = found[number, sure:total].copy()
            for place in range(len(rest)):
                score = score_of(vectors[user], item_vectors[rest[place]])
                values[place] = now[number] * score - price[rest[place]]
            for size in range(sure, width):
                best = 0
                for place in range(1, len(rest)):
                    if values[place] > values[best] or (values[place] == values[best] and rest[place] < rest[best]):
                        best = place
                items[user, size], limit[user] = rest[best], values[best]
                values[best] = -np.inf
            size = width
        there = size
        for rank in range(k):
            item = own[user, rank]
            if item >= 0 and not (items[user, :there] == item).any():
                items[user, size] = item
                size += 1
        for place in range(size):
            scores[user, place] = score_of(vectors[user], item_vectors[items[user, place]])
        items[user, size:] = -1


@njit(cache=True)
def scores_of(users: Array, items: Array, vectors: Array, item_vectors: Array) -> Array:
    """The scores of pairs of users and items; 0 where there is none (−1).  (rows, columns) float32"""
    scores = np.zeros(users.shape, dtype=np.float32)
    for row in range(users.shape[0]):
        for column in range(users.shape[1]):
            user, item = users[row, column], items[row, column]
            if user >= 0 and item >= 0:
                scores[row, column] = score_of(vectors[user], item_vectors[item])
    return scores


@njit(cache=True)
def wanted(price: float, table: Array) -> int:
    """How often an item would be shown that pays a price for every showing: while the bonus, which falls, is more."""
    low, high = 0, len(table)
    while low < high:
        middle = (low + high) // 2
        if table[middle] > price:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def slack_of(counts: Array, price: Array, table: Array, sums: Array) -> float:
    """Σ_i max_x (p x + B(x)) − (p f + B(f)) ≥ 0, with b = table and B = sums: dual minus primal value of the lists."""
    slack = 0.0
    for item in range(len(price)):
        asked, shown = -float(price[item]), counts[item]
        most = wanted(asked, table)
        slack += sums[most] - sums[shown] - asked * (most - shown)
    return slack


@njit(cache=True)
def step_prices(
    price: Array,
    demand: Array,
    table: Array,
    limits: tuple[float, float],
    windows: Array,
    paces: Array,
    sides: Array,
) -> Array:
    """The prices at which as many lists hold an item as it wants, if all other prices stay, or on the way there.

    table    the bonus of one more showing.  (n_users,)
    limits   the narrowest and the widest window
    windows  changed: doubled where the goal lies beyond, halved where it is near
    paces    changed: how much of the way is gone; less where a price passed its goal, else more
    sides    changed: where the goal lay, −1 or 1
    """
    changed = price.copy()
    least, most = limits
    for item in range(len(price)):
        discount, count = -float(price[item]), demand[item, 0]
        if count < len(table) and discount < table[count]:
            side = 1
        elif count > 0 and discount > table[count - 1]:
            side = -1
        else:
            continue
        window, bins = windows[item], demand[item, 1 + (BINS if side < 0 else 0) :]
        way, at = float(window), BINS
        for place in range(BINS):
            low, high = window * (place / BINS) ** 2, window * ((place + 1) / BINS) ** 2
            then = count + side * bins[place]
            goal = wanted(discount + side * high, table)
            if side * (then - goal) >= 0:
                share = (goal - count) / (then - count) if then != count else 0.0
                way, at = low + min(max(share, 0.0), 1.0) * (high - low), place
                break
            count = then
        passed = side * sides[item] < 0
        paces[item] = min(max(paces[item] * (WAY_DOWN if passed else WAY_UP), PACES[0]), PACES[1])
        sides[item] = side
        windows[item] = min(window * 2, most) if at == BINS else (max(window / 2, least) if 2 * at < BINS else window)
        changed[item] = -(discount + side * paces[item] * way)
    return changed


@njit(cache=True)
def holds(shown: Array, item: int) -> bool:
    """Whether an item is in a list."""
    found = False
    for rank in range(len(shown)):
        found |= shown[rank] == item
    return found


@njit(cache=True)
def bid_in_turn(
    bidders: Array, near: Array, counts: Array, lists: Array, values: Array, table: Array,
    rules: tuple[float, float, int], price: Array,
) -> None:  # fmt: skip
    """Items that want to be shown more bid for the last place of some user's list, in turn; prices fall, in place.

    bidders, near  for each item the users it may bid for, as rows of `lists`, and by how much it lies above the end of
                   their list at no price, the nearest first; −inf: there are no more.  (n_items, width)
    lists, values  those of all these users, and scale · score − price of the items in them.  (n_users, k)
    table          the bonus of one more showing.  (n_users of all,)
    rules          steps of bids; the share of the way to the next best user's price that is bid; how many bids there
                   may be
    """
    step, share, most = rules
    width = bidders.shape[1]
    lasts = np.array([row.argmin() for row in values])
    before = np.array([row.min() for row in values])  # `near` counts from here
    ends = before.copy()
    queued = np.zeros(len(counts), dtype=np.bool_)
    waiting = np.empty(most + len(counts), dtype=np.int64)
    bid, queue = 0, 0
    for item in range(len(counts)):
        if wants_more(item, counts, price, table, step):
            waiting[queue], queued[item] = item, True
            queue += 1
    while bid < queue and bid < most:
        item = waiting[bid]
        queued[item] = False
        bid += 1
        if not wants_more(item, counts, price, table, step):
            continue
        best, second, winner = -np.inf, -np.inf, -1
        for place in range(width):
            if near[item, place] <= second:
                break  # ends of lists only rise
            user = bidders[item, place]
            if holds(lists[user], item):
                continue
            ahead = near[item, place] + before[user] - ends[user]
            if ahead > best:
                best, second, winner = ahead, best, user
            elif ahead > second:
                second = ahead
        largest = table[counts[item]]
        if winner < 0 or best <= step - largest:
            continue  # nobody comes near enough
        asked = max(best - share * (best - second), -largest) if second > -np.inf else best
        # in whole steps, so that the last digits of scores, which blocks of another size may change, do not matter
        now = min(max((np.floor(asked / step) - 1) * step, -largest), price[item])
        fall, price[item] = price[item] - now, now
        for place in range(width):
            if near[item, place] <= now:
                break
            user = bidders[item, place]
            if holds(lists[user], item):
                for rank in range(lists.shape[1]):
                    values[user, rank] += fall if lists[user, rank] == item else 0.0
            else:  # whoever comes as near takes it, too
                ahead = near[item, place] + before[user] - ends[user]
                if ahead <= now:
                    continue
                gone = lists[user, lasts[user]]
                lists[user, lasts[user]], values[user, lasts[user]] = item, ahead + ends[user] - now
                counts[item] += 1
                counts[gone] -= 1
                if queue < len(waiting) and not queued[gone] and wants_more(gone, counts, price, table, step):
                    waiting[queue], queued[gone] = gone, True
                    queue += 1
            lasts[user] = values[user].argmin()
            ends[user] = values[user, lasts[user]]
        if queue < len(waiting) and wants_more(item, counts, price, table, step):
            waiting[queue], queued[item] = item, True
            queue += 1


@njit(cache=True)
def wants_more(item: int, counts: Array, price: Array, table: Array, step: float) -> bool:
    """Whether one more showing of an item earns more than its discount."""
    return bool(counts[item] < len(table) and table[counts[item]] > step - price[item])
