"""The exposure market: best responses by brute force, the certificate against the optimum, and markets that are odd."""

from itertools import combinations, pairwise, permutations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from divmf.data.datasets import marketplace
from divmf.data.split import Split
from divmf.engine.threads import workers
from divmf.kernels.bound import BINS, balances, offered
from divmf.kernels.market import ONE, Columns, Terms, gain_of
from divmf.market.bonus import Bonus
from divmf.market.certificate import certify, demand_at, surplus
from divmf.market.columns import KINDS, Finder, GivenLists, Held, joined
from divmf.market.solve import Lists, Market, solve
from divmf.market.values import exposure_weights, slot_weights
from divmf.models.config import TrainConfig
from divmf.models.scorer import Blocks, Factors, ItemItem
from divmf.train.fitting import fit
from divmf.train.market import Exchange
from divmf.train.runs import Run

Array = NDArray[Any]


def market_of(scores: Array, k: int, exposure: str = "count", width: int = 64, known: Any = None) -> Market:
    """A market over all items, where all users count alike."""
    scores = scores.astype(np.float32)
    n_users, n_items = scores.shape
    known = sparse.csr_array(scores.shape, dtype=np.float32) if known is None else known
    finder = Finder(
        Blocks(lambda users: scores[users], n_users, n_items), Held.nothing(known), np.ones(n_users, np.float32), width
    )
    weights = exposure_weights(k, exposure)
    bonus = Bonus(1e-4, 0.9 * n_users * weights.sum() / ONE / n_items, 16.0, n_users)
    return Market(finder, slot_weights(k), weights, bonus, ("all",))


def worth(market: Market, scores: Array, rho: float, lists: Array) -> float:
    """The objective, added up slot by slot as it is defined."""
    exposed = np.zeros(scores.shape[1])
    total = 0.0
    for user, items in enumerate(lists):
        for r, item in enumerate(items):
            total += market.slots[r] * float(np.float32(scores[user, item]))
            exposed[item] += market.exposure[r] / ONE
    table = market.bonus.table
    for amount in exposed:
        whole = int(amount + 1e-9)
        total += rho * (table[:whole].sum() + (amount - whole) * table[whole])
    return total


