"""The audit's page, second half: what each reranker would change."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from divmf.ranking.metrics import METRICS
from divmf.reports.audit_numbers import Subject, Trial
from divmf.reports.examples import listed_item
from divmf.reports.findings import DEAR, NEAR, NOW, Findings
from divmf.reports.methods import knob_of, method_table
from divmf.reports.section import Cell, Figure, Section, Table, Text, change, percent

SHOWN_METRICS = ("gini", "coverage", "entropy", "head_share")


def rerankers(found: Findings, charts: Mapping[str, Any]) -> Section:
    """What each reranker would change."""
    heading, subject = "What reranking would change", found.subject
    if not subject.spare:
        return Section(heading, [no_candidates(subject)])
    prose: list[Text] = [
        "A reranker leaves the recommender as it is and chooses each list again from the recommender’s candidates:"
        f" the {subject.k} that were shown and those that follow. Each reranker has a knob, from changing nothing to"
        " changing much. To compare them fairly, each knob was turned up as far as it goes while at most"
        f" {percent(found.replaced, 0)} of the slots get another item (--replace).",
    ]
    if subject.by_place:
        prose.append(
            "The file holds no scores that give the order of its lists, so the rerankers went by that order: each slot"
            " is worth one step less than the one above it. With scores they can tell a close call from a clear one."
        )
    if found.accuracy:
        prose.append(
            "The test set plays no part in the choice of these settings; it shows what they cost. Of the methods that"
            f" lose at most {percent(DEAR, 0)} of nDCG, if there are any, the page proposes the most accurate among the"
            f" most even: those with a Gini index within {NEAR} of the lowest."
        )
    figures = [
        Figure(
            charts["rerankers"],
            ("nDCG on the test" if found.accuracy else "The share of the slots kept")
            + " against three views of diversity: up is better, right is more diverse. The diamond is what was shown,"
            " the ring the proposed lists. The proposed method and the four most even others are coloured; click"
            f" any in the legend to see it alone. The dashed line is the highest coverage possible,"
            f" {percent(subject.ceiling)}.",
        )
    ] if "rerankers" in charts else []  # fmt: skip
    tables = [trial_table(found), method_table([each.method for each in found.by_evenness])] if found.trials else []
    if found.left_out:
        rows: list[list[Cell]] = [[each.method, each.why] for each in found.left_out]
        tables.append(Table(["Not tried", "why"], rows, left=(0, 1), fold="Methods that were not tried"))
    return Section(heading, prose, charts=figures, tables=tables)


def no_candidates(subject: Subject) -> Text:
    """Why nothing can be changed, and what to do about it."""
    return Markup(
        "No list holds more than the {k} items that were shown, so there is nothing to choose from: no reranker can"
        " change a list without candidates. Ask your recommender for more per user than you show, say {wide}, and run"
        " the audit on those longer lists with <code>-k {k}</code>: the first {k} are then what was shown, the rest"
        " what could be. Or, if these lists are longer than what users see, say how many they see with"
        " <code>-k</code>."
    ).format(k=subject.k, wide=max(50, 10 * subject.k))


def trial_table(found: Findings) -> Table:
    """All numbers before and after each reranker, the most even first."""
    subject, trials = found.subject, found.by_evenness
    header = ["Lists", *(METRICS[name].label for name in SHOWN_METRICS), "slots kept"]
    rows: list[list[Cell]] = [[NOW, *numbers(found, subject.own)]]
    rows += [[with_knob(trial), *numbers(found, trial.picked.test)] for trial in trials]
    caption = (
        f"What each reranker gives when it replaces at most {percent(found.replaced, 0)} of the slots. Coverage can be"
    )
    caption += f" at most {percent(subject.ceiling)}."
    if found.losses:
        header.append(f"nDCG@{subject.k}")
        losses: list[Cell] = [found.accuracy["ndcg"], *(change(found.losses[trial.method]) for trial in trials)]
        for row, loss in zip(rows, losses, strict=True):
            row.append(loss)
        caption += " nDCG: first the level, then the differences from it, with 95% intervals."
    return Table(header, rows, caption, fold="What each reranker gives, in numbers")


def numbers(found: Findings, measures: Mapping[str, float]) -> list[Cell]:
    """The cells of some lists: evenness, coverage with the items never shown, entropy, head, slots kept."""
    n_items = found.subject.lists.n_items
    never = n_items - round(measures["coverage"] * n_items)
    cells: list[Cell] = [measures[name] for name in SHOWN_METRICS]
    cells[SHOWN_METRICS.index("coverage")] = Markup("{} <small>{} never shown</small>").format(
        percent(measures["coverage"]), f"{never:,}"
    )
    return [*cells, percent(measures["kept"])]


def with_knob(trial: Trial) -> Markup:
    """A method and how it was set."""
    return Markup("{} <small>{}</small>").format(trial.method, knob_of(trial.method, trial.picked.knob))


def examples(found: Findings) -> Section:
    """The lists of some users, side by side."""
    best, subject = found.best, found.subject
    assert best is not None
    counts, tables = subject.shown.counts, []
    for row, new in zip(found.people, best.people.tolist(), strict=True):
        user_id, old = subject.lists.user_ids[row], subject.shown.items[row].tolist()
        chosen = held_out_of(subject, user_id)
        sides = [(old, old), (new, old)]
        cells = [
            [None if item < 0 else listed_item(found.name_of(item), f"shown to {counts[item]:,}", item in chosen,
                                               item not in before) for item in side]
            for side, before in sides
        ]  # fmt: skip
        rows: list[list[Cell]] = [[str(slot), *pair] for slot, pair in enumerate(zip(*cells, strict=True), 1)]
        caption = Markup("<b>User {}</b>").format(user_id)
        tables.append(Table(["", NOW, f"with {best.method}"], rows, caption, left=(0, 1, 2), half=True))
    tick = ", ✓ marks what the user went on to choose" if subject.test is not None else ""
    prose = [
        Markup(
            "The lists of a few users, spread evenly over the data. <b>Bold</b> is new in the list{}; the small print"
            " says in how many lists the item stands now."
        ).format(tick)
    ]
    return Section("The same users, before and after", prose, tables=tables)


def held_out_of(subject: Subject, user_id: Any) -> set[int]:
    """The items, by number, that a user went on to choose."""
    if subject.test is None:
        return set()
    users = subject.measured(subject.lists).user_ids
    row = int(users.search_sorted(user_id))  # id tables are sorted
    return set(subject.truth[[row]].indices.tolist())
