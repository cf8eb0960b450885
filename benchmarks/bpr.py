"""BPR training beside implicit's and cornac's: samples a second, alone and with a competing process.

Also the time to implicit's best validation nDCG, and samples a second at a million users.

A sample is one (user, item met, item not met), 32 dimensions, two threads each. divmf shuffles pairs with their
negatives, its default, or single triples, as the presets do. implicit's count is that of the
triples it draws: those whose negative the user has met, which it then skips, are counted for it too.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from benchmarks.side_by_side import REPEATS, THREADS, competing

PATIENCE, AT_MOST = 10, 80
RATES, OUR_RATES = (0.005, 0.01, 0.02), (0.001, 0.003)  # ours: the default, and one that is faster at first


def main() -> None:
    """Measure and print Markdown tables."""
    from divmf.data.datasets import load

    data = {"MovieLens-1M": load("ml-1m"), "Epinions-15": load("epinions").k_core(15)}
    splits = {name: each.leave_one_out(seed=0) for name, each in data.items()}
    heads = [
        "cornac, million samples/s",
        "implicit",
        "divmf",
        "divmf / implicit",
        "divmf, triples",
        "triples / implicit",
    ]
    print(f"| data | competing process | {' | '.join(heads)} |\n{'|---' * 8}|")
    for name, split in splits.items():
        for busy in (False, True):
            theirs, pairs, triples = (
                Theirs.of(split, 0.01),
                Ours.of(split.train),
                Ours.of(split.train, shuffle="triples"),
            )
            each = {"cornac": by_cornac(split), "theirs": theirs.epoch, "pairs": pairs.epoch, "triples": triples.epoch}
            with competing() if busy else nullcontext():
                found = interleaved(each)
            speeds = [f"{median(found['cornac']):.2f}", row(found["theirs"], found["pairs"])]
            speeds.append(row(found["theirs"], found["triples"]).partition(" | ")[2])
            print(f"| {name} | {'a busy loop' if busy else 'none'} | {' | '.join(speeds)} |", flush=True)
    growth(splits["MovieLens-1M"].train)
    print(
        "\n| data | implicit's best validation nDCG@5 | it takes | divmf at rate | is there after | ratio | its best |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, split in splits.items():
        for cells in to_best(split):
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


def growth(small: Any) -> None:
    """Samples a second where the users do not fit the cache, and every row would be too many."""
    from divmf.data.datasets import marketplace
    from divmf.data.interactions import Interactions

    print("\n| pairs | MovieLens-1M, million samples/s | 1,000,000 users × 20,000 items | ratio |\n|---|---|---|---|")
    whole = marketplace(1_000_000, 20_000, 5_100_000, seed=0)
    # one pair a user: a pass over all rows at the end of an epoch is then as long as it can be; and five
    for n_pairs in (1_000_000, len(whole)):
        part = np.sort(np.random.default_rng(0).permutation(len(whole))[:n_pairs])
        large = Interactions(whole.users[part], whole.items[part], None, whole.user_ids, whole.item_ids)
        found = interleaved({"small": Ours.of(small).epoch, "large": Ours.of(large).epoch})
        print(f"| {n_pairs:,} | {row(found['small'], found['large'])} |", flush=True)


def row(base: list[float], other: list[float]) -> str:
    """Medians of two series, and of their ratio repeat by repeat, with its range."""
    ratios = [b / a for a, b in zip(base, other, strict=True)]
    return f"{median(base):.2f} | {median(other):.2f} | {median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def interleaved(each: dict[str, Callable[[], int]]) -> dict[str, list[float]]:
    """Million samples a second of each, in turns, after a round to warm up; a turn takes about a second or more."""
    found: dict[str, list[float]] = {name: [] for name in each}
    for _ in range(1 + REPEATS):
        for name, epoch in each.items():
            began, samples = time.perf_counter(), epoch()
            while time.perf_counter() - began < 1:
                samples += epoch()
            found[name].append(samples / (time.perf_counter() - began) / 1e6)
    return {name: speeds[1:] for name, speeds in found.items()}


def by_cornac(split: Any) -> Callable[[], int]:
    """Five epochs of cornac's BPR, from the beginning each time; how many samples they had."""
    import warnings

    from cornac.data import Dataset
    from cornac.models import BPR

    train = split.train
    numbers = [{number: number for number in range(n)} for n in (train.n_users, train.n_items)]
    data = Dataset(train.n_users, train.n_items, *numbers, (train.users, train.items, np.ones(len(train))))
    model = BPR(k=32, max_iter=5, learning_rate=0.01, num_threads=THREADS, seed=0)

    def epochs() -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it begins anew
            model.fit(data)
        return 5 * len(train)

    return epochs


