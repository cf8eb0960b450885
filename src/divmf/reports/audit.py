"""The audit's page: what some recommender's lists do to the catalog, for readers who do not know the method."""

from collections.abc import Mapping, Sequence
from math import exp
from typing import Any

import numpy as np
from markupsafe import Markup

from divmf.ranking.metrics import METRICS
from divmf.reports.findings import DEAR, NOW, Findings
from divmf.reports.methods import rerank_command
from divmf.reports.reranked import examples, rerankers
from divmf.reports.rows import shares_by_tenth
from divmf.reports.section import Cell, Figure, Section, Table, Text, command_cell, percent, relative, signed
from divmf.reports.slots import slots_table
from divmf.reports.story import LORENZ_IN_WORDS, better, label
from divmf.rerank import METHODS

NAMED = 12  # items named in a table


def figures(found: Findings) -> dict[str, Any]:
    """The charts of the page by name; `save_chart` writes them as files."""
    from divmf.reports import charts  # altair, which takes a second to load

    subject, best = found.subject, found.best
    counts = {NOW: subject.shown.counts} | ({best.method: best.counts} if best else {})
    made: dict[str, Any] = {
        "lorenz": charts.lorenz_chart(counts),
        "exposure": charts.exposure_chart(counts, subject.popularity),
    }
    if best:
        curves = {trial.method: trial.curve for trial in (best, *found.by_evenness)}
        accuracy = "kept" if subject.test is None else "ndcg"
        made["rerankers"] = charts.curve_chart(
            curves, k=subject.k, picked=best.picked, base=NOW, accuracy=accuracy, ceiling=subject.ceiling
        )
    return made


def sections(found: Findings, charts: Mapping[str, Any], more: Sequence[Section] = ()) -> list[Section]:
    """The page, from the answer to the details; charts: as `figures` gives them; more: of groups and rules."""
    return [
        answer(found),
        question(found),
        who_is_shown(found, charts),
        items_by_name(found),
        *more,
        rerankers(found, charts),
        *([examples(found)] if found.best else []),
        measured(found),
        next_steps(found),
    ]


def answer(found: Findings) -> Section:
    """The result first."""
    subject, own = found.subject, found.subject.own
    n_items, never = subject.lists.n_items, len(found.never)
    shown = n_items - never
    first = Markup("<strong>{}</strong>").format(
        f"Of {n_items:,} items, these lists show {shown:,}; {never:,} ({percent(never / n_items, 0)}) are never shown"
        " to anybody."
    )
    head = "most popular" if subject.train is not None else "most shown"
    cards = [
        (percent(own["coverage"]), f"of the catalog is shown to someone; {percent(subject.ceiling)} is possible"),
        (percent(own["head_share"]), f"of all slots go to the {head} tenth of the items"),
        (f"{own['gini']:.2f}", "Gini index: 0 shows all items alike, 1 one item only"),
    ]
    if found.accuracy:
        ndcg = found.accuracy["ndcg"]
        cards.append((f"{ndcg:.4f}", f"nDCG@{subject.k}, how good the lists are ({ndcg.low:.4f}–{ndcg.high:.4f})"))
    else:
        varied = f"{round(exp(own['entropy'])):,}"
        cards.append((varied, "items shown equally often would be as varied (from the entropy)"))
    return Section("In short", [first, finding(found)], cards)


def finding(found: Findings) -> str:
    """What reranking would do, in two sentences."""
    subject, best = found.subject, found.best
    if not subject.spare:
        return (
            "The lists hold nothing beyond what was shown, so no reranker could be tried: to change a list, a reranker"
            " needs candidates to choose from. How to provide them is explained below."
        )
    if not found.trials:
        return "No reranker was tried; the reasons are below, under “What reranking would change”."
    if best is None:
        return (
            f"No reranker made the lists more even while replacing at most {percent(found.replaced, 0)} of the slots."
        )
    after, n_items = best.picked.test, subject.lists.n_items
    was, now = (round(numbers["coverage"] * n_items) for numbers in (subject.own, after))
    text = (
        f"Choosing again among the candidates in the file, {best.method} would show {now:,} items"
        f" instead of {was:,} and take the Gini index from {subject.own['gini']:.2f} to {after['gini']:.2f}, while"
        f" {percent(after['kept'], 0)} of the slots stay as they are."
    )
    return text + (f" {cost(found, best.method)}" if found.losses else "")


def cost(found: Findings, method: str) -> str:
    """What a reranker costs in accuracy, and how sure that is."""
    loss, ndcg = found.losses[method], found.accuracy["ndcg"]
    share = f" ({relative(loss / ndcg)})" if ndcg else ""
    text = f"On the test, nDCG@{found.subject.k} changes by {signed(loss)}{share}"
    if loss.low <= 0 <= loss.high:
        return text + "; its 95% interval includes zero: with this many users the difference is within noise."
    text += f", with a 95% interval from {signed(loss.low)} to {signed(loss.high)}."
    if found.is_dear(method):
        text += f" Every reranker loses more than {percent(DEAR, 0)} of the accuracy here; try a smaller --replace."
    return text


def question(found: Findings) -> Section:
    """What was measured, and why."""
    subject = found.subject
    prose: list[Text] = [
        "Each list may look sensible on its own. One list does not show what all of them do together: a recommender"
        " that is trained for clicks alone tends to show the same few items to everyone. Nobody finds the sellers of"
        " the others, and users who would like them never see them.",
        f"This page counts. The first {subject.k} of each of the {len(subject.lists):,} lists are what users were"
        f" shown: {int(subject.shown.counts.sum()):,} slots. Which of the {subject.lists.n_items:,} items of the"
        " catalog get them? And if lists were chosen from more candidates, how even could exposure be, and at what"
        " cost?",
    ]
    return Section("The question", prose)


