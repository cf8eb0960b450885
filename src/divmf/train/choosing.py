"""The model of a run that is not trained by epochs: chosen on validation, and written down with all that was tried."""

from collections.abc import Callable

from divmf.data.split import Split
from divmf.engine import comm
from divmf.models.auto import Chosen, choose, openings, usual_budget
from divmf.models.config import TrainConfig
from divmf.models.scorer import Scorer
from divmf.models.searches import ARMS, Bench
from divmf.models.weights import Rows
from divmf.train.runs import Run
from divmf.train.schema import Choice, TrialRow

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


def check_choice(split: Split, config: TrainConfig) -> None:
    """Refuse, before anything is written, a budget or a memory that no model fits into."""
    if not config.by_epochs and comm.size() == 1:
        budget = usual_budget(split) if config.budget is None else config.budget
        openings(Bench(split, config.k, config.seed, dim=config.dim, l2=config.l2), kinds_of(config), budget)


def kinds_of(config: TrainConfig) -> list[str]:
    """The kinds of models that are tried."""
    return list(ARMS) if config.model == "auto" else [config.model]


def model_of(run: Run, split: Split, config: TrainConfig, progress: Progress | None = None) -> Scorer:
    """The scorer that the market begins from: chosen now, or before the run was stopped.

    Its numbers are written before what was tried, so that a run stopped in between begins again with the same trials.
    """
    if run.models_file.exists():
        return run.scorer(Rows.of(split.n_users))
    told = told_to(progress)
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
