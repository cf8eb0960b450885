"""What a service tells of its ledger: how showings are shared out, and one item's part."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from divmf.engine.arrays import Array
from divmf.kernels.ledger import shown_at
from divmf.ranking.metrics import coverage, entropy, gini
from divmf.serve.engine import Engine
from divmf.serve.ruling import summary_of, told_of
from divmf.serve.store import Showing

DOTS = 101  # of the Lorenz curve
STARVED = 50  # items without a showing that are named
TOLD = 20  # last showings of an item that are named


def window_of(engine: Engine) -> tuple[Array, int]:
    """Showings within this horizon and the one before, and the requests they are of.  (n_items,)"""
    ledger = engine.ledger
    return ledger.past + ledger.present, ledger.turn_before + ledger.turn


def lorenz_of(counts: Array) -> list[float]:
    """The share of all showings that the least shown fraction of the items has, at 0, 1, …, 100%."""
    total = counts.sum()
    if not total:
        return [dot / (DOTS - 1) for dot in range(DOTS)]
    below = np.concatenate([[0.0], np.cumsum(np.sort(counts)) / total])
    places = np.linspace(0, len(counts), DOTS)
    return [round(float(value), 5) for value in np.interp(places, np.arange(len(below)), below)]


def exposure_of(engine: Engine, group: str | None = None) -> dict[str, Any]:
    """How showings are shared out over the last horizons.

    ceiling   the share of the items that so many slots can show at all; coverage is at most that
    """
    counts, requests = window_of(engine)
    ledger, catalog = engine.ledger, engine.catalog
    available = ledger.capacity > 0
    starved = np.flatnonzero((counts == 0) & available)
    told: dict[str, Any] = {
        "requests": ledger.requests,
        "horizon": ledger.terms.horizon,
        "window": {"requests": requests, "showings": int(counts.sum())},
        "items": ledger.n_items,
        "available": int(available.sum()),
        "coverage": coverage(counts),
        "ceiling": min(1.0, int(counts.sum()) / ledger.n_items),
        "gini": gini(counts) if counts.any() else None,
        "entropy": entropy(counts) if counts.any() else None,
        "lorenz": lorenz_of(counts),
        "starved": {
            "items": len(starved),
            "first": [
                {"item": catalog.names.ids[item], "title": catalog.title(item)} for item in starved[:STARVED].tolist()
            ],
        },
        "full": len(ledger.full),
        "rho": ledger.pace.rho,
        "drift": ledger.drift,
        "point": {"name": engine.point.name, "epoch": engine.epoch},
        "rules": None if engine.totals is None else summary_of(engine.totals),
        "groups": None,
    }
    if group is not None:
        if group not in catalog.columns:
            raise ValueError(
                f"group={group[:200]!r} is not an attribute; there are {', '.join(catalog.columns) or 'none'}"
            )
        told["groups"] = catalog.groups(group, counts)
    return told


def item_of(engine: Engine, number: int, latest: Iterable[Showing]) -> dict[str, Any]:
    """How often an item was shown, to whom of late, at what discount, and what would give it more."""
    ledger, catalog = engine.ledger, engine.catalog
    counts, requests = window_of(engine)
    discount = float(ledger.at(np.array([number]))[0])
    level, pace = float(ledger.levels[number]), ledger.pace
    text = str(catalog.names.ids[number])
    limited = ledger.capacity[number] < np.iinfo(np.int64).max
    rules = [] if engine.totals is None else told_of(engine.totals, number)
    shown_to = [row for row in latest if text in row.items][-TOLD:][::-1]
    return {
        "item": catalog.names.ids[number],
        "title": catalog.title(number),
        "attributes": catalog.attributes(number),
        "shown": int(ledger.shown[number]),
        "window": {"showings": int(counts[number]), "requests": requests},
        "target": level,
        "pace": float(shown_at(discount, level, pace)) / pace.horizon if pace.rho else None,
        "share": float(ledger.shares[number]),
        "discount": discount,
        "most": ledger.highest(number),
        "capacity": int(ledger.capacity[number]) if limited else None,
        "rules": rules,
        "shown_to": [{"at": row.timestamp, "user": row.person, "slot": row.items.index(text) + 1} for row in shown_to],
        "advice": advice(
            discount,
            level,
            int(counts[number]),
            limited and ledger.shown[number] >= ledger.capacity[number],
            next((f"{row['rule']} {row['name']}" for row in rules if row["full"]), None),
        ),
    }


def advice(discount: float, level: float, shown: int, full: bool, rule: str | None) -> str:
    """What would give an item more showings; rule: one whose cap is reached."""
    if full:
        return "It is at its capacity: raise the capacity to have it shown again."
    if rule is not None:
        return f"The cap of the rule for {rule} is reached: raise it to have the item shown again."
    if shown < level and discount > 0:
        return (
            "It is shown less than its share, so its discount is rising by itself; for more than its share, raise its"
            " share, or move the operating point towards diverse."
        )
    return "It has its share: raise its share (2 doubles what it may expect), or move the operating point."
