"""Recommender: one operating point, ready to recommend."""

import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self
from uuid import uuid4

import numpy as np
import polars as pl
import torch
from scipy import sparse

from divmf.data.filters import Blocked, request_filter
from divmf.data.fingerprint import fingerprint
from divmf.data.histories import Histories
from divmf.data.interactions import Interactions
from divmf.data.new_items import NewItems
from divmf.data.outputs import OF_MODEL
from divmf.data.split import Split
from divmf.data.stored import write_split
from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.files import put_folder, write_json
from divmf.engine.versions import versions
from divmf.market.chosen import Chosen
from divmf.models.accuracy import best_items, scores_of
from divmf.models.items import similar_items
from divmf.models.mf import MF
from divmf.models.scorer import Factors, Scorer
from divmf.models.stored import tensors
from divmf.models.weights import write_tensors
from divmf.ranking.curve import Point
from divmf.ranking.lists import TopK
from divmf.ranking.retrieval import recommend
from divmf.train.new_items import grown
from divmf.train.people import Learnt, lists_of, usual_spread
from divmf.train.runs import Run

log = logging.getLogger(__name__)
Seen = Literal["train", "train+valid", "all"]
NO_WEIGHTS = MF(torch.zeros(0, 0), torch.zeros(0, 0), torch.zeros(0))
KIND_OF: dict[Seen, str] = {"train": "valid", "train+valid": "test", "all": "all"}  # of the market's lists


