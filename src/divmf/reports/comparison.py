"""The comparison's page: every method's curve on the same model, what each gives at a loss, and what to choose."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from divmf.ranking.curve import sign_of
from divmf.ranking.metrics import METRICS, Estimate
from divmf.reports.compared import Comparison
from divmf.reports.methods import in_short, knob_of, method_table, rerank_command
from divmf.reports.section import (
    Cell,
    Figure,
    Section,
    Table,
    Text,
    command_cell,
    duration,
    listing,
    number,
    percent,
    relative,
)
from divmf.rerank import METHODS

DIVERSITY = ("gini", "coverage", "entropy")


def sections(story: Comparison, chart: Any, more: Sequence[Section] = ()) -> list[Section]:
    """The page, from the answer to the details; chart: the curves; more: further sections, before the protocol."""
    return [
        answer(story),
        question(story),
        curves(story, chart),
        choosing(story),
        at_losses(story),
        *([people(story)] if story.examples else []),
        *more,
        measured(story),
        next_steps(story),
    ]


def answer(story: Comparison) -> Section:
    """What to choose."""
    loss, chosen = story.usual, story.choice(story.usual)
    row, base = story.row(chosen, story.usual), story.base.test
    first = Markup("<strong>{}</strong>").format(
        f"If {percent(loss, 0)} of the accuracy may be given up, choose {chosen}: on test it takes the Gini index from"
        f" {base['gini']:.2f} to {row['gini']:.2f}, {rank_of(story, loss)}."
        if improves(story, chosen, loss)
        else f"If {percent(loss, 0)} of the accuracy may be given up, no method makes the lists more even: keep the"
        " model as it is, or allow more."
    )
    if not improves(story, chosen, loss):
        return Section("In short", [first])
    cards = [
        (f"{base['gini']:.2f} → {row['gini']:.2f}", "Gini index on test: 0 shows all items alike, 1 one item only"),
        (
            f"{base['coverage']:.0%} → {row['coverage']:.0%}",
            f"of the catalog is shown to someone; {story.ceiling:.0%} is possible",
        ),
        (relative(row["ndcg_change"]), f"{story.ndcg} on test ({interval(row)})"),
        (duration(row["seconds"]), "to make all users’ lists; for the run’s own method, its whole curve"),
    ]
    return Section("In short", [first, reason(story, loss)], cards)


def improves(story: Comparison, method: str, loss: float) -> bool:
    """Whether a method's choice at a loss is more even than the model, on validation and on test."""
    return (
        story.point(method, loss).valid["gini"] < story.base.valid["gini"]
        and story.row(method, loss)["gini"] < story.base.test["gini"]
    )


def rank_of(story: Comparison, loss: float) -> str:
    """Where the choice, made on validation, stands among all methods on the test."""
    best, chosen = story.most_even(loss), story.choice(loss)
    if best == chosen:
        return f"the lowest of the {len(story.curves)} methods compared"
    level = "within its interval" if best in story.as_good(loss) else "lower"
    return (
        f"the lowest of the {len(story.curves)} methods on validation, by which it was chosen; on test {best} has"
        f" {story.row(best, loss)['gini']:.2f}, {level}"
    )


def reason(story: Comparison, loss: float) -> str:
    """Why the choice at a loss is the choice, and what else would do."""
    chosen, others, row = story.choice(loss), story.as_good(loss), story.row(story.choice(loss), loss)
    text = f"What {chosen} does: {in_short(chosen)}. It was chosen on validation; all numbers here are from the test."
    if row["ndcg_change"] < -loss:
        text += f" There it cost {percent(-row['ndcg_change'])}, more than the {percent(loss, 0)} of validation."
    widest = story.choice(loss, "coverage")
    if story.row(widest, loss)["coverage"] > row["coverage"]:
        text += f" For coverage alone, {widest} goes further: {story.row(widest, loss)['coverage']:.0%} of the catalog."
    if not others:
        return text + " In evenness, no other method comes within its 95% interval."
    near = f" In evenness, {listing(others)} cannot be told apart from it: the intervals overlap."
    own = next(iter(story.curves))
    quickest = min([chosen, *others], key=lambda name: story.row(name, loss)["seconds"])
    if quickest != chosen and quickest != own:
        near += f" The quickest of them is {quickest} ({duration(story.row(quickest, loss)['seconds'])})."
    return text + near


