"""The audit's page: what some recommender's lists do to the catalogue, told to someone who never read the paper."""

from collections.abc import Mapping
from math import exp
from typing import Any

import numpy as np
from markupsafe import Markup

from divmf.ranking.metrics import METRICS
from divmf.reports.findings import NOW, Findings
from divmf.reports.methods import rerank_command
from divmf.reports.reranked import examples, rerankers
from divmf.reports.rows import shares_by_tenth
from divmf.reports.section import Cell, Figure, Section, Table, Text, command_cell, percent, relative, signed
from divmf.reports.story import better, label
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
        curves = {trial.method: trial.curve for trial in found.by_evenness}
        accuracy = "kept" if subject.test is None else "ndcg"
        made["rerankers"] = charts.curve_chart(curves, k=subject.k, picked=best.picked, base=NOW, accuracy=accuracy)
    return made


def sections(found: Findings, charts: Mapping[str, Any]) -> list[Section]:
    """The page, from the answer to the details; charts: as `figures` gives them."""
    return [
        answer(found),
        question(found),
        who_is_shown(found, charts),
        items_by_name(found),
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
        (percent(own["coverage"]), "of the catalogue is shown to someone"),
        (percent(own["head_share"]), f"of all places go to the {head} tenth of the items"),
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
            "The lists hold nothing beyond what was shown, so no reranker could be tried: to change a list, one needs"
            " candidates to choose from. How to give some is said below."
        )
    if best is None:
        return (
            f"No reranker made the lists more even while replacing at most {percent(found.replaced, 0)} of the places."
        )
    after, n_items = best.picked.test, subject.lists.n_items
    was, now = (round(numbers["coverage"] * n_items) for numbers in (subject.own, after))
    text = (
        f"Choosing again among the candidates that came with the lists, with {best.method}, would show {now:,} items"
        f" instead of {was:,} and take the Gini index from {subject.own['gini']:.2f} to {after['gini']:.2f}, while"
        f" {percent(after['kept'], 0)} of the places stay as they are."
    )
    return text + (f" {cost(found, best.method)}" if found.losses else "")


def cost(found: Findings, method: str) -> str:
    """What a reranker costs in accuracy, and how sure that is."""
    loss, ndcg = found.losses[method], found.accuracy["ndcg"]
    share = f" ({relative(loss / ndcg)})" if ndcg else ""
    text = f"On the test, nDCG@{found.subject.k} changes by {signed(loss)}{share}"
    if loss.low <= 0 <= loss.high:
        return text + "; its 95% interval holds zero, so these people cannot tell whether accuracy is lost."
    return text + f", with a 95% interval from {signed(loss.low)} to {signed(loss.high)}."


def question(found: Findings) -> Section:
    """What was measured, and why."""
    subject = found.subject
    prose: list[Text] = [
        "Each list may look sensible on its own. What nobody sees by looking at one list is what all of them do"
        " together: a recommender that is after clicks alone tends to show the same few items to everyone. Whoever made"
        " the others has no chance to be found, and people who would like them never meet them.",
        f"So this page counts. The first {subject.k} of each of the {len(subject.lists):,} lists are what people were"
        f" shown: {int(subject.shown.counts.sum()):,} places. Who gets them, out of the whole catalogue of"
        f" {subject.lists.n_items:,} items? And if the next candidates of each list were given a chance, how much"
        " fairer could it be, and at what price?",
    ]
    return Section("The question", prose)


def who_is_shown(found: Findings, charts: Mapping[str, Any]) -> Section:
    """The Lorenz curve and the tenths."""
    prose = [
        "Line up all items from the least shown to the most shown, and add up the places they get. If every item got"
        " the same, the line would be the dashed diagonal. The deeper it sags, the fewer items have it all: the area"
        " between line and diagonal, doubled, is all but exactly the Gini index.",
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
        ["Lists", *(str(tenth) for tenth in range(1, 11))], rows, f"The same in numbers: tenths of the items by {by}."
    )
    return Section(
        "Who gets shown",
        prose,
        charts=[
            Figure(charts["lorenz"], "Lorenz curves of the recommended places. Point at a line to read it."),
            Figure(
                charts["exposure"],
                f"The catalogue in ten equal parts by {by}, and the share of all places each part holds. The dashed"
                f" line is an even share, 10%.{note}",
            ),
        ],
        tables=[table],
    )


