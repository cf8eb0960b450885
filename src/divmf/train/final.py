"""Models for use: once more on everything, with the settings and the ρ that were chosen; or from yesterday's on.

lists, scorer = final(run, split, run.picked)      # validation and test are learnt from, too
start = aligned(earlier, split)                    # yesterday's vectors, in the order of today's users and items
"""

from dataclasses import replace
from typing import Any

import numpy as np

from divmf.data.interactions import Interactions
from divmf.data.split import Split
from divmf.engine.clock import Clock
from divmf.market.certificate import certify
from divmf.market.chosen import Chosen
from divmf.market.solve import solve
from divmf.market.stakes import stake_of
from divmf.models.auto import refit
from divmf.models.scorer import Scorer
from divmf.ranking.curve import Point
from divmf.train.choosing import check_chosen
from divmf.train.market import Exchange
from divmf.train.runs import Run

WAY = (0.25, 0.5, 1.0)  # of ρ: solved one after the other, each from the lists of the one before


def everything(split: Split) -> Split:
    """All interactions to learn from, and nothing held out."""
    parts = (split.train, split.valid, split.test)
    names = split.train.columns
    columns: dict[str, Any] = {name: np.concatenate([part.columns[name] for part in parts]) for name in names}
    by = [columns[name] for name in ("items", "times", "users") if name in columns]
    order = np.lexsort(by)
    whole: Interactions = replace(split.train, **{name: column[order] for name, column in columns.items()})
    nothing = whole.where(np.zeros(len(whole), dtype=np.bool_))
    return Split(whole, nothing, nothing)


def final(run: Run, split: Split, point: Point, clock: Clock | None = None) -> tuple[Scorer, Split, Chosen | None]:
    """The model of a run on everything, and its lists at the ρ of a point; no lists where the point has no ρ."""
    check_chosen(run)
    choice, config, whole = run.read_choice(), run.read_config(), everything(split)
    assert choice is not None
    settings = dict(choice["settings"])
    if "pairs" in settings:
        settings["pairs"] = len(whole.train) / whole.n_users
    scorer = refit(choice["model"], settings, whole.train, config.seed)
    if point.knob is None:
        return scorer, whole, None
    power = stake_of(split) if config.stake is None else config.stake
    market = Exchange(run, whole, replace(config, stake=power), clock, scorer).market
    lists = market.own[1]["valid"]
    for share in WAY:
        found = solve(market, share * point.knob, lists)
        lists = found.lists["valid"]
    made = {kind: each.items for kind, each in found.lists.items()}
    return scorer, whole, Chosen(certify(market, found).discount, made)
