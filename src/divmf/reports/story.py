"""The sections of a run's report: what diversifying did, told to someone who never read the paper."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from markupsafe import Markup

from divmf.data.split import Split
from divmf.engine.arrays import Array
from divmf.ranking.curve import Curve, Point
from divmf.ranking.lists import TopK
from divmf.ranking.metrics import METRICS, Estimate, compare, evaluate
from divmf.reports.examples import example_tables
from divmf.reports.matched import matched_tables
from divmf.reports.section import Cell, Figure, Section, Table, Text, change, command_cell, percent, signed

BEFORE, AFTER = "MF", "DivMF"


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
        for name, lists in (("lists", self.lists), ("valid_lists", self.valid_lists)):
            if lists and not {BEFORE, AFTER} <= set(lists):
                raise ValueError(f"{name} holds {', '.join(lists)}; the report needs {BEFORE!r} and {AFTER!r}")

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
        return compare(self.shown[AFTER], self.shown[BEFORE], self.split, self.k)

    @property
    def counts(self) -> dict[str, Array]:
        """In how many of the test lists each item stands, by name of the lists."""
        return {name: lists.counts for name, lists in self.shown.items()}

    @property
    def ndcg(self) -> str:
        """nDCG with the length of the lists."""
        return f"{METRICS['ndcg'].label}@{self.k}"


def figures(story: Story) -> dict[str, Any]:
    """The charts of the report by name; `save_chart` writes them as files."""
    from divmf.reports import charts  # altair, which takes a second to load

    curves = {AFTER: story.curve, **story.extra_curves}
    return {
        "curves": charts.curve_chart(curves, picked=story.picked, k=story.k),
        "lorenz": charts.lorenz_chart(story.counts),
        "exposure": charts.exposure_chart(story.counts, story.split.train.popularity),
        "training": charts.training_chart(story.curve, k=story.k),
    }


def sections(story: Story) -> list[Section]:
    """The report, from the answer to the details."""
    charts = figures(story)
    return [
        answer(story),
        question(story),
        knob(story, charts["curves"]),
        before_and_after(story),
        exposure(charts["lorenz"], charts["exposure"]),
        examples(story),
        training(story.curve, charts["training"]),
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
        f" {signed(loss.high)}, on the test items of {users:,} people, by which nothing was chosen."
    )
    if loss.low <= 0 <= loss.high:
        text += " The interval holds zero: these people alone cannot tell whether any accuracy was lost."
    return text


def answer(story: Story) -> Section:
    """The result first."""
    before, after = story.test[BEFORE], story.test[AFTER]
    relative = after["ndcg"] / before["ndcg"] - 1 if before["ndcg"] else 0.0
    cards = [
        (percent(relative) if relative <= 0 else f"+{percent(relative)}", f"{story.ndcg}, how good the lists are"),
        (f"{before['coverage']:.0%} → {after['coverage']:.0%}", "of the catalogue is shown to someone"),
        (f"{before['head_share']:.0%} → {after['head_share']:.0%}", "of all places go to the most popular tenth"),
        (f"{before['gini']:.2f} → {after['gini']:.2f}", "Gini index: 0 shows all items alike, 1 one item only"),
    ]
    if story.picked == story.curve.base:
        return Section("In short", [f"The chosen point is {BEFORE} itself, before diversifying: nothing has changed."])
    result = Markup("<strong>{}</strong>").format(headline(before, after, story.split.n_items, story.ndcg))
    return Section("In short", [result, certainty(story)], cards)


def question(story: Story) -> Section:
    """What was measured, and why."""
    before = story.test[BEFORE]
    never = story.split.n_items - round(before["coverage"] * story.split.n_items)
    prose: list[Text] = [
        "A recommender that is trained to be accurate, and nothing else, learns that popular items are the safe"
        " answer. Each list looks sensible on its own. Together, they show the same few items to everyone.",
        f"Here, the accurate model ({BEFORE}, matrix factorization) gives {before['head_share']:.0%} of all"
        f" recommended places to the most popular tenth of the items, and never shows {never:,} of the"
        f" {story.split.n_items:,} items to anybody. Whoever made those has no chance to be found, and people who would"
        " like them never meet them.",
        "So two things are wanted at once: each person’s list should stay good, and the catalogue as a whole should get"
        f" its fair chance. The first is accuracy, here {story.ndcg}: the more of what people really went on to choose"
        " stands near the top of their lists, the higher. The second is called aggregate diversity. They pull against"
        f" each other; {AFTER} lets you choose how much of one to give for the other.",
    ]
    return Section("The question", prose)


def knob(story: Story, chart: Any) -> Section:
    """The trade-off: the curve, and what each loss buys."""
    second = (
        " The second gives items that are rarely shown a bonus, and each person the list that is best with it, given"
        " everybody else's. ρ, how much the bonus counts beside the score, is the knob: every point on the line is"
        " a set of finished lists one can choose."
        if story.curve.has_rho
        else " The second goes on from there and spreads the recommendations over the catalogue, a little further with"
        " every epoch. How long it goes on is the knob: every point on the line is a finished model one can choose."
    )
    prose: list[Text] = [
        f"{AFTER} works in two phases. The first makes the lists accurate: its result is {BEFORE}, the diamond below."
        + second,
        "Up is more accurate, right is more diverse, in every panel. A good trade-off runs flat to the right before it"
        f" falls. The ring is the point chosen for this report, by its numbers on validation: {described(story)}.",
    ]
    caption = f"{story.ndcg} on the test items against three views of diversity. Point at a mark to read its numbers."
    if story.extra_curves:
        caption += (
            " Click a method in the legend to see it alone, and beside the legend to see all again. The methods"
            f" beside {AFTER} are cut off below half of the accuracy they start from."
        )
    tables = matched_tables({AFTER: story.curve, **story.extra_curves})
    return Section("The knob and what it buys", prose, charts=[Figure(chart, caption)], tables=tables)


def described(story: Story) -> str:
    """What the picked point is, and what it costs on validation."""
    base, point = story.curve.base, story.picked
    if point == base:
        return "the model before diversifying"
    lost = 1 - point.of("valid", "ndcg") / base.of("valid", "ndcg") if base.of("valid", "ndcg") else 0.0
    change = f"{'gives up' if lost >= 0 else 'gains'} {percent(abs(lost))}"
    return f"{point.name}, which {change} of the validation {story.ndcg}"


def before_and_after(story: Story) -> Section:
    """All metrics on test and on validation."""
    prose = [
        "The test numbers are the result: no choice was made on them. The validation numbers are what the point was"
        " chosen by, so they may flatter it a little. In small print: 95% intervals.",
    ]
    rows: list[list[Cell]] = [
        [label(name, story.k), values, story.test[AFTER][name], change(story.difference[name]), better(name)]
        for name, values in story.test[BEFORE].items()
    ]
    test = Table(["On test", BEFORE, AFTER, "difference", "better"], rows, "", left=(0, 4))
    valid: Mapping[str, Mapping[str, float]] = {BEFORE: story.curve.base.valid, AFTER: story.picked.valid}
    if story.valid_lists:
        valid = {name: evaluate(lists, story.split, story.k, "valid") for name, lists in story.valid_lists.items()}
    rows = [
        [label(name, story.k), value, valid[AFTER].get(name), better(name)] for name, value in valid[BEFORE].items()
    ]
    tables = [test, Table(["On validation", BEFORE, AFTER, "better"], rows, "", left=(0, 3))]
    if others := [name for name in story.test if name not in (BEFORE, AFTER)]:
        names = list(story.test[BEFORE])
        rows = [[other, *(story.test[other][name] for name in names)] for other in others]
        tables.append(Table(["Other methods, on test", *(label(name, story.k) for name in names)], rows))
    return Section("Before and after", prose, tables=tables)


def label(metric: str, k: int) -> str:
    """What a metric is called in a table."""
    return f"{METRICS[metric].label}@{k}" if METRICS[metric].kind == "user" else METRICS[metric].label


def better(metric: str) -> str:
    """Which way a metric gets better."""
    return {"high": "higher", "low": "lower"}[METRICS[metric].better]


def exposure(lorenz: Any, tenths: Any) -> Section:
    """Who gets the places."""
    prose = [
        "Line up all items from the least shown to the most shown, and add up the places they get. If every item got"
        " the same, the line would be the dashed diagonal. The deeper it sags, the fewer items have it all: the area"
        " between line and diagonal, doubled, is all but exactly the Gini index.",
    ]
    return Section(
        "Who gets shown",
        prose,
        charts=[
            Figure(lorenz, "Lorenz curves of the recommended places on test."),
            Figure(
                tenths,
                "The catalogue in ten equal parts by popularity in the training data, and the share of all recommended"
                " places that each part holds. The dashed line is an even share, 10%.",
            ),
        ],
    )


def examples(story: Story) -> Section:
    """Some people's lists, side by side."""
    tables = example_tables(story.shown[BEFORE], story.shown[AFTER], story.split, story.titles)
    prose = [
        Markup(
            "The lists of a few people, picked by their place in the data and not for their looks. <b>Bold</b> is new"
            " in the list, ✓ is what the person really went on to choose; the small print says how many people met the"
            " item in the training data."
        )
    ]
    return Section("The same people, before and after", prose, tables=tables)


