"""Floors of publishers against what they cost, beside FairRec on the same lists: steam and books.

EASE's 200 best unseen items of every user are the candidates; a fifth is held out, k = 5. With a floor, every publisher
has at least so many of all showings; FairRec guarantees showings to items.
"""

import time
from functools import partial

import numpy as np
import polars as pl

import divmf
from divmf.data.datasets import data_directory
from divmf.models.ease import ease
from divmf.ranking.groups import GroupExposure, Groups
from divmf.rerank.market import bound_to_lists

SETS = (("steam", 0, 2000.0), ("books", 10, 300.0))  # name, core, λ of EASE
K, WIDTH = 5, 200
FLOORS = (0.1, 0.2, 0.4)  # of the even share of a publisher
ALPHAS = (0.25, 0.5, 0.75)


def wide_lists(split: divmf.Split, l2: float) -> divmf.TopK:
    """EASE's best unseen items of every user."""
    scores = ease(split.train.matrix, l2).scores(np.arange(split.n_users))
    scores[split.seen.nonzero()] = -np.inf
    items = np.argsort(-scores, axis=1, kind="stable")[:, :WIDTH].astype(np.int32)
    return divmf.TopK(items, np.take_along_axis(scores, items, 1), split.user_ids, split.item_ids)


def print_row(
    name: str, split: divmf.Split, groups: Groups, label: str, lists: divmf.TopK, missing: str, seconds: float
) -> None:
    """A line of the table."""
    found = divmf.evaluate(lists, split, K, resamples=2)
    exposure = GroupExposure(groups, lists.head(K).counts, split.train.popularity).measures
    print(
        f"| {name} | {label} | {float(found['ndcg']):.4f} | {exposure['group_coverage']:.1%} |"
        f" {exposure['group_gini']:.3f} | {missing} | {seconds:.1f} |",
        flush=True,
    )


def main() -> None:
    """A table of both sets."""
    print("| data | lists | nDCG@5 | publishers shown | Gini of publishers | missing | CPU seconds |")
    print("|---|---|---|---|---|---|---|")
    for name, core, l2 in SETS:
        folder = data_directory()
        split = divmf.Interactions.read(folder / f"{name}.parquet").k_core(core).hold_out(0)
        catalog = pl.read_parquet(folder / f"{name}-items.parquet")
        wide, groups = wide_lists(split, l2), Groups.read(catalog, "publisher", split.item_ids)

        row = partial(print_row, name, split, groups)
        row("the model's own", wide.head(K), "", 0.0)
        for alpha in ALPHAS:
            began = time.process_time()
            made = divmf.rerank.fairrec(wide, K, alpha=alpha)
            row(f"FairRec, α = {alpha}", made, "", time.process_time() - began)
        for fraction in FLOORS:
            floor = max(1, int(fraction * split.n_users * K / len(groups)))
            rules = divmf.Rules(groups={"publisher": {"floor": floor}}, catalog=catalog)
            began = time.process_time()
            made = divmf.rerank.market(wide, K, rho=0.0, rules=rules)
            seconds = time.process_time() - began
            bound = bound_to_lists(rules, wide, K, None)
            missing = int(np.maximum(bound.low - bound.counted(made.items), 0).sum())
            told = f"{missing:,} of {int(bound.low.sum()):,}; {len(bound.impossible):,} publishers reduced"
            row(f"floor of {floor}", made, told, seconds)


if __name__ == "__main__":
    main()
