"""Exposure as a service shares it out while requests come, beside the best there was for the same requests."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

K = 10
PARTS, LOG = 5, 4000  # of the test period that are played apart, and the requests of each at the most
WAYS = ("ledger", "static", "none")


def main() -> None:
    """Print both tables."""
    drift()
    trust()


def drift() -> None:
    """MovieLens-1M in time order and the marketplace with a tenth of the items new: the ledger, static, none."""
    from divmf.data.datasets import marketplace

    print("\n| requests | discounts | coverage of the ceiling | Gini | from the best, ρ (± 95%) |")
    print("|---|---|---|---|---|")
    compare("MovieLens-1M, in time order", real("ml-1m").by_time(test=0.2), new=False)
    compare("marketplace, a tenth of the items new", marketplace(seed=1).by_time(test=0.3), new=True)


def real(name: str) -> Any:
    """A dataset with times."""
    from divmf.data.datasets import load

    return load(name)


def compare(name: str, split: Any, new: bool) -> None:
    """The same requests with the ledger, with the run's discounts, and with none: the whole period, and its parts."""
    with tempfile.TemporaryDirectory() as folder:
        run = trained(split, Path(folder) / "run")
        for parts in (1, PARTS):
            rows = np.array([played(run, part, parts, new, WAYS) for part in range(parts)])
            mean = rows.mean(axis=0)
            for way, name_of_way in enumerate(WAYS):
                covered, gini, distance = mean[way]
                told = f"{covered:.4f} | {gini:.3f} | {distance:.4f}"
                if parts > 1:
                    told += f" ± {2.776 * rows[:, way, 2].std(ddof=1) / np.sqrt(parts):.4f}"
                period = "whole period" if parts == 1 else f"{parts} parts"
                print(f"| {name}, {period} | {name_of_way} | {told} |", flush=True)


def trained(split: Any, folder: Path) -> Path:
    """A run of EASE at Gini .7 on validation, or the nearest to it."""
    import divmf

    divmf.DivMF(k=K, model="ease", seed=0).fit(split, folder).run.pick(gini=0.7)
    return folder


def trust() -> None:
    """How much of a horizon the run's discounts are trusted for: values tried on logs that `drift` does not play."""
    from divmf.data.datasets import marketplace
    from divmf.market import ledger

    logs = {
        "MovieLens-1M, an earlier period": (real("ml-1m").rolling(3, test=0.15)[1], False),
        "marketplace of another seed, a tenth of the items new": (marketplace(seed=2).by_time(test=0.3), True),
        "steam": (real("steam").by_time(test=0.2), False),
    }
    values = (0.1, 0.2, 0.3, 0.5, 1.0, 2.0)
    print("\n| from the best, ρ, with m = | " + " | ".join(map(str, values)) + " |")
    print("|---|" + "---|" * len(values))
    for name, (split, new) in logs.items():
        with tempfile.TemporaryDirectory() as folder:
            run, found = trained(split, Path(folder) / "run"), []
            for value in values:
                ledger.TRUST = value  # type: ignore[misc]
                found.append(played(run, 0, 1, new, ("ledger",))[0][2])
        print(f"| {name} | " + " | ".join(f"{each:.4f}" for each in found) + " |", flush=True)


def played(run: Path, part: int, parts: int, new: bool, ways: tuple[str, ...]) -> list[tuple[float, float, float]]:
    """Coverage of the ceiling, Gini and distance from the best of each way, over one part of the test period.

    A log is what was requested within it, in the order of time, evenly thinned out to LOG requests; it is a horizon.
    """
    from divmf.ranking.metrics import gini
    from divmf.serve.engine import Engine, Options, Query
    from divmf.serve.hindsight import hindsight
    from divmf.train.runs import Run

    pages, told, test = [], [], Run.open(run).read_split().test
    rows = np.array_split(np.argsort(test.times, kind="stable"), parts)[part]
    size = min(LOG, len(rows))
    users = test.users[rows[((np.arange(size) + 0.3) * len(rows) / size).astype(int)]].tolist()
    for way in ways:
        engine = Engine(run, Options(horizon=size))
        rng, count = np.random.default_rng(1 + part), len(engine.items) // 10 if new else 0
        similar = [rng.integers(0, engine.n_trained, 5) for _ in range(count)]
        if new:
            engine.add_items([f"new{number}" for number in range(count)], similar, np.ones(count))
        static = engine.ledger.now().copy()
        given = {"ledger": None, "static": static, "none": np.zeros_like(static)}[way]
        lists, tastes, out = np.full((size, K), -1, dtype=np.int32), [], []
        for number, user in enumerate(users):
            asked = Query(K, user, discount=given)
            page, taste = engine.answer(asked)
            engine.count(page, taste)
            lists[number, : len(page.items)] = page.items
            tastes.append(taste)
            out.append(engine.left_out(asked))
        pages.append(lists)
        shown = engine.ledger.shown
        told.append((float((shown > 0).sum() / min(len(shown), shown.sum())), gini(shown)))
    found = hindsight(engine.people, tastes, out, pages, engine.ledger.terms)
    return [(*each, one.distance) for each, one in zip(told, found, strict=True)]
