"""divmf train."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from divmf.cli.app import app
from divmf.cli.console import Out
from divmf.cli.filters import Filtered, read_rules, say_given
from divmf.cli.groups import read_groups, say_both
from divmf.cli.inputs import Columns, held_share, load_split, positive_share
from divmf.cli.options import command
from divmf.engine.clock import Clock
from divmf.engine.files import naming
from divmf.engine.masking import masked
from divmf.models.config import EPOCH_SETTINGS, OF_METHOD, TrainConfig, check_of_method

if TYPE_CHECKING:
    from divmf.data.split import Split
    from divmf.market.rules import Rules
    from divmf.ranking.curve import Curve, Point
    from divmf.train.runs import Run

PANELS = {
    "Data": (
        "user", "item", "time", "rating", "min_rating", "weight", "query", "k_core", "hold_out", "by_time",
        "split_column",
    ),
    "Model": ("model", "dim", "budget", "earlier", "final"),
    "Lists and their curve": ("k", "method", "diversity_epochs", "rules", "catalog", "groups", "pick"),
    "The exposure market (--method market)": OF_METHOD["market"],
    "The paper's diversity phase (--method divmf)": (*OF_METHOD["divmf"], "schedule"),
    "Models trained by epochs (--model softmax, bpr or mse)": EPOCH_SETTINGS,
}  # fmt: skip
SHOWN = ("ndcg", "hit", "coverage", "entropy", "gini")


@command(app, "train", TrainConfig, PANELS, shared=True)
def train(
    out: Out,
    data: Annotated[
        str,
        typer.Argument(
            help="A file, a folder or 'pattern' of parquet files, a known name (`divmf data list`), a database URI."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The run folder; an unfinished run in it is continued.")
    ],
    k_core: Annotated[int, typer.Option(help="Keep users and items with at least this many interactions.")] = 0,
    pick: Annotated[
        str | None,
        typer.Option(
            help="Pick the most diverse point that loses at most this much validation nDCG; default 5%, but an earlier"
            " pick stays."
        ),
    ] = None,
    user: Columns.user = None,
    item: Columns.item = None,
    time: Columns.time = None,
    query: Columns.query = None,
    split_column: Columns.split = None,
    hold_out: Columns.hold_out = None,
    rules: Filtered.rules = None,
    catalog: Annotated[Path | None, typer.Option(help="The catalog whose columns --groups and --rules use.")] = None,
    groups: Annotated[
        str | None,
        typer.Option(help="Also what groups of items get, before and after: a column of --catalog, such as seller."),
    ] = None,
    by_time: Columns.by_time = None,
    min_rating: Columns.lowest = None,
    rating: Columns.rating = None,
    weight: Columns.weight = None,
    earlier: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="An earlier run to start from: its model and settings are kept, new users and items are added, and"
            " nothing is chosen again.",
        ),
    ] = None,
    final: Annotated[
        bool,
        typer.Option(
            "--final",
            help="Then train once more on everything, held-out data included, with the settings and the ρ chosen;"
            " written to RUN/final, which `divmf recommend` uses.",
        ),
    ] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Also print the time that each phase took.")] = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Find the most accurate model, then make the whole curve from accurate to diverse; the folder holds every point.

    If it is interrupted, the same command continues where it stopped. Examples:

      divmf train events.csv -o run --k-core 5 --k 10

      divmf train ratings.csv -o run --min-rating 4 --by-time 20%   (test on the latest fifth of what was liked)

      divmf train plays.csv -o run --weight plays           (items played more count more)

      divmf train events.csv -o run --model ease            (one kind of model, its settings chosen on validation)

      divmf train events.csv -o run --rules rules.toml --catalog items.parquet      (lists that keep rules of a shop)

      divmf train events.csv -o run --catalog items.csv --groups seller       (also what sellers get)

      torchrun --nproc-per-node 4 -m divmf train events.parquet -o run --model softmax   (users are divided)
    """
    from divmf.engine import comm
    from divmf.engine.device import device_of
    from divmf.ranking.metrics import coverage_ceiling

    clock = Clock()
    config, drop = TrainConfig(**settings), positive_share(pick or "5%", "--pick")
    check_of_method(config, settings)
    if final and (config.by_epochs or comm.size() > 1):
        raise ValueError(
            "--final goes with a model that one process chooses: auto, ease, ials, or softmax without its epochs"
        )
    if config.device == "cuda":
        device_of(config.device)  # refused before anything is read, if it is not there
    columns = Columns(user, item, time, query, split_column, held_share(hold_out), min_rating, rating, by_time, weight)
    columns.check(k_core)
    before = None if earlier is None else earlier_run(earlier, config)
    split = load_split(out, data, k_core, config.seed, columns, clock)
    grouped = None if groups is None else read_groups(groups, catalog, split)
    names = {role: name for role, name in (("user", user), ("item", item), ("time", time)) if name is not None}
    run = train_run(out, output, split, config, masked(data), clock, before, read_rules(rules, catalog), names)
    theirs = comm.shared(run.has_pick()) and not pick  # a choice of theirs stands, if the first process found one
    picked = run.read_picked() if theirs else choose(run, split, clock=clock, ndcg_drop=drop)
    if final:
        with clock.phase("once more on everything"), out.progress("once more, on everything", None):
            make_final(run, split, picked)
    curve = run.read_curve()
    base = curve.base
    say_choice(out, run, earlier)
    ruled = say_rules(out, run, split, picked)
    out.table(
        f"{output}: before and after, on the test items (k = {config.k}); coverage at most"
        f" {coverage_ceiling(int(comm.total(split.n_users)) * config.k, split.n_items):.4f}",
        ["", *SHOWN],
        [
            [name, *(point.test[metric] for metric in SHOWN)]
            for name, point in (*named_starts(run, curve).items(), (f"picked: {picked.name}", picked))
        ],
    )  # fmt: skip
    if grouped is not None:
        ruled = ruled | say_both(out, run, split, picked, grouped)
    where = profile_of(clock)
    if profile:
        rows = [[row["phase"], f"{row['seconds']:7.1f}", f"{row['share']:6.1%}"] for row in where]
        out.table("\nwhere the time went", ["phase", "seconds", " share"], rows)
    out.say(f"\nnext: divmf curve {output} · divmf recommend {output} -o lists.parquet")
    out.result(
        {
            "run": str(output),
            "accuracy_epochs": sum(point.phase == "accuracy" and point.epoch > 0 for point in curve.points),
            "diversity_epochs": sum(point.phase == "diversity" for point in curve.points),
            "base": base.to_json(),
            "picked": picked.to_json(),
            "model": run.read_choice(),
            "tuned": run.read_tuned(),
        }
        | ruled
        | ({"profile": where} if profile else {})
    )


