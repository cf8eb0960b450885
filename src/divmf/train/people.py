"""Lists for people who were not in training: folded into the model, then the best response at the run's discounts."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
import torch

from divmf.data.histories import Histories
from divmf.data.split import Split
from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.market.chosen import Chosen
from divmf.market.offer import Offer, respond_to
from divmf.market.stakes import spreads_of, stake_of, stakes_of
from divmf.models.accuracy import best_items, scores_of
from divmf.models.config import TrainConfig
from divmf.models.fold_in import Known, fold_in
from divmf.models.scorer import Factors, Scorer
from divmf.models.steps import batch_shape, is_large, n_steps_of
from divmf.ranking.lists import TopK
from divmf.ranking.retrieval import blocks
from divmf.ranking.select import fill_seen
from divmf.train.runs import Run

USUAL = TrainConfig()


@dataclass(frozen=True)
class Learnt:
    """How the model of an operating point was fitted, and how its market counts: what somebody new is served by.

    name       the kind of model, and settings as `fold_in` reads them; none of a model that was given
    exposure   what a showing counts (`--exposure`)
    stake      how much more the scores of active users count, as a power
    delta, level, steepness   of the bonus (`divmf.market.bonus`), for items that are new
    ruled      whether the lists keep rules of a shop
    """

    name: str | None = None
    settings: Mapping[str, float] = field(default_factory=dict)
    exposure: str = "count"
    stake: float = 0.0
    delta: float = USUAL.delta
    level: float = USUAL.level
    steepness: float = USUAL.steepness
    ruled: bool = False

    @classmethod
    def of(cls, run: Run, split: Split) -> Self:
        """As the run has it."""
        config = run.read_config()
        stake = (stake_of(split) if config.stake is None else config.stake) if config.method == "market" else 0.0
        market = (config.exposure, stake, config.delta, config.level, config.steepness, run.rules_file.exists())
        if (choice := run.read_choice()) is not None:
            return cls(choice["model"], choice["settings"], *market)
        if run.read_start() is not None:
            return cls(None, {}, *market)
        return cls(config.model, settings_by_epochs(config, split, run.read_tuned()), *market)

    def to_json(self) -> dict[str, Any]:
        """As it is written to disk."""
        return asdict(self) | {"settings": dict(self.settings)}


def settings_by_epochs(config: TrainConfig, split: Split, tuned: Mapping[str, Any]) -> dict[str, float]:
    """What `fold_in` has to know of a model that was trained by epochs."""
    n_users, n_pairs = (comm.row_range(count).whole for count in (split.n_users, len(split.train)))
    if config.model == "softmax":
        l2 = tuned.get("l2", config.l2)
        return {"l2": 1.0 if l2 is None else l2, "l2_power": config.l2_power, "pairs": n_pairs / n_users}
    rows_alone = is_large(n_users + split.n_items, config) if config.adam is None else config.adam == "rows"
    _, each = batch_shape(config)
    steps = 0 if rows_alone else n_steps_of(n_pairs, config)
    return {"l2": config.decay, "negatives": config.negatives, "steps": steps, "each": each}


def folded(scorer: Scorer, learnt: Learnt, people: Histories) -> Scorer:
    """The scorer of people with such histories."""
    if learnt.name is None and isinstance(scorer, Factors):
        raise ValueError(
            "the vectors were trained elsewhere, and how is not known, so nobody can be folded in; fold them in there,"
            " or train here"
        )
    return fold_in(Known(scorer, learnt.name or "ease", learnt.settings), people.met)


def lists_of(
    scorer: Scorer, learnt: Learnt, chosen: Chosen | None, split: Split, usual: float, people: Histories, k: int,
    slots: int, out: Array | None = None,
) -> TopK:  # fmt: skip
    """The lists of people with such histories, without what is in them.

    chosen   the point of the market, whose discounts count; none for the model alone
    usual    `usual_spread` of the scorer
    slots    of the lists that the market was solved with
    out      (n_items,) bool: items that nobody may be shown
    """
    theirs = folded(scorer, learnt, people)
    everybody = np.arange(len(people))
    if chosen is None:
        penalty = None if out is None else np.where(out, np.float32(-np.inf), np.float32(0))
        items = best_items(theirs, people.met, k, everybody, penalty)
        scores = scores_of(theirs, everybody, items)
    else:
        offer = Offer.of(chosen.discount, slots, learnt.exposure)
        items, scores = respond_to(theirs, people.met, offer, weights_of(people, split, learnt.stake), usual, k, out)
    return TopK(items, scores, people.user_ids, split.item_ids)


SAMPLE = 256  # users of the training that say which spread of scores is usual


def usual_spread(scorer: Scorer, split: Split, stake: float) -> float:
    """The mean spread of the scores of some users of the training, evenly drawn, as much as they count."""
    rows = np.unique(np.linspace(0, scorer.n_users - 1, min(SAMPLE, scorer.n_users)).round().astype(np.int64))
    met, found = split.train.matrix, np.empty(len(rows))
    for block in blocks(len(rows), scorer.n_items):
        scores = torch.from_numpy(scorer.scores(rows[block]))
        found[block] = spreads_of(fill_seen(scores, rows[block], met, -np.inf).numpy())
    return float((stakes_of(met, stake)[rows] * found).mean())


def weights_of(people: Histories, split: Split, stake: float) -> Array:
    """How much the scores of new people count beside those of the people of the training."""
    n_users, n_pairs = (comm.row_range(count).whole for count in (split.n_users, len(split.train)))
    return stakes_of(people.met, stake, n_pairs / n_users)