@dataclass(frozen=True, eq=False, repr=False)
class Recommender:
    """One operating point, ready to recommend: a model, and what its users have met.

    Attributes:
        weights: The vectors of the model; empty where it has none.
        split: What the model learnt from, and what was held out.
        point: The operating point.
        k: The usual length of a list.
        chosen: The lists of a point of the market; other points have none.
        scorer: The model, where it is not one of vectors trained here.
        learnt: How the model was fitted, for people who were not in training.
    """

    weights: MF
    split: Split
    point: Point
    k: int = 5
    chosen: Chosen | None = None
    scorer: Scorer | None = None
    learnt: Learnt = field(default_factory=Learnt)

    @classmethod
    def at(cls, run: Run, point: Point, split: Split, scorer: Scorer | None = None) -> Self:
        """The operating point of a run; of several processes, each has its users' lists.

        scorer: what the run was made from, where that is not kept with it
        """
        config, rows, learnt = run.read_config(), comm.row_range(split.n_users), Learnt.of(run, split)
        k = config.k
        if config.method != "market":
            return cls(run.read_model(point, rows), split, point, k, learnt=learnt)
        scorer = scorer or run.read_scorer(rows)
        model = scorer.model if isinstance(scorer, Factors) else NO_WEIGHTS
        return cls(model, split, point, k, run.read_chosen(point, rows), scorer, learnt)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {self.point.valid[name]:.4g}" for name in ("ndcg", "coverage", "gini"))
        return f"Recommender({self.point.name}; validation {shown})"

    def _repr_html_(self) -> str:
        return self.point._repr_html_()

    def lists(
        self, users: Sequence[Any] | pl.Series | None = None, k: int | None = None, *, histories: Any = None,
        seen: Seen = "all", exclude: Any = None, items: Any = None,
    ) -> TopK:  # fmt: skip
        """The k best items of each user that the user has not met.

        The first of a longer list are those of a shorter one.

        Args:
            users: Ids of users of the training; everybody, if not given.
            k: The length of a list; that of the fit, if not given.
            histories: Of people who were not in training, instead of users: a frame of user_id and item_id, or a
                sequence of item ids for each. They are folded into the model, and their lists are the best at the
                discounts of this point.
            seen: Which of a user's interactions stay out of the list. "all" is for lists that people will see;
                "train+valid" keeps the test items possible, so that the lists can be evaluated.
            exclude: Never these: ids, a frame of item_id (or of user_id and item_id, for those users), or a file.
            items: These alone, in the same forms.

        Returns:
            The lists; each has k items wherever a user has k left.
        """
        k = self.k if k is None else k
        if not 1 <= k <= self.split.n_items:
            raise ValueError(f"k={k} must be from 1 to the number of items, {self.split.n_items}")
        if isinstance(users, int):
            raise ValueError(f"users={users!r} is one value; give a sequence of user ids, and the length as k=…")
        blocked = self.blocked(exclude, items)
        if histories is not None:
            return told_short(self._lists_of(users, people_of(histories, self.split.train), k, blocked), k)
        rows = None if users is None else self.split.train.user_numbers(users).astype(np.int64)
        met = seen_matrix(self.split, seen)
        if blocked is None and self.chosen is None and (self.scorer is None or isinstance(self.scorer, Factors)):
            items, scores = recommend(self.weights, met, k, rows)
        else:
            numbers, scorer = np.arange(self.split.n_users) if rows is None else rows, self.scoring
            if self.chosen is not None:
                tell_beginning(self.chosen.lists[KIND_OF[seen]], k, self.split.n_items)
                items = self.chosen.first(KIND_OF[seen], k, scorer, met, numbers, blocked)
            elif blocked is None:
                items = best_items(scorer, met, k, numbers)
            else:
                items = best_items(scorer, blocked.with_seen(met), k, numbers, blocked.penalty())
            scores = scores_of(scorer, numbers, items)
        chosen = self.split.user_ids if rows is None else self.split.user_ids.gather(rows)
        return told_short(TopK(items, scores, chosen, self.split.item_ids), k)

    def _lists_of(self, users: Any, people: Histories, k: int, blocked: Blocked | None) -> TopK:
        """The lists of people who were not in training."""
        if users is not None:
            raise ValueError("users are people of the training, histories those of others; give one of them")
        if blocked is not None and blocked.pairs is not None:
            raise ValueError("exclude and items of single users are for those of the training; give items alone")
        out = None if blocked is None else blocked.items
        usual = 0.0 if self.chosen is None else self.usual_spread
        return lists_of(self.scoring, self.learnt, self.chosen, self.split, usual, people, k, self.k, out)

    def blocked(self, exclude: Any = None, items: Any = None) -> Blocked | None:
        """What a request leaves out; none where it asks for everything."""
        return request_filter(self.split.item_ids, self.split.user_ids, exclude, items)

    @cached_property
    def scoring(self) -> Scorer:
        """What scores: the model, as blocks of scores."""
        return self.scorer or Factors.of(self.weights)

    @cached_property
    def usual_spread(self) -> float:
        """The spread that scores have in training; kept, since everybody new is measured by it."""
        return usual_spread(self.scoring, self.split, self.learnt.stake)

    def recommend(
        self, users: Sequence[Any] | pl.Series | None = None, k: int | None = None, *,
        history: Sequence[Any] | None = None, seen: Seen = "all", exclude: Any = None, items: Any = None,
    ) -> tuple[Array, Array]:  # fmt: skip
        """Original ids and scores of the best items, a row a user.

        Args:
            users: Ids of users of the training.
            k: The length of a list; that of the fit, if not given.
            history: Ids of the items met by somebody who was not in training; or one such sequence for each of several.
            seen: As in `lists`, as are the next two.
            exclude: As in `lists`.
            items: As in `lists`.

        Returns:
            Two arrays (users, k). Where a user has fewer items left, the id is −1 (None for string ids or negative
                ones) and the score −inf.
        """
        if users is None and history is None:
            raise ValueError("name the users, or give the history of somebody new; recommend_frame() is for everybody")
        lists = self.lists(users, k, histories=history, seen=seen, exclude=exclude, items=items)
        return ids_of(lists.items, lists.item_ids), lists.scores

    def recommend_frame(
        self, users: Sequence[Any] | pl.Series | None = None, k: int | None = None, *,
        histories: Any = None, seen: Seen = "all", exclude: Any = None, items: Any = None,
    ) -> pl.DataFrame:  # fmt: skip
        """Lists as a frame: of all users, the ones named, or people who were not in training.

        Args:
            users: Ids of users of the training; everybody, if not given.
            k: The length of a list; that of the fit, if not given.
            histories: What people who were not in training have met: a frame of user_id, item_id and, where the model
                learnt from weights, weight.
            seen: As in `lists`, as are the next two.
            exclude: As in `lists`.
            items: As in `lists`.

        Returns:
            user_id, item_id, score, rank (from 1).
        """
        if hasattr(users, "columns"):
            users, histories = None, users
        return self.lists(users, k, histories=histories, seen=seen, exclude=exclude, items=items).frame

    def with_items(self, items: Any) -> "Recommender":
        """This operating point with items that were not in training.

        An item that somebody has met is folded into the model, any other is the mean of those it is like. The market
        shows each at a discount of its own, and the lists that none of them enters stay as they are.

        Args:
            items: {"new": ["i3", "i7"]}, for each new id those of items that it is like (a group, or some that are
                named); or a frame of item_id with like, an item of the catalog, or user_id, somebody of the training
                who has met it.

        Returns:
            A recommender over the larger catalog.
        """
        if comm.size() > 1:
            raise ValueError(f"new items are for one process, and there are {comm.size()}; start one")
        if self.learnt.ruled:
            raise ValueError("the lists of this point keep rules, which do not know new items; train without rules=…")
        new, rho = NewItems.of(items, self.split), self.point.knob or 0.0
        scorer, split, chosen = grown(new, self.scoring, self.split, self.learnt, self.chosen, self.k, rho)
        model = scorer.model if isinstance(scorer, Factors) else NO_WEIGHTS
        return Recommender(
            model, split, self.point, self.k, chosen, None if self.scorer is None else scorer, self.learnt
        )

    def similar_items(self, items: Sequence[Any] | pl.Series, k: int = 10) -> tuple[Array, Array]:
        """The items most like each of some.

        By the cosine of their vectors; with EASE, by what meeting the one adds to the score of the other.

        Args:
            items: Ids of items of the catalog.
            k: How many for each.

        Returns:
            Two arrays (items, k), their ids and how like they are.
        """
        numbers, likeness = similar_items(self.scoring, self.split.train.item_numbers(items), k)
        return ids_of(numbers, self.split.item_ids), likeness

    def save(self, folder: str | Path) -> None:
        """Write the model, its ids and its users' interactions; nothing is pickled.

        Args:
            folder: Made if it is not there; an earlier saved model in it is replaced.
        """
        folder = Path(folder)
        check_model_folder(folder)
        made = folder.absolute().with_name(
            comm.shared(f".{folder.absolute().name}.{os.getpid()}-{uuid4().hex[:8]}.tmp")
        )
        if comm.first():
            made.mkdir(parents=True)
        comm.barrier()
        try:
            write_tensors(made / "model.safetensors", tensors(self.scorer) if self.scorer else self.weights.tensors())
            if self.chosen is not None:
                write_tensors(made / "lists.safetensors", self.chosen.tensors())
            write_split(self.split, made)
            about = {"k": self.k, "point": self.point.to_json(), "fingerprint": fingerprint(self.split)}
            about |= {"learnt": self.learnt.to_json()}
            write_json(made / "model.json", about | {"versions": versions()})
            if comm.first():
                put_folder(made, folder)
        finally:
            if comm.first():
                shutil.rmtree(made, ignore_errors=True)
        comm.barrier()


