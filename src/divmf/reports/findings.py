"""What an audit found, for its page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from divmf.engine.arrays import Array
from divmf.ranking.metrics import Estimate
from divmf.reports.audit_numbers import LeftOut, Subject, Trial

NOW = "shown now"
DEAR = 0.1  # share of the accuracy
NEAR = 0.01  # of the Gini index: as even, for the eye


@dataclass(frozen=True, eq=False)
class Findings:
    """All that the page tells.

    accuracy   nDCG and hit rate of what was shown; losses: each trial's difference in nDCG (`audit_numbers`)
    replaced   the share of the shown slots a reranker may replace
    titles     what people call an item, by its id
    people     rows of the lists of the users shown as examples
    source     the file of the lists; catalog: of the items; train: of the training interactions; named: the flags that
               name columns; all for the commands the page proposes
    """

    subject: Subject
    trials: Sequence[Trial]
    left_out: Sequence[LeftOut]
    accuracy: Mapping[str, Estimate]
    losses: Mapping[str, Estimate]
    replaced: float
    titles: Mapping[Any, str]
    people: Sequence[int]
    source: str
    catalog: str
    train: str = "TRAIN"
    named: str = ""

    @cached_property
    def by_evenness(self) -> list[Trial]:
        """The trials, the most even lists first."""
        return sorted(self.trials, key=lambda trial: (trial.picked.test["gini"], -trial.picked.test["kept"]))

    @property
    def best(self) -> Trial | None:
        """The trial that the page proposes: the most even lists; none where none changes anything.

        Where the accuracy is known, trials that lose more than a tenth of it come last, and of those nearly as even as
        the most even, the most accurate is proposed.
        """
        changing = [trial for trial in self.by_evenness if trial.picked.test["kept"] < 1]
        among = [trial for trial in changing if not self.is_dear(trial.method)] or changing
        near = [trial for trial in among if trial.picked.test["gini"] <= among[0].picked.test["gini"] + NEAR]
        return max(near, key=lambda trial: self.losses.get(trial.method, 0.0), default=None)

    def is_dear(self, method: str) -> bool:
        """Whether a method loses more of the accuracy than a page may propose without a word."""
        return method in self.losses and self.losses[method] < -DEAR * self.accuracy["ndcg"]

    @property
    def never(self) -> Array:
        """The items that nobody is shown, the most popular first.  Item numbers"""
        subject = self.subject
        order = np.argsort(-subject.popularity, kind="stable")
        return np.asarray(order[subject.shown.counts[order] == 0])

    @property
    def popularity_is(self) -> str:
        """Where the popularity of the items is from."""
        return "lists" if self.subject.train is None else "train"

    def name_of(self, item: int) -> str:
        """What people call an item: its title, else its id."""
        item_id = self.subject.lists.item_ids[int(item)]
        return str(self.titles.get(item_id, item_id))