def items_by_name(found: Findings) -> Section:
    """Some that have it all, some that nobody sees."""
    subject, never = found.subject, found.never
    counts, people = subject.shown.counts, max(1, int((subject.shown.lengths > 0).sum()))
    most = np.argsort(-counts, kind="stable")[:NAMED]
    rows: list[list[Cell]] = [[found.name_of(item), int(counts[item]), percent(counts[item] / people)] for item in most]
    tables = [Table(["Most shown", "lists", "of the people"], rows, half=True)]
    if len(never) and subject.train is not None:
        rows = [[found.name_of(item), int(subject.popularity[item])] for item in never[:NAMED]]
        tables.append(Table(["Never shown, yet popular", "met it in training"], rows, half=True))
    elif len(never):
        spread = never[np.linspace(0, len(never) - 1, min(NAMED, len(never))).round().astype(np.int64)]
        rows = [[found.name_of(item)] for item in spread]
        tables.append(Table(["Never shown (some, spread over the catalogue)"], rows, half=True))
    prose = [
        f"{len(never):,} items are in nobody’s list. The whole count, item by item, is in exposure.csv, in the folder"
        " beside this page."
        if len(never)
        else "Every item of the catalogue is in somebody’s list.",
    ]
    return Section("Seen by all, seen by none", prose, tables=tables)


def measured(found: Findings) -> Section:
    """The protocol and the definitions."""
    subject = found.subject
    prose = [
        f"All shares are of the whole catalogue of {subject.lists.n_items:,} items, not of those that happen to be"
        " recommended. The exposure is counted over all lists, so it has no interval.",
    ]
    if subject.test is not None:
        prose.append(
            f"The accuracy was measured on {len(subject.test):,} held-out choices of {subject.test.n_users:,} people;"
            " its 95% intervals are from 200 draws of the people with replacement, the same ones on both sides of a"
            " difference."
            + (
                f" {subject.without_list:,} people of the test have no list and count as misses."
                if subject.without_list
                else ""
            )
        )
    else:
        prose.append(
            "No test was given, so this page cannot say what reranking costs in accuracy. With --test and a file of"
            " what people went on to choose, it does."
        )
    names = [name for name in METRICS if name in subject.own]
    rows: list[list[Cell]] = [
        [label(name, subject.k), found.accuracy.get(name, subject.own[name]), definition(name, found), better(name)]
        for name in names
    ]
    table = Table(["Metric", NOW, "definition", "better"], rows, left=(0, 2, 3))
    return Section("How it was measured", prose, tables=[table])


def definition(metric: str, found: Findings) -> str:
    """What a metric is, with the popularity it was measured by."""
    text = METRICS[metric].definition
    return text if found.subject.train is not None else text.replace("by train interactions", "by present exposure")


def next_steps(found: Findings) -> Section:
    """The commands that come next."""
    best, k = found.best, found.subject.k
    commands = {}
    if best is not None:
        settings = {**best.settings, METHODS[best.method].knob: best.picked.knob}
        train = " --train TRAIN" if METHODS[best.method].takes_train and found.subject.train is not None else ""
        more = f"--k {k} --catalog {found.catalog}{train} -o better.parquet"
        commands[rerank_command(found.source, best.method, settings, more)] = (
            "write the most even lists of this page, everybody’s"
        )
    if found.subject.test is None:
        commands[f"divmf audit {found.source} --catalog {found.catalog} -k {k} --test TEST -o report.html"] = (
            "this page, with what each reranker costs in accuracy; TEST holds user_id and item_id of later choices"
        )
    commands |= {
        f"divmf audit … -k {k} --replace 10%": "the same with fewer places replaced, if the lists must stay close",
        "divmf train EVENTS.csv -o RUN": "train a recommender that has the trade-off built in, from a log with a user"
        " and an item column; then divmf compare sets it beside every reranker",
    }
    rows = [[command_cell(command), meaning] for command, meaning in commands.items()]
    return Section("What to do next", (), tables=[Table(["command", "what it does"], rows, left=(0, 1))])
