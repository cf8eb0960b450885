"""The sections of a run's report: what diversifying did, for readers who do not know the method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from markupsafe import Markup

from divmf.data.split import Split
from divmf.engine.arrays import Array
from divmf.ranking.curve import Curve, Point
from divmf.ranking.lists import TopK
from divmf.ranking.metrics import METRICS, Estimate, compare, coverage_ceiling, evaluate
from divmf.reports.examples import example_tables
from divmf.reports.matched import matched_tables
from divmf.reports.methods import in_short
from divmf.reports.section import Cell, Figure, Section, Table, Text, change, command_cell, percent, signed
from divmf.reports.slots import slots_table

LORENZ_IN_WORDS = (
    "Line up all items from the least shown to the most shown, and add up the slots they get. If every item got the"
    " same, the line would be the dashed diagonal. The further it sags, the fewer items hold most of the slots: the"
    " Gini index is twice the area between the line and the diagonal."
)


@dataclass(frozen=True, eq=False)
class Story:
    """All that the report tells; the names are those of `run_report`."""

    curve: Curve
    picked: Point
    lists: Mapping[str, TopK]
    split: Split
    k: int
    extra_curves: Mapping[str, Curve]
    valid_lists: Mapping[str, TopK]
    titles: Mapping[Any, str]
    run: str

    def __post_init__(self) -> None:
        if len(self.lists) < 2:
            raise ValueError(
                f"lists holds {', '.join(self.lists)}; the report needs those of the model and of a method"
            )
        if self.valid_lists and list(self.valid_lists)[:2] != [self.before, self.after]:
            raise ValueError(f"valid_lists must begin with {self.before!r} and {self.after!r}, as lists does")

    @property
    def before(self) -> str:
        """The name of the model's own lists: the first."""
        return next(iter(self.lists))

    @property
    def after(self) -> str:
        """The name of the method that made the curve: of the second lists."""
        return list(self.lists)[1]

    @cached_property
    def shown(self) -> dict[str, TopK]:
        """The first k of the test lists, in the rows and item numbers of the split."""
        tables = (self.split.user_ids, self.split.item_ids)
        return {name: lists.aligned(*tables).head(self.k) for name, lists in self.lists.items()}

    @cached_property
    def test(self) -> dict[str, dict[str, Estimate]]:
        """All metrics of the test lists with their intervals, by name of the lists."""
        return {name: evaluate(lists, self.split, self.k) for name, lists in self.shown.items()}

    @cached_property
    def difference(self) -> dict[str, Estimate]:
        """After minus before on test, paired."""
        return compare(self.shown[self.after], self.shown[self.before], self.split, self.k)

    @property
    def counts(self) -> dict[str, Array]:
        """In how many of the test lists each item stands, by name of the lists."""
        return {name: lists.counts for name, lists in self.shown.items()}

    @property
    def ndcg(self) -> str:
        """nDCG with the length of the lists."""
        return f"{METRICS['ndcg'].label}@{self.k}"

    @property
    def ceiling(self) -> float:
        """The highest coverage that these lists can have."""
        return coverage_ceiling(self.split.n_users * self.k, self.split.n_items)


def figures(story: Story) -> dict[str, Any]:
    """The charts of the report by name; `save_chart` writes them as files."""
    from divmf.reports import charts  # altair, which takes a second to load

    curves = {story.after: story.curve, **story.extra_curves}
    return {
        "curves": charts.curve_chart(
            curves, picked=story.picked, k=story.k, base=story.before, ceiling=story.ceiling
        ),
        "lorenz": charts.lorenz_chart(story.counts),
        "exposure": charts.exposure_chart(story.counts, story.split.train.popularity),
        "training": charts.training_chart(story.curve, k=story.k),
    }  # fmt: skip


