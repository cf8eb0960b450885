"""The scores of one person: known, folded in from a history, or of whom nothing is known."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from divmf.data.split import Split
from divmf.engine.arrays import Array
from divmf.market.stakes import PRIOR, spreads_of, stake_of, steadied
from divmf.models.fold_in import fold_in
from divmf.models.items import with_items
from divmf.models.scorer import Factors, ItemItem, Scorer
from divmf.train.people import Learnt, settings_by_epochs, usual_spread
from divmf.train.runs import Run

REMEMBERED = 20_000  # people folded in whose vectors are kept


class Fitted(NamedTuple):
    """A model, its name and the settings that it was fitted with (`divmf.models.fold_in`)."""

    scorer: Scorer
    name: str
    settings: Mapping[str, float]


class Taste(NamedTuple):
    """What scores are made of: a vector, or what was met (items, and how much each counts).

    weight   how much the scores count against discounts
    """

    vector: Array
    met: Array
    counts: Array
    weight: float


NOTHING = np.zeros(0, dtype=np.int64)
NO_VECTOR = np.zeros(0, dtype=np.float32)


def fitted_of(run: Run, split: Split, scorer: Scorer | None = None) -> Fitted:
    """The model of a run, with what is needed to fold people in; of vectors trained elsewhere, as if by BPR.

    scorer: the model of another point than the base
    """
    scorer, learnt = scorer or run.read_scorer(), Learnt.of(run, split)
    if isinstance(scorer, ItemItem):
        return Fitted(scorer, "ease", learnt.settings)
    if learnt.name is None:
        return Fitted(scorer, "bpr", settings_by_epochs(replace(run.read_config(), model="bpr"), split, {}))
    return Fitted(scorer, learnt.name, learnt.settings)


class People:
    """Everybody a model can score. It is not changed: new items make another one."""

    def __init__(self, model: Fitted, split: Split, stake: float | None) -> None:
        self.model, self.known = model, split.known
        self.power = stake_of(split) if stake is None else stake
        self.usual = len(split.train) / max(split.n_users, 1)  # interactions of a user in training
        self.lengths = np.diff(split.train.matrix.indptr)
        self._folded: OrderedDict[bytes, Array] = OrderedDict()
        self._nobody = self._mean()
        self.spread = usual_spread(model.scorer, split, self.power) if split.n_users else 0.0

    @property
    def n_items(self) -> int:
        """How many items can be scored."""
        return self.model.scorer.n_items

    def _weight(self, length: float) -> float:
        """How much the scores of somebody with so many interactions count (`divmf.market.stakes`)."""
        return float(((length + PRIOR) / (self.usual + PRIOR)) ** self.power)

    def _mean(self) -> Taste:
        """The mean of all users: of whom nothing is known, that is the best guess."""
        scorer = self.model.scorer
        if isinstance(scorer, Factors):
            return Taste(scorer.users.mean(axis=0), NOTHING, NO_VECTOR, self._weight(0))
        assert isinstance(scorer, ItemItem)
        mean = np.asarray(scorer.met.sum(axis=0)).ravel() / max(scorer.n_users, 1)
        met = np.flatnonzero(mean)
        return Taste(NO_VECTOR, met, mean[met].astype(np.float32), self._weight(0))

    @property
    def nobody(self) -> Taste:
        """Somebody of whom nothing is known."""
        return self._nobody

    def known_user(self, user: int) -> Taste:
        """A user of the training, as the model has learnt."""
        scorer, weight = self.model.scorer, self._weight(float(self.lengths[user]))
        if isinstance(scorer, Factors):
            return Taste(scorer.users[user], NOTHING, NO_VECTOR, weight)
        assert isinstance(scorer, ItemItem)
        begin, end = scorer.met.indptr[user], scorer.met.indptr[user + 1]
        return Taste(NO_VECTOR, scorer.met.indices[begin:end], scorer.met.data[begin:end], weight)

    def met_by(self, user: int) -> Array:
        """What a user of the training has met, all of it."""
        return np.asarray(self.known.indices[self.known.indptr[user] : self.known.indptr[user + 1]])

    def with_history(self, history: Array) -> Taste:
        """Somebody with such a history, folded into the model; history: numbers of items, each once, not empty."""
        weight = self._weight(len(history))
        if isinstance(self.model.scorer, ItemItem):
            return self._steadied(Taste(NO_VECTOR, history, np.ones(len(history), dtype=np.float32), weight), history)
        history = np.sort(history)
        key = history.tobytes()
        vector = self._folded.get(key)
        if vector is None:
            row = sparse.csr_array(
                (np.ones(len(history), dtype=np.float32), history, np.array([0, len(history)])),
                shape=(1, self.n_items),
            )
            made = fold_in(self.model, row)
            assert isinstance(made, Factors)
            vector = self._folded[key] = made.users[0]
            if len(self._folded) > REMEMBERED:
                self._folded.popitem(last=False)
        return self._steadied(Taste(vector, NOTHING, NO_VECTOR, weight), history)

    def _steadied(self, taste: Taste, history: Array) -> Taste:
        """Somebody new, with a weight at which the list gives way no more than usual."""
        scores = self.scores(taste)
        scores[:, history] = -np.inf
        (weight,) = steadied(np.array([taste.weight]), spreads_of(scores), self.spread)
        return taste._replace(weight=float(weight))

    def scores(self, taste: Taste) -> Array:
        """The scores of somebody for all items.  (1, n_items) float32

        A vector is a row of its dimensions. It is multiplied without BLAS, whose threads get in each other's way where
        every request is small.
        """
        scorer = self.model.scorer
        if isinstance(scorer, Factors):
            return product(np.arange(len(taste.vector)), taste.vector, scorer.items_t) + scorer.bias
        assert isinstance(scorer, ItemItem)
        return product(taste.met, taste.counts, scorer.weights)

    def values(self, tastes: Sequence[Taste], items: Array) -> Array:
        """What some items are worth to some people: weight · score.  (people, items)"""
        scorer = self.model.scorer
        weights = np.array([taste.weight for taste in tastes])[:, None]
        if isinstance(scorer, Factors):
            vectors = np.stack([taste.vector for taste in tastes])
            return np.asarray(weights * (vectors @ scorer.items_t[:, items] + scorer.bias[items]))
        assert isinstance(scorer, ItemItem)
        columns: Any = scorer.weights[:, items]
        columns = columns if isinstance(columns, np.ndarray) else columns.toarray()
        return np.asarray(weights * np.stack([taste.counts @ columns[taste.met] for taste in tastes]))

    def with_items(self, similar: Sequence[Array]) -> "People":
        """The same with new items, each the mean of some others; their numbers follow those there are."""
        made = object.__new__(People)
        made.__dict__.update(self.__dict__)
        grown = with_items(self.model, [alike if len(alike) else np.arange(self.n_items) for alike in similar])
        made.model = self.model._replace(scorer=grown)
        made._folded = OrderedDict()
        made._nobody = made._mean()
        return made


def product(columns: Array, values: Array, weights: Any) -> Array:
    """One row, given by its columns and their values, times a table.  (1, n_items) float32"""
    offsets = np.array([0, len(columns)], dtype=np.int64)
    row = sparse.csr_array((values, columns, offsets), shape=(1, weights.shape[0]))
    return ItemItem(row, weights).scores(np.zeros(1, dtype=np.int64))
