"""The arithmetic of claims: an effect measured with each seed, its interval over them, and whether it holds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp, log, sqrt
from typing import Any

import numpy as np
from scipy.special import stdtrit

from divmf.ranking.bootstrap import Estimate
from divmf.ranking.curve import Curve, Point, sign_of

HELD, UNCLEAR, FAILED, PART = "held", "not clear", "did not hold", "held in part"
LARGE = 1000  # ratios beyond it are all the same to a reader
Curves = Mapping[str, Sequence[Curve]]  # by name, a curve a seed


@dataclass(frozen=True)
class Effect:
    """One number a claim stands on, over the seeds.

    metric, where, rival   what is compared, where, and with what: "Gini", "at 5% nDCG loss", "uimatch"
    value, low, high  the mean over the seeds and its 95% interval; None where there is nothing to compare with
    bar               the claim holds above it
    unit              "%" for a share, "×" for a ratio, nothing for a plain number
    otherwise         the verdict where there is no value
    """

    metric: str
    where: str
    rival: str
    value: float | None
    low: float | None
    high: float | None
    bar: float = 0.0
    unit: str = "%"
    otherwise: str = UNCLEAR

    @property
    def verdict(self) -> str:
        """Held if the whole interval lies above the bar, not if all of it lies below."""
        if self.low is None or self.high is None:
            return self.otherwise
        return HELD if self.low > self.bar else FAILED if self.high < self.bar else UNCLEAR

    @property
    def shown(self) -> str:
        """The number and its interval, for people."""
        if self.value is None or self.low is None or self.high is None:
            return "not reached"
        value, low, high = (self.in_words(number) for number in (self.value, self.low, self.high))
        return f"{value} ({low} to {high})"

    def in_words(self, number: float) -> str:
        """One number of it; of two seeds that differ, the end of an interval of ratios says no more than that."""
        if self.unit == "×" and number > LARGE:
            return f"over {LARGE:,}×"
        form = {"×": "{:.1f}×", "%": "{:+.1%}", "": "{:+.3f}"}[self.unit]
        return form.format(number).replace("-", "−")


@dataclass(frozen=True)
class Claim:
    """What the paper says (or what one would like to know beyond it), and what was found."""

    question: str
    name: str
    claim: str
    paper: str | None
    effects: tuple[Effect, ...]

    @property
    def verdict(self) -> str:
        """Held if all effects do, in part if some do; else it did not hold if one of them clearly did not."""
        found = {effect.verdict for effect in self.effects}
        if HELD in found:
            return HELD if len(found) == 1 else PART
        return FAILED if FAILED in found else UNCLEAR

    @property
    def by_how_much(self) -> str:
        """Every effect in one line."""
        return "; ".join(
            " ".join(filter(None, [effect.metric, effect.where, f"against {effect.rival}:", effect.shown]))
            for effect in self.effects
        )

    def to_json(self) -> dict[str, Any]:
        """As the command prints it."""
        effects = [asdict(effect) | {"verdict": effect.verdict} for effect in self.effects]
        return {
            "question": self.question, "name": self.name, "claim": self.claim, "paper": self.paper,
            "verdict": self.verdict, "by_how_much": self.by_how_much, "effects": effects,
        }  # fmt: skip

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "Claim":
        """From what `to_json` gave."""
        fields = Effect.__dataclass_fields__
        effects = [Effect(**{name: effect[name] for name in fields}) for effect in row["effects"]]
        return cls(row["question"], row["name"], row["claim"], row["paper"], tuple(effects))


def over_seeds(values: Sequence[float]) -> Estimate:
    """The mean and its 95% interval by Student's t: with three seeds, ± 2.48 standard deviations."""
    found = np.asarray(values, dtype=np.float64)
    if len(found) < 2:
        raise ValueError(f"{len(found)} seed gives no interval; take at least 2, better 3")
    mean = float(found.mean())
    half = float(stdtrit(len(found) - 1, 0.975)) * float(found.std(ddof=1)) / sqrt(len(found))
    return Estimate(mean, mean - half, mean + half)


def gain(metric: str, ours: float, theirs: float) -> float:
    """How much better, as a share of theirs: more coverage, entropy or nDCG, less Gini."""
    difference = sign_of(metric) * (ours - theirs)
    return difference / abs(theirs) if theirs else float(np.sign(difference))


def effect(
    metric: str, where: str, rival: str, values: Sequence[float | None], bar: float = 0.0, unit: str = "%"
) -> Effect:
    """The effect of what each seed gave; where a seed gave nothing, there is nothing to compare."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return Effect(metric, where, rival, None, None, None, bar, unit)
    if unit == "×":  # ratios are averaged as such: 2 and 1/2 make 1
        found = over_seeds([log(value) for value in known])
        return Effect(metric, where, rival, exp(found), exp(found.low), exp(found.high), bar, unit)
    found = over_seeds(known)
    return Effect(metric, where, rival, float(found), found.low, found.high, bar, unit)


def at_loss(curve: Curve, base: Point, loss: float, metric: str) -> float:
    """The metric on test at the setting that validation chose: the best that loses at most so much validation nDCG."""
    return curve.best_within(loss, metric, base.valid["ndcg"]).test[metric]


def gains_at_loss(curves: Curves, ours: str, theirs: str, loss: float, metric: str) -> list[float]:
    """How much better a metric is at the same loss, a number a seed."""
    bases = [curve.base for curve in curves["MF"]]
    return [
        gain(metric, at_loss(one, base, loss, metric), at_loss(other, base, loss, metric))
        for one, other, base in zip(curves[ours], curves[theirs], bases, strict=True)
    ]


def best_rival(names: Sequence[str], value: Callable[[str], float | None]) -> str | None:
    """The name with the highest value; names without one do not take part."""
    known = {name: found for name in names if (found := value(name)) is not None}
    return max(known, key=lambda name: known[name]) if known else None


def ndcg_at(curve: Curve, metric: str, value: float) -> float | None:
    """The test nDCG where a metric has this value on validation, between two neighbours of the validation frontier.

    None where the curve never gets there; the frontier's first point where all of it is better.
    """
    points, target = curve.frontier(metric).points, sign_of(metric) * value
    levels = [sign_of(metric) * point.valid[metric] for point in points]  # rising
    if target > levels[-1]:
        return None
    return float(np.interp(target, levels, [point.test["ndcg"] for point in points]))


def distance_to_best(curve: Curve, curves: Sequence[Curve], base: Point, metric: str) -> float:
    """How near a curve comes to the point `best`, which has the highest nDCG and the highest diversity of all curves.

    Diversity is scaled from the base (0) to the best (1), nDCG from nothing to the best. The nearest point is chosen
    on validation, its distance read on test. Points that keep less than half of the base's nDCG count nowhere.
    """

    def far(point: Point, part: str) -> float:
        least_ndcg = base.value(part, "ndcg") / 2
        kept = [each for one in curves for each in one.operating if each.value(part, "ndcg") >= least_ndcg]
        top = max(each.value(part, "ndcg") for each in kept)
        even = max(sign_of(metric) * each.value(part, metric) for each in kept)
        least = sign_of(metric) * base.value(part, metric)
        down = 1 - point.value(part, "ndcg") / top if top else 0.0
        left = (even - sign_of(metric) * point.value(part, metric)) / (even - least) if even > least else 0.0
        return sqrt(down**2 + left**2)

    return far(min(curve.operating, key=lambda point: far(point, "valid")), "test")
