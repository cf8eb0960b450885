"""DivMF: the face for users. fit → curve → at → recommend."""

import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from html import escape
from pathlib import Path
from typing import Any, Literal, Self
from uuid import uuid4

import numpy as np
import polars as pl
import torch
from pydantic.dataclasses import dataclass as settings
from scipy import sparse

from divmf.data.filters import Blocked, request_filter
from divmf.data.fingerprint import fingerprint
from divmf.data.histories import Histories
from divmf.data.new_items import NewItems
from divmf.data.outputs import OF_MODEL
from divmf.data.split import Split
from divmf.data.stored import read_split, write_split
from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.clock import Clock
from divmf.engine.files import put_folder, write_json
from divmf.engine.progress import told
from divmf.engine.versions import versions
from divmf.market.chosen import Chosen
from divmf.market.rules import Rules
from divmf.models.accuracy import best_items, scores_of
from divmf.models.config import STRICT, TrainConfig, check_of_method
from divmf.models.items import similar_items
from divmf.models.mf import MF
from divmf.models.scorer import Blocks, Factors, Scorer
from divmf.models.stored import tensors
from divmf.models.weights import LARGEST, Sizes, model_of, read_tensors, write_tensors
from divmf.ranking.curve import Curve, Point
from divmf.ranking.lists import TopK
from divmf.ranking.retrieval import recommend
from divmf.train.choosing import check_chosen, check_taken_on
from divmf.train.final import final
from divmf.train.fitting import fit, fit_scores, refine
from divmf.train.new_items import grown
from divmf.train.people import Learnt, lists_of
from divmf.train.ruling import bound_to
from divmf.train.runs import Run, scorer_of
from divmf.train.schema import MODEL, read_as

log = logging.getLogger(__name__)
Seen = Literal["train", "train+valid", "all"]
NO_WEIGHTS = MF(torch.zeros(0, 0), torch.zeros(0, 0), torch.zeros(0))
KIND_OF: dict[Seen, str] = {"train": "valid", "train+valid": "test", "all": "all"}  # of the market's lists


