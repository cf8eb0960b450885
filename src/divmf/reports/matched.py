"""What each method gives at the same loss of accuracy."""

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from divmf.ranking.curve import Curve, sign_of
from divmf.ranking.metrics import METRICS
from divmf.reports.section import Cell, Table, number, percent

DROPS = (0.01, 0.05, 0.1, 0.2)
DIVERSITY = ("coverage", "entropy", "gini")


def matched_tables(
    curves: Mapping[str, Curve], metrics: Sequence[str] = DIVERSITY, drops: Sequence[float] = DROPS, part: str = "test"
) -> list[Table]:
    """Diversity at matched nDCG loss (`Curve.best_within`): a table a metric, or one table if there is one method.

    The best of a column is bold.
    """
    losses = [percent(drop, 0) for drop in drops]
    note = "The setting is the best on validation among those that lose at most so much validation nDCG"
    if len(curves) == 1:
        ((name, curve),) = curves.items()
        rows: list[list[Cell]] = [["none: the model", *(curve.base.value(part, metric) for metric in metrics)]]
        rows += [
            [loss, *(curve.best_within(drop, metric).value(part, metric) for metric in metrics)]
            for loss, drop in zip(losses, drops, strict=True)
        ]
        caption = f"What {name} gives on {part} for a loss of nDCG. {note}."
        fold = "What each loss of accuracy buys"
        return [Table(["Loss of nDCG", *(METRICS[metric].label for metric in metrics)], rows, caption, fold=fold)]
    tables = []
    for metric in metrics:
        columns = [
            best_bold([curve.best_within(drop, metric).value(part, metric) for curve in curves.values()], metric)
            for drop in drops
        ]
        better = "higher" if sign_of(metric) > 0 else "lower"
        caption = f"{METRICS[metric].label} on {part} ({better} is better) at the same loss of nDCG. {note}."
        tables.append(
            Table(
                ["Method", "model", *losses],
                [
                    [name, curve.base.value(part, metric), *cells]
                    for (name, curve), *cells in zip(curves.items(), *columns, strict=True)
                ],
                caption,
                fold=f"{METRICS[metric].label} of every method at the same loss of accuracy",
            )
        )
    return tables


def best_bold(values: Sequence[float | None], metric: str) -> list[Cell]:
    """The values of a column, the best bold; values that read alike are alike."""
    reached = [value for value in values if value is not None]
    best = number(max(reached, key=lambda value: sign_of(metric) * value)) if reached else None
    return [
        Markup("<b>{}</b>").format(best) if value is not None and number(value) == best else value for value in values
    ]
