"""Models in use: people folded in at 10,000 items, people with short histories, yesterday's model taken on.

`python -m benchmarks use` prints milliseconds a person for each model; nDCG of people of whom one, two, three or
twenty items are known, from the model alone and at the discounts of the picked point; and a new model beside
yesterday's taken on, when a tenth of the interactions, the latest by time, arrives. `python -m benchmarks.use fold_ins`
(or short_histories, taken_on) prints one of them.
"""

import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models import FOLDED, Settings, ndcg_of, split_of, timed
from benchmarks.side_by_side import table

K, PEOPLE, DROP = 5, 200, 0.05
BPR = Settings("bpr", {"dim": 64, "l2": 0.01})
KNOWN = (1, 2, 3, 20)  # how many items of a person are known


def fold_ins(n_items: int = 10_000) -> None:
    """Milliseconds a person: people of a marketplace of so many items, together, one by one, and asked for by ids.

    Scored: the person's part of the model and the scores of all items. Served: `recommend(history=…)`, from ids to ids.
    """
    from divmf.data.datasets import marketplace
    from divmf.models.fold_in import Known, fold_in

    split, rows = marketplace(5000, n_items, 200_000).hold_out(seed=0), []
    met = split.train.matrix[:PEOPLE]
    histories = [split.item_ids.gather(met[[person]].indices).to_list() for person in range(PEOPLE)]
    for each in (*FOLDED, BPR):
        point = random_point(each, split)
        model = Known(point.scoring, each.name, point.learnt.settings)

        def scored(people: Any, model: Known = model) -> None:
            fold_in(model, people).scores(np.arange(people.shape[0]))

        def one_by_one(scored: Any = scored) -> None:
            for person in range(PEOPLE):
                scored(met[[person]])

        def served(point: Any = point) -> None:
            for history in histories:
                point.recommend(history=history)

        took = timed(partial(scored, met)), timed(one_by_one), timed(served)
        rows.append(
            [each.name, f"{each.values.get('dim', '')}", *(f"{1000 * seconds / PEOPLE:.2f}" for seconds in took)]
        )
    table(["model", "dimensions", f"ms a person, {PEOPLE} together", "one by one", "`recommend(history=…)`"], rows)


def random_point(settings: Settings, split: Any) -> Any:
    """An operating point of the market with random numbers: what they are makes little difference to the time."""
    from divmf.estimator.recommender import NO_WEIGHTS, Recommender
    from divmf.market.chosen import Chosen
    from divmf.models.scorer import Factors, ItemItem
    from divmf.ranking.curve import Point
    from divmf.train.people import Learnt

    rng, dim = np.random.default_rng(0), int(settings.values.get("dim", split.n_items))
    made = 0.3 * rng.standard_normal((split.n_items, dim), dtype=np.float32)
    scorer = (ItemItem(split.train.matrix, made) if settings.name == "ease"
              else Factors.from_arrays(rng.normal(0, 0.1, (split.n_users, dim)), made))  # fmt: skip
    learnt = Learnt(settings.name, settings.values | {"pairs": len(split.train) / split.n_users})
    chosen = Chosen(rng.random(split.n_items, dtype=np.float32), {})
    return Recommender(NO_WEIGHTS, split, Point("diversity", 1, {}, {}), K, chosen, scorer, learnt)


def short_histories(seed: int = 0) -> None:
    """MovieLens-1M, a fifth of the users held out whole: a few of their items are known, the others are to be found."""
    from divmf import DivMF, TopK
    from divmf.data.split import Split
    from divmf.ranking.metrics import measure

    split, rng, rows = split_of("ml-1m", seed), np.random.default_rng(seed), []
    new = np.isin(np.arange(split.n_users), rng.choice(split.n_users, split.n_users // 5, replace=False))
    parts = (split.train, split.valid, split.test)
    rest = Split(*(part.where(~new[part.users]) for part in parts))
    known = split.known[new].tocsr()
    people, items = known.tocoo().coords
    order = np.lexsort((rng.random(len(people)), people))  # everybody's items in an order of chance
    people, items = people[order], items[order]
    position = np.arange(len(people)) - known.indptr[people]
    for model in ("ease", "ials", "softmax"):
        fitted = DivMF(k=K, model=model, seed=seed).fit(rest)
        points = fitted.at(epoch=0), fitted.at(ndcg_drop=DROP)
        for length in KNOWN:
            history, held_out = known.copy(), known.copy()
            for matrix, some in ((history, position < length), (held_out, position >= length)):
                matrix[people[~some], items[~some]] = 0
                matrix.eliminate_zeros()
            ids = [split.item_ids.gather(history.indices[slice(*ends)]).to_list()
                   for ends in zip(history.indptr[:-1], history.indptr[1:], strict=True)]  # fmt: skip
            found: list[TopK] = [point.lists(histories=ids) for point in points]
            values = [measure(lists, held_out) for lists in found]
            rows.append(
                [model, f"{length}", *(f"{value[name]:.4f}" for name in ("ndcg", "coverage") for value in values)]
            )
    after = f"at {DROP:.0%} loss"
    table(["model", "items known", "nDCG@5, the model", after, "coverage, the model", after], rows)


def taken_on(names: tuple[str, ...] = ("ml-1m", "ml-100k", "steam"), seed: int = 0) -> None:
    """The latest tenth arrives: the model chosen anew, and yesterday's taken on; test nDCG and seconds of all cores."""
    import polars as pl

    from divmf import DivMF, Split
    from divmf.data.datasets import load
    from divmf.data.split import latest

    rows = []
    for name in names:
        now = load(name).hold_out(seed=seed)
        times = now.train.times
        assert times is not None
        before = Split.from_frame(now.frame.filter(pl.col("timestamp") < latest(now.train, times, 0.1)))
        for model in ("auto", "ials", "softmax", "ease"):
            with tempfile.TemporaryDirectory() as folder:
                runs = [Path(folder) / each for each in ("yesterday", "anew", "on")]
                DivMF(k=K, model=model, seed=seed, diversity_epochs=0).fit(before, runs[0])
                values, took, which = [], [], []
                for run, settings, start in ((runs[1], {"model": model}, None), (runs[2], {}, runs[0])):
                    began = time.process_time()
                    fitted = DivMF(k=K, seed=seed, diversity_epochs=0, **settings).fit(now, run, start=start)  # type: ignore[arg-type]
                    took.append(time.process_time() - began)
                    values.append(ndcg_of(fitted.run.read_scorer(), now.test.matrix, now.seen))
                    which.append((fitted.run.read_choice() or {"model": ""})["model"])
            change = f"{values[1] / values[0] - 1:+.1%}"
            rows.append([name, model, *which, *(f"{value:.4f}" for value in values), change,
                         *(f"{seconds:.1f}" for seconds in took), f"{took[1] / took[0]:.2f}"])  # fmt: skip
            print(f"# {rows[-1]}", file=sys.stderr, flush=True)
    table(
        ["dataset", "--model", "anew", "taken on", "nDCG@5 anew", "taken on", "", "seconds anew", "taken on", "ratio"],
        rows,
    )


def main() -> None:
    """All three."""
    fold_ins()
    short_histories()
    taken_on()


if __name__ == "__main__":
    {"fold_ins": fold_ins, "short_histories": short_histories, "taken_on": taken_on}[sys.argv[1]](
        *([tuple(sys.argv[2:])] if sys.argv[2:] else [])  # type: ignore[arg-type]
    )