def in_order(scores: Array, items: tuple[int, ...]) -> list[int]:
    return sorted(items, key=lambda item: (-np.float32(scores[item]), item))


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 3), kind=st.sampled_from(["count", "attention"]))
def test_nobody_can_do_better_alone(seed: int, k: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    scores, rho = rng.normal(size=(5, 6)), float(rng.choice([0.0, 0.1, 1.0, 10.0]))
    market = market_of(scores, k, kind)
    lists = solve(market, rho, market.own[1]["all"]).lists["all"].items
    value = worth(market, scores, rho, lists)
    for user in range(5):
        for items in combinations(range(6), k):
            other = lists.copy()
            other[user] = in_order(scores[user], items)
            assert worth(market, scores, rho, other) <= value + 1e-6 * max(1.0, abs(value))


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 3), kind=st.sampled_from(["count", "attention"]))
def test_the_first_turn_is_the_best_response_of_a_plain_search(seed: int, k: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    scores, rho = rng.normal(size=(1, 6)), float(rng.choice([0.1, 1.0, 10.0]))
    market = market_of(scores, k, kind)
    columns, made = market.own
    exposed = rng.integers(0, 3 * ONE, 6)
    bonus = Bonus(1e-4, 2.0, 16.0, 10)  # there is one user, but exposure of more
    market = Market(market.finder, market.slots, market.exposure, bonus, ("all",))
    lists = Lists(np.full((1, k), -1, dtype=np.int32), exposed.copy())
    market.turns(columns, 1, rho, lists)

    def value(items: list[int]) -> float:
        terms = Terms(market.slots, market.exposure, rho * bonus.table)
        return sum(
            market.slots[r] * float(np.float32(scores[0, item]))
            + gain_of(int(exposed[item]), int(market.exposure[r]), terms.bonus)
            for r, item in enumerate(items)
        )

    best = max(value(in_order(scores[0], items)) for items in combinations(range(6), k))
    assert value(lists.items[0].tolist()) == pytest.approx(best, rel=1e-9)
    assert made["all"].items.tolist() == [np.argsort(-scores[0].astype(np.float32), kind="stable")[:k].tolist()]


def test_what_exposure_earns_worked_out_by_hand() -> None:
    bonus = np.array([4.0, 2.0, 1.0, 0.5])
    half = ONE // 2
    assert gain_of(0, ONE, bonus) == 4.0
    assert gain_of(ONE, ONE, bonus) == 2.0
    assert gain_of(half, ONE, bonus) == 0.5 * 4 + 0.5 * 2
    assert gain_of(half, half, bonus) == 2.0
    assert gain_of(ONE + half, ONE // 4, bonus) == 0.5


def optimum(market: Market, scores: Array, rho: float, k: int) -> float:
    """The best objective there is, by HiGHS: x_uir puts item i in slot r of user u, y_ix is the x-th showing of i."""
    n_users, n_items = scores.shape
    x_size, y_size = n_users * n_items * k, n_items * n_users
    gains = np.einsum("ui,r->uir", scores.astype(np.float32).astype(np.float64), market.slots).ravel()
    earned = rho * np.tile(market.bonus.table[:n_users], n_items)
    x = np.arange(x_size).reshape(n_users, n_items, k)
    rows: list[tuple[Array, Array, float, float]] = []
    for user in range(n_users):
        rows += [(x[user, :, r], np.ones(n_items), 1, 1) for r in range(k)]
        rows += [(x[user, item], np.ones(k), 0, 1) for item in range(n_items)]
    for item in range(n_items):
        shown = x_size + item * n_users + np.arange(n_users)
        rows.append(
            (np.concatenate([x[:, item].ravel(), shown]), np.append(np.ones(n_users * k), -np.ones(n_users)), 0, 0)
        )
    matrix = np.zeros((len(rows), x_size + y_size))
    for number, (at, values, _, _) in enumerate(rows):
        matrix[number, at] = values
    found = milp(
        -np.append(gains, earned), integrality=np.ones(x_size + y_size), bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix, [low for *_, low, _ in rows], [high for *_, high in rows]),
        options={"mip_rel_gap": 1e-9},
    )  # fmt: skip
    assert found.success
    return float(-found.fun)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("width", [3, 64])
@pytest.mark.parametrize("from_nearby", [False, True])
def test_the_certificate_is_at_least_the_distance_from_the_optimum(seed: int, width: int, from_nearby: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(6, 8)) + 2 * rng.normal(size=8)
    market = market_of(scores, 2, width=width)
    lists, nearby = market.own[1]["all"], None
    for rho in (0.05, 0.3, 1.0, 5.0):
        found = solve(market, rho, lists)
        lists, certificate = found.lists["all"], certify(market, found, nearby if from_nearby else None)
        nearby = certificate.discount
        value = worth(market, scores, rho, lists.items)
        gained = value - worth(market, scores, rho, market.own[1]["all"].items)
        best = optimum(market, scores, rho, 2)
        assert value <= best + 1e-6
        if gained > 0:
            assert certificate.gap * gained >= best - value - 1e-6 * best
        # where six users share eight items, one list more or less is much; still, most of what there is is gained
        assert gained >= 0.5 * (best - worth(market, scores, rho, market.own[1]["all"].items)) - 1e-6


@pytest.mark.parametrize("exposure", ["count", "attention"])
@pytest.mark.parametrize(("width", "radius"), [(1, 1e-6), (3, 0.1), (3, 2.0), (9, 0.1)])
def test_the_bound_is_of_all_items_whatever_the_candidates(exposure: str, width: int, radius: float) -> None:
    rng = np.random.default_rng(width)
    scores = np.round(rng.normal(size=(7, 9)), 2)
    known = sparse.csr_array((rng.random((7, 9)) < 0.3).astype(np.float32))
    market = market_of(scores, 3, exposure, width, known)
    columns, _ = market.own
    discount = np.round(rng.uniform(0, 2, 9), 2)
    found, _ = demand_at(market, columns, 1, 1.0, discount, np.full(9, radius))
    weights = market.exposure / ONE
    best = 0.0
    for user in range(7):
        unseen = [item for item in range(9) if not known[user, item]]
        ordered = [
            sorted(each, key=lambda item, user=user: (-scores[user, item], item)) for each in combinations(unseen, 3)
        ]
        best += max(
            sum(w * scores[user, i] + e * discount[i] for w, e, i in zip(market.slots, weights, each, strict=True))
            for each in ordered
        )
    assert found >= best - 1e-5
    if exposure == "count":  # the order by value is the best there is, so the bound is what the best lists are worth
        assert found == pytest.approx(best, rel=1e-5)


def test_what_items_offer_at_a_discount_by_hand() -> None:
    market = market_of(np.zeros((2, 2)), 1)
    table = market.bonus.table
    between = (table[0] + table[1]) / 2  # the first showing earns more, the second less
    assert surplus(market, 1.0, np.array([between, 2 * table[0]])) == pytest.approx(table[0] - between)


def test_joined_candidates_are_those_of_both_in_order() -> None:
    rng = np.random.default_rng(0)
    market = market_of(np.round(rng.normal(size=(20, 30)), 1), 3, width=4)
    nobody = np.full((20, 3), -1, dtype=np.int32)
    one, other = (market.finder.find(rng.uniform(0, 3, 30), nobody) for _ in range(2))
    both = joined(one, other)
    for user in range(20):
        parts = [set(range_of(each, user)) for each in (one, other)]
        assert range_of(both, user) == sorted(parts[0] | parts[1], key=lambda pair: (-pair[1], pair[0]))


def range_of(columns: Columns, user: int) -> list[tuple[int, float]]:
    inside = slice(columns.starts[user], columns.ends[user])
    return list(zip(columns.items[inside].tolist(), columns.values[inside].tolist(), strict=True))


def test_who_would_take_an_item_at_other_discounts_is_what_a_plain_search_says() -> None:
    rng = np.random.default_rng(5)
    scores = rng.normal(size=(12, 7)).astype(np.float32)
    market = market_of(scores, 2, width=3)
    columns, _ = market.own
    discount, radius = rng.uniform(0, 1, 7), rng.uniform(0.3, 0.9, 7)
    edges = discount[:, None] + radius[:, None] * (2 * np.arange(BINS + 1) / BINS - 1)

    def takes(user: int, item: int, discounts: Array) -> bool:
        lists = [in_order(scores[user], each) for each in combinations(range(7), 2)]
        best = max(lists, key=lambda each: market.slots @ scores[user, each] + discounts[each].sum())
        return item in best

    _, counts = demand_at(market, columns, 1, 1.0, discount, radius)
    for item in range(7):
        for edge, below in zip(edges[item], np.cumsum(counts[item]) / ONE, strict=True):
            discounts = np.where(np.arange(7) == item, edge, discount)
            assert below == sum(takes(user, item, discounts) for user in range(12))


def test_where_demand_meets_what_is_offered_by_hand() -> None:
    bonus = np.array([4.0, 3.0, 1.0, 0.5])  # offered: half a showing at 4, one and a half at 3
    assert [offered(discount, bonus) for discount in (5.0, 4.0, 3.5, 3.0, 2.0)] == [0.0, 0.5, 1.0, 1.5, 2.0]
    counts = np.zeros((3, 1 + BINS), dtype=np.int64)
    counts[0, 0] = ONE  # one user takes it at 3.0 already, none more: offered is 1 at 3.5
    counts[1, 0] = 9 * ONE  # more than there is at any discount around
    found = np.empty(3)
    balances(counts, np.full(3, 3.5), np.full(3, 0.5), bonus, found)
    assert found[0] == pytest.approx(3.5, abs=1e-6)
    assert found[1:].tolist() == [3.0, 4.0]  # the lower end; the upper end, for nobody wants it


def test_the_certificate_of_a_market_of_hundreds_is_tight() -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(500, 150)) + 1.5 * rng.normal(size=150)
    market = market_of(scores, 5, width=16)
    lists, nearby = market.own[1]["all"], None
    for rho in (1.0, 2.0, 4.0):
        found = solve(market, rho, lists)
        lists = found.lists["all"]
        assert certify(market, found).gap <= 0.02
        certificate = certify(market, found, nearby)
        assert certificate.gap <= 0.02
        nearby = certificate.discount


