"""TopK + held-out items → numbers, with confidence intervals.

A metric is one function and one row of METRICS. The row's `kind` says what the function is given and gives:

    "user"       hits (n_lists, k), held (n_lists,) → a value a list; averaged over the users with held-out items
    "list"       items (n_lists, k), popularity (n_items,) → a value a list; averaged over the lists not empty
    "catalog"  counts (n_items,) → the number itself
    "share"      counts (n_items,), ranking (n_items,) → the number itself

hits: whether the item in a slot was held out; held: how many were; counts: in how many lists each item stands;
ranking: the items, those with the most interactions in train first, ties to the lowest number.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from scipy import sparse

from divmf.data.split import Split
from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.kernels.counts import add_counts, list_means, mark, row_sums, weighted_sum
from divmf.ranking.bootstrap import Estimate as Estimate
from divmf.ranking.bootstrap import resampled
from divmf.ranking.lists import TopK

log = logging.getLogger(__name__)

Measures = dict[str, float]


def ndcg(hits: Array, held: Array) -> Array:
    """nDCG@k, relevance 0 or 1: Σ_p hit_p / log2(p + 1) over the best that min(k, held) hits could give."""
    k = hits.shape[1]
    discount = 1 / np.log2(np.arange(k) + 2)  # (k,)
    ideal = np.append(1, np.cumsum(discount))  # (k + 1,), the first only to divide 0 by
    return np.asarray(sum_of_slots(hits, discount) / ideal[np.minimum(held, k)])  # (n_lists,)


def hit(hits: Array, held: Array) -> Array:
    """hit@k: 1 for a list that holds at least one held-out item."""
    return (sum_of_slots(hits, np.ones(hits.shape[1])) > 0).astype(np.float64)  # (n_lists,)


def sum_of_slots(marks: Array, values: Array) -> Array:
    """marks @ values: of the values of a list's slots, those that are marked are summed.  (n_lists,)"""
    sums = np.empty(len(marks))
    row_sums(marks, values, sums)
    return sums


def popularity_of_lists(items: Array, popularity: Array) -> Array:
    """The mean train count of the items of each list."""
    means = np.empty(len(items))  # (n_lists,)
    list_means(items, popularity.astype(np.float64), means)
    return means


def coverage(counts: Array) -> float:
    """Coverage@k, Sec. 2.2: the share of the whole catalog that stands in at least one list."""
    return float(np.count_nonzero(counts) / max(1, len(counts)))


def coverage_ceiling(slots: int, n_items: int) -> float:
    """The highest coverage that so many slots allow: min(1, slots / |I|)."""
    return min(1.0, slots / max(1, n_items))


def entropy(counts: Array) -> float:
    """Entropy, Sec. 2.2: −Σ_i p(i) log p(i) in nats, with p(i) the share of the slots item i has; 0 of no slots."""
    listed = counts[counts > 0]
    p = listed / (listed.sum() or 1)
    return max(0.0, float(-(p * np.log(p)).sum()))


def gini(counts: Array) -> float:
    """Gini index, Sec. 2.2: Σ_j (2j − |I| − 1) p_j / (|I| − 1), p ascending; 0 when even, 1 when one item has all.

    Ours: 0 for a catalog of one item; otherwise the worst value, 1, when nothing is recommended.
    """
    n_items, total = len(counts), counts.sum()
    if n_items == 1 or not total:
        return float(n_items > 1)
    steps = 2 * np.arange(1, n_items + 1) - n_items - 1  # (n_items,)
    return float(steps @ np.sort(counts)) / (float(total) * (n_items - 1))


