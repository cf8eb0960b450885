"""Lists at item prices, from candidates kept of an earlier pass wherever those are certain to hold the list."""

import numpy as np
from numba import njit

from divmf.ids import Array


@njit(cache=True, nogil=True)
def reprice_part(
    users: Array, items: Array, scores: Array, limit: Array, found_in: Array, fall: Array, price: Array, first: int,
    last: int, near: float, fresh: bool, lists: Array, worth: Array, certain: Array, close: Array,
) -> None:  # fmt: skip
    """Lists for places first … last−1 of `users` at these prices: the top k of score − price among their candidates.

    items, scores   candidates by ascending number, −1 at the end where there are fewer, and their scores before any
                    price.  (n_users, width)
    limit           what no other item of the user reached, after prices, when the candidates were found.  (n_users,)
    found_in, fall  the round they were found in, and by how much any price has fallen since each round
    fresh           whether they were found at these very prices
    lists, worth, certain   written: the lists (n_users, k), the sum of their scores before any price, and for each of
                    `users` whether no item outside the candidates can belong to them
    close           added to: for how many users with certain lists each item is within `near` of entering or leaving
    """
    width, k = items.shape[1], lists.shape[1]
    priced = np.empty(width, dtype=np.float32)
    places = np.empty(k, dtype=np.int64)
    best = np.empty(k, dtype=np.float32)
    for number in range(first, last):
        user = users[number]
        best[:] = -np.inf
        places[:] = -1
        for place in range(width):
            item = items[user, place]
            value = scores[user, place] - price[item] if item >= 0 else np.float32(-np.inf)
            priced[place] = value
            # few of the candidates come into the list, so keeping it in order is cheaper than a heap; of equals the
            # first, which has the smaller number, stays ahead
            if value > best[k - 1]:
                rank = k - 1
                while rank > 0 and best[rank - 1] < value:
                    best[rank], places[rank] = best[rank - 1], places[rank - 1]
                    rank -= 1
                best[rank], places[rank] = value, place
        # without a limit, the candidates are all items that the user has left
        certain[number] = fresh or limit[user] == -np.inf or best[k - 1] > limit[user] + fall[found_in[user]]
        if not certain[number]:
            continue
        worth[user] = 0.0
        for rank in range(k):
            place = places[rank]
            lists[user, rank] = items[user, place] if place >= 0 else -1
            worth[user] += scores[user, place] if place >= 0 else 0.0
        for place in range(width):
            if abs(priced[place] - best[k - 1]) < near:
                close[items[user, place]] += 1


@njit(cache=True, nogil=True)
def keep_part(
    users: Array, vectors: Array, item_vectors: Array, bias: Array, found: Array, found_scores: Array, turn: int,
    first: int, last: int, items: Array, scores: Array, limit: Array, found_in: Array,
) -> None:  # fmt: skip
    """Keep the best items found for places first … last−1 of `users` as their candidates.

    Scores are multiplied out anew, one by one, so that they do not depend on the prices they were found at.
    """
    width = found.shape[1]
    for place in range(first, last):
        user = users[place]
        limit[user] = found_scores[place, width - 1]
        found_in[user] = turn
        size = 0
        for item in np.sort(found[place]):
            if item >= 0:
                score = bias[item]
                for d in range(vectors.shape[1]):
                    score += vectors[user, d] * item_vectors[item, d]
                items[user, size] = item
                scores[user, size] = score
                size += 1
        items[user, size:] = -1
