"""A fingerprint of data: the same split gives the same, however many processes share it.

Each id and each pair is hashed together with its position among all, and the hashes are added up: it does not matter
who adds which of them. Not a seal: it tells one dataset from another, not an honest one from a forged one.
"""

import hashlib

import numpy as np
import polars as pl

from divmf.data.interactions import Interactions
from divmf.data.split import Split
from divmf.engine import comm
from divmf.engine.arrays import Array

BLOCK = 1 << 20  # hashed together
# odd, so that multiplying loses nothing; their bits have no pattern
OF_PLACE, OF_USER, OF_ITEM = map(np.uint64, (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93))
OF_ID, OF_BYTE, OF_WEIGHT = map(np.uint64, (0xA0761D6478BD642F, 0x100000001B3, 0xE7037ED1A0B428DB))


def fingerprint(split: Split) -> str:
    """A hash of the whole split: the same data, core and seed give the same. All who share it must call it."""
    parts, share, first_user, n_users = (split.train, split.valid, split.test), split.train.share, 0, split.n_users
    if share is not None:
        first_user, n_users = share.first_user, share.all_users
    of_users = np.array([sum_of_ids(split.user_ids, first_user), *map(sum_of_pairs, parts)])
    sizes = np.array([len(part) for part in parts])
    if share is not None:
        of_users, sizes = comm.total(of_users.view(np.int64)).view(np.uint64), comm.total(sizes)
    of_items = int(sum_of_ids(split.item_ids, 0))
    facts = (n_users, split.n_items, of_items, *sizes.tolist(), *of_users.tolist())
    types = f"{split.user_ids.dtype} {split.item_ids.dtype}"
    return hashlib.blake2b(f"{types} {facts}".encode(), digest_size=16).hexdigest()


def sum_of_pairs(part: Interactions) -> np.uint64:
    """The hashes of a part's pairs, and of their weights, each with its position, added up."""
    first_user, first_pair = (0, 0) if part.share is None else (part.share.first_user, part.share.first_pair)
    total = np.zeros((), dtype=np.uint64)
    for begin in range(0, len(part), BLOCK):
        users, items = (column[begin : begin + BLOCK].astype(np.uint64) for column in (part.users, part.items))
        positions = np.arange(first_pair + begin, first_pair + begin + len(users), dtype=np.uint64)
        users += np.uint64(first_user)
        total += mixed(positions * OF_PLACE + users * OF_USER + items * OF_ITEM).sum()
        if part.weights is not None:
            bits = part.weights[begin : begin + BLOCK].view(np.uint32).astype(np.uint64)
            total += mixed(positions * OF_PLACE + bits * OF_WEIGHT).sum()
    return np.uint64(total)


def sum_of_ids(ids: pl.Series, first: int) -> np.uint64:
    """The hashes of ids, each with its position, added up; first: the position of the first one."""
    total = np.zeros((), dtype=np.uint64)
    for begin in range(0, len(ids), BLOCK):
        block = ids[begin : begin + BLOCK]
        values = words(block) if block.dtype == pl.String else block.to_numpy().view(np.uint64)
        positions = np.arange(first + begin, first + begin + len(block), dtype=np.uint64)
        total += mixed(positions * OF_PLACE + mixed(values * OF_ID)).sum()
    return np.uint64(total)


def words(ids: pl.Series) -> Array:
    """A number for each string: a polynomial in its bytes, none of which is taken for zero.  (len(ids),) uint64"""
    text = np.frombuffer(ids.str.join("").item().encode(), dtype=np.uint8).astype(np.uint64)
    lengths = ids.str.len_bytes().to_numpy().astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    powers = np.full(int(lengths.max()), OF_BYTE).cumprod()
    text += np.uint64(1)
    text *= powers[np.arange(len(text)) - np.repeat(starts, lengths)]
    return np.asarray(np.add.reduceat(text, starts))


def mixed(values: Array) -> Array:
    """Every bit of a number spread over all of them (the finisher of splitmix64); the numbers are overwritten."""
    values ^= values >> np.uint64(30)
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values
