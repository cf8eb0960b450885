"""divmf demo."""

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from divmf.cli.app import app
from divmf.cli.console import Out, hushed
from divmf.cli.options import command
from divmf.cli.train import SHOWN, base_name, choose, train_run

if TYPE_CHECKING:
    from divmf.data.interactions import Interactions
    from divmf.data.split import Split
    from divmf.ranking.curve import Curve, Point
    from divmf.ranking.lists import TopK
    from divmf.reports.section import Section
    from divmf.train.runs import Run

# large enough to show the effect, small enough for a minute on two cores
USERS, ITEMS, INTERACTIONS = 2000, 1000, 60_000
LOSS, WIDTH = 0.05, 100


@command(app, "demo")
def demo(
    out: Out,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the run folder and the report go.")] = Path(
        "demo"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the marketplace and of the training.")] = 0,
) -> None:
    """Train, diversify, compare with every reranker installed and write a report, on a built-in synthetic marketplace.

    Writes report.html and the run folder, prints the table. Needs no network and no data; takes about a minute.
    """
    from divmf.data.datasets import marketplace
    from divmf.data.outputs import protect
    from divmf.data.synthetic import shop_of
    from divmf.estimator import Recommender
    from divmf.models.config import TrainConfig
    from divmf.ranking.groups import Groups
    from divmf.ranking.metrics import coverage_ceiling
    from divmf.reports.experiments.compare import NAMES
    from divmf.reports.page import run_report

    protect(output / "report.html")
    data = marketplace(USERS, ITEMS, INTERACTIONS, seed)
    split, config = data.leave_one_out(seed), TrainConfig(seed=seed)
    out.note(f"a marketplace of {data.n_users:,} users, {data.n_items:,} items, {len(data):,} interactions")
    run = train_run(out, output / "run", split, config, "synthetic")
    picked, curve = choose(run, split, ndcg_drop=LOSS), run.read_curve()
    own = NAMES[config.method]
    chosen = {name: Recommender.at(run, point, split) for name, point in (("model", curve.base), (own, picked))}
    rivals = reranker_curves(out, chosen["model"].lists(k=WIDTH, seen="train"), split, run)
    ruled = rules_at_work(out, output, data, split, run, picked, seed)
    report = output / "report.html"
    run_report(
        report, curve, picked, {name: each.lists(seen="train+valid") for name, each in chosen.items()}, split, config.k,
        f"divmf demo -o {output} --seed {seed}", rivals,
        valid_lists={name: each.lists(seen="train") for name, each in chosen.items()}, run=run.folder,
        groups=Groups.read(shop_of(data, seed), "seller", split.item_ids), more=[ruled],
    )  # fmt: skip
    points = {f"{base_name(run)}, the model": curve.base, own: picked}
    points |= {name: found.best_within(LOSS, "gini") for name, found in rivals.items()}
    out.table(
        f"on the test items, k = {config.k}; the methods at {LOSS:.0%} validation nDCG loss; coverage at most"
        f" {coverage_ceiling(split.n_users * config.k, split.n_items):.4f}",
        ["", *SHOWN],
        [[name, *(point.test[metric] for metric in SHOWN)] for name, point in points.items()],
    )
    call, extra = own_command(), "" if find_spec("fastapi") else "   (needs: pip install 'divmf[serve]')"
    out.say(
        f"\nreport: {report.resolve()}\nlive:   {call} serve {run.folder}{extra}"
        f"\nnext:   {call} train YOUR_EVENTS.csv -o run"
    )
    out.result(
        {"report": str(report), "run": str(run.folder), "base": curve.base.to_json(), "picked": picked.to_json()}
    )


def own_command() -> str:
    """How this divmf is called: by its name where that is found, else by its path beside this Python."""
    if shutil.which("divmf"):
        return "divmf"
    beside = Path(sys.executable).parent / "divmf"
    return os.path.relpath(beside) if beside.exists() else f"{sys.executable} -m divmf"


RULES = """[capacity]                # a full item is in nobody's list
column = "seats"

[groups.seller]           # every seller has a hundredth of all slots
floor = "1%"
"""


def rules_at_work(
    out: Out, output: Path, data: "Interactions", split: "Split", run: "Run", picked: "Point", seed: int
) -> "Section":
    """The lists of the picked point under rules of a shop, as a section; the catalog and the rules are written, too."""
    from divmf.data.synthetic import shop_of
    from divmf.data.tables import write_table
    from divmf.engine.files import write_text
    from divmf.market.rules import Rules
    from divmf.reports.rules import rules_section
    from divmf.train.ruling import lists_under

    catalog, file = shop_of(data, seed), output / "rules.toml"
    write_table(catalog, output / "items.csv")
    write_text(file, RULES)
    with out.progress("rules of a shop", None):
        made, bound, ndcg = lists_under(run, split, picked, Rules.read(file, catalog))
    without = run.read_chosen(picked)
    assert without is not None  # the market made it
    title = "Every item has a number of seats, and every seller was promised a hundredth of all slots."
    out.note(
        f"the same lists under rules: {own_command()} recommend {run.folder} --rules {file}"
        f" --catalog {output / 'items.csv'} -o lists.csv"
    )
    return rules_section(bound, without.lists["all"], made.lists["all"], ndcg, title)


def reranker_curves(out: Out, candidates: "TopK", split: "Split", run: "Run") -> dict[str, "Curve"]:
    """The curve of every reranker that can run here and is not the run's own method, the most even first."""
    from divmf.reports.experiments.compare import reranked
    from divmf.rerank import METHODS, sweep

    names, curves = reranked(METHODS, [run]), {}
    with hushed("divmf.rerank"), out.progress("rerankers", len(names)) as bar:
        for number, name in enumerate(names, 1):
            bar.update(f"reranker {name}", number, len(names), {})
            if why := METHODS[name].missing:
                out.note(f"{name} is left out: {why}")
                continue
            curves[name] = sweep(candidates, METHODS[name], split, run.read_config().k)
    return dict(sorted(curves.items(), key=lambda pair: pair[1].best_within(LOSS, "gini").valid["gini"]))
