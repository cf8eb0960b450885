"""One exact diversity epoch against its bound: three matrix products and one exp pass over |U| × |I| floats."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.data import REAL, real_split
from benchmarks.side_by_side import THREADS, competing, in_turn, milliseconds, ratio, table

CHUNKS = (64, 128, 256, 1024)  # users at a time; the bound takes the number that suits it best
WAYS = ("torch's threads", "a range of users for each thread")  # likewise


def bound(users: np.ndarray, items: np.ndarray, chunk: int, way: str) -> Callable[[], None]:
    """What any exact epoch must do at least, over chunks of users, in torch."""
    import torch

    u, v = torch.from_numpy(users), torch.from_numpy(items)
    n_parts = 1 if way == WAYS[0] else THREADS
    gradient_u, gradients_v = torch.empty_like(u), torch.empty(n_parts, *v.shape)
    scores = torch.empty(n_parts, chunk, len(v))
    pool = ThreadPoolExecutor(n_parts)

    def part(number: int) -> None:
        for first in range(len(u) * number // n_parts, len(u) * (number + 1) // n_parts, chunk):
            rows = u[first : min(first + chunk, len(u) * (number + 1) // n_parts)]
            block = torch.mm(rows, v.T, out=scores[number, : len(rows)])
            block.exp_()
            torch.mm(block, v, out=gradient_u[first : first + len(rows)])
            gradients_v[number].addmm_(block.T, rows)

    def run() -> None:
        torch.set_num_threads(THREADS // n_parts)
        gradients_v.zero_()
        list(pool.map(part, range(n_parts)))
        torch.set_num_threads(THREADS)

    return run


def epoch(name: str, dim: int = 32) -> tuple[Callable[[], object], Callable[[int, str], Callable[[], None]]]:
    """The gradient of L_div on a dataset, and its bound."""
    import torch

    from divmf.models.config import TrainConfig
    from divmf.models.diversity import diversity_gradient
    from divmf.models.mf import MF

    train = real_split(name).train
    rng = np.random.default_rng(0)
    users, items = (rng.normal(scale=0.3, size=(n, dim)).astype(np.float32) for n in (train.n_users, train.n_items))
    model = MF(torch.from_numpy(users), torch.from_numpy(items), torch.zeros(len(items)))
    everybody, config, seen = np.arange(len(users)), TrainConfig(k=5), train.matrix
    return (
        lambda: diversity_gradient(model, everybody, None, seen, config, 0),
        lambda chunk, way: bound(users, items, chunk, way),
    )


def main() -> None:
    """Measure and print a Markdown table."""
    rows = []
    for name in REAL:
        ours, bound_of = epoch(name)
        bounds = {f"{chunk} users, {way}": bound_of(chunk, way) for chunk in CHUNKS for way in WAYS}
        tried = in_turn(bounds, 3)
        best = min(tried, key=lambda how: float(tried[how].min()))
        ways = {"ours": ours, "bound": bounds[best]}
        alone, of_cores = in_turn(ways, 15), in_turn(ways, 15, time.process_time)
        with competing():
            beside = in_turn(ways, 15)
        for label, took in (("alone", alone), ("beside a busy process", beside), ("time of all cores", of_cores)):
            rows.append([name, label, milliseconds(took["ours"]), f"{milliseconds(took['bound'])} ({best})",
                         f"{ratio(took['ours'], took['bound']):.2f}"])  # fmt: skip
    table(["dataset", "machine", "exact diversity epoch", "its bound", "ratio"], rows)