def who_is_shown(found: Findings, charts: Mapping[str, Any]) -> Section:
    """The Lorenz curve and the tenths."""
    prose = [
        LORENZ_IN_WORDS,
    ]
    by = "popularity in the training data" if found.subject.train is not None else "how often they are shown now"
    note = "" if found.subject.train is not None else (
        " No training data was given, so popularity is the exposure itself: the first part is large by definition."
    )  # fmt: skip
    rows: list[list[Cell]] = [
        [name, *(percent(share) for share in shares_by_tenth(counts, found.subject.popularity))]
        for name, counts in {NOW: found.subject.shown.counts, **{t.method: t.counts for t in found.by_evenness}}.items()
    ]
    table = Table(
        ["Lists", *(str(tenth) for tenth in range(1, 11))], rows, f"Tenths of the items by {by}, share of the slots.",
        fold="The shares of the tenths in numbers",
    )  # fmt: skip
    return Section(
        "Who gets shown",
        prose,
        charts=[
            Figure(charts["lorenz"], "Lorenz curves of the slots. Hover over a line to read its values."),
            Figure(
                charts["exposure"],
                f"The catalog in ten equal parts by {by}, and the share of all slots each part holds. The dashed"
                f" line is an even share, 10%.{note}",
            ),
        ],
        tables=[table, slots_table({NOW: found.subject.shown}, found.subject.k)],
    )


def items_by_name(found: Findings) -> Section:
    """The items shown most, and some that nobody sees."""
    subject, never = found.subject, found.never
    counts, users = subject.shown.counts, max(1, int((subject.shown.lengths > 0).sum()))
    most = np.argsort(-counts, kind="stable")[:NAMED]
    rows: list[list[Cell]] = [[found.name_of(item), int(counts[item]), percent(counts[item] / users)] for item in most]
    tables = [Table(["Most shown", "lists", "of the users"], rows, half=True)]
    if len(never) and subject.train is not None:
        rows = [[found.name_of(item), int(subject.popularity[item])] for item in never[:NAMED]]
        tables.append(Table(["Never shown, yet popular", "users in training"], rows, half=True))
    elif len(never):
        spread = never[np.linspace(0, len(never) - 1, min(NAMED, len(never))).round().astype(np.int64)]
        rows = [[found.name_of(item)] for item in spread]
        tables.append(Table(["Never shown (some, spread over the catalog)"], rows, half=True))
    prose = [
        f"{len(never):,} items are in nobody’s list. The count for every item is in exposure.csv, in the folder"
        " beside this page."
        if len(never)
        else "Every item of the catalog is in somebody’s list.",
    ]
    return Section("Shown most, shown never", prose, tables=tables)


def measured(found: Findings) -> Section:
    """The protocol and the definitions."""
    subject = found.subject
    prose = [
        f"All shares are of the whole catalog of {subject.lists.n_items:,} items, not of those that happen to be"
        " recommended. The exposure is counted over all lists, so it has no interval. With"
        f" {int(subject.shown.counts.sum()):,} slots, coverage can be at most {percent(subject.ceiling)}.",
    ]
    if subject.test is not None:
        prose.append(
            f"The accuracy was measured on {len(subject.test):,} held-out choices of {subject.test.n_users:,} users;"
            " its 95% intervals are from 200 draws of the users with replacement, the same ones on both sides of a"
            " difference."
            + (
                f" {subject.without_list:,} users of the test have no list and count as misses."
                if subject.without_list
                else ""
            )
        )
    else:
        prose.append(
            "No test was given, so this page cannot say what reranking costs in accuracy. With --test and a file of"
            " what users went on to choose, it does."
        )
    names = [name for name in METRICS if name in subject.own]
    rows: list[list[Cell]] = [
        [label(name, subject.k), found.accuracy.get(name, subject.own[name]), definition(name, found), better(name)]
        for name in names
    ]
    table = Table(["Metric", NOW, "definition", "better"], rows, left=(0, 2, 3), fold="All metrics of the lists")
    return Section("How it was measured", prose, tables=[table])


def definition(metric: str, found: Findings) -> str:
    """What a metric is, with the popularity it was measured by."""
    text = METRICS[metric].definition
    return text if found.subject.train is not None else text.replace("by train interactions", "by present exposure")


def next_steps(found: Findings) -> Section:
    """The commands that come next."""
    best, k = found.best, found.subject.k
    commands: dict[str, str] = {}
    if best is not None:
        settings = {**best.settings, METHODS[best.method].knob: best.picked.knob}
        takes = METHODS[best.method].takes_train and found.subject.train is not None
        train = f" --train {found.train}" if takes else ""
        more = f"-k {k} --catalog {found.catalog}{train}{found.named} -o better.parquet"
        commands[rerank_command(found.source, best.method, settings, more)] = (
            "write the lists of all users with this reranker"
        )
    if found.subject.test is None:
        commands[
            f"divmf audit {found.source} --catalog {found.catalog} -k {k}{found.named} --test TEST -o report.html"
        ] = "this page, with what each reranker costs in accuracy; TEST holds user_id and item_id of later choices"
    if found.trials:
        commands[f"divmf audit … -k {k} --replace 10%"] = (
            "the same with fewer slots replaced, if the lists must stay close"
        )
    commands |= {
        "divmf train EVENTS.csv -o RUN": "train a recommender that has the trade-off built in, from a log with a user"
        " and an item column; then divmf compare sets it beside every reranker",
    }
    rows = [[command_cell(command), meaning] for command, meaning in commands.items()]
    return Section("What to do next", (), tables=[Table(["command", "what it does"], rows, left=(0, 1))])
