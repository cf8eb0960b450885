"""DivMF on the splits its authors released: MF with either way of batching, and the diversity curves.

`python -m benchmarks.authors FOLDER [--release 8] [--paper 8] [--pairs 8] [--plain 8] [--variants 8] [--data …]`.
Everything trained stays in FOLDER, one file a curve; a command that was stopped goes on, and one with more seeds trains
the new ones. `preset release` trains MF for the 30 epochs of the released code, the others until validation has
converged; a plain torch loop (`benchmarks/plain.py`) has the settings and the stopping rule of `preset paper`.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

SPLITS = {"ml-1m": "MovieLens-1M", "epinions-15": "Epinions-15"}
UNMASK = {"ml-1m": 100, "epinions-15": 50}  # Sec. 4.1
# what the authors' released code gives on these splits, cleaned of its leak, seen items out: MF's test nDCG@5, and the
# Gini index of its lists of 5 at a pooled nDCG@5
THEIRS = {"ml-1m": (0.0310, 0.027, 0.77), "epinions-15": (0.0219, 0.019, None)}
RELEASE, PAPER, PAIRS, PLAIN = "preset release", "preset paper", "MF, pairs shuffled", "MF, a plain torch loop"
# from the model that the accuracy phase of preset paper gave, which is the same for all
VARIANTS: dict[str, dict[str, Any]] = {
    "paper, seen items out of T": {"mask_seen": True},
    "paper, Reg_skew of the list": {"skew_rows": "list"},
    "paper, both": {"mask_seen": True, "skew_rows": "list"},
}
EPOCHS = 100  # of the diversity phase
RELEASED = 30  # accuracy epochs of the released code
LOSSES = (0.05, 0.1, 0.2)


def main() -> None:
    """Train what is not there yet, then print Markdown tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.authors", description=__doc__)
    parser.add_argument("folder", type=Path)
    told = {
        "release": "preset release: MF and its curve", "paper": "preset paper: the same",
        "pairs": "MF with pairs shuffled", "plain": "the plain loop",
        "variants": "the curves of variants of preset paper, from its MF: at most as many as of that",
    }  # fmt: skip
    for flag, what in told.items():
        parser.add_argument(f"--{flag}", type=int, default=8, metavar="N", help=f"how many seeds of {what}")
    parser.add_argument("--data", nargs="+", choices=list(SPLITS), default=list(SPLITS))
    asked = parser.parse_args()
    counts = {RELEASE: asked.release, PAPER: asked.paper, PAIRS: asked.pairs, PLAIN: asked.plain}
    counts |= dict.fromkeys(VARIANTS, min(asked.variants, asked.paper))
    for seed, name in product(range(max(counts.values())), asked.data):  # seed by seed: all is comparable after any
        for what in (what for what, count in counts.items() if seed < count):
            train(asked.folder, name, what, seed)
    for name in asked.data:
        print(f"\n### {SPLITS[name]}\n")
        print("\n".join(accuracy_table(asked.folder, name, counts)))
        print("\n" + "\n".join(curve_table(asked.folder, name, counts)))


def train(folder: Path, name: str, what: str, seed: int) -> None:
    """Train one curve, unless it is there."""
    settings: dict[str, Any] = {"unmask": UNMASK[name], "diversity_epochs": EPOCHS}
    if what == PLAIN:
        trained_plainly(folder, name, seed)
    elif what == RELEASE:
        trained(folder, name, what, settings | {"preset": "release"}, seed)
    else:
        own = {PAPER: {}, PAIRS: {"shuffle": "pairs", "diversity_epochs": 0}} | VARIANTS
        trained(folder, name, what, settings | {"preset": "paper"} | own[what], seed)


def file_of(folder: Path, name: str, what: str, seed: int) -> Path:
    """Where a curve is kept; the model it began from lies beside it."""
    return folder / name / f"{what.replace(' ', '-').replace(',', '')}-{seed}.parquet"


