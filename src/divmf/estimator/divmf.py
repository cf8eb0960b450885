"""DivMF: fit → curve → at → recommend."""

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from html import escape
from pathlib import Path
from typing import Any, Self

import polars as pl
from pydantic.dataclasses import dataclass as settings

from divmf.data.split import Split
from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.engine.clock import Clock
from divmf.engine.progress import told
from divmf.estimator.recommender import NO_WEIGHTS, Recommender
from divmf.market.rules import Rules
from divmf.models.config import STRICT, TrainConfig, check_of_method
from divmf.models.mf import MF
from divmf.models.scorer import Factors, Scorer
from divmf.ranking.curve import Curve, Point
from divmf.train.choosing import check_chosen, check_taken_on
from divmf.train.final import final
from divmf.train.fitting import fit
from divmf.train.market import refine
from divmf.train.people import Learnt
from divmf.train.ruling import bound_to
from divmf.train.runs import Run


@settings(frozen=True, kw_only=True, repr=False, config=STRICT)
class DivMF(TrainConfig):
    """A recommender that is made accurate first and then diverse: by the exposure market, or as in the paper.

    `DivMF(preset="paper")` is the paper's Algorithm 1. Its arguments are the settings of `TrainConfig`; `fit` returns
    self; what was learnt is in `curve`, and `at` chooses a point of it.

    Examples:
        >>> split = divmf.datasets.marketplace(users=100, items=50, interactions=1500).leave_one_out()
        >>> model = divmf.DivMF(k=3, model="ease").fit(split)
        >>> chosen = model.at(ndcg_drop=0.05)  # the most even lists that lose at most 5% of nDCG on validation
        >>> chosen.point.valid["coverage"] > model.curve.base.valid["coverage"]
        True
        >>> ids, scores = chosen.recommend(split.user_ids[:2], k=3)
        >>> ids.shape
        (2, 3)
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

        Args:
            split: Training and validation parts to learn from and choose on; the test part is only measured.
            run: A folder that keeps every point, so that a stopped fit can go on; a temporary one if not named.
            rules: What the lists of every point keep; the curve then begins with the model's lists that keep them.
            start: An earlier run, or a fitted DivMF, whose model is taken on: its kind and settings, its vectors for
                users and items that are still there, and a few steps.
            progress: Say on a terminal or in a notebook how it goes.

        Returns:
            Itself; `curve` holds what was learnt.
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
        opened, config = self._start(split, run, start if earlier is None else earlier.read_scorer(), rules)
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
        object.__setattr__(self, "curve_", run.read_curve())
        return self

    @classmethod
    def load(cls, run: str | Path) -> Self:
        """A fitted DivMF from its run folder.

        Args:
            run: The folder that `fit` or `divmf train` wrote.

        Returns:
            The model with the settings, split and curve of the run.
        """
        opened = Run.open(run)
        return cls(**asdict(opened.read_config()))._fitted(opened, opened.read_split())

    @property
    def run(self) -> Run:
        """The run folder of the fit."""
        self._check_fitted()
        fitted: Run = self.run_  # type: ignore[attr-defined]
        return fitted

    @property
    def curve(self) -> Curve:
        """Every epoch as a point: accuracy and diversity, on validation and test."""
        self._check_fitted()
        curve: Curve = self.curve_  # type: ignore[attr-defined]
        return curve

    def _check_fitted(self) -> None:
        if not hasattr(self, "run_"):
            raise ValueError("this DivMF was not fitted yet; call fit(split) first")

    def refine(
        self, *, ndcg_drop: float | None = None, gini: float | None = None, coverage: float | None = None,
        rho: float | None = None,
    ) -> Self:  # fmt: skip
        """Add points to the market's curve where a criterion of `choose` is just met; other curves stay as they are.

        Args:
            ndcg_drop: The most diverse point that loses at most this fraction of validation nDCG, such as 0.05.
            gini: The most accurate point with at most this Gini index.
            coverage: The most accurate point with at least this coverage.
            rho: This ρ.

        Returns:
            Itself, with the longer curve.
        """
        criterion = {"ndcg_drop": ndcg_drop, "gini": gini, "coverage": coverage, "rho": rho}
        self.curve.choose(**criterion)  # type: ignore[arg-type]  # refuses what cannot be chosen
        refine(self.run, self.split_, self, None, self._scorer, **criterion)  # type: ignore[attr-defined]
        object.__setattr__(self, "curve_", self.run.read_curve())
        return self

    def choose(
        self, rule: str | None = None, *, ndcg_drop: float | None = None, gini: float | None = None,
        coverage: float | None = None, epoch: int | None = None, rho: float | None = None,
    ) -> Recommender:  # fmt: skip
        """The operating point by one criterion, among the points that the curve has; nothing is computed.

        Args:
            rule: "knee", where the curve bends.
            ndcg_drop: The most diverse point that loses at most this fraction of validation nDCG, such as 0.05.
            gini: The most accurate point with at most this Gini index.
            coverage: The most accurate point with at least this coverage.
            epoch: The point of this epoch; 0 is the model before diversifying.
            rho: The point whose ρ is nearest.

        Returns:
            The point, ready to recommend; see `Curve.choose` for ties.
        """
        point = self.curve.choose(rule, ndcg_drop=ndcg_drop, gini=gini, coverage=coverage, epoch=epoch, rho=rho)
        return Recommender.at(self.run, point, self.split_, self._scorer)  # type: ignore[attr-defined]

    def at(
        self, rule: str | None = None, *, ndcg_drop: float | None = None, gini: float | None = None,
        coverage: float | None = None, epoch: int | None = None, rho: float | None = None,
    ) -> Recommender:  # fmt: skip
        """`refine` and `choose` in one: the operating point where a criterion is just met, solved if need be.

        Args:
            rule: "knee", where the curve bends.
            ndcg_drop: The most diverse point that loses at most this fraction of validation nDCG, such as 0.05.
            gini: The most accurate point with at most this Gini index.
            coverage: The most accurate point with at least this coverage.
            epoch: The point of this epoch; 0 is the model before diversifying.
            rho: The point with this ρ.

        Returns:
            The point, ready to recommend.
        """
        given = {"ndcg_drop": ndcg_drop, "gini": gini, "coverage": coverage, "epoch": epoch, "rho": rho}
        self.curve.choose(rule, **given)  # type: ignore[arg-type]  # refuses what cannot be chosen
        if rule is None and epoch is None:
            self.refine(ndcg_drop=ndcg_drop, gini=gini, coverage=coverage, rho=rho)
        return self.choose(rule, **given)  # type: ignore[arg-type]

    def final(
        self, rule: str | None = None, *, ndcg_drop: float | None = None, gini: float | None = None,
        coverage: float | None = None, epoch: int | None = None, rho: float | None = None,
    ) -> Recommender:  # fmt: skip
        """As `at`, but learnt once more from everything, what was held out included, with the settings chosen.

        For lists that people will see; they cannot be evaluated, for nothing is left to evaluate them on.

        Args:
            rule: As in `at`, as are the others.
            ndcg_drop: As in `at`.
            gini: As in `at`.
            coverage: As in `at`.
            epoch: As in `at`.
            rho: As in `at`.

        Returns:
            The point, ready to recommend.
        """
        check_chosen(self.run)
        chosen = self.at(rule, ndcg_drop=ndcg_drop, gini=gini, coverage=coverage, epoch=epoch, rho=rho)
        return final_of(self.run, chosen.split, chosen.point)

    @property
    def _scorer(self) -> Scorer | None:
        """What the curve was made from, where that was given and is not kept with the run."""
        return getattr(self, "scorer_", None)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name, as scikit-learn asks for them.

        Args:
            deep: Changes nothing, for no setting holds another estimator.

        Returns:
            Every field of `TrainConfig` with its value.
        """
        return {item.name: getattr(self, item.name) for item in fields(TrainConfig)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """From settings by name.

        Args:
            config: As `get_params()` or a JSON file gives them.

        Returns:
            A DivMF that is not fitted.
        """
        return cls(**config)

    def recommend(
        self, users: Sequence[Any] | pl.Series | None = None, k: int | None = None, *,
        history: Sequence[Any] | None = None,
    ) -> tuple[Array, Array]:  # fmt: skip
        """`at(ndcg_drop=0.05).recommend(…)`: the usual operating point.

        Args:
            users: Ids of users of the training.
            k: The length of a list; that of the fit, if not given.
            history: Ids of items that somebody met who was not in training.

        Returns:
            Ids and scores, two arrays (users, k); see `Recommender.recommend`.
        """
        return self.at(ndcg_drop=0.05).recommend(users, k, history=history)

    def recommend_frame(self, users: Sequence[Any] | pl.Series | None = None, k: int | None = None) -> pl.DataFrame:
        """`at(ndcg_drop=0.05).recommend_frame(…)`: the usual operating point.

        Args:
            users: Ids of users of the training; everybody, if not given.
            k: The length of a list; that of the fit, if not given.

        Returns:
            user_id, item_id, score, rank; see `Recommender.recommend_frame`.
        """
        return self.at(ndcg_drop=0.05).recommend_frame(users, k)

    def save(self, folder: str | Path) -> None:
        """`at(ndcg_drop=0.05).save(…)`: the usual operating point. The whole curve lives in the run folder.

        Args:
            folder: See `Recommender.save`.
        """
        self.at(ndcg_drop=0.05).save(folder)


def final_of(run: Run, split: Split, point: Point, clock: Clock | None = None) -> Recommender:
    """The operating point of a run, learnt once more from everything: for lists that people will see."""
    scorer, whole, chosen = final(run, split, point, clock)
    model = scorer.model if isinstance(scorer, Factors) else NO_WEIGHTS
    return Recommender(model, whole, point, run.read_config().k, chosen, scorer, Learnt.of(run, split))