def sections(story: Story, more: Sequence[Section] = ()) -> list[Section]:
    """The report, from the answer to the details; more: further sections, before the training and the protocol."""
    charts = figures(story)
    return [
        answer(story),
        question(story),
        knob(story, charts["curves"]),
        exposure(charts["lorenz"], charts["exposure"]),
        examples(story),
        before_and_after(story),
        *more,
        training(story, charts["training"]),
        measured(story),
        next_steps(story),
    ]


def headline(before: Mapping[str, float], after: Mapping[str, float], n_items: int, ndcg: str) -> str:
    """The result in one sentence; ndcg: what the accuracy is called."""
    lost = 1 - after["ndcg"] / before["ndcg"] if before["ndcg"] else 0.0
    cost = f"Giving up {percent(lost)} of {ndcg}" if lost > 0 else f"Without giving up any {ndcg}, diversifying"
    was, now = (round(numbers["coverage"] * n_items) for numbers in (before, after))
    ratio = now / max(1, was)
    more = f"{ratio:.1f} times as many" if ratio >= 1.5 else f"{abs(ratio - 1):.0%} {'more' if now > was else 'fewer'}"
    more = "as many" if now == was else more
    return f"{cost} shows {more} items: {now:,} instead of {was:,} of the {n_items:,} there are."


def certainty(story: Story) -> str:
    """How sure the loss of accuracy is."""
    loss, users = story.difference["ndcg"], len(np.unique(story.split.test.users))
    text = (
        f"The difference in {story.ndcg} is {signed(loss)}, with a 95% interval from {signed(loss.low)} to"
        f" {signed(loss.high)}, measured on the test items of {users:,} users. Nothing was chosen on the test."
    )
    if loss.low <= 0 <= loss.high:
        text += " The interval includes zero: with this many users the difference is within noise."
    return text


def places(before: TopK, after: TopK) -> str:
    """In which slots the items stand that nobody was shown before; nothing, where there are none."""
    first = (before.counts == 0) & (after.counts > 0)
    if not first.any():
        return ""
    held = ((after.items >= 0) & first[after.items]).sum(axis=0)  # (k,) showings of those items in each slot
    slots = np.repeat(np.arange(1, len(held) + 1), held)
    covered = [len(np.unique(lists.items[lists.lengths > 0, 0])) / after.n_items for lists in (before, after)]
    low = " stand low in the lists" if np.median(slots) > (len(held) + 1) / 2 else ""
    return (
        f"The {first.sum():,} newly shown items{low}: {held[0] / held.sum():.0%} of their {held.sum():,} showings are"
        f" in the first slot, {held[-1] / held.sum():.0%} in the last. The first slots of all lists show"
        f" {percent(covered[1])} of the catalog, before {percent(covered[0])}."
    )


def answer(story: Story) -> Section:
    """The result first."""
    before, after = story.test[story.before], story.test[story.after]
    relative = after["ndcg"] / before["ndcg"] - 1 if before["ndcg"] else 0.0
    cards = [
        (percent(relative) if relative <= 0 else f"+{percent(relative)}", f"{story.ndcg}, how good the lists are"),
        (
            f"{before['coverage']:.0%} → {after['coverage']:.0%}",
            f"of the catalog is shown to someone; {story.ceiling:.0%} is possible",
        ),
        (f"{before['head_share']:.0%} → {after['head_share']:.0%}", "of all slots go to the most popular tenth"),
        (f"{before['gini']:.2f} → {after['gini']:.2f}", "Gini index: 0 shows all items alike, 1 one item only"),
    ]
    if story.picked == story.curve.base:
        return Section(
            "In short", [f"The chosen point is the {story.before} before diversifying: nothing has changed."]
        )
    result = Markup("<strong>{}</strong>").format(headline(before, after, story.split.n_items, story.ndcg))
    where = places(story.shown[story.before], story.shown[story.after])
    return Section("In short", [result, *filter(None, [where]), certainty(story)], cards)


