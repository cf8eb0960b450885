"""The curve of a model that was trained elsewhere."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from divmf.data.split import Split
from divmf.estimator.divmf import DivMF
from divmf.market.rules import Rules
from divmf.models.mf import MF
from divmf.models.scorer import Blocks
from divmf.models.weights import LARGEST
from divmf.train.market import fit_scores


def diversify(
    user_factors: Any,
    item_factors: Any,
    split: Split | None = None,
    item_bias: Any = None,
    run: str | Path | None = None,
    rules: Rules | None = None,
    **settings: Any,
) -> DivMF:
    """The curve of a model trained elsewhere; users and items in the order of split.user_ids and split.item_ids.

    Args:
        user_factors: A row a user; or a `Scorer` (`divmf.models`), or a function from user numbers to their scores
            over all items, in which case the split follows at once.
        item_factors: A row an item, as wide as those of the users; or the split.
        split: What the model was trained and is to be measured on.
        item_bias: A number an item, added to every score.
        run: A folder that keeps every point; a temporary one if not named.
        rules: What the lists of every point keep.
        settings: Those of `DivMF`, such as k, method, diversity_epochs.

    Returns:
        A fitted DivMF.

    Examples:
        >>> split = divmf.datasets.marketplace(users=100, items=50, interactions=1500).leave_one_out()
        >>> popularity = np.broadcast_to(split.train.popularity.astype(float), (100, 50))
        >>> model = divmf.diversify(lambda users: popularity[users], split, k=3, diversity_epochs=12)
        >>> model.curve.points[-1].valid["gini"] < model.curve.base.valid["gini"]
        True
    """
    if isinstance(item_factors, Split):
        return diversify_scores(user_factors, item_factors, run, rules, settings)
    if split is None:
        raise ValueError("diversify takes user_factors, item_factors and a split, or a scorer and a split")
    users, items = (as_table(table) for table in (user_factors, item_factors))
    bias = torch.zeros(split.n_items) if item_bias is None else as_table(item_bias)
    if users.ndim != 2 or items.ndim != 2 or users.shape[1] != items.shape[1]:
        shapes = f"{tuple(users.shape)} and {tuple(items.shape)}"
        raise ValueError(f"factors of shapes {shapes} do not multiply: give both the same width")
    if bias.shape != (split.n_items,):
        raise ValueError(
            f"item_bias has shape {tuple(bias.shape)}; give one number for each of {split.n_items:,} items"
        )
    for name, table, n_rows in (("user_factors", users, split.n_users), ("item_factors", items, split.n_items)):
        if len(table) != n_rows:
            raise ValueError(
                f"{name} has {len(table):,} rows, the split {n_rows:,}; order them as split.user_ids and split.item_ids"
            )
    for name, table in (("user_factors", users), ("item_factors", items), ("item_bias", bias)):
        if not torch.isfinite(table).all():
            raise ValueError(f"{name} holds NaN or infinite numbers")
        if table.numel() and float(table.abs().max()) > LARGEST:
            raise ValueError(f"{name} holds numbers larger than {LARGEST:g}; scale the factors down, scores with them")
    if fixed := {"dim", "accuracy_epochs", "schedule"} & set(settings):
        raise ValueError(f"{min(fixed)} is not a setting of diversify: the given factors are diversified as they are")
    model = DivMF(**(settings | {"dim": users.shape[1], "accuracy_epochs": 0}))
    return model._train(split, run, MF(users, items, bias), rules)


def as_table(values: Any) -> torch.Tensor:
    """Numbers from elsewhere as a tensor of our own, row after row in memory, as the kernels read it."""
    return torch.tensor(np.ascontiguousarray(values, dtype=np.float32))


def diversify_scores(
    scorer: Any, split: Split, run: str | Path | None, rules: Rules | None, settings: dict[str, Any]
) -> DivMF:
    """The market on the scores of any model."""
    if not hasattr(scorer, "scores"):
        if not callable(scorer):
            raise ValueError(f"{type(scorer).__name__} does not score; give a Scorer, or a function of user numbers")
        scorer = Blocks(scorer, split.n_users, split.n_items)
    if (there := (scorer.n_users, scorer.n_items)) != (split.n_users, split.n_items):
        raise ValueError(
            f"the scorer has {there[0]:,} users and {there[1]:,} items, the split {split.n_users:,} and"
            f" {split.n_items:,}; order them as split.user_ids and split.item_ids"
        )
    model = DivMF(**(settings | {"accuracy_epochs": 0}))
    if model.method != "market":
        raise ValueError(f"method={model.method!r} needs vectors to train; a scorer goes with method='market'")
    opened, config = model._start(split, run, scorer, rules)
    for _ in fit_scores(opened, split, config, scorer):
        pass
    object.__setattr__(model, "scorer_", scorer)
    return model._fitted(opened, split)