def question(story: Comparison) -> Section:
    """What was compared, and why."""
    before, n_items = story.base.test, story.split.n_items
    shown = round(before["coverage"] * n_items)
    prose: list[Text] = [
        f"The model alone shows {shown:,} of {n_items:,} items; lists of {story.k} could show"
        f" {round(story.ceiling * n_items):,}. There are many ways to spread the lists over the catalog, and all cost"
        " some accuracy. They are compared at the same cost: how even are the lists when each method gives up as much?",
        f"All methods start from the same model, and rerankers from the same {story.candidates} candidates per user"
        f" with their scores. Accuracy is {story.ndcg}, which is higher when more of what users went on to choose is"
        " near the top of their lists.",
    ]
    return Section("The question", prose)


def curves(story: Comparison, chart: Any) -> Section:
    """Every method's curve."""
    own = next(iter(story.curves))
    prose = [
        "Each method has a knob. Turned down, it leaves the model’s own lists, the diamond. Turned up, lists become"
        " more diverse and accuracy falls. A good method runs flat to the right before it falls; a line that lies above"
        " and to the right of another is better at every setting.",
    ]
    caption = (
        f"{story.ndcg} on the test items against three views of diversity. Hover over a mark to read its numbers."
        f" Methods after {own} are sorted by their validation Gini at a {percent(story.usual, 0)} loss; all but the"
        " first five are grey. Click a method in the legend to see it alone, and outside it to see all again. The"
        f" curves of methods other than {own} end where half of the accuracy is lost. The dashed line is the highest"
        f" coverage possible, {percent(story.ceiling)}."
    )
    return Section("Every method’s curve", prose, charts=[Figure(chart, caption)])


def at_losses(story: Comparison) -> Section:
    """A table a loss, the most even first."""
    tables = []
    for loss in story.losses:
        best = {metric: best_number(story, loss, metric) for metric in DIVERSITY}
        names = sorted(story.curves, key=lambda name: story.row(name, loss)["gini"])
        rows: list[list[Cell]] = [["the model itself", *(story.base.test[metric] for metric in DIVERSITY), None, None]]
        for name in names:
            row = story.row(name, loss)
            cells = [bold(estimate(row, metric), best[metric]) for metric in DIVERSITY]
            changed = Markup("{} <small>{}</small>").format(relative(row["ndcg_change"]), interval(row))
            rows.append([with_setting(name, row), *cells, changed, duration(row["seconds"])])
        header = ["Method", *(METRICS[metric].label for metric in DIVERSITY), f"{story.ndcg} change", "time"]
        caption = f"On test, at most {percent(loss, 0)} of validation nDCG lost."
        fold = f"Every method at a {percent(loss, 0)} loss of accuracy"
        tables.append(Table(header, rows, caption, fold=fold))
    prose = [
        "For each loss and each column, every method’s knob was set on validation: to the best value it reaches while"
        " validation nDCG falls by at most that much. The nDCG column says what was lost on the test, at the setting"
        " with the best Gini. The small print is the 95% interval; the best value of a column is bold."
        f" Coverage can be at most {percent(story.ceiling)}.",
    ]
    return Section("At the same loss of accuracy", prose, tables=tables)


def choosing(story: Comparison) -> Section:
    """The choice at each loss, in words."""
    rows: list[list[Cell]] = []
    for loss in story.losses:
        chosen = story.choice(loss)
        row, others = story.row(chosen, loss), story.as_good(loss)
        if not improves(story, chosen, loss):
            rows.append([percent(loss, 0), "the model itself", "no method made the lists more even"])
            continue
        why = (
            f"Gini {story.base.test['gini']:.2f} → {row['gini']:.2f}, coverage {row['coverage']:.0%},"
            f" {story.ndcg} {relative(row['ndcg_change'])}"
        )
        why += f"; within its interval: {listing(others)}" if others else "; no other method within its interval"
        rows.append([percent(loss, 0), with_setting(chosen, row), why])
    prose: list[Text] = [
        "How much accuracy may be given up is for you to decide. This is what each loss buys:",
        weak_ones(story),
    ]
    table = Table(["Loss allowed", "choose", "why"], rows, left=(0, 1, 2))
    return Section("What to choose, and why", [text for text in prose if text], tables=[table])