@dataclass(frozen=True, eq=False, repr=False)
class Recommender:
    """One operating point, ready to recommend: a model, and what its users have met.

    weights  the vectors of the model; empty where it has none
    chosen   the lists of a point of the market; other points have none
    scorer   the model, where it is not one of vectors trained here
    learnt   how the model was fitted, for people who were not in training
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
        rows, k, learnt = comm.row_range(split.n_users), run.config.k, Learnt.of(run, split)
        if run.config.method != "market":
            return cls(run.model(point, rows), split, point, k, learnt=learnt)
        scorer = scorer or run.scorer(rows)
        model = scorer.model if isinstance(scorer, Factors) else NO_WEIGHTS
        return cls(model, split, point, k, run.chosen(point, rows), scorer, learnt)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {self.point.valid[name]:.4g}" for name in ("ndcg", "coverage", "gini"))
        return f"Recommender({self.point.name}; validation {shown})"

    def _repr_html_(self) -> str:
        return self.point._repr_html_()

    def lists(
        self, users: Sequence[Any] | pl.Series | None = None, k: int | None = None, *, histories: Any = None,
        seen: Seen = "all", exclude: Any = None, items: Any = None,
    ) -> TopK:  # fmt: skip
        """The k best items of each user (of all users if none are named) that the user has not met.

        The first of a longer list are those of a shorter one.

        histories: of people who were not in training, in the place of users: a frame of user_id and item_id, or a
        sequence of item ids for each. They are folded into the model, and their lists are the best at the discounts of
        this point.
        seen: which of a user's interactions stay out of the list. "all" is for lists that people will see;
        "train+valid" keeps the test items possible, so that the lists can be evaluated.
        exclude, items: never these, and these alone: ids, a frame of item_id (or of user_id and item_id, for those
        users), or a file of either. A list has k items wherever a user has k left.
        """
        k = self.k if k is None else k
        if not 1 <= k <= self.split.n_items:
            raise ValueError(f"k={k} must be from 1 to the number of items, {self.split.n_items}")
        if isinstance(users, int):
            raise ValueError(f"users={users!r} is one value; give a sequence of user ids, and the length as k=…")
        blocked = self.blocked(exclude, items)
        if histories is not None:
            return told_short(self._lists_of(users, people_of(histories, self.split.item_ids), k, blocked), k)
        rows = None if users is None else self.split.train.user_numbers(users).astype(np.int64)
        met = seen_matrix(self.split, seen)
        if blocked is None and self.chosen is None and (self.scorer is None or isinstance(self.scorer, Factors)):
            items, scores = recommend(self.weights, met, k, rows)
        else:
            numbers, scorer = np.arange(self.split.n_users) if rows is None else rows, self.scoring
            if self.chosen is not None:
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
        return lists_of(self.scoring, self.learnt, self.chosen, self.split, people, k, self.k, out)

    def blocked(self, exclude: Any = None, items: Any = None) -> Blocked | None:
        """What a request leaves out; none where it asks for everything."""
        return request_filter(self.split.item_ids, self.split.user_ids, exclude, items)

    @property
    def scoring(self) -> Scorer:
        """What scores: the model, as blocks of scores."""
        return self.scorer or Factors.of(self.weights)

    def recommend(
        self, users: Sequence[Any] | pl.Series | None = None, k: int | None = None, *,
        history: Sequence[Any] | None = None, seen: Seen = "all", exclude: Any = None, items: Any = None,
    ) -> tuple[Array, Array]:  # fmt: skip
        """Original ids and scores of the best items, a row a user: two arrays (users, k).

        history: of somebody who was not in training, the ids of the items met; or of several people, one such sequence
        each. Where a user has fewer items left, the id is −1 (None for string ids or negative ones) and the score −inf.
        exclude, items: see `lists`
        """
        if users is None and history is None:
            raise ValueError("name the users, or give the history of somebody new; recommend_frame() is for everybody")
        lists = self.lists(users, k, histories=history, seen=seen, exclude=exclude, items=items)
        return ids_of(lists.items, lists.item_ids), lists.scores

    def recommend_frame(
        self, users: Sequence[Any] | pl.Series | None = None, k: int | None = None, *,
        histories: Any = None, seen: Seen = "all", exclude: Any = None, items: Any = None,
    ) -> pl.DataFrame:  # fmt: skip
        """user_id, item_id, score, rank (from 1): all users, the ones named, or people who were not in training.

        histories: what people who were not in training have met, a frame of user_id and item_id
        exclude, items: see `lists`
        """
        if hasattr(users, "columns"):
            users, histories = None, users
        return self.lists(users, k, histories=histories, seen=seen, exclude=exclude, items=items).frame

    def with_items(self, items: Any) -> "Recommender":
        """This operating point with items that were not in training.

        items: {"new": ["i3", "i7"]}, for each new id those of items that it is like (a group, or some that are named);
        or a frame of item_id with like, an item of the catalog, or user_id, somebody of the training who has met it.
        An item that somebody has met is folded into the model, any other is the mean of those it is like; the market
        shows each at a discount of its own, and the lists that none of them enters stay as they are.
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
        """The ids of the k items most like each of some, and how like they are: two arrays (items, k).

        By the cosine of their vectors; with EASE, by what meeting the one adds to the score of the other.
        """
        numbers, likeness = similar_items(self.scoring, self.split.train.item_numbers(items), k)
        return ids_of(numbers, self.split.item_ids), likeness

    def save(self, folder: str | Path) -> None:
        """Write the model, its ids and its users' interactions into a folder; nothing is pickled."""
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


