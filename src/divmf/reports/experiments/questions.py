"""What each question asks of the curves: from curves by name, one a seed, to claims."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from divmf.ranking.curve import DIVERSITY as DIVERSITY_PHASE
from divmf.ranking.curve import Curve, Point
from divmf.ranking.metrics import METRICS
from divmf.reports.experiments.claims import (
    HELD,
    Claim,
    Curves,
    Effect,
    at_loss,
    best_rival,
    distance_to_best,
    effect,
    gain,
    gains_at_loss,
    ndcg_at,
)
from divmf.reports.experiments.recipe import Question

DIVERSITY = ("coverage", "entropy", "gini")
EQUAL_LOSS = 0.1  # Q5: where mini-batches and the whole matrix are asked to be equally diverse
NO_WORSE = -0.05  # Q5: an nDCG lower by less than this is still comparable
VERSIONS = ("DivMF (paper)", "DivMF (tuned)")


def better_version(curves: Curves, losses: Sequence[float]) -> str:
    """The version of DivMF whose lists are more even on validation, on average over losses and seeds."""

    def unevenness(name: str) -> float:
        pairs = list(zip(curves[name], curves["MF"], strict=True))
        return sum(
            curve.best_within(loss, "gini", mf.base.valid["ndcg"]).valid["gini"]
            for curve, mf in pairs
            for loss in losses
        )

    return min(VERSIONS, key=unevenness)


def q1(curves: Curves, question: Question) -> list[Claim]:
    """DivMF beside the best of the paper's four, at the same accuracy and at the same diversity; then the others.

    Of DivMF, the version that is better on validation.
    """
    four, others = list(question.paper), ["market", *question.others]
    curves = dict(curves) | {"DivMF": curves[better_version(curves, question.losses)]}
    return [
        Claim(
            "q1", "diversity at the same accuracy",
            "At the same accuracy, DivMF's lists have a lower Gini index than those of the best of the four baselines",
            "up to 34.7% lower", tuple(lower_gini(curves, four, loss) for loss in question.losses),
        ),
        Claim(
            "q1", "accuracy at the same diversity",
            "At the same Gini index, DivMF's lists have a higher nDCG than those of the best of the four baselines",
            "up to 27.6% higher", tuple(higher_ndcg(curves, four, loss) for loss in question.losses),
        ),
        Claim(
            "q1", "nearest to the best point",
            "DivMF's curve comes nearer to the point “best” than those of the four baselines",
            "nearest on all five datasets", tuple(nearer(curves, four, metric) for metric in DIVERSITY),
        ),
        Claim(
            "q1", "beyond the paper",
            "At the same accuracy, DivMF's lists have a lower Gini index than those of the best stronger method",
            None, tuple(lower_gini(curves, others, loss) for loss in question.losses),
        ),
    ]  # fmt: skip


def lower_gini(curves: Curves, rivals: Sequence[str], loss: float) -> Effect:
    """How much lower DivMF's Gini is than that of the rival with the lowest, on average over the seeds."""
    bases = [curve.base for curve in curves["MF"]]

    def evenness(name: str) -> float:
        return -sum(at_loss(curve, base, loss, "gini") for curve, base in zip(curves[name], bases, strict=True))

    rival = best_rival(rivals, evenness) or rivals[0]
    return effect("Gini", f"at {loss:.0%} nDCG loss", rival, gains_at_loss(curves, "DivMF", rival, loss, "gini"))


def higher_ndcg(curves: Curves, rivals: Sequence[str], loss: float) -> Effect:
    """How much higher DivMF's nDCG is where the rival is as even as DivMF at a loss."""
    ours = [
        curve.best_within(loss, "gini", mf.base.valid["ndcg"])
        for curve, mf in zip(curves["DivMF"], curves["MF"], strict=True)
    ]

    def reached(name: str) -> list[float | None]:
        return [ndcg_at(curve, "gini", point.valid["gini"]) for curve, point in zip(curves[name], ours, strict=True)]

    def accuracy(name: str) -> float | None:
        found = [value for value in reached(name) if value is not None]
        return sum(found) if len(found) == len(ours) else None

    rival = best_rival(rivals, accuracy)
    where = f"where DivMF has lost {loss:.0%}"
    if rival is None:
        return Effect("nDCG", where, "none: no baseline is ever as even", None, None, None, otherwise=HELD)
    gains = [
        None if theirs is None else gain("ndcg", point.test["ndcg"], theirs)
        for point, theirs in zip(ours, reached(rival), strict=True)
    ]
    return effect("nDCG", where, rival, gains)