def training(curve: Curve, chart: Any) -> Section:
    """How the run went."""
    then = "what follows are lists with a growing ρ." if curve.has_rho else "the diversity phase starts there."
    prose = [
        "Validation numbers by epoch. The accuracy phase stops when its lists no longer get better and goes back to its"
        f" best epoch, the diamond; {then}",
    ]
    return Section("How the training went", prose, charts=[Figure(chart)])


def measured(story: Story) -> Section:
    """The protocol and the definitions."""
    split = story.split
    prose = [
        f"Of each person’s interactions some were set aside: {len(split.valid):,} for validation and"
        f" {len(split.test):,} for the test. The model learnt from the other {len(split.train):,} alone.",
        "A list never holds an item its person has already met: the training items stay out of the validation lists,"
        " the training and validation items out of the test lists.",
        "Every choice, when to stop and which point to take, was made on validation. The test was only measured.",
        f"Shares are of the whole catalogue of {split.n_items:,} items, not of those that happen to be recommended."
        " Intervals are 95%, from 200 draws of the people with replacement; for the difference, the same people are"
        " drawn on both sides.",
    ]
    rows = [[label(name, story.k), metric.definition, better(name)] for name, metric in METRICS.items()]
    return Section(
        "How it was measured", prose, tables=[Table(["Metric", "definition", "better"], rows, left=(0, 1, 2))]
    )


def next_steps(story: Story) -> Section:
    """The commands that come next."""
    commands = {
        f"divmf pick {story.run} --ndcg-drop 5%": "choose another point: the most even lists that lose at most 5% of"
        " validation nDCG; also --coverage 80%, --gini 0.6, --knee",
        f"divmf recommend {story.run} -o lists.parquet --seen all": "write everybody’s lists at the chosen point,"
        " without anything they have already met",
        f"divmf curve {story.run}": "every point of the curve, in numbers",
        "divmf train EVENTS.csv -o RUN": "the same with your own interactions: a file with a user and an item column",
    }
    rows = [[command_cell(command), meaning] for command, meaning in commands.items()]
    return Section("What to do next", (), tables=[Table(["command", "what it does"], rows, left=(0, 1))])