def test_the_objective_rises_with_every_turn() -> None:
    rng = np.random.default_rng(0)
    market = market_of(rng.normal(size=(80, 30)) + 2 * rng.normal(size=30), 4)
    columns, made = market.own
    lists, values = made["all"].copy(), []
    for _ in range(6):
        values.append(market.value(columns, 2.0, lists))
        market.turns(columns, 1, 2.0, lists)
    assert all(after >= before for before, after in pairwise(values))
    assert values[-1] > values[0]
    assert np.array_equal(market.lists(lists.items).exposed, lists.exposed)


def path_of(market: Market, n: int = 14, first: float = 0.05) -> list[Array]:
    lists = market.own[1]["all"]
    made = []
    for number in range(n):
        lists = solve(market, first * 2**number * (market.spread or 1.0), lists).lists["all"]
        made.append(lists.items)
    return made


def covered(items: Array, n_items: int) -> float:
    return len(np.unique(items[items >= 0])) / n_items


@pytest.mark.parametrize(
    ("n_users", "n_items", "k", "alike"),
    [(671, 3496, 5, 0.0), (200, 200, 1, 0.0), (150, 60, 5, 0.999), (300, 4000, 5, 0.0), (300, 4000, 5, 0.99)],
    ids=["more items than slots", "one slot", "users want the same", "few slots", "few slots, users want the same"],
)
def test_coverage_comes_within_two_per_cent_of_its_ceiling(n_users: int, n_items: int, k: int, alike: float) -> None:
    rng = np.random.default_rng(1)
    taste = rng.normal(size=(n_users, 8)) @ rng.normal(size=(8, n_items))
    scores = (1 - alike) * taste + alike * 3 * rng.normal(size=n_items)
    last = path_of(market_of(scores, k))[-1]
    ceiling = min(1.0, n_users * k / n_items)
    assert covered(last, n_items) >= 0.98 * ceiling


