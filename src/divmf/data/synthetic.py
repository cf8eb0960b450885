"""A synthetic marketplace: users with latent tastes, items with power-law exposure, at any size."""

import re
from dataclasses import dataclass
from typing import Self

import numpy as np
import polars as pl

from divmf.data.interactions import Interactions
from divmf.engine.arrays import Array

LEAST = 5  # interactions of the least active user
FAVOURITES = 3  # genres a user likes
SKEW, HEAD = 1.3, 0.01  # exposure of the item at rank r is (r + HEAD · n_items) ** −SKEW
BROWSING = 0.15  # share of a user's interest that follows exposure alone
START, SPAN = 1_577_836_800, 2 * 365 * 86_400  # times lie in the two years from 2020-01-01


@dataclass(frozen=True, eq=False)
class Shelves:
    """Which items stand on which shelf, and how visibly: one shelf a genre, and a last one with everything.

    items        the items of each shelf, one shelf after the other
    cumulative   (len(items) + 1,) running sum of their exposure, from 0
    starts       (n_genres + 2,) where each shelf begins in `items`
    """

    items: Array
    cumulative: Array
    starts: Array

    @classmethod
    def random(cls, n_items: int, rng: np.random.Generator) -> Self:
        """Every item in two genres, the second at a quarter; its exposure falls as a power of its rank."""
        n_genres = int(np.clip(np.sqrt(n_items) / 2.5, 1, 60))
        exposure = (rng.permutation(n_items) + 1 + HEAD * n_items) ** -SKEW  # (n_items,)
        first, second = rng.permutation(n_items) % n_genres, rng.integers(0, n_genres, n_items)
        shelf = np.concatenate([first, second, np.full(n_items, n_genres)])  # (3 * n_items,)
        weight = np.concatenate([exposure, exposure / 4, exposure])
        order = np.argsort(shelf, kind="stable")
        starts = np.searchsorted(shelf[order], np.arange(n_genres + 2))
        return cls(order % n_items, np.concatenate([[0.0], np.cumsum(weight[order])]), starts)

    @property
    def n_genres(self) -> int:
        """How many genres there are."""
        return len(self.starts) - 2

    def draw(self, shelves: Array, rng: np.random.Generator) -> Array:
        """An item from each of these shelves, by exposure.  (len(shelves),)"""
        edges = self.cumulative[self.starts]  # (n_genres + 2,)
        point = edges[shelves] + np.diff(edges)[shelves] * rng.random(len(shelves))
        return self.items[np.minimum(np.searchsorted(self.cumulative, point, side="right") - 1, len(self.items) - 1)]


@dataclass(frozen=True, eq=False)
class Tastes:
    """What users like and how active they are.

    shelves      (n_users, FAVOURITES + 1) the genres of each user, the dearest first, and the shelf with everything
    thresholds   (n_users, FAVOURITES) running sum of the shares of the user's interest
    activity     (n_users,) shares of all interactions
    """

    shelves: Array
    thresholds: Array
    activity: Array

    @classmethod
    def random(cls, n_users: int, n_genres: int, rng: np.random.Generator) -> Self:
        """A few genres a user, shared out unevenly, and some browsing; activity is log-normal."""
        shelves = rng.integers(0, n_genres, (n_users, FAVOURITES + 1))
        shelves[:, -1] = n_genres
        shares = np.sort(rng.dirichlet(np.ones(FAVOURITES), n_users), axis=1)[:, ::-1]
        activity = rng.lognormal(0.0, 0.9, n_users)
        return cls(shelves, (1 - BROWSING) * np.cumsum(shares, axis=1), activity / activity.sum())

    def draw(self, users: Array, rng: np.random.Generator) -> Array:
        """A shelf for each of these users, by interest.  (len(users),)"""
        point = rng.random(len(users))
        shelf = np.zeros(len(users), dtype=np.int64)
        for favourite in range(FAVOURITES):
            shelf += point > self.thresholds[users, favourite]
        return self.shelves[users, shelf]


