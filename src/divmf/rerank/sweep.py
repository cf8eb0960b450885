"""A reranker's whole curve: one point for each value of its knob."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf, isfinite
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from divmf.data.split import Split
from divmf.engine.arrays import Array
from divmf.models.scorer import Factors, Scorer
from divmf.ranking.curve import Curve, Point
from divmf.ranking.lists import TopK
from divmf.ranking.metrics import METRICS, found_in, measure
from divmf.ranking.retrieval import blocks
from divmf.rerank.candidates import in_order
from divmf.rerank.registry import Method, find_method

if TYPE_CHECKING:
    from divmf.models.mf import MF


def sweep(
    candidates: TopK,
    method: str | Method,
    split: Split | None = None,
    k: int = 5,
    *,
    grid: Sequence[float] | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    model: "MF | None" = None,
) -> Curve:
    """The curve of a method over its knob, from the model's own lists to the strongest.

    Args:
        candidates: With the users' training items taken out, not those held out for validation.
        method: Its name, or the method.
        split: What the lists are measured on. Without one, the points hold the metrics that lists alone give (coverage,
            entropy, Gini), the same as `valid` and as `test`: nothing is known of their accuracy.
        k: The length of a list.
        grid: The values of the knob; those of the method, if not given.
        settings: The other settings by name.
        seed: Of what the method draws.
        model: The one that made the candidates, for methods that scale scores over all unseen items.

    Returns:
        A point for each value of the knob.
    """
    if split is None:
        return Curve(tuple(diversity_points(candidates, method, k, grid=grid, settings=settings, seed=seed)))
    lowest = None if model is None else lowest_of_parts(model, split)
    made = sweep_points(candidates, method, split, k, grid=grid, settings=settings, seed=seed, lowest=lowest)
    return Curve(tuple(made))


def sweep_points(
    candidates: TopK,
    method: str | Method,
    split: Split,
    k: int = 5,
    *,
    grid: Sequence[float] | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    lowest: Mapping[str, Array] | None = None,
    known: "Known | None" = None,
) -> Iterator[Point]:
    """The points of a method's curve, one at a time; `epoch` is the position in the grid, `knob` the value.

    candidates: with the users' training items taken out, not those held out for validation. Lists for the
    validation are made of them as they are, lists for the test without what is known by then: two runs a point.
    lowest: of the model that made them, what `lowest_of_parts` gives
    known: lists of these candidates that other sweeps of the method with the same k and seed have made, and made here
    """
    method = find_method(method) if isinstance(method, str) else method
    candidates = candidates.aligned(split.user_ids, split.item_ids)
    parts = {"valid": unseen(candidates, split.train.matrix), "test": unseen(candidates, split.seen)}
    if len(split.valid) and not found_in(split.valid.matrix, parts["valid"].items, candidates.width).any():
        raise ValueError(
            "no candidate is a validation item, so validation would read 0; make the candidates with only the"
            " training items taken out"
        )
    held_out = {"valid": split.valid.matrix, "test": split.test.matrix}
    known = {} if known is None else known
    for epoch, value in enumerate(method.grid if grid is None else grid):
        chosen, order = chosen_by({**(settings or {}), method.knob: value}, method)
        key = tuple(sorted(chosen.items()))
        if key not in known:
            start = perf_counter()
            made = {
                part: method.run(wide, k, chosen, split.train, seed, None if lowest is None else lowest[part])
                for part, wide in parts.items()
            }
            known[key] = made, perf_counter() - start
        lists, seconds = known[key]
        if order == "score":
            lists = {part: in_order(each) for part, each in lists.items()}
        measures = {part: measure(lists[part], held_out[part], split.train.popularity, k) for part in parts}
        yield Point(method.name, epoch, measures["valid"], measures["test"], knob=float(value), seconds=seconds)


# lists for the validation and for the test by the settings that chose them, and the seconds that took
Known = dict[tuple[tuple[str, Any], ...], tuple[Mapping[str, TopK], float]]


def chosen_by(settings: Mapping[str, Any], method: Method) -> tuple[dict[str, Any], str]:
    """The settings that decide which items are in a list, and the order they are then put in."""
    if (field := method.settings.model_fields.get("order")) is None:
        return dict(settings), "method"
    return {**settings, "order": "method"}, str(settings.get("order", field.default))


def diversity_points(
    candidates: TopK,
    method: str | Method,
    k: int = 5,
    *,
    grid: Sequence[float] | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Iterator[Point]:
    """The points of a method's curve where nothing is held out: one run a point, no nDCG and no hit rate."""
    method = find_method(method) if isinstance(method, str) else method
    if method.needs_train:
        raise ValueError(f"{method.name} needs the training interactions; give split=…")
    for epoch, value in enumerate(method.grid if grid is None else grid):
        start = perf_counter()
        counts = method.run(candidates, k, {**(settings or {}), method.knob: value}, seed=seed).counts
        seconds = perf_counter() - start
        found = {name: metric.function(counts) for name, metric in METRICS.items() if metric.kind == "catalog"}
        yield Point(method.name, epoch, found, found, knob=float(value), seconds=seconds)


def lowest_scores(model: "MF | Scorer", seen: sparse.csr_array) -> Array:
    """Each user's lowest score of all items not seen; 0 for a user who has seen all.  (n_users,)"""
    from divmf.kernels.select import fill_rows
    from divmf.models.mf import MF

    scorer = Factors.of(model) if isinstance(model, MF) else model
    lowest = np.empty(scorer.n_users)
    for rows in blocks(scorer.n_users, scorer.n_items):
        users = np.arange(rows.start, rows.stop)
        scores = scorer.scores(users)  # our own to write to
        fill_rows(scores, users, seen.indptr, seen.indices, np.inf)
        lowest[rows] = scores.min(axis=1)
    return np.where(np.isfinite(lowest), lowest, 0.0)


def lowest_of_parts(model: "MF | Scorer", split: Split) -> dict[str, Array]:
    """`lowest_scores` where lists for the validation are made, and where lists for the test are."""
    return {"valid": lowest_scores(model, split.train.matrix), "test": lowest_scores(model, split.seen)}


def unseen(candidates: TopK, seen: sparse.csr_array) -> TopK:
    """The candidates without the items their users have seen; their columns are empty.  Same users, same width."""
    known: Array = found_in(seen, candidates.items, candidates.width)
    if not known.any():
        return candidates
    return replace(
        candidates,
        items=np.where(known, -1, candidates.items).astype(np.int32),
        scores=np.where(known, -np.inf, candidates.scores).astype(np.float32),
    )


def knob_between(points: Sequence[Point], metric: str, floor: float, whole: bool) -> float | None:
    """A knob between the strongest setting that keeps a metric at the floor, on validation, and the next one.

    points: the first is the neutral one, the others in any order; whole: the knob counts something
    """
    knobs = sorted({point.knob: point for point in points if point.knob is not None}.items())
    if knobs and knobs[0][1] is not points[0]:
        knobs.reverse()  # from neutral to strongest
    for (weak, kept), (strong, lost) in pairwise(knobs):
        if kept.valid[metric] >= floor > lost.valid[metric]:
            if not isfinite(weak) or not isfinite(strong):
                return 2 * min(weak, strong)
            middle = round((weak + strong) / 2) if whole else (weak + strong) / 2
            return None if middle in (weak, strong) else middle
    return None


def grid_place(knob: float | None, grid: Sequence[float]) -> float:
    """Where a knob stands between the neutral and the strongest end of a grid."""
    value = inf if knob is None else knob
    return value if grid[-1] > grid[0] else -value
