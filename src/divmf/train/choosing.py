"""The model of a run that is not trained by epochs: chosen on validation, and written down with all that was tried."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from divmf.data.ids import numbers_of
from divmf.data.split import Split
from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.models.accuracy import valid_ndcg
from divmf.models.auto import Chosen, choose, openings, refit, usual_budget
from divmf.models.config import TrainConfig
from divmf.models.fold_in import Known, fold_in
from divmf.models.ials import SPREAD
from divmf.models.scorer import Factors, Scorer
from divmf.models.searches import ARMS, Bench, Trial
from divmf.train.runs import Run
from divmf.train.schema import Choice, TrialRow

log = logging.getLogger(__name__)
Progress = Callable[[str], None]  # told, a line at a time, how it goes


def is_chosen(run: Run, config: TrainConfig) -> bool:
    """Whether the model of a run is chosen by trials; several processes train a softmax by epochs instead."""
    return not config.by_epochs and comm.size() == 1 and not run.state_file.exists()


def check_processes(config: TrainConfig) -> None:
    """Refuse, for several processes, what one alone can choose."""
    if comm.size() > 1 and config.model in ("auto", "ease", "ials"):
        raise ValueError(
            f"model {config.model} is fitted by one process, and there are {comm.size()}; start one, or name a model"
            " that several train by epochs: softmax, bpr or mse"
        )


def tell_weights(split: Split, config: TrainConfig) -> None:
    """Say so where there are weights that the model cannot use."""
    if split.train.weights is not None and config.model in ("bpr", "mse"):
        log.warning(
            "%s learns from what was met, each pair alike, so the weights change nothing; ease, ials and softmax use"
            " them", config.model,
        )  # fmt: skip


def check_choice(split: Split, config: TrainConfig) -> None:
    """Refuse, before anything is written, a budget or a memory that no model fits into."""
    if not config.by_epochs and comm.size() == 1:
        budget = usual_budget(split) if config.budget is None else config.budget
        openings(Bench(split, config.k, config.seed, dim=config.dim, l2=config.l2), kinds_of(config), budget)


def kinds_of(config: TrainConfig) -> list[str]:
    """The kinds of models that are tried."""
    return list(ARMS) if config.model == "auto" else [config.model]


def model_of(
    run: Run, split: Split, config: TrainConfig, progress: Progress | None = None, earlier: Run | None = None
) -> Scorer:
    """The scorer that the market begins from: chosen now, or before the run was stopped.

    earlier: a run whose model is taken on, with its settings, in the place of a choice
    Its numbers are written before what was tried, so that a run stopped in between begins again with the same trials.
    """
    if run.models_file.exists():
        return run.read_scorer(comm.row_range(split.n_users))
    told = told_to(progress)
    if earlier is not None:
        found = taken_on(earlier, split, config)
        run.record_model(found.scorer, choice_of(found))
        return found.scorer
    found = choose(split, config.k, config.budget, kinds_of(config), config.seed, told, config.dim, config.l2)
    run.record_model(found.scorer, choice_of(found))
    return found.scorer


def told_to(progress: Progress | None) -> Callable[..., None] | None:
    """Trials as lines."""
    if progress is None:
        return None
    return lambda trial: progress(f"{trial.name}: validation nDCG {trial.ndcg:.4f}, {trial.seconds:.1f} s")


def choice_of(found: Chosen) -> Choice:
    """What was chosen and what was tried, as it is kept."""
    tried = [TrialRow(model=trial.name, settings=dict(trial.settings), seconds=trial.seconds, valid_ndcg=trial.ndcg)
             for trial in found.tried]  # fmt: skip
    return Choice(
        model=found.name, settings=dict(found.settings), tried=tried, left_out=dict(found.left_out), capped=found.capped
    )


def ahead_of_others(choice: Choice) -> float | None:
    """By how much of its nDCG the choice is ahead of the best of every other kind; none, if there is no other."""
    best: dict[str, float] = {}
    for trial in choice["tried"]:
        best[trial["model"]] = max(trial["valid_ndcg"], best.get(trial["model"], 0.0))
    others = [value for name, value in best.items() if name != choice["model"]]
    return best[choice["model"]] / max(others) - 1 if others and max(others) > 0 else None


def check_chosen(run: Run) -> None:
    """Refuse a run whose settings cannot be used once more."""
    if run.read_choice() is None:
        raise ValueError(
            f"{run.folder}: its model was trained by epochs until validation converged, and nothing is left to say"
            " when; --final and --from go with a model that is chosen: auto, ease, ials or softmax"
        )


def check_taken_on(earlier: Run, config: TrainConfig, taken: str, names: tuple[str, str, str]) -> None:
    """Refuse an earlier run whose model cannot be taken on, and settings that it has already.

    taken: what takes it on, and names: what the settings of a model are called there
    """
    check_chosen(earlier)
    if config.model != "auto" or config.dim is not None or config.budget is not None:
        raise ValueError(
            f"{taken} the model and its settings from the run; leave {names[0]}, {names[1]} and {names[2]} out"
        )


def taken_on(earlier: Run, split: Split, config: TrainConfig) -> Chosen:
    """The model of an earlier run, with its settings, a few steps on from its vectors on what is known now."""
    check_chosen(earlier)
    choice, began = earlier.read_choice(), time.perf_counter()
    assert choice is not None
    settings = dict(choice["settings"])
    if "pairs" in settings:
        settings["pairs"] = len(split.train) / split.n_users
    start = None if choice["model"] == "ease" else aligned(earlier, split, config.seed)  # EASE is solved anew
    scorer = refit(choice["model"], settings, split.train, config.seed, start)
    ndcg = float(f"{valid_ndcg(scorer, split, config.k).mean():.12g}")
    trial = Trial(choice["model"], settings, time.perf_counter() - began, ndcg)
    return Chosen(scorer, choice["model"], settings, (trial,))


def aligned(earlier: Run, split: Split, seed: int = 0) -> Factors:
    """The vectors of an earlier run for the users and items of now.

    New items have small random vectors; new users are folded in, by the items that the model has.
    """
    scorer, before = earlier.read_scorer(), earlier.read_split()
    assert isinstance(scorer, Factors)
    rng, dim = np.random.default_rng(seed), scorer.users.shape[1]

    def table(known: Array, numbers: Array) -> Array:
        made = rng.normal(0, SPREAD / dim**0.5, (len(numbers), dim)).astype(np.float32)
        made[numbers >= 0] = known[numbers[numbers >= 0]]
        return made

    users = table(scorer.users, numbers_of(split.user_ids, before.user_ids))
    items = numbers_of(split.item_ids, before.item_ids)
    bias = np.where(items >= 0, scorer.bias[np.maximum(items, 0)], np.float32(0))
    found = Factors.from_arrays(users, table(scorer.items_t.T, items), bias)
    new, choice = np.flatnonzero(numbers_of(split.user_ids, before.user_ids) < 0), earlier.read_choice()
    if len(new) and choice is not None:
        known = Known(found, choice["model"], choice["settings"])
        folded = fold_in(known, split.train.weighted[new])
        assert isinstance(folded, Factors)
        users[new] = folded.users
    return replace(found, users=users)


def check_fits(split: Split, config: TrainConfig) -> None:
    """Data too small for what was asked, or a model that several processes do not fit."""
    check_processes(config)
    if comm.size() > 1 and split.train.share is None:
        raise ValueError("each of several processes trains on a share; give it split.of_process(rank, size)")
    n_users, n_valid, n_test = (int(comm.total(n)) for n in (split.n_users, len(split.valid), len(split.test)))
    if n_users < 2 or split.n_items < 2:
        raise ValueError(
            f"the data has {n_users} user(s) and {split.n_items} item(s); recommending needs at least two of each"
        )
    if config.k > split.n_items:
        raise ValueError(
            f"k={config.k} is longer than the {split.n_items} items there are; choose k <= {split.n_items}"
        )
    if not n_valid or not n_test:
        raise ValueError("nothing is held out for validation or test: no user has three interactions; give more data")
    check_choice(split, config)
