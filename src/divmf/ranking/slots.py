"""Where in the lists diversity is: the metrics of exposure of the first slots, and with slots counted by attention.

Lists may be even on the whole and show everybody the same items first. So exposure is measured for the first 1, 3 and
5 slots too, and with a showing in slot r counted 1/log₂(r + 1), as nDCG counts a hit there.
"""

from collections.abc import Iterator

import numpy as np

from divmf.engine.arrays import Array
from divmf.ranking.lists import TopK
from divmf.ranking.metrics import Measures, coverage, coverage_ceiling, entropy, gini

FIRST = (1, 3, 5)


def exposure_by_slots(lists: TopK, k: int | None = None) -> dict[str, Measures]:
    """Coverage (and its ceiling), entropy and Gini of the first slots, of all k, and of all k by attention."""
    k = lists.width if k is None else min(k, lists.width)
    return {name: measured(lists, weights) for name, weights in slot_weights(k)}


def slot_weights(k: int) -> Iterator[tuple[str, Array]]:
    """What a showing in each slot counts, and what it is called."""
    for first in (first for first in FIRST if first < k):
        yield "first slot" if first == 1 else f"first {first}", np.ones(first)
    yield f"all {k}", np.ones(k)
    yield "by attention", 1 / np.log2(np.arange(k) + 2)


def measured(lists: TopK, weights: Array) -> Measures:
    """The metrics of exposure, where a showing in slot r counts weights[r]; later slots do not count."""
    items = lists.items[:, : len(weights)]
    exposed = np.zeros(lists.n_items)
    for slot, weight in zip(items.T, weights, strict=True):
        exposed += weight * np.bincount(slot[slot >= 0], minlength=lists.n_items)
    return {
        "coverage": coverage(exposed), "coverage_ceiling": coverage_ceiling(int((items >= 0).sum()), lists.n_items),
        "entropy": entropy(exposed), "gini": gini(exposed),
    }  # fmt: skip
