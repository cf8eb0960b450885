"""The page of `divmf reproduce`: the paper's five questions, what was found, and whether its claims held."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from markupsafe import Markup

from divmf.data.describe import describe, skew_chart
from divmf.data.interactions import Interactions
from divmf.ranking.curve import Curve
from divmf.ranking.metrics import coverage, coverage_ceiling, entropy, gini
from divmf.reports.answers import TABLES, changes, epochs_of
from divmf.reports.experiments.claims import FAILED, HELD, PART, UNCLEAR, Claim
from divmf.reports.experiments.compare import one_line
from divmf.reports.experiments.questions import VERSIONS
from divmf.reports.experiments.reproduce import Answer
from divmf.reports.section import Cell, Figure, Section, Table, Text

SIGNS = {HELD: "✓", PART: "◐", UNCLEAR: "?", FAILED: "✗"}
# two items for each of four users, as in Figure 1: one item never shown; all shown, unevenly; all shown twice
ILLUSTRATION = {
    "I": ((1, 2), (1, 2), (1, 2), (2, 3)),
    "II": ((1, 2), (2, 3), (2, 3), (2, 4)),
    "III": ((1, 3), (1, 2), (3, 4), (2, 4)),
}


@dataclass(frozen=True, eq=False)
class Reproduction:
    """All that the page tells: the answers so far, the data, and what is known of it (`claim_folder`).

    raw   the data before any users and items were left out, which Figure 2 is of
    """

    answers: Sequence[Answer]
    raw: Interactions
    about: Mapping[str, Any]
    k: int

    @cached_property
    def figures(self) -> dict[str, Any]:
        """The charts' specifications by name; they are files too."""
        from divmf.reports.charts import spec_of

        charts = illustrations(self.raw)
        for answer in self.answers:
            charts |= FIGURES[answer.name](answer, self.k, self.ceiling)
        return {name: spec_of(chart) for name, chart in charts.items()}

    @property
    def ceiling(self) -> float:
        """The highest coverage that lists of k can have."""
        return coverage_ceiling(self.about["users"] * self.k, self.about["items"])

    @property
    def n_seeds(self) -> str:
        """How many seeds, in words."""
        found = {len(answer.seeds) for answer in self.answers}
        return f"{min(found)} seeds" if len(found) == 1 else f"{min(found)} to {max(found)} seeds"


def sections(story: Reproduction) -> list[Section]:
    """The page, from the verdicts to the details."""
    return [
        verdicts(story),
        background(story),
        *(question_section(story, answer) for answer in story.answers),
        protocol(story),
    ]


def verdicts(story: Reproduction) -> Section:
    """Every claim in one table."""
    claims = [claim for answer in story.answers for claim in answer.claims]
    ours = [claim for claim in claims if claim.paper]
    rows = [[claim.question.upper(), sign(claim.verdict), claimed(claim)] for claim in claims]
    prose = [
        f"Of {len(ours)} claims of the paper tried on {story.about['title']} with {story.n_seeds}: {counted(ours)}.",
        "A claim held if the whole 95% interval over the seeds supports it, did not hold if the whole interval is"
        " against it, and is not clear otherwise; a claim with several numbers may hold in part. Numbers are signed so"
        " that a plus supports the claim: a lower Gini index is a plus.",
    ]
    table = Table(["", "here", "the claim"], rows, left=(0, 1, 2))
    return Section("What held", prose, tables=[table])


def counted(claims: Sequence[Claim]) -> str:
    """How many claims have each verdict, in words."""
    counts = {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in (HELD, PART, UNCLEAR, FAILED)}
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)


def sign(verdict: str) -> Markup:
    """A verdict with its sign, which does not break from it."""
    return Markup("&nbsp;").join([SIGNS[verdict], *verdict.split()])


def background(story: Reproduction) -> Section:
    """Figures 1 and 2, and the data's row of Table 1."""
    about = story.about
    share = describe(story.raw).head_share
    density = about["interactions"] / (about["users"] * about["items"])
    row: list[Cell] = [about["title"], about["users"], about["items"], about["interactions"], f"{density:.4%}"]
    return Section(
        "What it is about",
        [
            "A recommender may please every user and yet show only a few items. Aggregate diversity asks that the whole"
            " catalog is shown: coverage is the share of the items that are shown at all, entropy and the Gini index"
            " tell how evenly the slots are shared.",
        ],
        charts=[
            Figure(
                story.figures["figure-1"],
                "Figure 1, as an example: two items (filled) for each of four users, all of them liked (circles: liked,"
                " not shown). Equally accurate, yet (I) never shows an item, (II) shows all but unevenly, (III) shows"
                " each twice.",
            ),
            Figure(
                story.figures["figure-2"],
                f"Figure 2 for {about['title']}, before any users and items are left out: {share:.0%} of the"
                f" {len(story.raw):,} interactions are with the most popular 10% of the items, those left of the line.",
            ),
        ],
        tables=[
            Table(
                ["dataset", "users", "items", "interactions", "density"],
                [row],
                "Its row of Table 1.",
                fold="Its row of Table 1",
            )
        ],
    )


