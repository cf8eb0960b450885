"""divmf demo."""

from pathlib import Path
from typing import Annotated

import typer

from divmf.cli import app
from divmf.cli.console import Out
from divmf.cli.options import command
from divmf.cli.train import SHOWN, train_run

# large enough to show the effect, small enough for a minute on two cores
USERS, ITEMS, INTERACTIONS = 2000, 1000, 60_000


@command(app, "demo")
def demo(
    out: Out,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the run folder and the report go.")] = Path(
        "demo"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the marketplace and of the training.")] = 0,
) -> None:
    """The main job on an embedded synthetic marketplace: train, diversify, write report.html, print the table."""
    from divmf.datasets import marketplace
    from divmf.estimator import Recommender
    from divmf.report.page import run_report
    from divmf.training import TrainConfig

    data = marketplace(USERS, ITEMS, INTERACTIONS, seed)
    split, config = data.leave_one_out(seed), TrainConfig(seed=seed)
    out.note(f"a marketplace of {data.n_users:,} users, {data.n_items:,} items, {len(data):,} interactions")
    run = train_run(out, output / "run", split, config, "synthetic")
    picked, curve = run.pick(ndcg_drop=0.05), run.curve
    lists = {
        name: Recommender(run.model(point), split, point, config.k).lists()
        for name, point in (("MF", curve.base), ("DivMF", picked))
    }
    report = output / "report.html"
    run_report(report, curve, picked, lists, split, config.k, f"divmf demo -o {output} --seed {seed}")
    names = {"MF, accuracy only": curve.base, f"DivMF, diversity epoch {picked.epoch}": picked}
    out.table(
        f"on the test items, k = {config.k}; DivMF at 5% validation nDCG loss",
        ["", *SHOWN],
        [[name, *(point.test[metric] for metric in SHOWN)] for name, point in names.items()],
    )
    out.say(f"\nreport: {report.resolve()}\nnext:   divmf train YOUR_EVENTS.csv -o run")
    out.result(
        {"report": str(report), "run": str(run.folder), "base": curve.base.to_json(), "picked": picked.to_json()}
    )
