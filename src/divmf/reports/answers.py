"""The numbers of each question as tables: means over the seeds with their intervals."""

from collections.abc import Callable, Sequence
from math import inf

from markupsafe import Markup

from divmf.ranking.bootstrap import Estimate
from divmf.ranking.curve import Point, sign_of
from divmf.ranking.metrics import METRICS
from divmf.reports.experiments.claims import at_loss, over_seeds
from divmf.reports.experiments.questions import AS_LONG, DIVERSITY, EQUAL_LOSS, LAST, VERSIONS, as_accurate, meeting
from divmf.reports.experiments.reproduce import Answer
from divmf.reports.section import Cell, Table, number, percent

SHOWN = ("ndcg", *DIVERSITY)


def loss_table(answer: Answer, metric: str, names: Sequence[str]) -> Table:
    """A metric at each loss, a row a method; the best of a column is bold."""
    columns = [
        bold_best([mean_at_loss(answer, name, loss, metric) for name in names], metric)
        for loss in answer.question.losses
    ]
    before = over_seeds([curve.base.test[metric] for curve in answer.curves["MF"]])
    better = "higher" if sign_of(metric) > 0 else "lower"
    return Table(
        ["method", "MF", *(f"at {percent(loss, 0)} loss" for loss in answer.question.losses)],
        [[name, number(before), *cells] for name, *cells in zip(names, *columns, strict=True)],
        f"{METRICS[metric].label} on test at the same loss of nDCG ({better} is better).",
        fold=f"{METRICS[metric].label} at each loss",
    )


def mean_at_loss(answer: Answer, name: str, loss: float, metric: str) -> Estimate:
    """A metric of one run or method at a loss, over the seeds."""
    pairs = zip(answer.curves[name], answer.curves["MF"], strict=True)
    return in_range(over_seeds([at_loss(curve, mf.base, loss, metric) for curve, mf in pairs]), metric)


def in_range(value: Estimate, metric: str) -> Estimate:
    """The estimate with its interval cut to what the metric can be; entropy has no end that all catalogs share."""
    highest = inf if metric == "entropy" else 1.0
    return Estimate(float(value), max(0.0, value.low), min(highest, value.high))


def bold_best(values: Sequence[Estimate], metric: str) -> list[Cell]:
    """The cells of a column, the best bold."""
    best = max(values, key=lambda value: sign_of(metric) * value)
    return [
        Markup("<b>{}</b> <small>{}–{}</small>").format(*map(number, (value, value.low, value.high)))
        if number(value) == number(best)
        else value
        for value in values
    ]


def q1_tables(answer: Answer) -> list[Table]:
    """Every method at every loss."""
    names = [*VERSIONS, *answer.question.paper, "market", *answer.question.others]
    return [loss_table(answer, metric, names) for metric in DIVERSITY]


def q2_tables(answer: Answer) -> list[Table]:
    """MF and the three runs at the one loss."""
    (loss,) = answer.question.losses
    bases = [curve.base for curve in answer.curves["MF"]]
    rows: list[list[Cell]] = [["MF", *(over_seeds([base.test[metric] for base in bases]) for metric in DIVERSITY)]]
    columns = [
        bold_best([mean_at_loss(answer, name, loss, metric) for name in answer.question.runs], metric)
        for metric in DIVERSITY
    ]
    rows += [[name, *cells] for name, *cells in zip(answer.question.runs, *columns, strict=True)]
    header = ["", *(METRICS[metric].label for metric in DIVERSITY)]
    return [Table(header, rows, f"On test at {loss:.0%} nDCG loss.", fold="The metrics in numbers")]


def changes(answer: Answer) -> dict[str, dict[str, Estimate]]:
    """How much better than MF each run is at the one loss, with its sign: by metric, then by run."""
    (loss,) = answer.question.losses
    bases = [curve.base for curve in answer.curves["MF"]]
    return {
        metric: {
            name: over_seeds(
                [
                    sign_of(metric) * (at_loss(curve, base, loss, metric) - base.test[metric])
                    for curve, base in zip(answer.curves[name], bases, strict=True)
                ]
            )
            for name in answer.question.runs
        }
        for metric in DIVERSITY
    }


def q3_tables(answer: Answer) -> list[Table]:
    """MF, the other schedules, and DivMF where it is as accurate as each of them."""
    points = {"MF": [curve.base for curve in answer.curves["MF"]]}
    for other, length in (("alternating", AS_LONG), ("alternating", LAST), ("joint", LAST)):
        pairs = as_accurate(answer.curves, other, length == LAST)
        points[f"{other}, {length}"] = [point for point, _ in pairs]
        points[f"DivMF, as accurate on validation as {other} {length}"] = [same for _, same in pairs]
    return [points_table(points, "On test.")]


def points_table(points: dict[str, list[Point]], caption: str) -> Table:
    """Some points, one a seed, as rows: their accuracy and diversity."""
    rows: list[list[Cell]] = [
        [name, *(in_range(over_seeds([point.test[metric] for point in found]), metric) for metric in SHOWN)]
        for name, found in points.items()
    ]
    return Table(["", *(METRICS[metric].label for metric in SHOWN)], rows, caption, fold="The metrics in numbers")


def q4_tables(answer: Answer) -> list[Table]:
    """Coverage and Gini of the three policies."""
    return [loss_table(answer, metric, list(answer.question.runs)) for metric in ("coverage", "gini")]


def q5_tables(answer: Answer) -> list[Table]:
    """Entropy at each loss; then epochs and seconds to the same entropy."""
    names = list(answer.question.runs)
    rows: list[list[Cell]] = []
    for seed, (whole, mini) in enumerate(zip(answer.curves[names[0]], answer.curves[names[1]], strict=True)):
        met = meeting(whole, mini)
        found = None if met is None else (*met.epochs, *met.seconds, *met.ndcg)
        rows.append([f"seed\N{NO-BREAK SPACE}{seed}", *(found or [None] * 6)])
    header = ["", "epochs, whole", "epochs, mini", "seconds, whole", "seconds, mini", "nDCG, whole", "nDCG, mini"]
    caption = f"To the entropy that the whole matrix has at {EQUAL_LOSS:.0%} nDCG loss; nDCG on test."
    return [loss_table(answer, "entropy", names), Table(header, rows, caption, fold="Epochs and seconds")]


def epochs_of(answer: Answer) -> dict[str, list[tuple[int, Point]]]:
    """The first seed's training by epoch: accuracy and then diversity, both in turn, which count as one, or at once."""
    mf, divmf = (answer.curves[name][0] for name in ("MF", "DivMF"))
    before = [(point.epoch, point) for point in mf.points if point.epoch <= mf.base.epoch]
    after = [(mf.base.epoch + point.epoch, point) for point in divmf.operating[1:]]
    others = {
        name: [(point.epoch, point) for point in answer.curves[name][0].points if point.phase != "accuracy"]
        for name in ("alternating", "joint")
    }
    return {"DivMF": before + after} | others


TABLES: dict[str, Callable[[Answer], list[Table]]] = {
    "q1": q1_tables, "q2": q2_tables, "q3": q3_tables, "q4": q4_tables, "q5": q5_tables,
}  # fmt: skip
