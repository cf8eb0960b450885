"""The market of a run: the points of its curve along ρ, and more of them where a criterion is just met."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from divmf.data.interactions import Interactions
from divmf.data.split import Split
from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.clock import Clock
from divmf.kernels.market import ONE
from divmf.market.bonus import Bonus
from divmf.market.bound import Bound
from divmf.market.certificate import certify
from divmf.market.chosen import Chosen
from divmf.market.columns import WIDER, WIDTH, Finder, Held, Source
from divmf.market.given import tell_unmet
from divmf.market.keeping import Allowed, held_within, shut, solve_ruled
from divmf.market.proof import certify_ruled
from divmf.market.ruled import RuledMarket
from divmf.market.solve import Lists, Market, solve
from divmf.market.stakes import stake_of, stakes_of
from divmf.market.values import exposure_weights, slot_weights
from divmf.models.config import TrainConfig
from divmf.models.scorer import Scorer
from divmf.ranking.curve import ACCURACY, DIVERSITY, Curve, Point
from divmf.ranking.lists import TopK
from divmf.ranking.metrics import Measures, measure
from divmf.train.choosing import check_fits
from divmf.train.runs import Run

log = logging.getLogger(__name__)

# ρ of the first point in spreads of a user's scores, and its growth from point to point
FIRST_RHO, GROWTH = 0.02, 1.5


def fit_scores(run: Run, split: Split, config: TrainConfig, scorer: Scorer) -> Iterator[Point]:
    """The market on the scores of a model that is there already, yielding each new point of the curve."""
    check_fits(split, config)
    with run.locked():
        if not run.read_curve().points:
            run.record_scorer(scorer)
        yield from market_of(run, split, config, scorer, Clock())


def market_of(run: Run, split: Split, config: TrainConfig, scorer: Scorer, clock: Clock) -> Iterator[Point]:
    """The points of the market on a scorer: its own lists first, then along ρ."""
    with clock.phase(config.method):
        maker, points = Exchange(run, split, config, clock, scorer), list(run.read_curve().points)
    if not points:
        with clock.phase(config.method):
            _, own = maker.market.own
        with clock.phase("validation metrics"):
            base = Point(ACCURACY, 0, *maker.measures({kind: lists.items for kind, lists in own.items()}))
        run.append(base)
        points.append(base)
        yield base
    yield from along_rho(run, config, points, maker, clock)


def along_rho(run: Run, config: TrainConfig, points: list[Point], maker: "Exchange", clock: Clock) -> Iterator[Point]:
    """The market along increasing ρ, until so much accuracy is lost, or nothing changes any more.

    The path is the same whatever points were added beside it: each of its points is solved from the one before.
    """
    if maker.ruled is not None and not any(point.knob == 0 for point in points):
        points.append(maker.point(0.0, Curve(tuple(points)), Curve(tuple(points)).base))
        yield points[-1]
    base = Curve(tuple(points)).base
    floor, path = (1 - config.deepest) * base.valid["ndcg"], [base]
    made = {point.knob: point for point in points if point.phase == DIVERSITY}
    with clock.phase(config.method):
        # the first point made says where the path began, to the last bit; a model may know nothing and have no spread
        first = next((knob for knob in made if knob), None) or FIRST_RHO * (maker.spread or 1.0)
    for number in range(config.diversity_epochs):
        rho = first * GROWTH**number
        point = made.get(rho)
        if point is None:
            point = maker.point(rho, Curve(tuple(points)), path[-1])
            points.append(point)
            yield point
        path.append(point)
        if why := end_of(path, floor, config):
            log.info("the curve ends at ρ = %.4g: %s", rho, why)
            return


GIVE_UP = 4  # ρ in a row, together almost threefold, that change nothing before the path ends


def end_of(path: Sequence[Point], floor: float, config: TrainConfig) -> str:
    """Why nothing worth having lies beyond these points: too much is lost, or larger ρ change nothing; else nothing.

    At the far end exposure is nearly even and the lists stay as they were.
    """
    if path[-1].valid["ndcg"] < floor:
        return f"more than {config.deepest:.0%} of validation nDCG is lost"
    last = list(pairwise(path))[-GIVE_UP:]
    if sum(dict(point.valid) == dict(before.valid) for before, point in last) < GIVE_UP:
        return ""
    return f"larger ρ change nothing; Gini {path[-1].valid['gini']:.3f} is the lowest reached"


class Exchange:
    """Where points of the market are made, from the scores of a run's base model, or of another that is given."""

    def __init__(
        self, run: Run, split: Split, config: TrainConfig, clock: Clock | None = None, scorer: Scorer | None = None,
        rules: Bound | None = None,
    ) -> None:  # fmt: skip
        self.run, self.split, self.config, self.clock = run, split, config, clock or Clock()
        rules, held = rules or run.read_rules(), Held.of(split)
        scorer = scorer or run.read_scorer(comm.row_range(split.n_users))
        if rules is not None:
            scorer, held = shut(scorer, rules.blocked.items), held_within(held, rules.blocked)
        power = stake_of(split) if config.stake is None else config.stake
        width = max(WIDTH, WIDER * config.k)
        finder: Source = Finder(scorer, held, stakes_of(split.train.matrix, power), width)
        if rules is not None:
            finder = Allowed(finder, rules.blocked.items)
        exposure, n_users = exposure_weights(config.k, config.exposure), comm.row_range(split.n_users).whole
        level = config.level * n_users * float(exposure.sum()) / ONE / split.n_items
        bonus = Bonus(config.delta, level, config.steepness, n_users)
        self.market = Market(finder, slot_weights(config.k), exposure, bonus)
        self.ruled = None if rules is None else RuledMarket(self.market, rules)
        self.spread = self.market.spread

    def point(self, rho: float, curve: Curve, before: Point) -> Point:
        """Solve for ρ from the lists of the point before, measure it, keep it."""
        began = time.perf_counter()
        with self.clock.phase("market"):
            kept = self.run.read_chosen(before, comm.row_range(self.split.n_users))
            start = self.market.own[1]["valid"] if kept is None else self.market.lists(kept.lists["valid"])
            chosen, gap = self.solved(rho, start, None if kept is None else kept.discount)
        seconds = time.perf_counter() - began
        with self.clock.phase("validation metrics"):
            valid, test = self.measures(chosen.lists)
        number = 1 + max((point.epoch for point in curve.points if point.phase == DIVERSITY), default=0)
        point = Point(DIVERSITY, number, valid, test, knob=rho, seconds=seconds, gap=gap)
        with self.clock.phase("writing"):
            self.run.record_chosen(point, chosen)
        log.info(
            "ρ = %.4g: validation nDCG %.4f, coverage %.3f, Gini %.3f; proven within %.1f%% of the best possible gain",
            rho, valid["ndcg"], valid["coverage"], valid["gini"], 100 * gap,
        )  # fmt: skip
        return point

    def solved(self, rho: float, start: Lists, nearby: Array | None = None) -> tuple[Chosen, float]:
        """The lists for ρ, and how far they may be from the best; what rules ask for and do not get is said.

        start, nearby   lists for a ρ nearby, and the discounts at which they were certified, if they were
        """
        if self.ruled is None:
            found = solve(self.market, rho, start)
            with self.clock.phase("certificate"):
                certificate = certify(self.market, found, nearby)
            return Chosen(
                certificate.discount, {kind: lists.items for kind, lists in found.lists.items()}
            ), certificate.gap
        kept = solve_ruled(self.ruled, rho, self.ruled.state_of(start))
        with self.clock.phase("certificate"):
            proof = certify_ruled(self.ruled, kept)
        lists = {kind: each.items for kind, each in kept.solution.lists.items()}
        tell_unmet(self.ruled.bound, lists["all"], self.market.own[1]["all"].items, f"ρ = {rho:.4g}: ")
        return Chosen(proof.discount, lists), proof.gap

    def measures(self, lists: Mapping[str, Array]) -> tuple[Measures, Measures]:
        """What lists of each kind give on validation and on the test."""
        parts = {"valid": self.split.valid, "test": self.split.test}
        valid, test = (measure_lists(lists[kind].copy(), self.split, part) for kind, part in parts.items())
        return valid, test


