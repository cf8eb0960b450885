"""How fast this machine is: a short piece of each pass, timed."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import torch

from divmf.data.interactions import Interactions
from divmf.data.synthetic import numbered_ids
from divmf.engine.threads import threads
from divmf.models.config import VECTORS, TrainConfig
from divmf.models.diversity import diversity_gradient
from divmf.models.epochs import accuracy_epoch, adam
from divmf.models.full_softmax import softmax_gradient
from divmf.models.mf import MF
from divmf.models.steps import is_large
from divmf.ranking.retrieval import recommend
from divmf.train.plan import Job, Pace

REPEATS = 2
PASSED = 4096  # users of a pass over all scores: parts of them are large enough to be multiplied as those of a job are
PAIRS, ROWS = 200_000, 1_500_000  # of a sampled epoch, of a file: a shorter one would stay in the cache
MOST_ITEMS, MOST_USERS = 20_000, 200_000  # more than fit into a cache


def calibrate(job: Job) -> Pace:
    """A second or two of each pass, with the vectors and the settings of the job."""
    kind = job.config.model if job.config.model in VECTORS else "softmax"  # whose steps are the slowest that are tried
    config = replace(job.config, preset=None, model=kind, l2=1.0, rows=None, columns=None)
    n_items = min(job.items, MOST_ITEMS)
    n_users = min(job.own_users, PASSED)
    pass_over(min(n_users, 40), n_items, config)  # kernels are compiled, or loaded
    softmax, diversity, listed = pass_over(n_users, n_items, config)
    step = softmax
    if job.samples:
        # what a large model does, also where the one here is smaller
        if config.adam is None:
            config = replace(config, adam="rows" if is_large(job.users + job.items, config) else "dense")
        n_users = min(job.own_users, MOST_USERS)
        sampled_epoch(n_users, n_items, 2 * config.batch, config)
        step = sampled_epoch(n_users, n_items, PAIRS, config)
    return Pace(row=reading() / ROWS, step=step, diversity=diversity, listed=listed)


def timed(work: Callable[[], object], shared_by: int) -> float:
    """Seconds of some work if so many threads share it and have a core each: others may be at work on this machine."""
    began = time.process_time()
    work()
    return (time.process_time() - began) / shared_by


def random_data(n_users: int, n_items: int, n_pairs: int) -> Interactions:
    """Pairs at random, each once."""
    pairs = np.unique(np.random.default_rng(0).integers(0, n_users * n_items, n_pairs))
    users, items = (pairs // n_items).astype(np.int32), (pairs % n_items).astype(np.int32)
    ids = [numbered_ids(letter, count, letter) for letter, count in (("u", n_users), ("i", n_items))]
    return Interactions(users, items, None, ids[0], ids[1])


def pass_over(n_users: int, n_items: int, config: TrainConfig) -> list[float]:
    """Seconds a score of the softmax loss, of a diversity epoch and of making lists, on random vectors."""
    generator, k = torch.Generator().manual_seed(0), min(config.k, n_items)
    model = MF.random(n_users, n_items, config.n_dims, generator, std=0.3)
    met = random_data(n_users, n_items, 20 * n_users)
    short = replace(config, k=k, unmask=min(config.unmask, n_items - k))
    works: list[Callable[[], object]] = [
        lambda: softmax_gradient(model, met.matrix, 1.0),
        lambda: diversity_gradient(model, np.arange(n_users), None, met.matrix, short, 0),
        lambda: recommend(model, met.matrix, k),
    ]
    return [min(timed(work, threads()) for _ in range(REPEATS)) / (n_users * n_items) for work in works]


def sampled_epoch(n_users: int, n_items: int, n_pairs: int, config: TrainConfig) -> float:
    """Seconds a sample of an epoch that draws negatives."""
    data = random_data(n_users, n_items, n_pairs)
    model = MF.random(n_users, n_items, config.n_dims, torch.Generator().manual_seed(0))
    optimiser, rng = adam(model, config.rate(1), 0.0), np.random.default_rng(0)
    return timed(lambda: accuracy_epoch(model, data, config, optimiser, rng), 1) / (len(data) * config.negatives)


def reading() -> float:
    """Seconds to read a log from a parquet file; most of it is work of one thread."""
    table = random_data(ROWS // 50, 8000, ROWS).frame
    times = pl.Series("timestamp", np.random.default_rng(0).integers(0, 10**9, len(table)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        table.with_columns(times).sample(fraction=1, shuffle=True, seed=0).write_parquet(path)
        return timed(lambda: Interactions.read(path), 1)