def question_section(story: Reproduction, answer: Answer) -> Section:
    """A question: what is asked, the figures, the numbers, the claims."""
    charts = [Figure(story.figures[name], caption) for name, caption in CAPTIONS[answer.name].items()]
    tables = [*TABLES[answer.name](answer), claims_table(answer)]
    return Section(answer.question.title, [answer.question.asks, *PROSE.get(answer.name, ())], (), charts, tables)


def claims_table(answer: Answer) -> Table:
    """The table every question ends with: the claim, whether it held, by how much."""
    rows = [[verdict_below(claim), effects(claim)] for claim in answer.claims]
    header = ["the claim", f"by how much (95% interval over {len(answer.seeds)} seeds)"]
    fold = f"The claims in numbers: {counted(answer.claims)}"
    return Table(header, rows, "A plus supports the claim.", left=(0, 1), fold=fold)


def claimed(claim: Claim) -> Markup:
    """A claim and what the paper says to it."""
    said = f"the paper: {claim.paper}" if claim.paper else "not in the paper"
    return Markup("{}<br><em>{}</em>").format(claim.claim, said)


def verdict_below(claim: Claim) -> Markup:
    """A claim with its verdict, in one cell: a phone has no room for three columns with numbers."""
    return Markup("{}<br><b>{}</b>").format(claimed(claim), sign(claim.verdict))


def effects(claim: Claim) -> Markup:
    """Each number of a claim on a line."""
    lines = [
        Markup("{} {}, against {}: <b>{}</b>").format(each.metric, each.where, each.rival, each.shown)
        for each in claim.effects
    ]
    return Markup("<br>").join(lines)


def protocol(story: Reproduction) -> Section:
    """How it was measured, and what a reader should beware of."""
    about = story.about
    held_out = (
        "the latest interaction of each user is the test item and the one before it the validation item, so seeds"
        " differ in the training alone"
        if about["timed"]
        else "the data has no times, so each seed draws its own test and validation items"
    )
    core = f" Users and items with fewer than {about['core']} interactions are left out." if about["core"] else ""
    settings = ", ".join(f"{name} {value}" for name, value in about["settings"].items())
    stand_in = "stand-in" in about["title"]
    n_intervals = sum(len(claim.effects) for answer in story.answers for claim in answer.claims)
    prose: list[Text] = [
        f"Leave one out: {held_out}.{core} No list holds an item that its user has seen. Lists have {story.k} items,"
        f" so coverage can be at most {story.ceiling:.1%}.",
        "For each seed, all methods start from the same BPR model; knobs, epochs and operating points are chosen on"
        " validation, and the numbers are those of the test. “At 5% nDCG loss” is the best setting on validation among"
        " those that keep 95% of MF's validation nDCG. Charts show the first seed.",
        "The intervals are Student's, over the seeds: they say how much chance matters in training and, where held-out"
        " items are drawn at random, in the split; they do not say how other users would differ.",
        f"There are {n_intervals} such intervals here, not corrected for their number: one in twenty misses by chance,"
        " so take care with a verdict that rests on one number of many.",
        f"The settings are the paper's, and for this dataset: {settings}. Settings the paper leaves open are in the"
        " recipes.",
    ]
    if stand_in:
        prose.append("The paper's own dataset is not available; this one stands in for it and is smaller.")
    return Section("How it was measured", prose)


# ---- figures


def illustrations(data: Interactions) -> dict[str, Any]:
    """Figures 1 and 2."""
    from divmf.reports import paper_charts

    captions = {}
    for name, lists in ILLUSTRATION.items():
        counts = np.bincount(np.array(lists).ravel() - 1, minlength=4)
        captions[name] = f"coverage {coverage(counts):.2f}, entropy {entropy(counts):.2f}, Gini {gini(counts):.2f}"
    skew = skew_chart(data).properties(title="", height=240)  # its title is the caption here
    return {"figure-1": paper_charts.illustration_chart(ILLUSTRATION, captions), "figure-2": skew}