def measure_lists(items: Array, split: Split, part: Interactions) -> Measures:
    """All metrics of lists on what a part of the split holds out."""
    lists = TopK(items, np.zeros(items.shape, dtype=np.float32), split.user_ids, split.item_ids)
    return measure(lists, part.matrix, comm.total(split.train.popularity))


FINEST = 0.02  # how close neighbouring ρ may come, as a share of the larger one
CLOSE = 0.02  # how far a point may be from where the criterion changes, as a share of its value
MIDDLE = 0.75  # how much of the way between two ρ the next may lie from either, at the most


def refine(
    run: Run, split: Split, config: TrainConfig, clock: Clock | None = None, scorer: Scorer | None = None,
    **criterion: float | None,
) -> None:  # fmt: skip
    """More points with a ρ, between the two where a criterion of `Curve.choose` stops or begins to hold."""
    ((name, value),) = [(name, value) for name, value in criterion.items() if value is not None] or [("", 0.0)]
    if config.method == "divmf" or name not in ("ndcg_drop", "gini", "coverage", "rho") or not run.read_curve().has_rho:
        return
    maker: Exchange | None = None
    with run.locked():
        while True:
            curve = run.read_curve()
            between = float(value) if name == "rho" else rho_between(curve, name, float(value))
            if between is None or any(point.knob == between for point in curve.points) or between <= 0:
                return
            if maker is None:
                maker = Exchange(run, split, config, clock, scorer)
                log.info("looking for %s, between the points so far:", told_criterion(name, float(value or 0)))
            smaller = [point for point in curve.operating if (point.knob or 0.0) < between]
            maker.point(between, curve, smaller[-1])


