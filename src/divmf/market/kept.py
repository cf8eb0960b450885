"""Rules as a run folder keeps them, looked at before a kernel takes it for granted that their places are there."""

import numpy as np

from divmf.engine.arrays import Array
from divmf.market.bound import MANY, Bound


def check_kept(bound: Bound, n_items: int) -> None:
    """Refuse rules that are not of so many items, or that name totals that there are not."""
    totals = {name: getattr(bound, name) for name in ("low", "high", "per_list", "floor", "level", "weight", "share")}
    for name, of_each in (("rules", bound.rules), ("names", bound.names), *totals.items()):
        if np.shape(of_each) != (bound.n_totals,):
            raise ValueError(f"{name} has shape {np.shape(of_each)} for {bound.n_totals:,} totals")
    if not all(isinstance(text, str) for text in (*bound.rules, *bound.names, *bound.impossible)):
        raise ValueError("rules, names and impossible must be text")
    for name, numbers in totals.items():
        check_range(name, numbers, 0, 1e12 if numbers.dtype == np.float64 else MANY)
    if bound.offsets.shape != (n_items + 1,) or bound.offsets[0] != 0 or (np.diff(bound.offsets) < 0).any():
        raise ValueError(f"offsets are not those of {n_items:,} items")
    if bound.totals.shape != (int(bound.offsets[-1]),):
        raise ValueError(f"{np.shape(bound.totals)} totals of items, offsets say {bound.offsets[-1]:,}")
    check_range("totals", bound.totals, 0, bound.n_totals - 1)
    if bound.target is not None:
        if bound.target.shape != (n_items,):
            raise ValueError(f"target has shape {bound.target.shape}, the data {n_items:,} items")
        check_range("target", bound.target, 0, 1e12)


def check_range(name: str, numbers: Array, low: float, high: float) -> None:
    """Refuse numbers that are not between two others; nan is not."""
    if not ((numbers >= low) & (numbers <= high)).all():
        raise ValueError(f"{name} holds numbers that are not between {low:g} and {high:g}")