def trained(folder: Path, name: str, what: str, settings: dict[str, Any], seed: int) -> None:
    """Train a curve, unless it is there; a variant from the model that `preset paper` trained with the seed."""
    from divmf.data.datasets import data_directory
    from divmf.data.split import Split
    from divmf.models.config import TrainConfig
    from divmf.models.weights import read_model, write_model
    from divmf.train.fitting import fit
    from divmf.train.runs import Run

    path, base = file_of(folder, name, what, seed), file_of(folder, name, PAPER, seed).with_suffix(".safetensors")
    if path.exists():
        return
    print(f"# {name}, {what}, seed {seed}", file=sys.stderr, flush=True)
    split = Split.read(data_directory() / f"divmf-{name}-split.parquet")
    start = read_model(base) if what in VARIANTS else None
    config = TrainConfig(**settings | ({} if start is None else {"accuracy_epochs": 0}), seed=seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        run = Run.start(Path(place) / "run", split, config, model=start)
        for _ in fit(run, split, config, start):
            pass
        if what == PAPER:
            write_model(base, run.read_model(run.read_curve().base))
        run.read_curve().frame.write_parquet(path)


def trained_plainly(folder: Path, name: str, seed: int) -> None:
    """The plain loop, unless it is there."""
    import polars as pl

    from benchmarks.plain import plain_bpr
    from divmf.data.datasets import data_directory
    from divmf.models.config import TrainConfig

    path = file_of(folder, name, PLAIN, seed)
    if path.exists():
        return
    print(f"# {name}, {PLAIN}, seed {seed}", file=sys.stderr, flush=True)
    table = pl.read_parquet(data_directory() / f"divmf-{name}-split.parquet")
    plain_bpr(table, seed, TrainConfig(preset="paper").patience).write_parquet(path)


def curves_of(folder: Path, name: str, what: str, seeds: int) -> list[Any]:
    """The tables of points of all seeds."""
    import polars as pl

    return [pl.read_parquet(file_of(folder, name, what, seed)) for seed in range(seeds)]


def accuracy_of(points: Any) -> Any:
    """The accuracy epochs of a table."""
    return points.filter(points["phase"] == "accuracy")


def base_of(points: Any, what: str = PAPER) -> dict[str, Any]:
    """MF as the diversity phase takes it: the accuracy epoch best on validation, of `preset release` the last."""
    order = "epoch" if what == RELEASE else "valid_ndcg"
    found: dict[str, Any] = accuracy_of(points).sort(order).row(-1, named=True)
    return found


def accuracy_table(folder: Path, name: str, counts: dict[str, int]) -> Iterator[str]:
    """MF with either way of batching and of a plain loop: the epoch it ends with, a fixed one, the test's best."""
    heads = [
        "validation nDCG@5",
        "test nDCG@5 at its epoch",
        "of single seeds",
        "test nDCG@10",
        "its epoch",
        f"test nDCG@5 after {RELEASED} epochs",
        "of any epoch",
        "mean loss in epoch 2",
    ]
    yield f"| MF | {' | '.join(heads)} | seeds |\n|{'---|' * (len(heads) + 2)}"
    for what in (RELEASE, PAPER, PAIRS, PLAIN):
        if not counts[what]:
            continue
        curves = [accuracy_of(points) for points in curves_of(folder, name, what, counts[what])]
        bases = [base_of(points, what) for points in curves]
        longer = [base["test_ndcg@10"] for base in bases if "test_ndcg@10" in base]
        valid, test = ([base[key] for base in bases] for key in ("valid_ndcg", "test_ndcg"))
        fixed = [points["test_ndcg"][RELEASED - 1] for points in curves if len(points) >= RELEASED]
        cells = [spread(valid), spread(test), f"{min(test):.4f}–{max(test):.4f}", spread(longer)]
        cells += [f"{mean(base['epoch'] for base in bases):.0f}", spread(fixed)]
        cells += [spread([points["test_ndcg"].max() for points in curves])]
        second = mean(points["loss"][1] for points in curves)
        yield f"| {what} | {' | '.join(cells)} | {second:.3f} | {counts[what]} |"
    yield f"| the authors' code |{' |' * 6} {THEIRS[name][0]:.4f} |{' |' * 2}"


def curve_table(folder: Path, name: str, counts: dict[str, int]) -> Iterator[str]:
    """Gini index and coverage where curves have the same pooled nDCG, and where they have lost the same share of it."""
    _, level, theirs = THEIRS[name]
    at = [f"Gini at pooled nDCG@5 {level:.3f}", *(f"Gini / coverage at {loss:.0%} loss" for loss in LOSSES)]
    yield f"| curve | {' | '.join(at)} | seeds |\n|{'---|' * (len(at) + 2)}"
    for what in (RELEASE, PAPER, *VARIANTS):
        if not counts[what]:
            continue
        curves = curves_of(folder, name, what, counts[what])
        reached = [value for points in curves if (value := gini_at(points, level, what)) is not None]
        cells = [spread(reached) if reached else "not reached"]
        for loss in LOSSES:
            found = [chosen(points, loss, what) for points in curves]
            cells.append(" / ".join(f"{mean(row[f'test_{m}'] for row in found):.3f}" for m in ("gini", "coverage")))
        yield f"| {what} | {' | '.join(cells)} | {counts[what]} |"
    if theirs is not None:
        yield f"| the authors' code | {theirs:.2f} |{' |' * (len(LOSSES) + 1)}"


def operating(points: Any, what: str) -> list[dict[str, Any]]:
    """MF, then every diversity epoch."""
    return [base_of(points, what), *points.filter(points["phase"] == "diversity").iter_rows(named=True)]


def gini_at(points: Any, level: float, what: str = PAPER) -> float | None:
    """The test Gini where a curve's nDCG, pooled over validation and test items, last falls below a level.

    Between two neighbours by interpolation; none where it never falls so far, or begins below.
    """
    rows = [((row["valid_ndcg"] + row["test_ndcg"]) / 2, row["test_gini"]) for row in operating(points, what)]
    for (before, even), (after, more_even) in reversed(list(pairwise(rows))):
        if before >= level > after:
            share = (before - level) / (before - after)
            return float(even + share * (more_even - even))
    return None


def chosen(points: Any, loss: float, what: str = PAPER) -> dict[str, Any]:
    """The point with the lowest validation Gini among those that keep enough validation nDCG."""
    rows = operating(points, what)
    kept = [row for row in rows if row["valid_ndcg"] >= (1 - loss) * rows[0]["valid_ndcg"]]
    return min(kept, key=lambda row: float(row["valid_gini"]))


def spread(values: Sequence[float]) -> str:
    """The mean and its standard error; a dash if there is nothing."""
    if not values:
        return "–"
    error = f" ± {stdev(values) / len(values) ** 0.5:.4f}" if len(values) > 1 else ""
    return f"{mean(values):.4f}{error}"


if __name__ == "__main__":
    main()
