"""What the studio page shows beside the exposure: the curve, example people and their lists, the last requests."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from divmf.engine.arrays import Array
from divmf.ranking.curve import Point
from divmf.serve.engine import Query
from divmf.serve.live import Live

SHOWN = ("ndcg", "coverage", "gini", "entropy")
EXAMPLES, MET = 6, 5


def number_of(point: Point) -> int:
    """The number that a point goes by; 0 is the model before diversifying."""
    return 0 if point.knob is None else point.epoch


def curve_of(live: Live) -> dict[str, Any]:
    """The points that one may choose, from accurate to diverse, and the present one."""
    engine = live.engine
    points = [engine.curve.base]
    if engine.config.method == "market":
        found = [point for point in engine.curve.points if point.knob is not None and point.phase == "diversity"]
        points += sorted(found, key=lambda point: float(point.knob or 0.0))
    told = [
        {
            "epoch": number_of(point), "name": point.name, "rho": point.knob,
            "valid": {name: point.valid[name] for name in SHOWN if name in point.valid},
            "test": {name: point.test[name] for name in SHOWN if name in point.test},
        }
        for point in points
    ]  # fmt: skip
    return {"points": told, "epoch": engine.epoch, "k": engine.config.k, "items": len(engine.items)}


def example_people(live: Live) -> list[dict[str, Any]]:
    """Users of the training, from the least to the most active, with the last items they met."""
    engine = live.engine
    lengths = engine.people.lengths
    known = np.flatnonzero(lengths > 0)
    order = known[np.argsort(lengths[known], kind="stable")]
    users = order[np.linspace(0, len(order) - 1, min(EXAMPLES, len(order))).astype(np.int64)]
    return [
        {
            "user": engine.users.ids[user],
            "met": int(engine.people.lengths[user]),
            "some": [named(live, int(item)) for item in engine.people.met_by(int(user))[:MET]],
        }
        for user in users.tolist()
    ]


def named(live: Live, item: int) -> dict[str, Any]:
    """An item with its title."""
    return {"item": live.engine.items.ids[item], "title": live.engine.catalog.title(item)}


def preview_of(
    live: Live, people: Sequence[tuple[int | str | None, Sequence[int | str]]], epoch: int, k: int | None
) -> list[list[dict[str, Any]]]:
    """The lists of some people at a point of the curve; `new`: not in the list of the model alone."""
    with live.lock:
        engine = live.engine
        discount = engine.discount_of(engine.point_at(epoch))
        made = []
        for user, history in people:
            query, _ = live.query(user, history, k)
            own = set(answered(live, query, np.zeros(len(engine.items)))[0].tolist())
            items, discounts = answered(live, query, discount)
            made.append([
                named(live, item) | {"discount": gain, "new": item not in own}
                for item, gain in zip(items.tolist(), discounts.tolist(), strict=True)
            ])  # fmt: skip
        return made


def answered(live: Live, query: Query, discount: Array) -> tuple[Array, Array]:
    """The items of a list at given discounts, and those."""
    page, _ = live.engine.answer(Query(query.k, query.person, query.history, query.out, 0.0, discount))
    return page.items, page.discounts


def latest_of(live: Live, limit: int) -> list[dict[str, Any]]:
    """The last pages shown, the latest first."""
    with live.lock:
        rows = list(live.shared.latest)[-limit:][::-1]
        told = []
        for row in rows:
            numbers = [live.engine.items.of_text(text) for text in row.items]
            items = [named(live, number) for number in numbers if number is not None]
            told.append({"at": row.timestamp, "user": row.person, "items": items})
        return told