def weak_ones(story: Comparison) -> str:
    """The methods that get less than a tenth of the best improvement at the usual loss."""
    loss = story.usual
    gained = {name: story.base.test["gini"] - story.row(name, loss)["gini"] for name in story.curves}
    most = max(gained.values())
    weak = [name for name, gain in gained.items() if gain < 0.1 * most]
    if most <= 0 or not weak:
        return ""
    return f"At a {percent(loss, 0)} loss, less than a tenth of the best improvement: {listing(weak)}."


def people(story: Comparison) -> Section:
    """The lists of some users, side by side."""
    prose = [
        Markup(
            "The user whose list changes most with the choice above, one in the middle, one of those that change least,"
            " and one whose list stays as it was, if there is any. <b>Bold</b> is new in the list, ✓ marks what the"
            " user went on to choose; the small print says how many users had the item in the training data."
        )
    ]
    return Section("The same users, before and after", prose, tables=story.examples)


def measured(story: Comparison) -> Section:
    """The protocol, the metrics and the methods."""
    split = story.split
    prose = [
        f"{split.n_users:,} users, {split.n_items:,} items. The model learnt from {len(split.train):,} interactions;"
        f" {len(split.valid):,} were set aside for validation, on which all knobs were set, and {len(split.test):,} for"
        " the test, on which nothing was chosen. Intervals are 95%, from 200 draws of the users with replacement.",
    ]
    rows: list[list[Cell]] = [[METRICS[name].label, METRICS[name].definition] for name in ("ndcg", *DIVERSITY)]
    definitions = Table(["Metric", "definition"], rows, left=(0, 1), fold="Definitions of the metrics")
    tables = [definitions, method_table(list(story.curves))]
    return Section("How it was measured", prose, tables=tables)


def next_steps(story: Comparison) -> Section:
    """The commands that come next."""
    loss, chosen, own = story.usual, story.choice(story.usual), next(iter(story.curves))
    commands = {}
    if chosen in METHODS and chosen != own:
        wide = f"divmf recommend {story.run} --epoch 0 -k {story.candidates} -o wide.parquet"
        commands[wide] = "write the model’s candidates for all users"
        more = f"--run {story.run} " if METHODS[chosen].takes_lowest else ""
        more += f"-k {story.k} -o lists.parquet"
        commands[rerank_command("wide.parquet", chosen, story.settings[chosen, loss], more)] = (
            f"the lists of {chosen} as set above"
            + (" (and --train with your log)" if METHODS[chosen].takes_train else "")
        )
    drop = percent(loss, 0)
    commands[f"divmf pick {story.run} --ndcg-drop {drop}"] = f"choose {own} at a {drop} loss"
    commands[f"divmf recommend {story.run} -o lists.parquet"] = f"write the lists of {own} for all users"
    rows = [[command_cell(command), meaning] for command, meaning in commands.items()]
    return Section("What to do next", (), tables=[Table(["command", "what it does"], rows, left=(0, 1))])


def estimate(row: Mapping[str, Any], metric: str) -> Estimate:
    """A number of a row with its interval."""
    return Estimate(row[metric], row[f"{metric}_low"], row[f"{metric}_high"])


def best_number(story: Comparison, loss: float, metric: str) -> str:
    """The best value of a column, as it is written."""
    values = [story.row(name, loss)[metric] for name in story.curves]
    return number(max(values, key=lambda value: sign_of(metric) * float(value)))


def bold(value: Estimate, best: str) -> Cell:
    """An estimate, bold if it reads like the best."""
    if number(value) != best:
        return value
    return Markup("<b>{}</b> <small>{}–{}</small>").format(best, number(value.low), number(value.high))


def with_setting(name: str, row: Mapping[str, Any]) -> Markup:
    """A method and how it was set."""
    setting = f"epoch {row['epoch']}" if row["knob"] is None else knob_of(name, row["knob"])
    return Markup("{} <small>{}</small>").format(name, setting)


def interval(row: Mapping[str, Any]) -> str:
    """The interval of the relative change of nDCG."""
    return f"{relative(row['ndcg_change_low'])} to {relative(row['ndcg_change_high'])}"
