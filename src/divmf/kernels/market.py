"""The exposure market, compiled: the best list of a user, everybody in turn, and the candidates that lists are made of.

Exposure is counted in whole numbers, `ONE` for a full showing, so that sums are exact in any order. What an item earns
by its next showing is a table that falls: `bonus[x]` for the (x + 1)-th, straight lines between.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from divmf.engine.arrays import Array
from divmf.kernels.best import VECTOR, best_of_row, bits_of, float_of, scratch_for

ONE_BITS = 20
ONE = 1 << ONE_BITS  # a full showing
NEVER = -np.inf


class Columns(NamedTuple):
    """The candidates of users in order of value, the highest first, of equals the lower number.

    starts, ends            (n_users,): where the candidates of a user begin and end in the others
    items, values, opens    one entry a candidate; opens: a bit for each kind of lists that it may stand in
    """

    starts: Array
    ends: Array
    items: Array
    values: Array
    opens: Array


class Terms(NamedTuple):
    """What a list is worth.

    slots     (k,) float64: what a value counts in each slot, falling
    exposure  (k,) int64: what a showing counts in each slot, in units of ONE, falling
    bonus     (n,) float64: what the (x + 1)-th showing of an item earns, times ρ, falling
    """

    slots: Array
    exposure: Array
    bonus: Array


class Desk(NamedTuple):
    """Room to work in: the candidates that may be in the list, and what the best partial lists are worth."""

    items: Array
    values: Array
    gains: Array
    highest: Array
    best: Array
    found: Array
    taken: Array


@njit(cache=True, nogil=True)
def desk_for(width: int, k: int) -> Desk:
    """Room for users with up to so many candidates."""
    return Desk(
        np.empty(width, dtype=np.int32), np.empty(width), np.empty((width, k)), np.empty(k), np.empty(k + 1),
        np.empty(k), np.empty((width, k), dtype=np.bool_),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def gain_of(exposed: int, more: int, bonus: Array) -> Any:
    """What `more` exposure (at most ONE) earns an item that has `exposed`."""
    full = exposed >> ONE_BITS
    left = ONE - (exposed & (ONE - 1))
    if more <= left:
        return bonus[full] * (more / ONE)
    return (bonus[full] * left + bonus[full + 1] * (more - left)) / ONE


@njit(cache=True, nogil=True)
def keep_highest(highest: Array, size: int, gain: float) -> int:
    """Keep the highest of the gains seen, ascending; how many there are now."""
    k = len(highest)
    if size < k:
        position = size
        while position > 0 and highest[position - 1] > gain:
            highest[position] = highest[position - 1]
            position -= 1
        highest[position] = gain
        return size + 1
    position = 0
    while position + 1 < k and highest[position + 1] < gain:
        highest[position] = highest[position + 1]
        position += 1
    highest[position] = gain
    return k


@njit(cache=True, nogil=True)
def _consider(columns: Columns, user: int, kind: int, exposed: Array, terms: Terms, desk: Desk) -> int:
    """Put the candidates that may be in the user's list on the desk, with what they would earn; how many they are.

    Where all slots expose alike, an item that follows k others of at least its gain and its value is passed over.
    """
    k, size, n_highest = len(terms.slots), 0, 0
    flat = terms.exposure[0] == terms.exposure[k - 1]
    for candidate in range(columns.starts[user], columns.ends[user]):
        if not columns.opens[candidate] & kind:
            continue
        item = columns.items[candidate]
        gain = gain_of(exposed[item], terms.exposure[0], terms.bonus)
        if flat:
            if n_highest == k and gain <= desk.highest[0]:
                continue
            n_highest = keep_highest(desk.highest, n_highest, gain)
        desk.items[size] = item
        desk.values[size] = columns.values[candidate]
        for r in range(k):
            desk.gains[size, r] = gain if flat else gain_of(exposed[item], terms.exposure[r], terms.bonus)
        size += 1
    return size


@njit(cache=True, nogil=True)
def best_list(size: int, slots: Array, desk: Desk, chosen: Array) -> Any:
    """The best list of the candidates on the desk, in order of value, −1 where there are too few; what it is worth.

    best[r] is the most that r slots can hold of the candidates so far: each is left out, or takes the slot r.
    """
    k = len(slots)
    length = min(k, size)
    best, found, taken = desk.best, desk.found, desk.taken
    best[0] = 0.0
    best[1:] = NEVER
    for candidate in range(size):
        value = desk.values[candidate]
        for r in range(k):
            found[r] = best[r] + slots[r] * value + desk.gains[candidate, r]
        for r in range(k):
            taken[candidate, r] = found[r] > best[r + 1]
            best[r + 1] = max(best[r + 1], found[r])
    chosen[length:] = -1
    r = length
    for candidate in range(size - 1, -1, -1):
        if r == 0:
            break
        if r - 1 <= candidate and desk.taken[candidate, r - 1]:
            chosen[r - 1] = candidate
            r -= 1
    return desk.best[length]


@njit(cache=True, nogil=True)
def widest(columns: Columns, first: int, last: int) -> int:
    """The most candidates that one of these users has."""
    width = 0
    for user in range(first, last):
        width = max(width, columns.ends[user] - columns.starts[user])
    return width


@njit(cache=True, nogil=True)
def take_turns(columns: Columns, kind: int, first: int, last: int, terms: Terms, exposed: Array, lists: Array) -> int:
    """Users first … last−1, in turn, each take the list that is best given everybody else's; how many lists changed.

    exposed (n_items,) and lists (n_users, k) are changed in place. A list as good as the best stays.
    """
    k = len(terms.slots)
    desk, chosen, changed = desk_for(widest(columns, first, last), k), np.empty(k, dtype=np.int64), 0
    for user in range(first, last):
        own = lists[user]
        for r in range(k):
            if own[r] >= 0:
                exposed[own[r]] -= terms.exposure[r]
        size = _consider(columns, user, kind, exposed, terms, desk)
        best = best_list(size, terms.slots, desk, chosen)
        allowed, worth, earned = _list_now(columns, user, kind, terms, exposed, own)
        if not allowed or best > worth + earned + 1e-12 * abs(worth + earned):
            for r in range(k):
                own[r] = desk.items[chosen[r]] if chosen[r] >= 0 else -1
            changed += 1
        for r in range(k):
            if own[r] >= 0:
                exposed[own[r]] += terms.exposure[r]
    return changed


@njit(cache=True, nogil=True)
def _list_now(
    columns: Columns, user: int, kind: int, terms: Terms, exposed: Array, own: Array
) -> tuple[bool, float, float]:
    """Whether a list may stay: full, of open candidates, in order; what its values count, and what it earns."""
    k, worth, earned, r, n_open = len(own), 0.0, 0.0, 0, 0
    for candidate in range(columns.starts[user], columns.ends[user]):
        if not columns.opens[candidate] & kind:
            continue
        n_open += 1
        if r < k and columns.items[candidate] == own[r]:
            worth += terms.slots[r] * columns.values[candidate]
            earned += gain_of(exposed[own[r]], terms.exposure[r], terms.bonus)
            r += 1
    return r == min(k, n_open) and (r == k or own[r] < 0), worth, earned


@njit(cache=True, nogil=True)
def worth_part(columns: Columns, first: int, last: int, slots: Array, lists: Array) -> float:
    """What values count in the lists of users first … last−1, together."""
    total = 0.0
    for user in range(first, last):
        own, r = lists[user], 0
        for candidate in range(columns.starts[user], columns.ends[user]):
            if r < len(own) and columns.items[candidate] == own[r]:
                total += slots[r] * columns.values[candidate]
                r += 1
    return total


@njit(cache=True, nogil=True)
def answer_part(
    columns: Columns, kind: int, first: int, last: int, terms: Terms, discount: Array, demand: Array
) -> float:
    """What the best lists of users first … last−1 are worth at fixed discounts, together; demand counts exposure.

    discount (n_items,): what a full showing of an item earns
    """
    k, total = len(terms.slots), 0.0
    flat = terms.exposure[0] == terms.exposure[k - 1]
    desk, chosen = desk_for(widest(columns, first, last), k), np.empty(k, dtype=np.int64)
    for user in range(first, last):
        size, n_highest = 0, 0
        for candidate in range(columns.starts[user], columns.ends[user]):
            if not columns.opens[candidate] & kind:
                continue
            item = columns.items[candidate]
            gain = discount[item] * (terms.exposure[0] / ONE)
            if flat:
                if n_highest == k and gain <= desk.highest[0]:
                    continue
                n_highest = keep_highest(desk.highest, n_highest, gain)
            desk.items[size] = item
            desk.values[size] = columns.values[candidate]
            for r in range(k):
                desk.gains[size, r] = discount[item] * (terms.exposure[r] / ONE)
            size += 1
        total += best_list(size, terms.slots, desk, chosen)
        for r in range(k):
            if chosen[r] >= 0:
                demand[desk.items[chosen[r]]] += terms.exposure[r]
    return total


@njit(cache=True, nogil=True, fastmath=VECTOR, error_model="numpy")
def _discounted(row: Array, weight: Any, discount: Array, out: Array) -> None:
    """out ← weight·row + discount."""
    for j in range(len(row)):
        out[j] = weight * row[j] + discount[j]


class Wanted(NamedTuple):
    """What candidates are looked for by.

    weights (n_users,), discount (n_items,) float32: by weight·score + discount
    offsets, seen: the items that are not looked for, as a CSR matrix
    held_offsets, held, held_opens: of these, items that may stand in some kinds of lists, as a CSR matrix
    """

    weights: Array
    discount: Array
    offsets: Array
    seen: Array
    held_offsets: Array
    held: Array
    held_opens: Array


OPEN_BITS = 3
ALL_OPEN = (1 << OPEN_BITS) - 1


@njit(cache=True, nogil=True)
def _key(value: Any, item: int, opens: int) -> Any:
    """A whole number in the order of candidates: the higher value first, of equals the lower number."""
    bits = np.int64(bits_of(np.float32(value)))
    rank = bits if bits >= 0 else -(bits & 0x7FFFFFFF) - 1
    return (-rank << 32) | (np.int64(item) << OPEN_BITS) | opens


@njit(cache=True, nogil=True)
def close_rows(block: Array, first: int, wanted: Wanted, held_values: Array) -> None:
    """In the rows of users first, first + 1, …: −inf for what is not looked for; what is held is written down first.

    held_values   the scores of `Wanted.held`
    """
    for r in range(len(block)):
        row, user = block[r], first + r
        for position in range(wanted.held_offsets[user], wanted.held_offsets[user + 1]):
            held_values[position] = row[wanted.held[position]]
        for position in range(wanted.offsets[user], wanted.offsets[user + 1]):
            row[wanted.seen[position]] = NEVER


@njit(cache=True, nogil=True, error_model="numpy")
def find_rows(
    block: Array, first: int, wanted: Wanted, held_values: Array, by_value: Array, kept: Array, columns: Columns
) -> None:
    """The candidates of users first, first + 1, … from their rows of scores, into `columns` from their starts on.

    They are the best by value, and the best by value plus discount, of the items that may stand in every list. A held
    item is a candidate of the lists it may stand in, if it is as good as one of those: which items are held must not
    make them candidates. Those of the present lists stay candidates.
    block, held_values   see `close_rows`
    by_value   (n_users, width): the best by value, found now where a row begins with −2
    kept       (n_users, k): the present lists of the first kind, −1 for none
    """
    n_items, width = block.shape[1], by_value.shape[1]
    scratch, spare = scratch_for(n_items), np.empty(n_items, dtype=np.float32)
    found = np.empty(width, dtype=np.int32)
    most = 0
    for r in range(len(block)):
        most = max(most, wanted.held_offsets[first + r + 1] - wanted.held_offsets[first + r])
    keys = np.empty(2 * width + kept.shape[1] + most, dtype=np.int64)
    for r in range(len(block)):
        row, user, size = block[r], first + r, 0
        weight = wanted.weights[user]
        for slot in range(kept.shape[1]):
            item = kept[user, slot]
            if item >= 0 and row[item] > NEVER:
                keys[size] = _key(weight * row[item], item, ALL_OPEN)
                size += 1
        n_open = n_items - (wanted.offsets[user + 1] - wanted.offsets[user])
        n = min(width, n_open)
        lowest, least = np.float32(np.inf), np.float32(np.inf)
        if n:
            if by_value[user, 0] == -2:
                by_value[user] = -1
                best_of_row(row, 0, by_value[user, :n], scratch)
            _discounted(row, weight, wanted.discount, spare)
            best_of_row(spare, 0, found[:n], scratch)
            for rank in range(n):
                lowest = min(lowest, row[by_value[user, rank]])
                least = min(least, spare[found[rank]])
                keys[size] = _key(weight * row[by_value[user, rank]], by_value[user, rank], ALL_OPEN)
                keys[size + 1] = _key(weight * row[found[rank]], found[rank], ALL_OPEN)
                size += 2
        if n_open <= n:
            lowest, least = np.float32(NEVER), np.float32(NEVER)
        for position in range(wanted.held_offsets[user], wanted.held_offsets[user + 1]):
            item, value = wanted.held[position], held_values[position]
            if value >= lowest or weight * value + wanted.discount[item] >= least or item in kept[user]:
                keys[size] = _key(weight * value, item, wanted.held_opens[position])
                size += 1
        keys[:size].sort()
        columns.ends[user] = _write(keys[:size], columns.starts[user], columns)


@njit(cache=True, nogil=True)
def _write(keys: Array, start: int, columns: Columns) -> int:
    """Sorted keys as candidates, each item once; where they end."""
    end = start
    for key in keys:
        item, opens = (key & 0xFFFFFFFF) >> OPEN_BITS, key & ALL_OPEN
        if end > start and columns.items[end - 1] == item:
            columns.opens[end - 1] |= opens
            continue
        rank = -(key >> 32)
        bits = rank if rank >= 0 else (-1 - rank) - 0x80000000
        columns.items[end] = item
        columns.values[end] = float_of(np.int32(bits))
        columns.opens[end] = opens
        end += 1
    return end