def head_share(counts: Array, ranking: Array) -> float:
    """The share of the slots held by the most popular tenth of the catalog, rounded up; 0 of no slots."""
    head = ranking[: (len(ranking) + 9) // 10]
    return float(counts[head].sum() / max(1, counts.sum()))


def tail_share(counts: Array, ranking: Array) -> float:
    """The share of the slots held by the least popular half of the catalog, rounded down; 0 of no slots."""
    tail = ranking[(len(ranking) + 1) // 2 :]
    return float(counts[tail].sum() / max(1, counts.sum()))


@dataclass(frozen=True)
class Metric:
    """A row of METRICS. `highest` is the upper end of the range for a catalog of n_items; the lower end is 0."""

    label: str
    definition: str
    better: Literal["high", "low"]
    kind: Literal["user", "list", "catalog", "share"]
    function: Callable[..., Any]
    highest: Callable[[int], float] = lambda n_items: 1.0

    @property
    def worst(self) -> float:
        """The worst value there is, for a catalog of any size."""
        return 0.0 if self.better == "high" else self.highest(2)


METRICS: Mapping[str, Metric] = {
    "ndcg": Metric(
        "nDCG", "discounted gain of the hits over the best of min(k, number held out) hits; mean over the users with"
        " held-out items", "high", "user", ndcg),
    "hit": Metric("Hit rate", "share of the users with held-out items whose list holds one", "high", "user", hit),
    "coverage": Metric(
        "Coverage", "share of the whole catalog that stands in at least one list", "high", "catalog", coverage),
    "entropy": Metric(
        "Entropy", "−Σ p log p in nats, p the share of the recommended slots each item has",
        "high", "catalog", entropy, math.log),
    "gini": Metric(
        "Gini index", "Σ (2j − |I| − 1) p_j / (|I| − 1) over the whole catalog, p ascending; 0 is even",
        "low", "catalog", gini),
    "popularity": Metric(
        "Average popularity", "mean over the lists of the mean number of train interactions of their items",
        "low", "list", popularity_of_lists, lambda n_items: math.inf),
    "head_share": Metric(
        "Head share", "share of the recommended slots given to the top 10% of the catalog by train interactions",
        "low", "share", head_share),
    "tail_share": Metric(
        "Tail share", "share of the recommended slots given to the less popular half of the catalog",
        "high", "share", tail_share),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Tally:
    """All that the metrics of the first k of some lists are made of; the names are those of the module's head."""

    items: Array
    hits: Array
    held: Array
    n_items: int
    popularity: Array | None
    ranking: Array | None

    @cached_property
    def per_list(self) -> dict[str, tuple[Array, Array]]:
        """For each metric that is a mean: the values, and which of the lists count.  (n_lists,) both"""
        means: dict[str, tuple[Array, Array]] = {}
        for name, metric in METRICS.items():
            if metric.kind == "user":
                means[name] = metric.function(self.hits, self.held), self.held > 0
            elif metric.kind == "list" and self.popularity is not None:
                means[name] = metric.function(self.items, self.popularity), self.listed
        return means

    @property
    def listed(self) -> Array:
        """Which of the lists hold an item at all.  (n_lists,)"""
        return sum_of_slots(self.items >= 0, np.ones(self.items.shape[1])) > 0

    def measures(self, weights: Array, all_reduce: Callable[[Array], None] = lambda sums: None) -> Measures:
        """All metrics when list r stands there weights[r] times, in the order of METRICS.

        all_reduce: puts what was counted elsewhere to counts and sums, where other processes have the other lists
        """
        counts = np.zeros(self.n_items, dtype=np.int64)
        add_counts(self.items, weights, counts)
        sums = np.array([weighted_sum(*values, weights) for values in self.per_list.values()])  # (means, 2)
        all_reduce(counts)
        all_reduce(sums)
        means = dict(zip(self.per_list, sums, strict=True))
        values = {}
        for name, metric in METRICS.items():
            if name in means:
                total, weight = means[name]
                # twelve digits, so that sums in another order, by more processes, give the same number
                values[name] = float(f"{total / weight:.12g}") if weight else 0.0
            elif metric.kind == "catalog":
                values[name] = metric.function(counts)
            elif metric.kind == "share" and self.ranking is not None:
                values[name] = metric.function(counts, self.ranking)
        return values


def tallies(lists: TopK, held_out: sparse.csr_array, popularity: Array | None, ks: Sequence[int]) -> dict[int, Tally]:
    """The tally of each k; the held-out items are looked up once. Every stored entry of held_out is held out."""
    if held_out.shape != (len(lists), lists.n_items):
        raise ValueError(f"held_out is {held_out.shape}; for these lists it must be {(len(lists), lists.n_items)}")
    if popularity is not None and popularity.shape != (lists.n_items,):
        raise ValueError(f"popularity is {popularity.shape}; for this catalog it must be {(lists.n_items,)}")
    if min(ks) < 1:
        raise ValueError(f"k={min(ks)} is not the length of a list; choose 1 or more")
    if lists.items.size and (highest := lists.items.max()) >= lists.n_items:
        raise ValueError(f"item number {highest} is outside the catalog of {lists.n_items:,} items")
    ranking = None if popularity is None else np.argsort(-popularity.astype(np.float64), kind="stable")
    if not held_out.has_canonical_format:
        held_out = held_out.copy()
        held_out.sum_duplicates()
    hits = found_in(held_out, lists.items, max(ks))
    held = np.diff(held_out.indptr)  # (n_lists,)
    return {k: Tally(lists.items[:, :k], hits[:, :k], held, lists.n_items, popularity, ranking) for k in ks}


def found_in(matrix: sparse.csr_array, items: Array, k: int) -> Array:
    """Whether each of the first k items of a list is in its row of a matrix with sorted rows.  (n_lists, k) bool"""
    found = np.zeros((len(items), k), dtype=np.bool_)
    mark(items, matrix.indptr, matrix.indices, found)
    return found


def measure(lists: TopK, held_out: sparse.csr_array, popularity: Array | None = None, k: int | None = None) -> Measures:
    """All metrics of the first k of each list; of several processes' lists together, if there are.

    Args:
        lists: What users are shown.
        held_out: (n_lists, n_items), rows as in the lists; a user with held-out items and no list counts 0.
        popularity: (n_items,) interactions in train; without it, the metrics that need it are left out.
        k: How much of each list counts; all, if not given.

    Returns:
        Name and value of each metric.
    """
    k = lists.width or 1 if k is None else k
    return measure_each(lists, held_out, popularity, [k])[k]


def measure_each(
    lists: TopK, held_out: sparse.csr_array, popularity: Array | None, ks: Sequence[int]
) -> dict[int, Measures]:
    """As `measure`, for several k in one pass."""
    once = np.ones(len(lists), dtype=np.int64)
    return {k: tally.measures(once, comm.all_reduce) for k, tally in tallies(lists, held_out, popularity, ks).items()}


def evaluate(
    lists: TopK, split: Split, k: int | None = None, part: str = "test", resamples: int = 200, seed: int = 0
) -> dict[str, Estimate]:
    """All metrics of the first k of each list on a part of a split, with 95% intervals; see `estimate` for these.

    Lists of users the split does not know, or with items outside its catalog, are errors. Seen items in the lists, and
    users with held-out items but no list (they count 0), are counted and logged.

    Args:
        lists: What users are shown.
        split: What they met and what is held out.
        k: How much of each list counts; all, if not given.
        part: "test" or "valid".
        resamples: How often the users are drawn anew for the intervals.
        seed: Of these draws.

    Returns:
        Each metric by its name, a number that also has `low` and `high`.

    Examples:
        >>> split = divmf.datasets.marketplace(users=100, items=50, interactions=1000).leave_one_out()
        >>> items, scores = np.tile(np.arange(5), (100, 1)), np.ones((100, 5))
        >>> same = divmf.TopK.from_arrays(items, scores, split.user_ids, split.item_ids)
        >>> divmf.evaluate(same, split)["coverage"]  # the same five of fifty items for everybody
        0.1 (0.1 to 0.1)
    """
    lists, held_out = on_split(lists, split, part)
    return estimate(lists, held_out, split.train.popularity, k, resamples, seed)


def estimate(
    lists: TopK,
    held_out: sparse.csr_array,
    popularity: Array | None = None,
    k: int | None = None,
    resamples: int = 200,
    seed: int = 0,
) -> dict[str, Estimate]:
    """As `measure`, each number with its 95% interval: value ± 1.96 standard errors, cut to the metric's range.

    The standard error is that of resampled users. Percentiles of the resamples would not do: a resample holds
    about 63% of the users, some of them several times, so its coverage and entropy are too low, its Gini too high.
    Where items have few slots each (five or so), the errors of coverage and Gini come out a sixth too small.
    """
    k = lists.width or 1 if k is None else k
    if k > lists.width:
        log.warning("k is %s, but no list holds more than %s; what is missing counts as a miss", k, lists.width)
    return with_intervals(tallies(lists, held_out, popularity, [k])[k], None, resamples, seed)


def compare(
    lists_a: TopK,
    lists_b: TopK,
    split: Split,
    k: int | None = None,
    part: str = "test",
    resamples: int = 200,
    seed: int = 0,
) -> dict[str, Estimate]:
    """The differences a − b of all metrics, with 95% intervals: the same users are drawn on both sides.

    Args:
        lists_a: What users are shown.
        lists_b: What they are shown instead.
        split: What they met and what is held out.
        k: How much of each list counts; the length of the shorter lists, if not given.
        part: "test" or "valid".
        resamples: How often the users are drawn anew for the intervals.
        seed: Of these draws.

    Returns:
        Each difference by the name of its metric, a number that also has `low` and `high`.
    """
    k = min(lists_a.width, lists_b.width) or 1 if k is None else k
    a, b = (tallies(*on_split(lists, split, part), split.train.popularity, [k])[k] for lists in (lists_a, lists_b))
    return with_intervals(a, b, resamples, seed)


def on_split(lists: TopK, split: Split, part: str) -> tuple[TopK, sparse.csr_array]:
    """The lists in the rows and item numbers of the split, and what is held out; what looks wrong is logged."""
    if part not in ("valid", "test"):
        raise ValueError(f"part={part!r} holds nothing out; choose 'valid' or 'test'")
    held_out, seen = (split.test.matrix, split.seen) if part == "test" else (split.valid.matrix, split.train.matrix)
    lists = lists.aligned(split.user_ids, split.item_ids)
    if repeated := int(found_in(seen, lists.items, lists.width).sum()):
        log.warning("%s slots of the lists hold items their users have already seen; remove them", f"{repeated:,}")
    if missing := int(((lists.lengths == 0) & (np.diff(held_out.indptr) > 0)).sum()):
        log.warning("%s users with held-out items have no list; they count as misses", f"{missing:,}")
    return lists, held_out


def with_intervals(tally: Tally, minus: Tally | None, resamples: int, seed: int) -> dict[str, Estimate]:
    """The metrics of a tally, or their differences from another's, with the intervals of `estimate`."""
    if resamples < 2:
        raise ValueError(f"resamples={resamples} gives no standard error; choose 2 or more")

    def measures(weights: Array) -> Measures:
        values = tally.measures(weights)
        others = {} if minus is None else minus.measures(weights)
        return {name: value - others.get(name, 0.0) for name, value in values.items()}

    values = measures(np.ones(len(tally.items), dtype=np.int64))
    draws = resampled(
        lambda weights: list(measures(weights).values()), len(tally.items), resamples, np.random.default_rng(seed)
    )  # (resamples, metrics)
    estimates = {}
    for (name, value), error in zip(values.items(), draws.std(axis=0, ddof=1), strict=True):
        highest = METRICS[name].highest(tally.n_items)
        estimates[name] = Estimate.around(value, error, 0.0 if minus is None else -highest, highest)
    return estimates