def say_rules(out: Out, run: "Run", split: "Split", picked: "Point") -> dict[str, Any]:
    """What the rules of a run ask for, what the lists of the picked point give, and what the rules cost."""
    bound = run.read_rules()
    if bound is None:
        return {}
    from divmf.engine import comm

    chosen, curve = run.read_chosen(picked, comm.row_range(split.n_users)), run.read_curve()
    assert chosen is not None  # the market keeps rules
    cost = {"without": curve.without_rules.test["ndcg"], "with": curve.base.test["ndcg"]}
    return {"rules": say_given(out, bound, chosen.lists["all"], cost)}


def make_final(run: "Run", split: "Split", picked: "Point") -> None:
    """RUN/final: the picked point, learnt once more from everything; made again only where another point is picked."""
    from divmf.estimator import final_of, load

    folder = run.folder / "final"
    if not (folder / "model.json").exists() or load(folder).point != picked:
        final_of(run, split, picked).save(folder)


def base_name(run: "Run") -> str:
    """What the curve begins with: the model that was chosen, or MF trained by epochs."""
    choice = run.read_choice()
    return "MF" if choice is None else str(choice["model"])


def named_starts(run: "Run", curve: "Curve") -> "dict[str, Point]":
    """What a curve begins with: the model, and with rules also the model's lists where they keep them (ρ = 0)."""
    model, base = curve.without_rules, curve.base
    starts = {f"{base_name(run)}, the model": model}
    return starts if model is base else starts | {f"{base_name(run)} under the rules": base}


