"""The market with rules, against the exact optimum with the same rules, and laws over random rules."""

from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, example, given, reject, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from divmf import Rules
from divmf.market.binding import bind
from divmf.market.bonus import Bonus
from divmf.market.bound import Bound, Shop
from divmf.market.columns import Finder, Held
from divmf.market.keeping import Allowed, held_within, shut, solve_ruled
from divmf.market.proof import Proof, certify_ruled
from divmf.market.repair import empty
from divmf.market.ruled import RuledMarket
from divmf.market.solve import Market, solve
from divmf.market.values import exposure_weights, slot_weights
from divmf.models.scorer import Blocks

Array = NDArray[Any]


class Small(NamedTuple):
    """A market small enough for an exact solver."""

    scores: Array
    ruled: RuledMarket

    @property
    def bound(self) -> Bound:
        return self.ruled.bound


def small(
    scores: Array, k: int, rules: Rules, width: int = 64, popularity: Any = None, exposure: str = "count"
) -> Small:
    scores = scores.astype(np.float32)
    n_users, n_items = scores.shape
    nothing = sparse.csr_array(scores.shape, dtype=np.float32)
    item_ids, user_ids = (pl.Series(name, list(range(n))) for name, n in (("item_id", n_items), ("user_id", n_users)))
    bound = bind(rules, Shop(item_ids, user_ids, nothing, False, k, popularity))
    scorer = shut(Blocks(lambda users: scores[users], n_users, n_items), bound.blocked.items)
    held = held_within(Held.nothing(nothing), bound.blocked)
    finder = Allowed(Finder(scorer, held, np.ones(n_users, np.float32), width), bound.blocked.items)
    weights = exposure_weights(k, exposure)
    bonus = Bonus(1e-4, 0.9 * n_users * k / n_items, 16.0, n_users)
    market = Market(finder, slot_weights(k), weights, bonus, ("all",))
    return Small(scores, RuledMarket(market, bound))


def table_of(bonus: Bonus, level: float, n: int) -> Array:
    """b(0), b(1), … of a level, as it is defined."""
    x = np.arange(n)
    if not level:
        return np.zeros(n)
    return np.logaddexp(0, bonus.steepness * np.log(level / (x + bonus.delta))) / bonus.steepness


def worth(made: Small, rho: float, lists: Array) -> float:
    """The objective, added up as it is defined."""
    market, bound = made.ruled.market, made.bound
    n_items = made.scores.shape[1]
    levels = made.ruled.own_levels if bound.target is not None else np.full(n_items, market.bonus.level)
    total = sum(
        market.slots[r] * float(made.scores[user, item])
        for user, items in enumerate(lists)
        for r, item in enumerate(items)
        if item >= 0
    )
    shown = np.bincount(lists[lists >= 0], minlength=n_items)
    for item, count in enumerate(shown):
        total += rho * table_of(market.bonus, levels[item], count).sum()
    for number, count in enumerate(bound.counted(lists)):
        total += rho * bound.weight[number] * table_of(market.bonus, bound.level[number], int(count)).sum()
    return float(total)


def optimum(made: Small, rho: float) -> tuple[float, Array] | None:
    """The best lists of k that keep the rules, by HiGHS; none where there are none.

    x_uir puts item i in slot r of user u, y_ix is the x-th showing of item i, z_Tx that of total T.
    """
    market, bound, scores = made.ruled.market, made.bound, made.scores
    (n_users, n_items), k = scores.shape, len(market.slots)
    n_totals, most = bound.n_totals, n_users * k
    levels = made.ruled.own_levels if bound.target is not None else np.full(n_items, market.bonus.level)
    x = np.arange(n_users * n_items * k).reshape(n_users, n_items, k)
    y = x.size + np.arange(n_items * n_users).reshape(n_items, n_users)
    z = x.size + y.size + np.arange(n_totals * most).reshape(n_totals, most)
    gain = [np.einsum("ui,r->uir", scores.astype(np.float64), market.slots).ravel()]
    gain += [rho * table_of(market.bonus, level, n_users) for level in levels]
    gain += [rho * bound.weight[total] * table_of(market.bonus, bound.level[total], most) for total in range(n_totals)]
    size = x.size + y.size + z.size
    rows: list[tuple[Array, Array, float, float]] = []
    for user in range(n_users):
        rows += [(x[user, :, r], np.ones(n_items), 1, 1) for r in range(k)]
        rows += [(x[user, item], np.ones(k), 0, 1) for item in range(n_items)]
    for item in range(n_items):
        rows.append((np.append(x[:, item].ravel(), y[item]), np.repeat([1, -1], [n_users * k, n_users]), 0, 0))
    of = [np.repeat(np.arange(n_items), np.diff(bound.offsets))[bound.totals == total] for total in range(n_totals)]
    for total, items in enumerate(of):
        pairs = x[:, items].ravel()
        rows.append((pairs, np.ones(len(pairs)), bound.low[total], min(bound.high[total], most)))
        rows.append((np.append(pairs, z[total]), np.repeat([1, -1], [len(pairs), most]), 0, 0))
        if bound.per_list[total] < k:
            rows += [
                (x[user, items].ravel(), np.ones(len(items) * k), 0, bound.per_list[total]) for user in range(n_users)
            ]
    matrix = sparse.lil_array((len(rows), size))
    for number, (at, values, _, _) in enumerate(rows):
        matrix[number, at] = values
    most_of = np.ones(size)
    blocked = np.tile(bound.blocked.items, (n_users, 1))
    if bound.blocked.pairs is not None:
        blocked |= bound.blocked.pairs.toarray() > 0
    most_of[x[blocked].ravel()] = 0
    found = milp(
        -np.concatenate(gain), integrality=np.ones(size), bounds=Bounds(0, most_of),
        constraints=LinearConstraint(matrix.tocsr(), [low for *_, low, _ in rows], [high for *_, high in rows]),
        options={"mip_rel_gap": 1e-9},
    )  # fmt: skip
    if found.x is None:
        return None
    lists = np.argmax(found.x[: x.size].reshape(x.shape) > 0.5, axis=1)
    return float(-found.fun), lists