def nearer(curves: Curves, rivals: Sequence[str], metric: str) -> Effect:
    """How much nearer to `best` DivMF comes than the nearest rival, on axes from 0 to 1."""
    names = ["DivMF", *rivals]
    far: dict[str, list[float]] = {name: [] for name in names}
    for seed, mf in enumerate(curves["MF"]):
        rows = {name: curves[name][seed] for name in names}
        for name, curve in rows.items():
            far[name].append(distance_to_best(curve, list(rows.values()), mf.base, metric))
    rival = best_rival(rivals, lambda name: -sum(far[name])) or rivals[0]
    gains = [theirs - ours for ours, theirs in zip(far["DivMF"], far[rival], strict=True)]
    return effect("distance", f"in {METRICS[metric].label}", rival, gains, unit="")


def q2(curves: Curves, question: Question) -> list[Claim]:
    """Both regularizers beside either alone."""
    (loss,) = question.losses
    alone = ("DivMF − Reg_skew", "DivMF − Reg_cov")
    return [
        Claim(
            "q2", "both regularizers", f"With both regularizers, all metrics are best at {loss:.0%} nDCG loss",
            "best in all metrics",
            tuple(compared(curves, "DivMF", other, loss, metric) for other in alone for metric in DIVERSITY),
        ),
        Claim(
            "q2", "coverage matters more", "Without Reg_cov, the lists are less diverse than without Reg_skew",
            "worse in all metrics",
            tuple(compared(curves, *alone, loss, metric) for metric in DIVERSITY),
        ),
    ]  # fmt: skip


def compared(curves: Curves, ours: str, theirs: str, loss: float, metric: str) -> Effect:
    """One metric of two runs at the same loss."""
    values = gains_at_loss(curves, ours, theirs, loss, metric)
    return effect(METRICS[metric].label, f"at {loss:.0%} nDCG loss", theirs, values)


def q3(curves: Curves, question: Question) -> list[Claim]:
    """Sequential training where it is as accurate as alternating training, after two lengths, and as joint training.

    How long to alternate is not in the paper, and the result depends on it: so as long as MF trained, and to the end.
    """

    def higher(other: str, length: str) -> Effect:
        pairs = as_accurate(curves, other, length == LAST)
        gains = [gain("entropy", same.test["entropy"], point.test["entropy"]) for point, same in pairs]
        return effect("entropy", "at the same nDCG", f"{other} {length}", gains)

    return [
        Claim(
            "q3", "sequential training",
            "Accuracy first, then diversity, gives a higher entropy than epochs in turn, at the same accuracy",
            "significantly higher", (higher("alternating", AS_LONG), higher("alternating", LAST)),
        ),
        Claim(
            "q3", "not both at once",
            "Accuracy first, then diversity, gives a higher entropy than minimising both losses at once, at the same"
            " accuracy",
            "directly minimising L_total leads to a poor performance", (higher("joint", LAST),),
        ),
    ]  # fmt: skip


AS_LONG, LAST = "after as many epochs as MF", "at its last epoch"


def as_accurate(curves: Curves, other: str, last: bool) -> list[tuple[Point, Point]]:
    """With each seed, a point of a run of another schedule and the most diverse of DivMF that is as accurate.

    last: its last point, else the one after as many epochs as MF trained, or the last if there were fewer. As accurate:
    on validation.
    """
    pairs = []
    for mf, sequential, run in zip(curves["MF"], curves["DivMF"], curves[other], strict=True):
        epochs = [point for point in run.points if point.phase == DIVERSITY_PHASE]
        point = epochs[-1 if last else min(len(mf), len(epochs)) - 1]
        pairs.append((point, sequential.best_within(0.0, "entropy", point.valid["ndcg"])))
    return pairs