def test_an_item_that_everybody_wants_most_is_not_shown_to_all_in_the_end() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(60, 30))
    scores[:, 7] += 100
    first, *_, last = path_of(market_of(scores, 2))
    assert (first == 7).any(axis=1).all()
    assert (last == 7).sum() < 30


def test_scores_that_are_all_equal_give_even_lists() -> None:
    last = path_of(market_of(np.zeros((40, 20)), 3))[-1]
    counts = np.bincount(last.ravel(), minlength=20)
    assert counts.max() - counts.min() <= 1
    assert all(len(set(row)) == 3 for row in last.tolist())


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), rho=st.sampled_from([0.0, 0.3, 3.0, 1000.0]))
def test_lists_are_full_distinct_unseen_and_in_order(seed: int, rho: float) -> None:
    rng = np.random.default_rng(seed)
    scores, known = rng.normal(size=(12, 9)), sparse.csr_array((rng.random((12, 9)) < 0.6).astype(np.float32))
    market = market_of(scores, 4, width=4, known=known)
    lists = solve(market, rho, market.own[1]["all"]).lists["all"].items
    for user, row in enumerate(lists.tolist()):
        listed = [item for item in row if item >= 0]
        assert len(listed) == len(set(listed)) == min(4, 9 - int((known[[user]] != 0).sum()))
        assert not known[[user]].toarray()[0, listed].any()
        assert listed == in_order(scores[user], tuple(listed))


