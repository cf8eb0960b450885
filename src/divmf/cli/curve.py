"""divmf curve, pick."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from divmf.cli.app import app
from divmf.cli.console import Out
from divmf.cli.inputs import PICTURES, check_output, positive_share
from divmf.cli.options import command
from divmf.cli.train import SHOWN, base_name, choose, named_starts

if TYPE_CHECKING:
    from divmf.ranking.curve import Curve
    from divmf.train.runs import Run

RunArgument = Annotated[Path, typer.Argument(help="A run folder made by `divmf train`.")]


@command(app, "curve")
def curve(
    out: Out,
    run: RunArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write the curve: .csv, .parquet, .html, .png or .svg.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every point, not only a readable choice of them.")] = False,
) -> None:
    """The accuracy–diversity curve of a run: each point, its number (the epoch), and what it gives."""
    from divmf.train.runs import Run

    opened = Run.open(run)
    made = opened.read_curve()
    if output:
        check_output(output, (".csv", ".parquet", *PICTURES), [], ("phase", "epoch", "valid_ndcg"))
    if not len(made):
        raise ValueError(f"{run} has no finished epoch yet; run `divmf train` with the same settings")
    points = made.operating
    step = 1 if every else max(1, len(points) // 20)
    chosen = [point for number, point in enumerate(points) if number % step == 0 or number == len(points) - 1]
    parts = [("valid", "ndcg"), ("valid", "coverage"), ("valid", "gini"), *(("test", name) for name in SHOWN)]
    starts = named_starts(opened, made)
    told = [("–", name, point) for name, point in starts.items() if point is not made.base]  # it cannot be picked
    told += [("0", list(starts)[-1], made.base)]
    told += [(str(point.epoch), point.name, point) for point in chosen[1:]]
    rows = [[*names, *(getattr(point, part)[name] for part, name in parts)] for *names, point in told]
    title = f"{run}: k = {opened.read_config().k}; `divmf pick {run} --epoch` takes the number in front"
    out.table(title, ["epoch", "point", *(f"{part} {name}" for part, name in parts)], rows)
    if output:
        write_curve(opened, made, output)
        out.note(f"wrote {output}")
    out.result([point.to_json() for point in made.points])


def write_curve(run: "Run", made: "Curve", output: Path) -> None:
    """The curve of a run as a table or a picture, by the ending of the name."""
    from divmf.data.tables import write_table

    if output.suffix in (".csv", ".parquet"):
        write_table(made.frame, output)
        return
    from divmf.reports.drawing import draw_curve
    from divmf.reports.experiments.compare import NAMES

    config, picked = run.read_config(), run.read_picked() if run.has_pick() else None
    draw_curve(made, NAMES[config.method], config.k, picked, base_name(run)).save(output)


@command(app, "pick")
def pick(
    out: Out,
    run: RunArgument,
    ndcg_drop: Annotated[
        str | None, typer.Option(help="The most diverse point that loses at most this much nDCG, such as 5%.")
    ] = None,
    gini: Annotated[float | None, typer.Option(help="The most accurate point with at most this Gini index.")] = None,
    coverage: Annotated[
        str | None, typer.Option(help="The most accurate point with at least this coverage, such as 80%.")
    ] = None,
    epoch: Annotated[
        int | None, typer.Option(help="The point with this number in `divmf curve`; 0 is the model itself.")
    ] = None,
    rho: Annotated[
        float | None,
        typer.Option(help="The point with exactly this ρ (--method market); made, if the curve does not have it."),
    ] = None,
    knee: Annotated[bool, typer.Option("--knee", help="The point where the curve bends.")] = False,
) -> None:
    """Choose the operating point of a run, on validation, for `divmf recommend` and `divmf serve`."""
    from divmf.train.runs import Run

    flags = {
        "--ndcg-drop": ndcg_drop, "--gini": gini, "--coverage": coverage, "--epoch": epoch, "--rho": rho,
        "--knee": knee or None,
    }  # fmt: skip
    given = [flag for flag, value in flags.items() if value is not None]
    if len(given) != 1:
        raise ValueError(f"choose a point by exactly one of {', '.join(flags)}; given: {', '.join(given) or 'none'}")
    opened = Run.open(run)
    point = choose(
        opened,
        None,
        "knee" if knee else None,
        ndcg_drop=None if ndcg_drop is None else positive_share(ndcg_drop, "--ndcg-drop"),
        gini=gini,
        coverage=None if coverage is None else positive_share(coverage, "--coverage"),
        epoch=epoch,
        rho=rho,
    )
    curve = opened.read_curve()
    base = curve.base
    lost = 1 - point.valid["ndcg"] / base.valid["ndcg"] if base.valid["ndcg"] else 0.0
    change = f"{lost:.1%} of validation nDCG given up" if lost >= 0 else f"{-lost:.1%} more validation nDCG"
    out.say(f"picked {point.name}: {change}")
    rows = [
        [f"{metric}", base.valid[metric], point.valid[metric], base.test[metric], point.test[metric]]
        for metric in SHOWN
    ]
    name = base_name(opened) if base is curve.without_rules else "under the rules, ρ = 0"
    out.table("", ["", f"valid {name}", "valid picked", f"test {name}", "test picked"], rows)
    out.result(point.to_json() | {"run": str(run), "ndcg_lost": lost})