def told_criterion(name: str, value: float) -> str:
    """What `refine` looks for, in words."""
    return {
        "ndcg_drop": f"the point that loses {value:.4g} of validation nDCG",
        "gini": f"the point with a validation Gini of {value:.4g}",
        "coverage": f"the point with a validation coverage of {value:.4g}",
        "rho": f"the point at ρ = {value:.4g}",
    }[name]


def rho_between(curve: Curve, name: str, value: float) -> float | None:
    """A ρ between the two neighbouring ones where the criterion changes: where a straight line meets it.

    None where it does not change, where the two are close, or where the point that will be chosen is close to it.
    Losses are noisy, so the last change counts: as in `Curve.choose`, the most diverse point that keeps enough.
    """
    base = curve.base.valid["ndcg"]

    def of(point: Point) -> float:
        return 1 - point.valid["ndcg"] / base if name == "ndcg_drop" and base else point.valid.get(name, 0.0)

    def holds(point: Point) -> bool:
        if name == "ndcg_drop":
            return point.valid["ndcg"] >= (1 - value) * base
        return point.valid["gini"] > value if name == "gini" else point.valid["coverage"] < value

    changes = [(one, other) for one, other in pairwise(curve.operating) if holds(one) and not holds(other)]
    if not changes:
        return None
    one, other = changes[-1]
    low, high, first = (point.knob or 0.0 for point in (one, other, curve.of_epoch(1)))
    met = abs(of(one if name == "ndcg_drop" else other) - value) <= CLOSE * value
    if high - low <= FINEST * max(high, first) or (value and met):
        return None
    share = (value - of(one)) / (of(other) - of(one))
    return low + (high - low) * min(max(share, 1 - MIDDLE), MIDDLE)