def test_the_seam_gives_the_same_lists_for_the_same_scores() -> None:
    rng = np.random.default_rng(0)
    users, items = rng.normal(size=(50, 4)).astype(np.float32), rng.normal(size=(20, 4)).astype(np.float32)
    met = sparse.csr_array((rng.random((50, 20)) < 0.2).astype(np.float32))
    weights = rng.normal(size=(20, 20)).astype(np.float32)
    pairs: list[tuple[Any, Array]] = [
        (Factors.from_arrays(users, items), users @ items.T),
        (ItemItem(met, weights), met @ weights),
        (ItemItem(met, sparse.csr_array(weights)), met @ weights),
    ]
    for scorer, scores in pairs:
        finder = Finder(scorer, Held.nothing(met), np.ones(50, dtype=np.float32))
        market = market_of(np.asarray(scores), 3, known=met)
        other = Market(finder, market.slots, market.exposure, market.bonus, ("all",))
        for one, two in zip(path_of(market, 4), path_of(other, 4), strict=True):
            assert (one == two).mean() > 0.97  # digits of products decide ties of bonuses


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda users: np.zeros((len(users), 3)), r"shape \(5, 3\) for 5 users.*\(5, 4\)"),
        (lambda users: np.full((len(users), 4), np.nan), "NaN or infinite scores"),
        (lambda users: np.full((len(users), 4), np.inf), "NaN or infinite scores"),
    ],
)
def test_a_function_that_gives_no_scores_is_refused(function: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Blocks(function, 5, 4).scores(np.arange(5))


def test_lists_that_are_given_are_a_closed_world() -> None:
    items = np.array([[0, 1, 2], [0, 1, 3], [0, 2, -1]], dtype=np.int32)
    scores = np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [1.0, 0.5, -np.inf]], dtype=np.float32)
    market = Market(
        GivenLists(items, scores, 5), slot_weights(2), exposure_weights(2, "count"), Bonus(1e-4, 1.0, 16.0, 3), ("all",)
    )
    found = solve(market, 100.0, market.own[1]["all"])
    assert [set(row) for row in found.lists["all"].items.tolist()] in (
        [{1, 2}, {1, 3}, {0, 2}],
        [{1, 2}, {0, 3}, {0, 2}],
    )
    assert certify(market, found).gap < 0.2


@pytest.fixture(scope="module")
def split() -> Split:
    return marketplace(users=160, items=90, interactions=3000, seed=2).hold_out(seed=0)


CONFIG = TrainConfig(k=4, dim=8, l2=4.0, learning_rate=0.2, accuracy_epochs=12, diversity_epochs=8)


@pytest.fixture(scope="module")
def run(split: Split, tmp_path_factory: pytest.TempPathFactory) -> Run:
    made = Run.start(tmp_path_factory.mktemp("market") / "run", split, CONFIG)
    list(fit(made, split, CONFIG))
    return made


def test_lists_of_each_kind_leave_out_what_is_seen_by_then(run: Run, split: Split) -> None:
    seen = {"valid": split.train.matrix, "test": split.seen, "all": split.known}
    point = run.read_curve().points[-1]
    chosen = run.read_chosen(point)
    assert chosen is not None
    assert tuple(chosen.lists) == KINDS
    for kind, items in chosen.lists.items():
        rows, slots = np.nonzero(items >= 0)
        assert not (np.asarray(seen[kind].todense())[rows, items[rows, slots]] > 0).any()
        assert (items >= 0).all()


def test_what_is_held_out_is_no_better_a_candidate_than_other_items(split: Split) -> None:
    # with held-out items as candidates of their users, whatever their scores, nDCG rose with ρ
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(split.n_users, split.n_items)).astype(np.float32)
    finder = Finder(
        Blocks(lambda users: scores[users], *scores.shape), Held.of(split), np.ones(split.n_users, np.float32), 8
    )
    nobody = np.full((split.n_users, 4), -1, dtype=np.int32)
    columns = finder.find(np.zeros(split.n_items), nobody)
    for user in range(split.n_users):
        inside = columns.items[columns.starts[user] : columns.ends[user]]
        opens = columns.opens[columns.starts[user] : columns.ends[user]]
        met = set(split.train.matrix[[user]].indices.tolist())
        lowest = min(scores[user, item] for item, bits in zip(inside, opens, strict=True) if bits == 7)
        expected = {item for item in range(split.n_items) if item not in met and scores[user, item] >= lowest}
        assert set(inside.tolist()) == expected
        held = {kind: set(getattr(split, kind).matrix[[user]].indices.tolist()) for kind in ("valid", "test")}
        for item, bits in zip(inside.tolist(), opens.tolist(), strict=True):
            assert bits == (1 if item in held["valid"] else 3 if item in held["test"] else 7)


