"""The lists of some users before and after, side by side."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup

from divmf.data.split import Split
from divmf.engine.arrays import Array
from divmf.ranking.lists import TopK
from divmf.reports.section import Cell, Table

PEOPLE = 4
RECENT = 4  # latest items named beside a user


def example_tables(
    before: TopK, after: TopK, split: Split, titles: Mapping[Any, str], names: tuple[str, str]
) -> list[Table]:
    """A table a user: what stood in each slot before, and what stands there after; names: of the two."""
    return [person_table(user, before, after, split, titles, names) for user in telling_users(before, after)]


def telling_users(before: TopK, after: TopK, people: int = PEOPLE) -> list[int]:
    """The user whose list changed most, others down to the one that changed least, and at most one that kept all."""
    rows = np.flatnonzero((before.lengths > 0) & (after.lengths > 0))
    new = new_slots(before, after)[rows].sum(axis=1)
    changed = rows[np.argsort(-new, kind="stable")][: int((new > 0).sum())]
    kept = rows[new == 0]
    unchanged = kept[len(kept) // 2 :][:1]
    places = np.linspace(0, max(0, len(changed) - 1), people - len(unchanged)).round().astype(np.int64)
    return [*changed[np.unique(places)].tolist(), *unchanged.tolist()] if len(changed) else unchanged.tolist()


def new_slots(before: TopK, after: TopK) -> Array:
    """Which slots hold an item that the user's list did not hold before.  (n_users, k) bool"""
    users = np.arange(len(after))[:, None] * after.n_items
    held = (before.items + users)[before.items >= 0]
    made: Array = ~np.isin(after.items + users, held) & (after.items >= 0)
    return made


def spread_users(before: TopK, after: TopK, people: int = PEOPLE) -> list[int]:
    """Users with lists on both sides, spread evenly over the data: chosen blindly, the same each time."""
    rows = np.flatnonzero((before.lengths > 0) & (after.lengths > 0))
    spread = np.linspace(0, max(0, len(rows) - 1), people + 2)[1:-1].round().astype(np.int64)
    return np.unique(rows[spread]).tolist() if len(rows) else []


def person_table(
    user: int, before: TopK, after: TopK, split: Split, titles: Mapping[Any, str], names: tuple[str, str]
) -> Table:
    """One user's lists; what is new is bold, what was held out for the test is ticked."""
    held_out = set(split.test.items[split.test.users == user].tolist())
    old, new = before.items[user].tolist(), after.items[user].tolist()
    rows = [
        [
            str(slot),
            item_cell(was, split, titles, was in held_out),
            item_cell(now, split, titles, now in held_out, new=now not in old),
        ]
        for slot, (was, now) in enumerate(zip(old, new, strict=True), 1)
    ]
    caption = Markup("<b>User {}</b>").format(split.user_ids[user])
    if titles:
        met = split.train.items[split.train.users == user][-RECENT:][::-1]
        caption += ", whose latest items are " + "; ".join(name_of(item, split, titles) for item in met)
    return Table(["", *names], rows, caption, left=(0, 1, 2), half=True)


def item_cell(item: int, split: Split, titles: Mapping[Any, str], chosen: bool, new: bool = False) -> Cell:
    """An item, bold if new, ticked if the user chose it, and how many users have it."""
    if item < 0:
        return None
    return listed_item(name_of(item, split, titles), f"{split.train.popularity[item]:,} users", chosen, new)


def listed_item(name: str, note: str, chosen: bool, new: bool) -> Markup:
    """A slot of someone's list: bold if new, ticked if the user chose it, a note in small print."""
    shown = Markup("<b>{}</b>" if new else "{}").format(name)
    return Markup("{}{} <small>{}</small>").format(shown, " ✓" if chosen else "", note)


def name_of(item: int, split: Split, titles: Mapping[Any, str]) -> str:
    """What people call an item: its title, else its id."""
    item_id = split.item_ids[int(item)]
    return str(titles.get(item_id, item_id))