def marketplace(users: int = 2000, items: int = 1000, interactions: int = 60_000, seed: int = 0) -> Interactions:
    """Who bought what in a made-up market, the same for the same seed.

    A user likes a few genres; an item stands in two, and is seen there by a power law of its rank, so that the
    top 10% of the items hold about 50–65% of the interactions. Exactly as many users, items and interactions
    as asked for; every user has at least 5, every item at least 1.
    """
    check_sizes(users, items, interactions)
    rng = np.random.default_rng(seed)
    shelves = Shelves.random(items, rng)
    tastes = Tastes.random(users, shelves.n_genres, rng)
    pairs = distinct_pairs(shelves, tastes, (users, items, interactions), rng)  # user * items + item, sorted
    user = pairs // items
    joined = rng.integers(0, SPAN // 2, users)
    times = joined[user] + (rng.random(len(pairs)) * (SPAN - joined[user])).astype(np.int64)
    order = np.argsort(user * SPAN + times, kind="stable")
    return Interactions(
        user.astype(np.int32),
        (pairs % items)[order].astype(np.int32),
        START + times[order],
        numbered_ids("u", users, "user_id"),
        numbered_ids("i", items, "item_id"),
    )


SELLERS, SEATS = 20, (20, 120)  # how many sellers a marketplace has, and between which numbers of seats an item


def shop_of(data: Interactions, seed: int = 0) -> pl.DataFrame:
    """A catalog for a synthetic marketplace: item_id, title, seller and seats, which popular items have no more of.

    Sellers are of unequal size: the first have many items, the last few.
    """
    rng = np.random.default_rng([seed, 7])
    sizes = 1 / np.arange(1, SELLERS + 1)
    sellers = rng.choice(SELLERS, data.n_items, p=sizes / sizes.sum())
    names = [f"Seller {chr(ord('A') + number)}" for number in range(SELLERS)]
    return pl.DataFrame({
        "item_id": data.item_ids, "title": [f"Item {number}" for number in range(1, data.n_items + 1)],
        "seller": [names[seller] for seller in sellers], "seats": rng.integers(*SEATS, data.n_items, endpoint=True),
    })  # fmt: skip


def synthetic(text: str) -> Interactions:
    """The marketplace that `synthetic`, `synthetic:2000x1000x60000` or `synthetic:2000x1000x60000:7` asks for."""
    if text == "synthetic":
        return marketplace()
    parts = re.fullmatch(r"synthetic:(\d+)x(\d+)x(\d+)(?::(\d+))?", text.replace("_", ""))
    if parts is None:
        raise ValueError(f"{text!r} is not understood; write synthetic:USERSxITEMSxINTERACTIONS, as 2000x1000x60000")
    users, items, interactions, seed = (int(part or 0) for part in parts.groups())
    return marketplace(users, items, interactions, seed)


def check_sizes(users: int, items: int, interactions: int) -> None:
    """Refuse a market that cannot be: too few interactions for its users and items, or more than half of all pairs."""
    least, most = LEAST * users + items, users * items // 2
    if users < 1 or items < 1 or most < least:
        raise ValueError(f"{users:,} users and {items:,} items are too few for a market; choose more of both")
    if not least <= interactions <= most:
        raise ValueError(
            f"interactions={interactions:,} does not fit {users:,} users and {items:,} items;"
            f" choose from {least:,} to {most:,}"
        )


def distinct_pairs(shelves: Shelves, tastes: Tastes, sizes: tuple[int, int, int], rng: np.random.Generator) -> Array:
    """As many different (user, item) pairs as asked for, coded as user * n_items + item, sorted."""
    n_users, n_items, wanted = sizes
    # one for each item, a few for each user, then the rest by activity; a repeated pair is drawn again
    pairs = np.sort(rng.integers(0, n_users, n_items) * n_items + np.arange(n_items))
    attempt = 0
    while missing := wanted - len(pairs):
        short = np.maximum(LEAST - np.bincount(pairs // n_items, minlength=n_users), 0)
        # tastes get used up where a market is small and dense: what is then missing is drawn from everything
        by_taste = attempt < 5
        attempt += 1
        chance = tastes.activity if by_taste else np.full(n_users, 1 / n_users)
        users = np.repeat(np.arange(n_users), short + rng.multinomial(missing - short.sum(), chance))
        items = shelves.draw(tastes.draw(users, rng), rng) if by_taste else rng.integers(0, n_items, missing)
        drawn = np.sort(users * n_items + items)
        drawn = drawn[np.diff(drawn, prepend=-1) > 0]  # numpy's unique is ten times slower here
        known = pairs[np.minimum(np.searchsorted(pairs, drawn), len(pairs) - 1)] == drawn
        pairs = np.sort(np.concatenate([pairs, drawn[~known]]), kind="stable")
    return pairs


def numbered_ids(letter: str, count: int, name: str) -> pl.Series:
    """An id table such as u00000, u00001, …, padded so that it is sorted."""
    width = max(5, len(str(count - 1)))
    number = pl.int_range(count).cast(pl.String).str.zfill(width)
    return pl.select((pl.lit(letter) + number).alias(name)).to_series()
