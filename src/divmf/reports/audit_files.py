"""The numbers of an audit as tables and as one document, for the files beside its page."""

from typing import Any

import numpy as np
import polars as pl

from divmf.ranking.slots import exposure_by_slots
from divmf.reports.findings import Findings
from divmf.reports.rows import shares_by_tenth


def exposure_table(found: Findings) -> pl.DataFrame:
    """A row an item, the most shown first: item_id, title, lists, share, popularity tenth, lists after the best."""
    subject = found.subject
    counts, item_ids = subject.shown.counts, subject.lists.item_ids
    tenth = np.empty(len(counts), dtype=np.int64)
    for number, part in enumerate(np.array_split(np.argsort(-subject.popularity, kind="stable"), 10), 1):
        tenth[part] = number
    columns: dict[str, Any] = {"item_id": item_ids}
    if found.titles:
        columns["title"] = [found.titles.get(item) for item in item_ids]
    columns |= {"lists": counts, "share": counts / max(1, counts.sum()), "tenth": tenth}
    if subject.train is not None:
        columns["met_in_training"] = subject.popularity
    if found.best is not None:
        columns[f"lists_with_{found.best.method}"] = found.best.counts
    return pl.DataFrame(columns).sort("lists", descending=True, maintain_order=True)


def reranker_table(found: Findings) -> pl.DataFrame:
    """A row a setting tried: method, knob, picked, kept, coverage, …"""
    rows = [
        {"method": trial.method, "knob": point.knob, "picked": point is trial.picked, "seconds": point.seconds}
        | dict(point.test)
        for trial in found.by_evenness
        for point in trial.curve.points
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def document_of(found: Findings) -> dict[str, Any]:
    """All numbers of the page as one JSON document; the metrics by the names `evaluate` gives them."""
    subject, own = found.subject, found.subject.own
    document: dict[str, Any] = {
        "k": subject.k, "users": len(subject.lists), "catalog": subject.lists.n_items,
        "coverage_ceiling": subject.ceiling, "slots": exposure_by_slots(subject.shown, subject.k),
        **{name: float(value) for name, value in own.items() if name != "kept"},
        "never_shown": len(found.never), "tenths": tenths(found, subject.shown.counts),
        "popularity_from": found.popularity_is,
    }  # fmt: skip
    if found.accuracy:
        document["intervals"] = {name: [value.low, value.high] for name, value in found.accuracy.items()}
    document["replace"] = found.replaced
    document["rerankers"] = {}
    for trial in found.by_evenness:
        numbers: dict[str, Any] = {name: float(value) for name, value in trial.picked.test.items()}
        numbers |= {"knob": trial.picked.knob, "tenths": tenths(found, trial.counts)}
        if trial.method in found.losses:
            loss = found.losses[trial.method]
            numbers |= {"ndcg_change": float(loss), "ndcg_change_interval": [loss.low, loss.high]}
        document["rerankers"][trial.method] = numbers
    document["left_out"] = {each.method: each.why for each in found.left_out}
    return document


def tenths(found: Findings, counts: Any) -> list[float]:
    """The share of the slots of each tenth of the catalog, the most popular first."""
    return [float(share) for share in shares_by_tenth(counts, found.subject.popularity)]