def question(story: Story) -> Section:
    """What was measured, and why."""
    before = story.test[story.before]
    never = story.split.n_items - round(before["coverage"] * story.split.n_items)
    prose: list[Text] = [
        "A recommender that is trained for accuracy alone learns that popular items are the safe choice. Each list"
        " looks sensible on its own, but together the lists show the same few items to everyone.",
        f"Here the accurate model gives {before['head_share']:.0%} of all recommended slots to the most popular tenth"
        f" of the items, and never shows {never:,} of the {story.split.n_items:,} items to anybody. Nobody"
        " finds the sellers of those items, and users who would like them never see them.",
        f"There are two goals. Each user’s list should stay good: that is accuracy, here {story.ndcg}, which is"
        " higher when more of what users went on to choose is near the top of their lists. And the whole catalog should"
        " be shown: that is aggregate diversity. One is traded for the other, and you choose how much.",
    ]
    return Section("The question", prose)


def knob(story: Story, chart: Any) -> Section:
    """The trade-off: the curve, and what each loss buys."""
    knob_is = (
        "The knob is ρ, the weight of exposure beside the scores: every point on the line is a finished set of lists."
        if story.curve.has_rho
        else "The number of diversity epochs is the knob: every point on the line is a finished model."
    )
    prose: list[Text] = [
        "The diamond is the accurate model. Then"
        f" {'the market' if story.after == 'market' else story.after} diversifies its lists: {in_short(story.after)}."
        f" {knob_is}",
        "Up is more accurate, right is more diverse, in every panel. A good trade-off runs flat to the right before it"
        f" falls. The ring is the point chosen for this report, by its numbers on validation: {described(story)}.",
    ]
    caption = (
        f"{story.ndcg} on the test items against three views of diversity. Hover over a mark to read its numbers."
        f" The dashed line is the highest coverage possible, {percent(story.ceiling)}:"
        f" {story.split.n_users:,} lists of {story.k} have {story.split.n_users * story.k:,} slots for"
        f" {story.split.n_items:,} items."
    )
    if story.extra_curves:
        caption += (
            " Methods are sorted by their Gini index at a 5% loss; all but the first five are grey. Click a method in"
            " the legend to see it alone, and outside the legend to see all again. The curves of methods other than"
            f" {story.after} end where half of the accuracy is lost."
        )
    tables = matched_tables({story.after: story.curve, **story.extra_curves})
    return Section("The knob and what it buys", prose, charts=[Figure(chart, caption)], tables=tables)


def described(story: Story) -> str:
    """What the picked point is, and what it costs on validation."""
    base, point = story.curve.base, story.picked
    if point == base:
        return "the model before diversifying"
    lost = 1 - point.value("valid", "ndcg") / base.value("valid", "ndcg") if base.value("valid", "ndcg") else 0.0
    change = f"{'gives up' if lost >= 0 else 'gains'} {percent(abs(lost))}"
    return f"{point.name}, which {change} of the validation {story.ndcg}"


def before_and_after(story: Story) -> Section:
    """All metrics on test and on validation."""
    before, after = story.before, story.after
    prose = [
        "The test numbers are the result: no choice was made on them. The point was chosen by the validation numbers,"
        " so those may be slightly optimistic. The small print is the 95% interval. Coverage can be at most"
        f" {percent(story.ceiling)} here.",
    ]
    rows: list[list[Cell]] = [
        [label(name, story.k), values, story.test[after][name], change(story.difference[name]), better(name)]
        for name, values in story.test[before].items()
    ]
    test = Table(
        ["On test", before, after, "difference", "better"],
        rows,
        left=(0, 4),
        fold="All metrics on test, with intervals",
    )
    valid: Mapping[str, Mapping[str, float]] = {before: story.curve.base.valid, after: story.picked.valid}
    if story.valid_lists:
        valid = {name: evaluate(lists, story.split, story.k, "valid") for name, lists in story.valid_lists.items()}
    rows = [
        [label(name, story.k), value, valid[after].get(name), better(name)] for name, value in valid[before].items()
    ]
    fold = "All metrics on validation"
    tables = [test, Table(["On validation", before, after, "better"], rows, left=(0, 3), fold=fold)]
    if others := [name for name in story.test if name not in (before, after)]:
        names = list(story.test[before])
        rows = [[other, *(story.test[other][name] for name in names)] for other in others]
        header = ["Other methods, on test", *(label(name, story.k) for name in names)]
        tables.append(Table(header, rows, fold="Other methods"))
    tables.append(slots_table({name: story.shown[name] for name in (before, after)}, story.k))
    return Section("All numbers", prose, tables=tables)