@dataclass
class Theirs:
    """implicit's BPR, an epoch at a time: it goes on from the factors it has."""

    model: Any
    matrix: Any
    epochs: int = 0

    @classmethod
    def of(cls, split: Any, rate: float) -> "Theirs":
        """A new model."""
        from implicit.cpu.bpr import BayesianPersonalizedRanking
        from scipy import sparse

        model = BayesianPersonalizedRanking(
            factors=32, learning_rate=rate, iterations=1, num_threads=THREADS, random_state=0
        )
        return cls(model, sparse.csr_matrix(split.train.matrix).astype(np.float32))

    def epoch(self) -> int:
        """One more epoch; how many samples it had."""
        self.model.random_state = self.epochs = self.epochs + 1  # else it would draw the same samples again
        self.model.fit(self.matrix, show_progress=False)
        return int(self.matrix.nnz)

    @property
    def factors(self) -> tuple[Any, Any]:
        """Its vectors; the item's bias is one dimension of them."""
        return self.model.user_factors, self.model.item_factors


@dataclass
class Ours:
    """divmf's BPR, an epoch at a time, with its default settings but for these."""

    model: Any
    train: Any
    config: Any
    optimiser: Any
    epochs: int = 0

    @classmethod
    def of(cls, train: Any, rate: float | None = None, shuffle: Any = "pairs") -> "Ours":
        """A new model."""
        from divmf.models.config import TrainConfig
        from divmf.models.epochs import initial_model, optimisers_of

        config = TrainConfig(model="bpr", learning_rate=rate, shuffle=shuffle)
        model = initial_model(train.n_users, train.n_items, config)
        return cls(model, train, config, optimisers_of(model, config)["accuracy"])

    def epoch(self) -> int:
        """One more epoch; how many samples it had."""
        from divmf.models.epochs import accuracy_epoch, epoch_rng

        self.epochs += 1
        accuracy_epoch(
            self.model, self.train, self.config, self.optimiser, epoch_rng(self.config.seed, "accuracy", self.epochs)
        )
        return len(self.train) * self.config.negatives

    @property
    def factors(self) -> tuple[Any, Any]:
        """Its vectors."""
        return self.model.users.detach().numpy(), self.model.items.detach().numpy()


@dataclass
class Race:
    """How validation nDCG grew with the seconds of training."""

    runner: Any
    patience: int
    seconds: list[float] = field(default_factory=lambda: [0.0])
    ndcg: list[float] = field(default_factory=lambda: [0.0])

    def go_on(self, split: Any) -> None:
        """One more epoch, unless nothing was better for as long as its patience lasts."""
        best = self.ndcg.index(max(self.ndcg))
        if len(self.ndcg) - 1 - best >= self.patience:
            return
        began = time.perf_counter()
        self.runner.epoch()
        self.seconds.append(self.seconds[-1] + time.perf_counter() - began)
        self.ndcg.append(valid_ndcg(split, *self.runner.factors))

    def reached(self, ndcg: float) -> float:
        """Seconds of training until the nDCG was there; infinite if it never was."""
        return next((s for s, n in zip(self.seconds, self.ndcg, strict=True) if n >= ndcg), float("inf"))


def to_best(split: Any) -> Iterator[list[str]]:
    """implicit's best validation nDCG over learning rates and epochs, when it and when we are there, and our best.

    The epochs of all take turns, so that what else the machine does slows each down alike.
    """
    for runner in (Theirs.of(split, 0.01), Ours.of(split.train)):  # to warm up
        runner.epoch()
    ours = {rate: Race(Ours.of(split.train, rate), PATIENCE) for rate in OUR_RATES}
    theirs = {rate: Race(Theirs.of(split, rate), AT_MOST) for rate in RATES}  # it is worse at first, then better
    for _ in range(AT_MOST):
        for race in (*ours.values(), *theirs.values()):
            race.go_on(split)
    rate, best = max(theirs.items(), key=lambda pair: max(pair[1].ndcg))
    goal, epoch = max(best.ndcg), best.ndcg.index(max(best.ndcg))
    seconds = best.reached(goal)
    for own_rate, race in ours.items():
        own, final = race.reached(goal), race.ndcg.index(max(race.ndcg))
        yield [
            f"{goal:.4f} (rate {rate}, epoch {epoch})",
            f"{seconds:.1f} s",
            f"{own_rate}",
            f"{own:.1f} s",
            f"{own / seconds:.2f}",
            f"{max(race.ndcg):.4f} (epoch {final}, {race.seconds[final]:.1f} s)",
        ]


def valid_ndcg(split: Any, users: Any, items: Any) -> float:
    """nDCG@5 on the validation items, training items out of the lists."""
    import torch

    from divmf.models.mf import MF
    from divmf.ranking.lists import TopK
    from divmf.ranking.metrics import measure
    from divmf.ranking.retrieval import recommend

    tables = [torch.from_numpy(np.ascontiguousarray(table)) for table in (users, items)]
    found, scores = recommend(MF(tables[0], tables[1], torch.zeros(len(items))), split.train.matrix, 5)
    return float(measure(TopK(found, scores, split.user_ids, split.item_ids), split.valid.matrix)["ndcg"])