def drawn(answer: Answer, names: Sequence[str]) -> dict[str, Curve]:
    """The first seed's curves of these names; of a reranker's variants, what is best on validation."""
    found = {name: answer.curves[name][0] for name in names}
    many = {name for name, sweep in answer.question.sweeps.items() if len(sweep.variants) > 1}
    return {name: one_line(curve) if name in many else curve for name, curve in found.items()}


def q1_figures(answer: Answer, k: int, ceiling: float) -> dict[str, Any]:
    """Figure 3: DivMF beside the paper's four; and beside the stronger ones."""
    from divmf.reports.paper_charts import best_point_chart

    others = ["market", *answer.question.others]
    return {
        "q1-paper": best_point_chart(drawn(answer, [*VERSIONS, *answer.question.paper]), k, ceiling),
        "q1-others": best_point_chart(drawn(answer, [*VERSIONS, *others]), k, ceiling),
    }


def q2_figures(answer: Answer, k: int, ceiling: float) -> dict[str, Any]:
    """Figure 4: bars."""
    from divmf.reports.paper_charts import bars_chart

    return {"q2": bars_chart(changes(answer))}


def q3_figures(answer: Answer, k: int, ceiling: float) -> dict[str, Any]:
    """Figure 5: nDCG and entropy by epoch."""
    from divmf.reports.paper_charts import epochs_chart

    return {"q3": epochs_chart(epochs_of(answer), ("ndcg", "entropy"), k)}


def q4_figures(answer: Answer, k: int, ceiling: float) -> dict[str, Any]:
    """Figure 6: curves."""
    from divmf.reports.charts import curve_chart

    return {
        "q4": curve_chart(
            drawn(answer, list(answer.question.runs)), ("coverage", "gini"), k=k, base="MF", ceiling=ceiling
        )
    }


def q5_figures(answer: Answer, k: int, ceiling: float) -> dict[str, Any]:
    """Figure 7: curves, and the same by epoch."""
    from divmf.reports.charts import curve_chart
    from divmf.reports.paper_charts import epochs_chart

    runs = {name: curves[0] for name, curves in answer.curves.items() if name != "MF"}
    by_epoch = {name: [(point.epoch, point) for point in curve.operating[1:]] for name, curve in runs.items()}
    return {
        "q5": curve_chart(runs, ("coverage", "entropy"), k=k, base="MF", ceiling=ceiling),
        "q5-epochs": epochs_chart(by_epoch, ("ndcg", "entropy"), k, log=True),
    }


FIGURES = {"q1": q1_figures, "q2": q2_figures, "q3": q3_figures, "q4": q4_figures, "q5": q5_figures}
CAPTIONS: dict[str, dict[str, str]] = {
    "q1": {
        "q1-paper": "Figure 3: DivMF and the paper's four baselines on the same model. Up and right is better; the star"
        " is the paper's “best”, the highest accuracy and diversity of any method drawn.",
        "q1-others": "DivMF and stronger methods that the paper does not have, on the same model.",
    },
    "q2": {"q2": "Figure 4: how much better than MF each metric is at 5% nDCG loss; the line is the interval."},
    "q3": {
        "q3": "Figure 5: accuracy and diversity during training. DivMF trains accuracy first, then (where the line"
        " turns) diversity; the alternating schedule an epoch of each in turn, which counts as one here; the joint one"
        " makes every step on the sum of both losses, a step a mini-batch."
    },
    "q4": {"q4": "Figure 6: unmasking the best items (DivMF), random ones, or none."},
    "q5": {
        "q5": "Figure 7: with mini-batches and without; a dot an epoch.",
        "q5-epochs": "The same by epoch, on a logarithmic axis.",
    },
}  # fmt: skip
PROSE: dict[str, tuple[Text, ...]] = {
    "q1": (
        "The paper's numbers, “up to 34.7%” and “up to 27.6%”, are a reduced Gini index at a similar level of accuracy"
        " and a higher nDCG at a similar level of diversity, each against the best competitor (its Conclusion). Here"
        " the competitor is the one with the lowest mean Gini there, or with the highest mean nDCG.",
        "DivMF stands here twice: as in the paper, which builds T of all items, and tuned, with seen items left out of"
        " T, as they are out of every list. Claims take the one that is more even on validation.",
    ),
}
