"""Models for use: once more on everything, with the settings and the ρ that were chosen; or from yesterday's on.

lists, scorer = final(run, split, run.picked)      # validation and test are learnt from, too
start = aligned(earlier, split)                    # yesterday's vectors, in the order of today's users and items
"""

from dataclasses import replace

import numpy as np

from divmf.data.ids import numbers_of
from divmf.data.interactions import Interactions
from divmf.data.split import Split
from divmf.engine.arrays import Array
from divmf.engine.clock import Clock
from divmf.market.certificate import certify
from divmf.market.chosen import Chosen
from divmf.market.solve import solve
from divmf.market.stakes import stake_of
from divmf.models.auto import refit
from divmf.models.ials import SPREAD
from divmf.models.scorer import Factors, Scorer
from divmf.ranking.curve import Point
from divmf.train.fitting import Exchange
from divmf.train.runs import Run

WAY = (0.25, 0.5, 1.0)  # of ρ: solved one after the other, each from the lists of the one before


def everything(split: Split) -> Split:
    """All interactions to learn from, and nothing held out."""
    parts = (split.train, split.valid, split.test)
    users, items = (np.concatenate([getattr(part, name) for part in parts]) for name in ("users", "items"))
    times = None if split.train.times is None else np.concatenate([part.times for part in parts])
    order = np.lexsort((items, users) if times is None else (items, times, users))
    whole: Interactions = replace(
        split.train, users=users[order], items=items[order], times=None if times is None else times[order]
    )
    nothing = whole.where(np.zeros(len(whole), dtype=np.bool_))
    return Split(whole, nothing, nothing)


def check_final(run: Run) -> None:
    """Refuse a run whose settings cannot be used once more."""
    if run.choice is None:
        raise ValueError(
            f"{run.folder}: its model was trained by epochs until validation converged, and nothing is left to say"
            " when; --final and --from go with a model that is chosen: auto, ease, ials or softmax"
        )


def final(run: Run, split: Split, point: Point, clock: Clock | None = None) -> tuple[Scorer, Split, Chosen | None]:
    """The model of a run on everything, and its lists at the ρ of a point; no lists where the point has no ρ."""
    check_final(run)
    choice, config, whole = run.choice, run.config, everything(split)
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


def aligned(earlier: Run, split: Split, seed: int = 0) -> Scorer:
    """The model of an earlier run for the users and items of now; new ones have small random vectors.

    EASE has no vectors to begin from; it is what it was.
    """
    scorer, before = earlier.scorer(), earlier.split
    if not isinstance(scorer, Factors):
        return scorer
    rng, dim = np.random.default_rng(seed), scorer.users.shape[1]

    def table(known: Array, numbers: Array) -> Array:
        made = rng.normal(0, SPREAD / dim**0.5, (len(numbers), dim)).astype(np.float32)
        made[numbers >= 0] = known[numbers[numbers >= 0]]
        return made

    users = table(scorer.users, numbers_of(split.user_ids, before.user_ids))
    items = numbers_of(split.item_ids, before.item_ids)
    bias = np.where(items >= 0, scorer.bias[np.maximum(items, 0)], np.float32(0))
    return Factors.from_arrays(users, table(scorer.items_t.T, items), bias)