def q4(curves: Curves, question: Question) -> list[Claim]:
    """Unmasking the best items beside unmasking none, and random ones."""
    farthest = [
        gain("gini", *(min(point.test["gini"] for point in curve.operating) for curve in pair))
        for pair in zip(curves["DivMF"], curves["no unmasking"], strict=True)
    ]
    limits = effect("Gini", "at the far end of the curve", "no unmasking", farthest)
    return [
        Claim(
            "q4", "unmasking", "Unmasking the best items gives more diverse lists than unmasking none",
            "without it, diversity reaches a limit",
            (limits, *(compared(curves, "DivMF", "no unmasking", loss, metric)
                       for metric in ("coverage", "gini") for loss in question.losses)),
        ),
        Claim(
            "q4", "top, not random", "Unmasking the best items gives more coverage than unmasking random ones",
            "better coverage",
            tuple(compared(curves, "DivMF", "random n", loss, "coverage") for loss in question.losses),
        ),
    ]  # fmt: skip


def q5(curves: Curves, question: Question) -> list[Claim]:
    """Mini-batches beside steps on the whole matrix: epochs, seconds and quality."""
    pairs = zip(curves["whole matrix"], curves["mini-batches"], strict=True)
    meetings = [meeting(whole, mini) for whole, mini in pairs]
    epochs = [None if met is None else met.epochs[0] / met.epochs[1] for met in meetings]
    seconds = [None if met is None else met.seconds[0] / max(met.seconds[1], 1e-9) for met in meetings]
    accuracy = [None if met is None else gain("ndcg", met.ndcg[1], met.ndcg[0]) for met in meetings]
    where = f"to the entropy of the whole matrix at {EQUAL_LOSS:.0%} nDCG loss"
    return [
        Claim(
            "q5", "fewer epochs", "Mini-batches need less than a tenth of the epochs for the same diversity",
            "less than 10% of the epochs",
            (effect("epochs", where, "whole matrix", epochs, 10, "×"),),
        ),
        Claim(
            "q5", "fewer seconds", "Mini-batches need less time for the same diversity", "fast training",
            (effect("seconds", where, "whole matrix", seconds, 1, "×"),),
        ),
        Claim(
            "q5", "comparable quality",
            f"At the same entropy, mini-batches lose at most {-NO_WORSE:.0%} of nDCG",
            "comparable performance",
            (effect("nDCG", "at that entropy", "whole matrix", accuracy, NO_WORSE),),
        ),
        Claim(
            "q5", "more diversity", "At the same accuracy, mini-batches give a higher entropy",
            "drastically higher entropy on Gowalla-15",
            tuple(compared(curves, "mini-batches", "whole matrix", loss, "entropy") for loss in question.losses),
        ),
    ]  # fmt: skip


@dataclass(frozen=True)
class Meeting:
    """Where two runs are equally diverse: epochs, seconds and test nDCG of the whole matrix and of mini-batches."""

    epochs: tuple[int, int]
    seconds: tuple[float, float]
    ndcg: tuple[float, float]


def meeting(whole: Curve, mini: Curve) -> Meeting | None:
    """Where mini-batches first have the entropy that the whole matrix has at a loss.

    None if they never have it, or if the whole matrix gains none within the loss.
    """
    target = whole.best_within(EQUAL_LOSS, "entropy")
    reached = [point for point in mini.operating[1:] if point.valid["entropy"] >= target.valid["entropy"]]
    if target is whole.base or not reached:
        return None
    spent = [
        sum(point.seconds or 0.0 for point in curve.operating[1:] if point.epoch <= end.epoch)
        for curve, end in ((whole, target), (mini, reached[0]))
    ]
    ndcg = ndcg_at(mini, "entropy", target.valid["entropy"]) or 0.0
    return Meeting((target.epoch, reached[0].epoch), (spent[0], spent[1]), (target.test["ndcg"], ndcg))


CLAIMS: dict[str, Callable[[Curves, Question], list[Claim]]] = {"q1": q1, "q2": q2, "q3": q3, "q4": q4, "q5": q5}
