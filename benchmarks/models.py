"""Models side by side on five datasets: core seconds and nDCG@5, with a fifth of each user's items held out.

`python -m benchmarks models` prints the table of all kinds of models and of auto, then ratios of time on MovieLens-1M:
EASE against numpy's inverse, auto against as many trials of irspack's iALS; then people folded in against people
trained. `python -m benchmarks.models NAME …` does so for some datasets, `--seeds 3` with several splits.
`python -m benchmarks models --quick` prints what auto tries on two datasets, EASE against numpy, people folded in.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.frontier import DATASETS

K = 5


def split_of(name: str, seed: int) -> Any:
    """A dataset with a fifth held out."""
    from divmf.data.datasets import load

    _, stored, core = DATASETS[name]
    return load(stored, core).hold_out(seed=seed)


def ndcg_of(scorer: Any, held_out: Any, seen: Any) -> float:
    """nDCG@5 on what is held out."""
    from divmf.models.accuracy import best_items
    from divmf.ranking.metrics import found_in, ndcg

    held = np.diff(held_out.indptr)
    users = np.flatnonzero(held)
    return float(ndcg(found_in(held_out[users], best_items(scorer, seen, K, users), K), held[users]).mean())


def kinds(name: str, seed: int) -> list[str]:
    """Rows of the table: each kind of model with its settings chosen, then auto among them all."""
    from divmf.models.auto import choose
    from divmf.models.searches import ARMS, told

    split, rows = split_of(name, seed), []
    for label, candidates in [*((arm, [arm]) for arm in ARMS), ("**auto**", list(ARMS))]:
        began = time.process_time()
        chosen = choose(split, K, None, candidates, seed)
        seconds = time.process_time() - began
        valid = ndcg_of(chosen.scorer, split.valid.matrix, split.train.matrix)
        test = ndcg_of(chosen.scorer, split.test.matrix, split.seen)
        which = f"{chosen.name}: {told(chosen.settings)}"
        rows.append(
            f"| {DATASETS[name][0]} | {seed} | {label} | {which} | {len(chosen.tried)} | {seconds:.1f} | {valid:.4f} |"
            f" {test:.4f} |"
        )
        print(rows[-1], flush=True)
    return rows


def beside_numpy(met: Any) -> list[str]:
    """EASE beside numpy's inverse of the same matrix, as rows of a table."""
    from divmf.models.ease import ease

    dense = (met.T @ met).toarray().astype(np.float64) + 1000 * np.eye(met.shape[1])
    ease(met, 1000.0)
    numpy_seconds, ease_seconds = timed(lambda: np.linalg.inv(dense)), timed(lambda: ease(met, 1000.0))
    return [
        "| | core seconds | ratio |", "|---|---|---|",
        f"| EASE from the interactions on | {ease_seconds:.2f} | |",
        f"| numpy's inverse of the same matrix | {numpy_seconds:.2f} | {ease_seconds / numpy_seconds:.2f} |",
    ]  # fmt: skip


def trials(name: str, seed: int = 0) -> None:
    """What auto tries, in order, and what it takes."""
    from divmf.models.auto import choose
    from divmf.models.searches import told

    split = split_of(name, seed)
    print(f"\n| {DATASETS[name][0]} | settings | seconds | valid nDCG@5 |\n|---|---|---|---|", flush=True)
    began = time.perf_counter()
    chosen = choose(
        split, K, None, seed=seed,
        progress=lambda t: print(f"| {t.name} | {told(t.settings)} | {t.seconds:.1f} | {t.ndcg:.4f} |", flush=True),
    )  # fmt: skip
    seconds, test = time.perf_counter() - began, ndcg_of(chosen.scorer, split.test.matrix, split.seen)
    print(f"| **{chosen.name}** | test nDCG@5 {test:.4f} | {seconds:.1f} | {chosen.ahead:+.1%} ahead |", flush=True)