@settings(frozen=True, kw_only=True, repr=False, config=STRICT)
class DivMF(TrainConfig):
    """Matrix factorization, first trained for accuracy, then made diverse: by the exposure market, or as in the paper.

    `DivMF(preset="paper")` is the paper's Algorithm 1. Its arguments are the settings of `TrainConfig`; `fit` returns
    self; what was learnt is in `curve`, and `at` chooses a point of it.
    """

    def __repr__(self) -> str:
        defaults = TrainConfig()
        set_here = [f"{item.name}={getattr(self, item.name)!r}" for item in fields(TrainConfig)
                    if getattr(self, item.name) != getattr(defaults, item.name)]  # fmt: skip
        fitted = f"fitted, {len(self.curve)} points" if hasattr(self, "run_") else "not fitted"
        return f"DivMF({', '.join(set_here)}; {fitted})" if set_here else f"DivMF({fitted})"

    def _repr_html_(self) -> str:
        return self.curve._repr_html_() if hasattr(self, "run_") else escape(repr(self))

    def fit(
        self, split: Split, run: str | Path | None = None, *, rules: Rules | None = None,
        start: "str | Path | DivMF | None" = None, progress: bool = False,
    ) -> Self:  # fmt: skip
        """Train on a split.

        run: a folder that keeps every point, so that a stopped fit can go on; else a temporary one
        rules: what the lists of every point keep; the curve then begins with the model's lists that keep them
        start: an earlier run, or a fitted DivMF, whose model is taken on: its kind and settings, its vectors for users
        and items that are still there, and a few steps
        progress: say on a terminal or in a notebook how it goes
        """
        if start is None:
            return self._train(split, run, None, rules, progress)
        before = start.run if isinstance(start, DivMF) else Run.open(start)
        check_taken_on(before, self, "start takes", ("model", "dim", "budget"))
        return self._train(split, run, None, rules, progress, before)

    def __post_init__(self) -> None:
        check_of_method(self)

    def _train(
        self, split: Split, run: str | Path | None, start: MF | None, rules: Rules | None = None,
        progress: bool = False, earlier: Run | None = None,
    ) -> Self:  # fmt: skip
        if not isinstance(split, Split):
            raise ValueError(f"fit takes a Split, not {type(split).__name__}; make one with data.leave_one_out()")
        opened, config = self._start(split, run, start if earlier is None else earlier.scorer(), rules)
        with told(progress) as tell:
            for point in fit(opened, split, config, start, progress=tell, earlier=earlier):
                tell(f"{point.name}: validation nDCG {point.valid['ndcg']:.4f}, Gini {point.valid['gini']:.3f}")
        return self._fitted(opened, split)

    def _start(
        self, split: Split, run: str | Path | None, start: MF | Scorer | None, rules: Rules | None
    ) -> tuple[Run, TrainConfig]:
        """The run folder, a temporary one if none is named, and the settings; start: what it begins from."""
        bound = None if rules is None else bound_to(rules, split, self)
        if run is None:
            run = comm.shared(tempfile.mkdtemp(prefix="divmf-") if comm.first() else "")
            if comm.first():
                weakref.finalize(self, shutil.rmtree, run, ignore_errors=True)
        config = TrainConfig(**self.get_params())
        return Run.start(run, split, config, model=start, rules=bound), config

    def _fitted(self, run: Run, split: Split) -> Self:
        # a frozen dataclass of settings, so what fit learns is set beside them
        object.__setattr__(self, "run_", run)
        object.__setattr__(self, "split_", split)
        return self

    @classmethod
    def load(cls, run: str | Path) -> Self:
        """A fitted DivMF from its run folder."""
        opened = Run.open(run)
        return cls(**asdict(opened.config))._fitted(opened, opened.split)

    @property
    def run(self) -> Run:
        """The run folder of the fit."""
        if not hasattr(self, "run_"):
            raise ValueError("this DivMF was not fitted yet; call fit(split) first")
        fitted: Run = self.run_
        return fitted

    @property
    def curve(self) -> Curve:
        """Every epoch as a point: accuracy and diversity, on validation and test."""
        return self.run.curve

    def at(
        self, rule: str | None = None, *, ndcg_drop: float | None = None, gini: float | None = None,
        coverage: float | None = None, epoch: int | None = None, rho: float | None = None,
    ) -> Recommender:  # fmt: skip
        """The operating point by one criterion, chosen on validation; see `Curve.choose`.

        With the market, points are added to the curve where the criterion is just met.
        """
        _ = self.run  # refuses what was not fitted
        split: Split = self.split_  # type: ignore[attr-defined]
        asked = {"ndcg_drop": ndcg_drop, "gini": gini, "coverage": coverage, "epoch": epoch, "rho": rho}
        self.curve.choose(rule, **asked)  # type: ignore[arg-type]  # refuses what cannot be chosen
        scorer: Scorer | None = getattr(self, "scorer_", None)
        refine(self.run, split, self, None, scorer, **asked)
        point = self.curve.choose(rule, **asked)  # type: ignore[arg-type]
        return Recommender.at(self.run, point, split, scorer)

    choose = at

    def final(
        self, rule: str | None = None, *, ndcg_drop: float | None = None, gini: float | None = None,
        coverage: float | None = None, epoch: int | None = None, rho: float | None = None,
    ) -> Recommender:  # fmt: skip
        """As `at`, but learnt once more from everything, what was held out included, with the settings chosen.

        For lists that people will see; they cannot be evaluated, for nothing is left to evaluate them on.
        """
        asked = {"ndcg_drop": ndcg_drop, "gini": gini, "coverage": coverage, "epoch": epoch, "rho": rho}
        check_chosen(self.run)
        chosen = self.at(rule, **asked)  # type: ignore[arg-type]
        return final_of(self.run, chosen.split, chosen.point)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name, as scikit-learn asks for them; `deep` changes nothing, for none holds another."""
        return {item.name: getattr(self, item.name) for item in fields(TrainConfig)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """From settings by name, such as `get_params()` or a JSON file gives them."""
        return cls(**config)

    def recommend(
        self, users: Sequence[Any] | pl.Series | None = None, k: int | None = None, *,
        history: Sequence[Any] | None = None,
    ) -> tuple[Array, Array]:  # fmt: skip
        """`at(ndcg_drop=0.05).recommend(…)`: the usual operating point."""
        return self.at(ndcg_drop=0.05).recommend(users, k, history=history)

    def recommend_frame(self, users: Sequence[Any] | pl.Series | None = None, k: int | None = None) -> pl.DataFrame:
        """`at(ndcg_drop=0.05).recommend_frame(…)`: the usual operating point."""
        return self.at(ndcg_drop=0.05).recommend_frame(users, k)

    def save(self, folder: str | Path) -> None:
        """`at(ndcg_drop=0.05).save(…)`: the usual operating point. The whole curve lives in the run folder."""
        self.at(ndcg_drop=0.05).save(folder)


def final_of(run: Run, split: Split, point: Point, clock: Clock | None = None) -> Recommender:
    """The operating point of a run, learnt once more from everything: for lists that people will see."""
    scorer, whole, chosen = final(run, split, point, clock)
    model = scorer.model if isinstance(scorer, Factors) else NO_WEIGHTS
    return Recommender(model, whole, point, run.config.k, chosen, scorer, Learnt.of(run, split))


def people_of(histories: Any, item_ids: pl.Series) -> Histories:
    """People who were not in training, from a frame or from sequences of item ids."""
    if isinstance(histories, Histories):
        return histories
    is_frame = hasattr(histories, "columns") or hasattr(histories, "column_names")
    return Histories.from_frame(histories, item_ids) if is_frame else Histories.of(histories, item_ids)


def ids_of(items: Array, item_ids: pl.Series) -> Array:
    """Item numbers as original ids; −1 (None for string ids or negative ones) where there is none."""
    ids = item_ids.to_numpy()
    none: Any = -1 if ids.dtype.kind == "i" and ids.min(initial=0) >= 0 else None
    return np.where(items >= 0, ids[items], none)


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


def load(folder: str | Path) -> Recommender:
    """A saved model, or the picked point of a run folder; of several processes, each has its share of the users."""
    folder = Path(folder)
    if (folder / "model.json").exists():
        about = read_as(folder / "model.json", MODEL)
        split = read_split(folder, about["fingerprint"])
        rows = comm.row_range(split.n_users)
        sizes, own = (Sizes(n_users, split.n_items) for n_users in (rows.whole, split.n_users))
        path = folder / "lists.safetensors"
        kept = read_tensors(folder / "model.safetensors", rows, sizes)
        scorer = None if "users" in kept else scorer_of(kept, folder / "model.safetensors", own)
        model = model_of(kept, folder / "model.safetensors") if scorer is None else NO_WEIGHTS
        chosen = Chosen.of(read_tensors(path, rows, sizes), split.n_items, path) if path.exists() else None
        learnt = Learnt(**{item.name: about["learnt"][item.name] for item in fields(Learnt)})
        return Recommender(model, split, Point.from_json(about["point"]), about["k"], chosen, scorer, learnt)
    if (folder / "config.json").exists():
        run = Run.open(folder)
        split = run.split
        return Recommender.at(run, run.picked, split)
    raise ValueError(
        f"{folder} is neither a saved model nor a run folder; make one with `divmf train DATA -o {folder}`"
    )


def diversify(
    user_factors: Any,
    item_factors: Any,
    split: Split | None = None,
    item_bias: Any = None,
    run: str | Path | None = None,
    rules: Rules | None = None,
    **settings: Any,
) -> DivMF:
    """The curve of a model trained elsewhere; users and items in the order of split.user_ids and split.item_ids.

    diversify(user_factors, item_factors, split)   vectors, a row each
    diversify(scorer, split)                       a `Scorer` (`divmf.models`), or a function from user numbers to their
                                                   scores over all items
    rules: what the lists of every point keep (`divmf.Rules`)
    settings: those of `DivMF`, such as k, method, diversity_epochs.
    """
    if isinstance(item_factors, Split):
        return diversify_scores(user_factors, item_factors, run, rules, settings)
    if split is None:
        raise ValueError("diversify takes user_factors, item_factors and a split, or a scorer and a split")
    users, items = (as_table(table) for table in (user_factors, item_factors))
    bias = torch.zeros(split.n_items) if item_bias is None else as_table(item_bias)
    if users.ndim != 2 or items.ndim != 2 or users.shape[1] != items.shape[1]:
        shapes = f"{tuple(users.shape)} and {tuple(items.shape)}"
        raise ValueError(f"factors of shapes {shapes} do not multiply: give both the same width")
    if bias.shape != (split.n_items,):
        raise ValueError(
            f"item_bias has shape {tuple(bias.shape)}; give one number for each of {split.n_items:,} items"
        )
    for name, table, n_rows in (("user_factors", users, split.n_users), ("item_factors", items, split.n_items)):
        if len(table) != n_rows:
            raise ValueError(
                f"{name} has {len(table):,} rows, the split {n_rows:,}; order them as split.user_ids and split.item_ids"
            )
    for name, table in (("user_factors", users), ("item_factors", items), ("item_bias", bias)):
        if not torch.isfinite(table).all():
            raise ValueError(f"{name} holds NaN or infinite numbers")
        if table.numel() and float(table.abs().max()) > LARGEST:
            raise ValueError(f"{name} holds numbers larger than {LARGEST:g}; scale the factors down, scores with them")
    if fixed := {"dim", "accuracy_epochs", "schedule"} & set(settings):
        raise ValueError(f"{min(fixed)} is not a setting of diversify: the given factors are diversified as they are")
    model = DivMF(**(settings | {"dim": users.shape[1], "accuracy_epochs": 0}))
    return model._train(split, run, MF(users, items, bias), rules)


def as_table(values: Any) -> torch.Tensor:
    """Numbers from elsewhere as a tensor of our own, row after row in memory, as the kernels read it."""
    return torch.tensor(np.ascontiguousarray(values, dtype=np.float32))


def diversify_scores(
    scorer: Any, split: Split, run: str | Path | None, rules: Rules | None, settings: dict[str, Any]
) -> DivMF:
    """The market on the scores of any model."""
    if not hasattr(scorer, "scores"):
        if not callable(scorer):
            raise ValueError(f"{type(scorer).__name__} does not score; give a Scorer, or a function of user numbers")
        scorer = Blocks(scorer, split.n_users, split.n_items)
    if (there := (scorer.n_users, scorer.n_items)) != (split.n_users, split.n_items):
        raise ValueError(
            f"the scorer has {there[0]:,} users and {there[1]:,} items, the split {split.n_users:,} and"
            f" {split.n_items:,}; order them as split.user_ids and split.item_ids"
        )
    model = DivMF(**(settings | {"accuracy_epochs": 0}))
    if model.method != "market":
        raise ValueError(f"method={model.method!r} needs vectors to train; a scorer goes with method='market'")
    opened, config = model._start(split, run, scorer, rules)
    for _ in fit_scores(opened, split, config, scorer):
        pass
    object.__setattr__(model, "scorer_", scorer)
    return model._fitted(opened, split)
