"""BPR as it is usually written in torch: the loop that the accuracy phase of `preset release` is held against.

Nothing of divmf is in it: `torch.nn.Embedding`, `torch.optim.Adam`, numpy's draws, `topk`, and an nDCG of its own.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl
import torch
from torch.nn.functional import logsigmoid

from divmf.engine.arrays import Array

DIM, NEGATIVES, BATCH, RATE, DECAY, STD = 32, 4, 4096, 0.001, 0.0001, 0.01
LENGTHS = (5, 10)


def plain_bpr(table: pl.DataFrame, seed: int, patience: int) -> pl.DataFrame:
    """A row an epoch, until validation nDCG@5 has not been better for `patience` epochs."""
    rows: list[dict[str, float]] = []
    for row in epochs(table, seed):
        rows.append(row)
        found = [each["valid_ndcg"] for each in rows]
        if len(found) - 1 - found.index(max(found)) >= patience:
            break
    return pl.DataFrame(rows).with_columns(pl.lit("accuracy").alias("phase"))


def epochs(table: pl.DataFrame, seed: int) -> Iterator[dict[str, float]]:
    """Train without end: the mean loss of an epoch, and nDCG on validation and test.

    table: user_id, item_id (numbers from 0) and split
    """
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    n_users, n_items = (int(table[name].max()) + 1 for name in ("user_id", "item_id"))  # type: ignore[arg-type]
    parts = {name: pairs_of(table, name) for name in ("train", "validation", "test")}
    met, valid, test = (matrix_of(pairs, n_users, n_items) for pairs in parts.values())
    users, items = torch.nn.Embedding(n_users, DIM), torch.nn.Embedding(n_items, DIM)
    for embedding in (users, items):
        torch.nn.init.normal_(embedding.weight, std=STD)
    adam = torch.optim.Adam([users.weight, items.weight], lr=RATE, weight_decay=DECAY, fused=True)
    positive = [np.repeat(column, NEGATIVES) for column in parts["train"]]
    for epoch in range(1, 1_000_000):
        triples = torch.from_numpy(np.stack([*positive, negatives(positive[0], met, rng)]))
        triples, total = triples[:, torch.from_numpy(rng.permutation(triples.shape[1]))], 0.0
        for user, item, other in (batch.unbind() for batch in triples.split(BATCH, dim=1)):
            vectors = users(user)
            loss = -logsigmoid((vectors * items(item)).sum(dim=1) - (vectors * items(other)).sum(dim=1)).sum()
            adam.zero_grad()
            loss.backward()
            adam.step()
            total += float(loss.detach())
        scores = users.weight.detach() @ items.weight.detach().T
        row = {"epoch": epoch, "loss": total / triples.shape[1]}
        for part, seen, held in (("valid", met, valid), ("test", met | valid, test)):
            for k, value in zip(LENGTHS, ndcg(scores, torch.from_numpy(seen), torch.from_numpy(held)), strict=True):
                row[f"{part}_ndcg" if k == LENGTHS[0] else f"{part}_ndcg@{k}"] = value
        yield row


def pairs_of(table: pl.DataFrame, part: str) -> tuple[Array, Array]:
    """The users and items of a part of the split."""
    some = table.filter(pl.col("split").cast(pl.String) == part)
    return some["user_id"].to_numpy().astype(np.int64), some["item_id"].to_numpy().astype(np.int64)


def matrix_of(pairs: tuple[Array, Array], n_users: int, n_items: int) -> Array:
    """Which pairs there are.  (n_users, n_items) bool"""
    matrix = np.zeros((n_users, n_items), dtype=bool)
    matrix[pairs] = True
    return matrix


def negatives(users: Array, met: Array, rng: np.random.Generator) -> Array:
    """An item for each user that is not in train: drawn anew while it is."""
    drawn = rng.integers(0, met.shape[1], len(users))
    while len(again := np.flatnonzero(met[users, drawn])):
        drawn[again] = rng.integers(0, met.shape[1], len(again))
    return drawn


def ndcg(scores: torch.Tensor, seen: torch.Tensor, held: torch.Tensor) -> list[float]:
    """nDCG of lists without seen items, at each length; one item of every user is held out."""
    best = scores.masked_fill(seen, -torch.inf).topk(max(LENGTHS), dim=1).indices
    gains = held.gather(1, best) / torch.log2(torch.arange(max(LENGTHS)) + 2)
    return [float(gains[:, :k].sum(dim=1).mean()) for k in LENGTHS]
