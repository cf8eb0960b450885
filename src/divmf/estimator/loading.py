"""What was saved, or a run, made ready to recommend."""

from dataclasses import fields
from pathlib import Path

from divmf.data.stored import read_split
from divmf.engine import comm
from divmf.estimator.recommender import NO_WEIGHTS, Recommender
from divmf.market.chosen import Chosen
from divmf.models.weights import Sizes, model_of, read_tensors
from divmf.ranking.curve import Point
from divmf.train.people import Learnt
from divmf.train.runs import Run, scorer_of
from divmf.train.schema import MODEL, read_as


def load(folder: str | Path) -> Recommender:
    """A saved model, or the picked point of a run folder.

    Args:
        folder: What `Recommender.save` or `divmf train` wrote.

    Returns:
        The operating point, ready to recommend; of several processes, each has its share of the users.
    """
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
        split = run.read_split()
        return Recommender.at(run, run.read_picked(), split)
    raise ValueError(
        f"{folder} is neither a saved model nor a run folder; make one with `divmf train DATA -o {folder}`"
    )