def test_random_scores_learn_nothing_from_what_is_held_out(split: Split) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(split.n_users, split.n_items)).astype(np.float32)
    finder = Finder(
        Blocks(lambda users: scores[users], *scores.shape), Held.of(split), np.ones(split.n_users, np.float32), 6
    )
    market = Market(finder, slot_weights(4), exposure_weights(4, "count"), Bonus(1e-4, 6.0, 16.0, split.n_users))
    start = market.own[1]["valid"]
    hits = []
    for number in range(8):
        lists = solve(market, 0.05 * 3**number * market.spread, start).lists
        start = lists["valid"]
        test = np.asarray(split.test.matrix.todense())
        hits.append(np.take_along_axis(test, lists["test"].items, axis=1).mean())
    unseen = 1 - np.asarray(split.seen.todense()).mean()
    expected = len(split.test) / (split.n_users * split.n_items * unseen)
    assert max(hits) < expected + 4 * np.sqrt(expected / (4 * split.n_users))


def test_a_point_made_again_is_the_same(run: Run, split: Split) -> None:
    before, point = [each for each in run.read_curve().points if each.knob is not None][3:5]
    again = Exchange(run, split, CONFIG)
    kept = run.read_chosen(before)
    assert kept is not None
    found = solve(again.market, float(point.knob or 0.0), again.market.lists(kept.lists["valid"]))
    there = run.read_chosen(point)
    assert there is not None
    assert all(np.array_equal(found.lists[kind].items, there.lists[kind]) for kind in KINDS)
    assert certify(again.market, found, kept.discount).gap == point.gap


def test_threads_give_the_same_candidates(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    vectors = [rng.normal(size=(n, 16)).astype(np.float32) for n in (split.n_users, split.n_items)]
    made = []
    for threads in (1, 3):
        pool = type(workers())(threads)
        monkeypatch.setattr("divmf.engine.threads.workers", lambda pool=pool: pool)
        finder = Finder(Factors.from_arrays(*vectors), Held.of(split), np.ones(split.n_users, np.float32), 8)
        discount = np.linspace(0, 1, split.n_items)
        columns = finder.find(discount, np.full((split.n_users, 4), -1, dtype=np.int32))
        kept = np.concatenate([columns.values[a:b] for a, b in zip(columns.starts, columns.ends, strict=True)])
        made.append((kept, columns.ends))
        pool.shutdown()
    assert all(np.array_equal(one, other) for one, other in zip(*made, strict=True))


def test_weights_of_slots_and_of_exposure_by_hand() -> None:
    assert slot_weights(3).tolist() == pytest.approx([4.0, 4 / np.log2(3) ** 2, 1.0])
    assert exposure_weights(3, "count").tolist() == [ONE] * 3
    assert exposure_weights(3, "attention").tolist() == [ONE, round(ONE / np.log2(3)), ONE // 2]
    with pytest.raises(ValueError, match="exposure='clicks' is unknown"):
        exposure_weights(3, "clicks")


def test_attention_moves_diversity_to_the_front_of_the_list(split: Split, run: Run) -> None:
    model = run.read_model(run.read_curve().base)
    scores = (model.users @ model.items.T).detach().numpy() if isinstance(model.users, torch.Tensor) else None
    assert scores is not None
    first = {}
    for kind in ("count", "attention"):
        made = path_of(market_of(scores, 4, kind), 10)
        # where as much score is given up, how many items the first slot shows
        kept = [np.take_along_axis(scores, items, axis=1).mean() for items in made]
        shown = [len(np.unique(items[:, 0])) for items in made]
        level = 0.9 * np.sort(scores, axis=1)[:, -4:].mean()
        first[kind] = np.interp(-level, -np.array(kept), shown)
    assert first["attention"] > first["count"]


def test_every_order_of_a_list_is_worth_less_than_that_of_value() -> None:
    weights, values = slot_weights(4), np.array([3.0, 1.0, 0.5, -2.0])
    best = float(weights @ values)
    assert all(float(weights @ np.array(order)) <= best + 1e-12 for order in permutations(values))