def check_hard(made: Small, lists: Array) -> None:
    """What holds whatever else does: capacities, caps, filters, limits in a list, order, no item twice."""
    bound = made.bound
    assert (bound.counted(lists) <= bound.high).all()
    for user, row in enumerate(lists):
        items = row[row >= 0]
        assert len(set(items.tolist())) == len(items)
        assert not bound.blocked.items[items].any()
        if bound.blocked.pairs is not None:
            assert not set(items.tolist()) & set(bound.blocked.pairs[[user]].indices.tolist())
        assert (bound.counted(items[None]) <= bound.per_list).all()
        values = made.scores[user, items]
        assert (np.diff(values) <= 0).all()


def run(made: Small, rho: float) -> tuple[Array, Proof]:
    kept = solve_ruled(made.ruled, rho, made.ruled.state_of(made.ruled.market.own[1]["all"]))
    return kept.solution.lists["all"].items, certify_ruled(made.ruled, kept)


def random_rules(rng: np.random.Generator, n_users: int, n_items: int, k: int) -> Rules:
    """Rules that may or may not be possible."""
    catalog = pl.DataFrame(
        {"item_id": list(range(n_items)), "seller": rng.integers(0, 3, n_items), "kind": rng.integers(0, 2, n_items),
         "seats": rng.integers(k, n_users + 1, n_items), "new": rng.random(n_items) < 0.4}
    )  # fmt: skip
    catalog[0, "new"] = True
    slots, given = n_users * k, {}
    if rng.random() < 0.6:
        given["capacity"] = {"column": "seats"}
    if rng.random() < 0.4:
        given["floor"] = {"where": "new", "count": int(rng.integers(1, 3))}
    groups: dict[str, Any] = {}
    if rng.random() < 0.6:
        groups["seller"] = {"floor": int(rng.integers(0, slots // 3 + 1))}
        if rng.random() < 0.5:
            groups["seller"]["per_list"] = int(rng.integers(1, k + 1))
    if rng.random() < 0.5:
        groups["kind"] = {"cap": int(rng.integers(slots // 2, slots + 1))}
    if groups:
        given["groups"] = groups
    if rng.random() < 0.3:
        given["filter"] = {"exclude": [int(rng.integers(n_items))]}
    if rng.random() < 0.3:
        given["promote"] = {"where": "new", "share": f"{rng.integers(5, 40)}%"}
    return Rules(**given, catalog=catalog)


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 3))
@example(seed=126, k=2)  # a slot that turns leave empty
@example(seed=1144, k=3)  # a filter, and floors of all slots
def test_every_rule_that_can_hold_holds_and_the_certificate_is_right(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(6, 7)) + 2 * rng.normal(size=7)
    try:
        made = small(scores, k, random_rules(rng, 6, 7, k))
    except ValueError:
        reject()  # a contradiction, which tests/test_rules.py is about
    rho = float(rng.choice([0.0, 0.3, 3.0]))
    lists, proof = run(made, rho)
    check_hard(made, lists)
    best = optimum(made, rho)
    assume(best is not None)
    assert (lists >= 0).all()
    assert (made.bound.counted(lists) >= made.bound.low).all()
    value = worth(made, rho, lists)
    assert value <= best[0] + 1e-6 * max(1, abs(best[0]))
    own = made.ruled.market.own[1]["all"].items
    gained = value - worth(made, rho, own)
    unit = max(gained, made.ruled.scale * 6 * made.ruled.market.slots.sum())
    assert best[0] - value <= proof.gap * unit + 1e-6 * max(1, abs(best[0]))


def test_without_bounds_the_lists_are_those_of_the_market() -> None:
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(40, 15))
    made = small(scores, 3, Rules())
    market = made.ruled.market
    for rho in (0.0, 0.2, 2.0):
        plain, (lists, _) = solve(market, rho, market.own[1]["all"]), run(made, rho)
        assert worth(made, rho, lists) == pytest.approx(worth(made, rho, plain.lists["all"].items), rel=0.01)


def test_how_far_from_the_optimum_lists_with_rules_are_and_how_close_the_bound_is() -> None:
    """Bounds of a few showings are the hardest: multipliers move many users at once, and there are few."""
    catalog = pl.DataFrame({"item_id": list(range(20)), "seller": np.arange(20) % 4})
    rules = Rules(capacity={"count": 8}, groups={"seller": {"floor": 12, "per_list": 1}}, catalog=catalog)
    lost = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        made = small(rng.normal(size=(40, 20)) + 1.5 * rng.normal(size=20), 2, rules)
        for rho in (0.0, 0.2):
            best = optimum(made, rho)
            assert best is not None
            lists, proof = run(made, rho)
            assert (made.bound.counted(lists) >= made.bound.low).all()
            assert proof.gap < 0.03
            lost.append((best[0] - worth(made, rho, lists)) / (made.ruled.scale * 40 * 2))
    assert max(lost) < 0.02  # of a spread of values a slot
    assert min(lost) > -1e-9


def test_empty_slots_are_counted_and_item_zero_is_none() -> None:
    assert empty(np.array([[0, 1], [2, -1], [-1, -1]])) == 3