def people_of(histories: Any, train: Interactions) -> Histories:
    """People who were not in training, from a frame or from sequences of item ids.

    A frame may have a column `weight`, where the model learnt from weights.
    """
    if isinstance(histories, Histories):
        return histories
    is_frame = hasattr(histories, "columns") or hasattr(histories, "column_names")
    if not is_frame:
        return Histories.of(histories, train.item_ids)
    return Histories.from_frame(histories, train.item_ids, usual=train.mean_weight)


def ids_of(items: Array, item_ids: pl.Series) -> Array:
    """Item numbers as original ids; −1 (None for string ids or negative ones) where there is none."""
    ids = item_ids.to_numpy()
    none: Any = -1 if ids.dtype.kind == "i" and ids.min(initial=0) >= 0 else None
    return np.where(items >= 0, ids[items], none)


def tell_beginning(items: Array, k: int, n_items: int) -> None:
    """Say what the beginnings of the market's lists leave of their coverage, where they are longer than k."""
    if k < items.shape[1]:
        shown = [len(np.unique(part[part >= 0])) / n_items for part in (items[:, :k], items)]
        log.warning(
            "the lists were chosen for k = %d: their first %d show %.1f%% of the catalog, all of them %.1f%%;"
            " a run with k = %d shows more on such a page",
            items.shape[1], k, 100 * shown[0], 100 * shown[1], k,
        )  # fmt: skip


def told_short(lists: TopK, k: int) -> TopK:
    """The lists; where some are shorter than asked for, that is said."""
    if short := int((lists.lengths < k).sum()):
        log.warning("%s users have fewer than %d items left to recommend; their lists are shorter", f"{short:,}", k)
    return lists


def check_model_folder(folder: Path) -> None:
    """Refuse to save a model where something else is."""
    if not str(folder).strip("."):
        raise ValueError(f"{str(folder)!r} is the folder you are in; name a folder for the model")
    there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if folder.is_file() or (there and "model.json" not in there):
        raise ValueError(f"{folder} is there already and not a saved model; choose another folder")
    if strangers := sorted(there - set(OF_MODEL)):
        raise ValueError(f"{folder} also holds {strangers[0]}, which is not of a saved model; choose another folder")


def seen_matrix(split: Split, seen: Seen) -> sparse.csr_array:
    """The interactions that stay out of a list."""
    matrices = {"train": lambda: split.train.matrix, "train+valid": lambda: split.seen, "all": lambda: split.known}
    if seen not in matrices:
        raise ValueError(f"seen={seen!r} is unknown; choose one of {', '.join(map(repr, matrices))}")
    return matrices[seen]()