def ratios(seed: int = 0) -> None:
    """Time on MovieLens-1M beside numpy and irspack."""
    from scipy import sparse

    from divmf.models.auto import choose

    split = split_of("ml-1m", seed)
    met = split.train.matrix
    lines = beside_numpy(met)
    began = time.process_time()
    chosen = choose(split, K)
    auto_seconds = time.process_time() - began
    lines.append(f"| auto, {len(chosen.tried)} trials | {auto_seconds:.1f} | |")
    try:
        from irspack import IALSRecommender
    except ImportError:
        print("# irspack is not installed: no comparison with it", file=sys.stderr)
    else:
        from divmf.engine.threads import threads

        one = timed(
            lambda: IALSRecommender(
                sparse.csr_matrix(met), n_components=64, alpha0=0.5, reg=0.005, n_threads=threads(), train_epochs=16
            ).learn()
        )
        many = one * len(chosen.tried)
        lines.append(f"| as many trials of irspack's iALS, 64 dimensions | {many:.1f} | {auto_seconds / many:.2f} |")
    print("\n".join(["", *lines]), flush=True)


def timed(work: Callable[[], object], repeats: int = 3) -> float:
    """Seconds of all cores, the least of a few times: what other processes take does not count."""
    took = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return min(took)


@dataclass(frozen=True)
class Settings:
    """A model to fold people into, with its settings."""

    name: str
    values: dict[str, float]


FOLDED = (
    Settings("ease", {"l2": 1024.0}),
    Settings("ials", {"dim": 128, "alpha": 0.8, "l2": 0.005}),
    Settings("softmax", {"dim": 64, "l2": 22.6, "ials_alpha": 0.8, "ials_l2": 0.005}),
)


def folded(seed: int = 0) -> None:
    """A fifth of the users held out whole, half of their items as history, against the same users trained."""
    from scipy import sparse

    from divmf.models.auto import Chosen, refit
    from divmf.models.fold_in import fold_in

    split, rng = split_of("ml-1m", seed), np.random.default_rng(seed)
    new = np.sort(rng.choice(split.n_users, split.n_users // 5, replace=False))
    users, items = split.known[new].tocoo().coords
    half = rng.random(len(users)) < 0.5

    def table(chosen: Any) -> Any:
        ones = np.ones(int(chosen.sum()), dtype=np.float32)
        made = sparse.csr_array((ones, (users[chosen], items[chosen])), shape=(len(new), split.n_items))
        made.sort_indices()
        return made

    history, held_out = table(half), table(~half)
    train = split.train
    old = ~np.isin(train.users, new)
    without = replace(train, users=train.users[old], items=train.items[old], times=None)
    all_users = np.concatenate([without.users, new[users[half]]]).astype(np.int32)
    all_items = np.concatenate([without.items, items[half]]).astype(np.int32)
    order = np.lexsort((all_items, all_users))
    everybody = replace(without, users=all_users[order], items=all_items[order])
    print("\n| people folded in | trained | folded in | ms a user |\n|---|---|---|---|")
    for each in FOLDED:
        settings = each.values | {"pairs": len(without) / (split.n_users - len(new))}
        model = Chosen(refit(each.name, settings, without), each.name, settings, ())
        seconds = timed(partial(fold_in, model, history))
        trained = rows_of(refit(each.name, settings, everybody), new)
        values = [ndcg_of(scorer, held_out, history) for scorer in (trained, fold_in(model, history))]
        print(f"| {each.name} | {values[0]:.4f} | {values[1]:.4f} | {1000 * seconds / len(new):.2f} |", flush=True)


def rows_of(scorer: Any, users: Any) -> Any:
    """The scorer of some users alone."""
    from divmf.models.scorer import Blocks

    return Blocks(lambda rows: scorer.scores(users[rows]), len(users), scorer.n_items)


def tables(names: Sequence[str], seeds: int) -> None:
    """Print all of it for some datasets."""
    print("| dataset | seed | model | chosen | trials | core seconds | valid nDCG@5 | test nDCG@5 |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in names:
        for seed in range(seeds):
            kinds(name, seed)


def quick() -> None:
    """What auto tries on two datasets, EASE beside numpy, the people folded in."""
    print("\n".join(beside_numpy(split_of("ml-1m", 0).train.matrix)), flush=True)
    folded()
    for name in ("ml-1m", "epinions-15"):
        trials(name)


def main() -> None:
    """The table of one seed, the ratios, the people folded in."""
    tables(list(DATASETS), 1)
    ratios()
    folded()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*DATASETS, []], help="datasets; all if none is named")
    parser.add_argument("--seeds", type=int, default=1, help="how many splits")
    asked = parser.parse_args()
    tables(asked.names or list(DATASETS), asked.seeds)
    if not asked.names or "ml-1m" in asked.names:
        ratios()
        folded()