def say_choice(out: Out, run: "Run", earlier: Path | None) -> None:
    """The models that were tried, the best of each kind, and by how much the choice is ahead; or what was taken on."""
    from divmf.models.searches import told
    from divmf.train.choosing import ahead_of_others

    choice = run.read_choice()
    if choice is None:
        return
    if earlier is not None:
        (trial,) = choice["tried"]
        out.say(
            f"taken on from {earlier}: {trial['model']} ({told(trial['settings'])}), validation nDCG"
            f" {trial['valid_ndcg']:.4f}, {trial['seconds']:.1f} s\n"
        )
        return
    rows = []
    for name in dict.fromkeys(trial["model"] for trial in choice["tried"]):
        trials = [trial for trial in choice["tried"] if trial["model"] == name]
        best = max(trials, key=lambda trial: trial["valid_ndcg"])
        seconds = f"{sum(trial['seconds'] for trial in trials):.1f}"
        rows.append([name, len(trials), seconds, best["valid_ndcg"], told(best["settings"])])
    out.table("models tried", ["", "trials", "seconds", "validation nDCG", "best settings"], rows)
    ahead = ahead_of_others(choice)
    lead = smaller_than_best(choice)
    lead += "" if ahead is None else (
        f", {ahead:.1%} ahead of the best other kind" if ahead >= 0
        else f": as good as the best to within {-ahead:.1%}, with fewer numbers"
    )  # fmt: skip
    out.say(f"chosen: {choice['model']} ({told(choice['settings'])}){lead}")
    for name, why in choice["left_out"].items():
        out.say(f"{name} was {'cut short' if any(row[0] == name for row in rows) else 'not tried'}: {why}")
    out.say("")


def smaller_than_best(choice: Mapping[str, Any]) -> str:
    """Why the settings chosen are not the most accurate of their kind: fewer numbers, and next to nothing lost."""
    from divmf.models.searches import TIE

    kind = [trial for trial in choice["tried"] if trial["model"] == choice["model"]]
    best = max(kind, key=lambda trial: trial["valid_ndcg"])
    return "" if best["settings"] == choice["settings"] else f", smaller than its best and within {TIE:.1%} of it"


def profile_of(clock: Clock) -> list[dict[str, Any]]:
    """Each phase of the clock, its seconds, and its share of all of them, which stand in the last row."""
    seconds = clock.seconds
    total = sum(seconds.values())
    return [
        {"phase": name, "seconds": took, "share": took / total}
        for name, took in (seconds | {"together": total}).items()
    ]


def choose(
    run: "Run", split: "Split | None", rule: str | None = None, clock: Clock | None = None, **criterion: float | None
) -> "Point":
    """Pick the operating point of a run; a point is added where the criterion is just met."""
    from divmf.train.market import refine

    curve = run.read_curve()
    curve.choose(rule, **criterion)  # type: ignore[arg-type]  # refuses what cannot be chosen, before computing
    refine(run, run.read_split() if split is None else split, run.read_config(), clock, None, **criterion)
    return run.pick(rule, **criterion)


def earlier_run(folder: Path, config: TrainConfig) -> "Run":
    """Yesterday's run, if its model can be taken on with these settings."""
    from divmf.train.choosing import check_taken_on
    from divmf.train.runs import Run

    run = Run.open(folder)
    check_taken_on(run, config, "--from takes", ("--model", "--dim", "--budget"))
    return run


def train_run(
    out: Out, output: Path, split: "Split", config: TrainConfig, source: str, clock: Clock | None = None,
    earlier: "Run | None" = None, rules: "Rules | None" = None, columns: "Mapping[str, str] | None" = None,
) -> "Run":  # fmt: skip
    """Train in a run folder, or go on there, with a progress bar; stopped, what was done is kept."""
    clock = clock or Clock()
    with clock.phase("loading libraries"):
        from divmf.train.choosing import check_fits
        from divmf.train.fitting import fit
        from divmf.train.ruling import bound_to
        from divmf.train.runs import Run

    with naming(source):
        check_fits(split, config)
    with clock.phase("writing"):
        bound = None if rules is None else bound_to(rules, split, config)
        model = None if earlier is None else earlier.read_scorer()
        run = Run.start(output, split, config, source, model, bound, columns)
    if done := len(run.read_curve()):
        out.note(f"{output}: going on after {done} epochs")
    try:
        with out.progress("model", None) as bar:
            for point in fit(run, split, config, clock=clock, progress=bar.tell, earlier=earlier):
                total = None if point.phase == "accuracy" or point.knob else config.diversity_epochs
                first = {"loss": point.loss or 0.0} if point.knob is None else {"ρ": point.knob}
                bar.update(point.phase, point.epoch, total, first | {
                    "nDCG": point.valid["ndcg"], "Gini": point.valid["gini"],
                })  # fmt: skip
    except KeyboardInterrupt:
        done = len(run.read_curve())
        out.note(f"\nstopped; {done} epochs are kept in {output}. The same command goes on from there.")
        raise
    return run