def label(metric: str, k: int) -> str:
    """What a metric is called in a table."""
    return f"{METRICS[metric].label}@{k}" if METRICS[metric].kind == "user" else METRICS[metric].label


def better(metric: str) -> str:
    """Which way a metric gets better."""
    return {"high": "higher", "low": "lower"}[METRICS[metric].better]


def exposure(lorenz: Any, tenths: Any) -> Section:
    """Who gets the slots."""
    prose = [
        LORENZ_IN_WORDS,
    ]
    return Section(
        "Who gets shown",
        prose,
        charts=[
            Figure(lorenz, "Lorenz curves of the recommended slots on test."),
            Figure(
                tenths,
                "The catalog in ten equal parts by popularity in the training data, and the share of all slots that"
                " each part holds. The dashed line is an even share, 10%.",
            ),
        ],
    )


def examples(story: Story) -> Section:
    """Some people's lists, side by side."""
    names = (f"before ({story.before})", f"after ({story.after})")
    lists = (story.shown[story.before], story.shown[story.after])
    tables = example_tables(*lists, story.split, story.titles, names)
    prose = [
        Markup(
            "The user whose list changes most, one in the middle, one of those that change least, and one whose list"
            " stays as it was, if there is any. <b>Bold</b> is new in the list, ✓ marks what the user went"
            " on to choose; the small print says how many users had the item in the training data."
        )
    ]
    return Section("The same users, before and after", prose, tables=tables)


def training(story: Story, chart: Any) -> Section:
    """How the run went."""
    then = "From there, ρ grows." if story.curve.has_rho else "The diversity phase starts there."
    prose = [
        f"Validation numbers, point by point. The diamond is the model with the best validation {story.ndcg}. {then}",
    ]
    return Section("How the training went", prose, charts=[Figure(chart)])


def measured(story: Story) -> Section:
    """The protocol and the definitions."""
    split = story.split
    prose = [
        f"Of each user’s interactions some were set aside: {len(split.valid):,} for validation and"
        f" {len(split.test):,} for the test. The model learnt from the other {len(split.train):,}.",
        "A list never holds an item that its user is known to have: training items are left out of the lists for"
        " validation, training and validation items out of the lists for the test.",
        "Every choice, when to stop and which point to take, was made on validation. The test was only measured on.",
        f"Shares are of the whole catalog of {split.n_items:,} items, not of those that happen to be recommended."
        " Intervals are 95%, from 200 draws of the users with replacement; for the difference, the same users are"
        " drawn on both sides.",
    ]
    rows = [[label(name, story.k), metric.definition, better(name)] for name, metric in METRICS.items()]
    table = Table(["Metric", "definition", "better"], rows, left=(0, 1, 2), fold="Definitions of the metrics")
    return Section("How it was measured", prose, tables=[table])


def next_steps(story: Story) -> Section:
    """The commands that come next."""
    commands = {
        f"divmf pick {story.run} --ndcg-drop 5%": "choose another point: the most even lists that lose at most 5% of"
        " validation nDCG; also --coverage 80%, --gini 0.6, --knee",
        f"divmf recommend {story.run} -o lists.parquet": "write the lists of all users at the chosen point",
        f"divmf curve {story.run}": "every point of the curve, in numbers",
        "divmf train EVENTS.csv -o RUN": "the same with your own interactions: a file with a user and an item column",
    }
    rows = [[command_cell(command), meaning] for command, meaning in commands.items()]
    return Section("What to do next", (), tables=[Table(["command", "what it does"], rows, left=(0, 1))])
