"""Rules of a run: bound to its data, and the lists of a point that keep others."""

from divmf.data.split import Split
from divmf.engine import comm
from divmf.engine.arrays import Array
from divmf.market.binding import bind
from divmf.market.bound import Bound, Shop
from divmf.market.chosen import Chosen
from divmf.market.rules import Rules
from divmf.models.config import TrainConfig
from divmf.models.scorer import Scorer
from divmf.ranking.curve import Point
from divmf.train.market import Exchange, measure_lists
from divmf.train.runs import Run


def bound_to(rules: Rules, split: Split, config: TrainConfig) -> Bound:
    """Rules for the data of a run; an error in one line where they cannot be."""
    if not isinstance(rules, Rules):
        raise ValueError(f"rules is a {type(rules).__name__}; give divmf.Rules(…) or Rules.read('rules.toml')")
    if config.method != "market":
        raise ValueError(f"rules go with method 'market'; method {config.method!r} cannot keep them")
    popularity: Array = comm.total(split.train.popularity)
    return bind(rules, Shop(split.item_ids, split.user_ids, split.known, False, config.k, popularity))


def lists_under(
    run: Run, split: Split, point: Point, rules: Rules, scorer: Scorer | None = None
) -> tuple[Chosen, Bound, dict[str, float]]:
    """The lists of a point as they are where they keep rules: the market solved again at its ρ, from its lists.

    With them the rules for this data, and nDCG on the test without the rules and with them.
    """
    bound = bound_to(rules, split, run.read_config())
    maker = Exchange(run, split, run.read_config(), None, scorer, bound)
    there = run.read_chosen(point, comm.row_range(split.n_users))
    start = maker.market.own[1]["valid"] if there is None else maker.market.lists(there.lists["valid"])
    chosen, _ = maker.solved(point.knob or 0.0, start)
    after = measure_lists(chosen.lists["test"].copy(), split, split.test)
    return chosen, bound, {"without": float(point.test["ndcg"]), "with": after["ndcg"]}
