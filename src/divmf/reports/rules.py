"""The sections of pages that show rules at work."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import polars as pl

from divmf.engine.arrays import Array
from divmf.market.bound import Bound
from divmf.market.given import crowded, given_table, summary
from divmf.ranking.bootstrap import Estimate
from divmf.reports.section import Cell, Section, Table, number, percent, relative

SHOWN = 30  # rows


def broken_section(bound: Bound, items: Array) -> Section:
    """Which rules some lists break.  items (n_lists, k)"""
    table = given_table(bound, items)
    table = table.filter((pl.col("at_least") > 0) | pl.col("at_most").is_not_null())
    off = table.filter((pl.col("missing") > 0) | (pl.col("over") > 0))
    rows: list[list[Cell]] = [
        [f"{row['rule']} {row['name']}".strip(), row["at_least"] or None, row["at_most"], row["given"],
         row["given"] - (row["at_least"] if row["missing"] else row["at_most"])]
        for row in off.head(SHOWN).iter_rows(named=True)
    ]  # fmt: skip
    prose = [
        f"The lists break {len(off):,} of {len(table):,} bounds on showings: {int(table['missing'].sum()):,} showings"
        f" are missing, {int(table['over'].sum()):,} are too many. {crowded(bound, items):,} of {len(items):,} lists"
        " hold something that is left out, or more of a group than one list may."
    ]
    caption = "Showings in all lists; the bounds that are broken most come first."
    tables = [Table(["Rule", "at least", "at most", "given", "off by"], rows, caption)] if rows else []
    return Section("Rules these lists break", prose, tables=tables)


def rules_section(bound: Bound, before: Array, after: Array, ndcg: dict[str, float], title: str) -> Section:
    """What the rules require, what the lists give without and with them, and what that costs.

    before, after   (n_lists, k): the lists without and with the rules
    """
    without = {(row["rule"], row["name"]): row["given"] for row in given_table(bound, before).iter_rows(named=True)}
    table = given_table(bound, after).filter((pl.col("at_least") > 0) | pl.col("at_most").is_not_null())
    was = pl.Series("was", [without[pair] for pair in zip(table["rule"], table["name"], strict=True)], dtype=pl.Int64)
    lacked = (pl.col("at_least") - pl.col("was")).clip(0)
    exceeded = (pl.col("was") - pl.col("at_most").fill_null(pl.col("was"))).clip(0)
    broken = table.with_columns(was).with_columns(off=lacked + exceeded)
    change = ndcg["with"] / ndcg["without"] - 1 if ndcg["without"] else 0.0
    n_broken, n_left = int((broken["off"] > 0).sum()), int(((table["missing"] > 0) | (table["over"] > 0)).sum())
    rows: list[list[Cell]] = [
        [f"{row['rule']} {row['name']}".strip(), row["at_least"] or None, row["at_most"], row["was"], row["given"]]
        for row in broken.sort("off", descending=True, maintain_order=True).head(SHOWN).iter_rows(named=True)
    ]
    prose = [
        f"{title} The lists without rules break {n_broken:,} of {len(table):,} bounds; those made with them break"
        f" {n_left:,}. The cost: nDCG on test is {ndcg['without']:.4f} without and {ndcg['with']:.4f} with the rules"
        f" ({relative(change)}).",
    ]
    caption = f"Showings in all lists; the {min(SHOWN, len(table))} bounds that the lists without rules break most."
    header = ["Rule", "at least", "at most", "without rules", "with rules"]
    return Section(
        "Rules at work",
        prose,
        tables=[Table(header, rows, caption, fold="What the rules require, and what the lists give")],
    )


class UnderRules(NamedTuple):
    """What rules make of a method's lists.  before, after (n_lists, k)

    after   none, where the method cannot keep these rules; then `why` says so
    cost    the change of nDCG on the test, as a fraction
    """

    method: str
    before: Array
    after: Array | None
    cost: Estimate | None
    why: str = ""

    def numbers(self, bound: Bound) -> dict[str, Any]:
        """Showings missing and too many, and lists that break a rule, without and with the rules; the cost."""
        found: dict[str, Any] = {"method": self.method, "why": self.why}
        for name, items in (("without", self.before), ("with", self.after)):
            told = {} if items is None else summary(bound, items)
            found |= {f"{key}_{name}": told.get(key) for key in ("missing", "over", "lists_broken")}
        ends = (None, None, None) if self.cost is None else (float(self.cost), self.cost.low, self.cost.high)
        return found | dict(zip(("ndcg_change", "ndcg_change_low", "ndcg_change_high"), ends, strict=True))


class RulesCompared(NamedTuple):
    """What rules make of the points of several methods that lose at most so much nDCG on validation."""

    bound: Bound
    found: Sequence[UnderRules]
    loss: float


def compared_section(ruled: RulesCompared) -> Section:
    """Which methods keep the rules, and at what cost."""
    rows: list[list[Cell]] = []
    for each in ruled.found:
        told, cost = each.numbers(ruled.bound), each.cost
        ways = ("without", "with") if each.after is not None else ("without",)
        amounts = [" → ".join(number(told[f"{key}_{way}"]) for way in ways) for key in ("missing", "over")]
        told_cost = None if cost is None else f"{relative(cost)} ({relative(cost.low)} to {relative(cost.high)})"
        rows.append([each.method, *amounts, told_cost])
    able = sum(each.after is not None for each in ruled.found)
    prose = [
        f"Each method’s point that loses at most {percent(ruled.loss, 0)} of nDCG on validation, as it is and made"
        f" again with the rules. {able:,} of {len(ruled.found):,} methods can keep these rules.",
    ]
    caption = (
        "Showings that the test lists lack or have too many, without → with the rules, and the change of nDCG on test"
        " with its 95% interval."
    )
    header = ["", "missing", "too many", "nDCG"]
    tables = [Table(header, rows, caption)]
    unable: list[list[Cell]] = [[each.method, each.why] for each in ruled.found if each.why]
    if unable:
        tables.append(Table(["", "why"], unable, left=(0, 1), fold="Methods that cannot keep these rules"))
    return Section("What the rules cost each method", prose, tables=tables)
