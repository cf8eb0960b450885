"""Exposure prices: the market against a slow loop, the bound against all lists, and the optimum against HiGHS.

What is solved is  max Σ_lists r̂_ui + ρ Σ_i B(f_i),  B(f) = Σ_{x<f} b(x),  b(x) = log(1 + c/(x + δ)) + w·(share of items
shown more than x times in the lists that are counted from).
"""

import math
from itertools import combinations, pairwise, product
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import linprog

from divmf import prices
from divmf.ids import Array
from divmf.metrics import gini
from divmf.model import MF
from divmf.prices import Bonus, Market, Prices, follow, offered, slack, solve
from divmf.topk import recommend

BONUS = Bonus(0.1, 6.0)
SHOWN = np.array([0, 0, 0, 1, 1, 2, 4, 4, 6, 9, 17, 25])  # sorted
EVEN = Bonus(0.01, 6.0, 4.0, SHOWN)
FIRST = Bonus(1e-14, 6.0, 4.0, SHOWN)  # the first showing above all
BONUSES = (Bonus(0.01, 3.0), Bonus(0.1, 0.5), Bonus(1.0, 1000.0), EVEN, FIRST, Bonus(0.1, 0.01, 50.0, SHOWN))


def some_seen(n_users: int, n_items: int, seed: int, share: float = 0.2) -> Array:
    return np.random.default_rng(seed).random((n_users, n_items)) < share


def some_model(n_users: int, n_items: int, seed: int) -> MF:
    generator = torch.Generator().manual_seed(seed)
    return MF(*(torch.randn(*shape, generator=generator) for shape in ((n_users, 5), (n_items, 5), (n_items,))))


def whole_numbered_model(n_users: int, n_items: int, seed: int) -> MF:
    """Scores without any rounding, and with many ties."""
    rng = np.random.default_rng(seed)
    tables = (rng.integers(-2, 3, shape) for shape in ((n_users, 3), (n_items, 3), (n_items,)))
    return MF(*(torch.tensor(table, dtype=torch.float32) for table in tables))


def market_of(model: MF, seen: Array, k: int) -> Market:
    return Market(model, sparse.csr_array(seen.astype(np.float32)), k)


def no_prices(model: MF) -> Array:
    return np.zeros(model.n_items, dtype=np.float32)


def slow_lists(model: MF, seen: Array, k: int, price: Array) -> list[list[int]]:
    """The top k of score − price of each user, best first, ties to the lowest number, seen items out."""
    priced = model.scores(slice(None)).numpy() - price
    lists = []
    for user in range(model.n_users):
        order = sorted(range(model.n_items), key=lambda item: (-priced[user, item], item))
        lists.append([item for item in order if not seen[user, item]][:k])
    return lists


# ---- lists at prices


@settings(max_examples=60)
@given(st.data())
def test_a_market_gives_the_lists_of_a_slow_loop_wherever_prices_go(data: st.DataObject) -> None:
    n_users, n_items, k = (data.draw(st.integers(*bounds)) for bounds in ((1, 12), (2, 25), (1, 6)))
    seed, k = data.draw(st.integers(0, 999)), min(k, n_items)
    model, rng = whole_numbered_model(n_users, n_items, seed), np.random.default_rng(seed)
    seen = some_seen(n_users, n_items, seed, data.draw(st.sampled_from([0.0, 0.3, 0.9, 1.0])))
    # few candidates and rounds, so that both run out
    with patch.object(prices, "WIDTH", data.draw(st.integers(0, 8))), patch.object(prices, "ROUNDS", 3):
        market, price = market_of(model, seen, k), no_prices(model)
        for step in data.draw(st.lists(st.sampled_from([0.0, 0.125, 0.25, 1.0, 8.0]), min_size=1, max_size=12)):
            price = price + (step * rng.integers(-2, 3, n_items)).astype(np.float32)  # exact in float32
            counts, worth = market.visit(price)
            expected = slow_lists(model, seen, k, price)
            assert [[item for item in row if item >= 0] for row in market.lists.tolist()] == expected
            assert_array_equal(counts, np.bincount([item for row in expected for item in row], minlength=n_items))
            scores = model.scores(slice(None)).numpy()
            assert worth == sum(float(scores[user, item]) for user, row in enumerate(expected) for item in row)


def test_what_a_market_remembers_does_not_change_its_lists() -> None:
    model, seen = some_model(80, 300, 0), some_seen(80, 300, 0)
    rng, price = np.random.default_rng(0), no_prices(model)
    market, searched = market_of(model, seen, 4), []
    search = market.search
    with patch.object(market, "search", lambda users, at: (searched.append(len(users)), search(users, at))):
        for step in (0.0, 0.01, 0.01, 0.01, 3.0, 0.01, 0.1):
            price = (price + step * rng.normal(size=300)).astype(np.float32)
            fresh = market_of(model, seen, 4)
            fresh_counts, fresh_worth = fresh.visit(price)
            counts, worth = market.visit(price)
            assert_array_equal(market.lists, fresh.lists)
            assert_array_equal(counts, fresh_counts)
            assert worth == pytest.approx(fresh_worth)
    assert searched[0] == 80
    assert sum(searched) < 7 * 80 * 0.6  # and it spares most of the work


def test_a_market_that_can_remember_no_more_rounds_finds_everybody_anew() -> None:
    model, seen = some_model(80, 300, 0), some_seen(80, 300, 0)
    rng, price = np.random.default_rng(0), no_prices(model)
    with patch.object(prices, "ROUNDS", 2), patch.object(prices, "WIDTH", 8):
        market, remembered = market_of(model, seen, 4), []
        for _ in range(12):
            price = (price + 0.1 * rng.normal(size=300)).astype(np.float32)
            market.visit(price)
            remembered.append(len(market.rounds))
            fresh = market_of(model, seen, 4)
            fresh.visit(price)
            assert_array_equal(market.lists, fresh.lists)
            assert market.found_in.max() < len(market.rounds)
    assert max(remembered) == 2
    assert sorted(remembered) != remembered


def test_users_with_few_items_left_are_looked_up_once() -> None:
    # a list that is never full was never certain, and every visit searched again
    model, seen = some_model(6, 200, 1), np.zeros((6, 200), dtype=bool)
    seen[0, 2:] = True
    market = market_of(model, seen, 3)
    market.visit(no_prices(model))
    market.visit(no_prices(model) + np.float32(1e-6))
    assert len(market.rounds) == 1
    assert market.lists[0, 2] == -1


def test_items_near_the_end_of_a_list_are_counted() -> None:
    # one user, scores 5 4 3 2 1, k = 2: the list ends at 4; within 1.5 of it are 5, 4 and 3
    model = MF(torch.ones(1, 1), torch.tensor([[5.0], [4.0], [3.0], [2.0], [1.0]]), torch.zeros(5))
    market = market_of(model, np.zeros((1, 5), dtype=bool), 2)
    market.visit(no_prices(model), near=1.5)
    assert market.close.tolist() == [1, 1, 1, 0, 0]
    market.visit(np.array([0, 0, 0, -4, 0], dtype=np.float32), near=0.5)  # 5 4 3 6 1
    assert market.close.tolist() == [1, 0, 0, 0, 0]
    assert market.spread == 4.0


def test_the_number_of_threads_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from divmf import threads

    model, seen = some_model(100, 90, 3), some_seen(100, 90, 3)
    one = solve(market_of(model, seen, 3), 0.5, no_prices(model), BONUS)
    with ThreadPoolExecutor(3) as pool:
        monkeypatch.setattr(threads, "workers", lambda: pool)
        three = solve(market_of(model, seen, 3), 0.5, no_prices(model), BONUS)
    assert_array_equal(one.price, three.price)
    assert one.gap == three.gap


# ---- the bound


@pytest.mark.parametrize("bonus", BONUSES)
def test_a_bonus_is_a_logarithm_and_the_share_of_the_items_shown_more(bonus: Bonus) -> None:
    shown = np.arange(41)
    above = [sum(other > x for other in bonus.shown.tolist()) / len(bonus.shown) for x in range(40)]
    unit = 1 + bonus.evenness / 4
    each = [(math.log(1 + bonus.level / (x + bonus.delta)) + bonus.evenness * above[x]) / unit for x in range(40)]
    assert_allclose(bonus.next(shown)[:40], each)
    assert_allclose(bonus.total(shown), np.cumsum([0, *each]), rtol=1e-9, atol=1e-9)
    assert bonus.next(np.array([4]))[0] == pytest.approx(each[4])  # SHOWN: 4 of 12 are shown more than 4 times
    assert len(bonus.shown) == 1 or above[4] == pytest.approx(4 / 12)


def evenness(counts: Array) -> float:
    """½ Σ_i Σ_j min(f_i, f_j) / n."""
    return float(np.minimum(counts[:, None], counts[None, :]).sum() / 2 / len(counts))


COUNTS = st.integers(2, 9).flatmap(lambda n: st.tuples(*[st.lists(st.integers(0, 12), min_size=n, max_size=n)] * 2))


@given(COUNTS)
def test_evenness_is_half_of_all_showings_times_one_minus_gini(both: tuple[list[int], list[int]]) -> None:
    counts = np.array(both[0])
    n, places = len(counts), int(counts.sum())
    if places:
        # the metric divides by n − 1, the mean difference of all pairs by n
        assert evenness(counts) == pytest.approx(places / 2 * (1 - gini(counts) * (n - 1) / n))


@given(COUNTS)
def test_evenness_grows_at_least_as_much_as_the_bonus_counted_from_where_it_was(
    both: tuple[list[int], list[int]],
) -> None:
    here, there = map(np.array, both)
    with_it, without = (Bonus(0.1, 3.0, weight).counted_from(here) for weight in (1.0, 0.0))

    def counted(counts: Array) -> float:
        return float((1.25 * with_it.total(counts) - without.total(counts)).sum())

    assert evenness(there) - evenness(here) >= counted(there) - counted(here) - 1e-9
    assert counted(here) == pytest.approx(2 * evenness(here))


@given(st.lists(st.floats(-1, 60, width=32), min_size=1, max_size=6), st.sampled_from(BONUSES), st.integers(1, 60))
def test_an_item_is_wanted_as_often_as_a_showing_is_worth_more_than_its_price(
    asked: list[float], bonus: Bonus, most: int
) -> None:
    worth = bonus.next(np.arange(most))
    for price in asked:
        if price <= 0 or np.abs(worth - price).min() > 1e-6:
            assert bonus.wanted(np.array([price]), most)[0] == (worth > price).sum()


def test_where_the_level_is_high_the_bonus_is_boltzmanns_entropy_and_where_it_is_low_the_popular_keep_their_place() -> (
    None
):
    shown = np.array([1, 2, 5, 20])
    log_factorials = [math.log(math.factorial(x)) for x in shown]
    gained = Bonus(1.0, 1e7).total(shown)
    assert_allclose(shown * math.log(1e7) - gained, log_factorials, atol=1e-3)
    assert Bonus(0.1, 1.0).next(np.array([1000])) < 0.0011  # c/x


ROWS = st.lists(st.tuples(st.integers(0, 50), st.floats(-8, 2, width=32)), min_size=1, max_size=8)


@given(ROWS, st.floats(0.5, 5.0), st.sampled_from(BONUSES), st.integers(50, 90))
def test_slack_is_what_a_search_over_all_counts_finds_and_never_negative(
    rows: list[tuple[int, float]], rho: float, bonus: Bonus, most: int
) -> None:
    counts, price = np.array([count for count, _ in rows]), np.array([price for _, price in rows], dtype=np.float32)
    found = slack(counts, price, rho, bonus, most)
    shown = np.arange(most + 1)[:, None]
    worth = price.astype(np.float64) * shown + rho * bonus.total(shown)
    now = worth[counts, np.arange(len(counts))]
    assert found == pytest.approx(float((worth.max(axis=0) - now).sum()), rel=1e-6, abs=1e-6)
    assert found >= -1e-8 * max(1.0, float(np.abs(worth).max()))


@given(st.integers(0, 30), st.floats(0.01, 0.99), st.floats(0.1, 5.0), st.sampled_from(BONUSES))
def test_a_price_has_no_slack_just_where_it_lies_between_the_bonus_of_the_last_and_of_the_next_showing(
    count: int, share: float, rho: float, bonus: Bonus
) -> None:
    last, following = (-rho * float(bonus.next(np.array(x))) for x in (max(0, count - 1), count))
    low = last if count else following - 5 * rho  # no lower end where nobody shows the item
    one = np.array([count])

    def at(price: float) -> float:
        return slack(one, np.array([price]), rho, bonus, 1000)

    assert at(low + share * (following - low)) == pytest.approx(0, abs=1e-9 * max(1.0, rho * count))
    assert at(following + 1e-3 * rho) > 1e-7 * rho
    assert count == 0 or at(low - 1e-3 * rho) > 1e-7 * rho


def all_values(scores: Array, seen: Array, k: int, rho: float, bonus: Bonus) -> Array:
    """The objective of all lists that there are."""
    own = [list(combinations(np.flatnonzero(~row), min(k, int((~row).sum())))) for row in seen]
    values = []
    for lists in product(*own):
        score = sum(scores[user, item] for user, row in enumerate(lists) for item in row)
        counts = np.bincount(np.array(sum(lists, ()), dtype=int), minlength=scores.shape[1])
        values.append(score + rho * bonus.total(counts).sum())
    return np.array(values)


def bound_at(market: Market, price: Array, rho: float, bonus: Bonus) -> float:
    counts, score = market.visit(price)
    return score + rho * float(bonus.total(counts).sum()) + slack(counts, price, rho, bonus, len(market.lists))


@settings(max_examples=40)
@given(st.integers(0, 999), st.floats(0.05, 3.0), st.sampled_from(BONUSES), st.floats(0, 3))
def test_any_prices_bound_the_value_of_any_lists(seed: int, rho: float, bonus: Bonus, scale: float) -> None:
    model, seen = some_model(3, 4, seed), some_seen(3, 4, seed)
    best = all_values(model.scores(slice(None)).double().numpy(), seen, 2, rho, bonus).max()
    market = market_of(model, seen, 2)
    for price in scale * np.random.default_rng(seed).normal(size=(4, 4)).astype(np.float32):
        assert bound_at(market, price, rho, bonus) >= best - 1e-4


# ---- the optimum


def optimum(scores: Array, seen: Array, k: int, rho: float, bonus: Bonus) -> float:
    """The best value by linear programming: x_ui lists, y_ix ≤ 1 the x-th showing of item i."""
    n_users, n_items = scores.shape
    user, item = np.nonzero(~seen)
    n_pairs, n_shows = len(user), n_users * n_items
    bonuses = np.tile(rho * bonus.next(np.arange(n_users)), n_items)
    rows = np.r_[user, n_users + item, n_users + np.repeat(np.arange(n_items), n_users)]
    columns = np.r_[np.arange(n_pairs), np.arange(n_pairs), n_pairs + np.arange(n_shows)]
    values = np.r_[np.ones(2 * n_pairs), -np.ones(n_shows)]
    found = linprog(
        np.r_[-scores[user, item], -bonuses],
        A_eq=sparse.csr_array((values, (rows, columns)), shape=(n_users + n_items, n_pairs + n_shows)),
        b_eq=np.r_[np.minimum(k, (~seen).sum(axis=1)), np.zeros(n_items)],
        bounds=(0, 1),
    )
    assert found.status == 0, found.message
    return -float(found.fun)


def value_of(found: Prices) -> float:
    return found.score + found.rho * found.bonus


@pytest.mark.parametrize("seed", range(4))
def test_the_linear_program_has_the_value_of_the_best_of_all_lists(seed: int) -> None:
    # the program is a flow, so its optimum is made of whole lists
    scores, seen = some_model(4, 5, seed).scores(slice(None)).double().numpy(), some_seen(4, 5, seed)
    for rho, bonus in zip((0.1, 0.7, 3.0, 0.5, 0.3, 0.05), BONUSES, strict=True):
        best = all_values(scores, seen, 2, rho, bonus).max()
        assert optimum(scores, seen, 2, rho, bonus) == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rho", [0.05, 0.3, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("bonus", [BONUS, *BONUSES[:-1]])
def test_the_lists_found_are_as_close_to_the_optimum_as_the_gap_says(seed: int, rho: float, bonus: Bonus) -> None:
    model, seen, k = some_model(30, 12, seed), some_seen(30, 12, seed), 3
    best = optimum(model.scores(slice(None)).double().numpy(), seen, k, rho, bonus)
    found = solve(market_of(model, seen, k), rho, no_prices(model), bonus)
    allowed = found.gap * rho * 30 * k
    assert found.converged
    assert found.gap <= prices.TOLERANCE
    assert -1e-4 <= best - value_of(found) <= allowed + 1e-4
    assert value_of(found) + allowed >= best - 1e-4  # the bound is one


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rho", [0.05, 0.3, 1.0, 3.0, 10.0])
def test_the_gap_is_proven_also_where_a_bonus_is_all_steps_and_prices_do_not_converge(seed: int, rho: float) -> None:
    model, seen, k = some_model(30, 12, seed), some_seen(30, 12, seed), 3
    best = optimum(model.scores(slice(None)).double().numpy(), seen, k, rho, BONUSES[-1])
    found = solve(market_of(model, seen, k), rho, no_prices(model), BONUSES[-1])
    assert -1e-4 <= best - value_of(found) <= found.gap * rho * 30 * k + 1e-4


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rho", [0.1, 0.5, 2.0])
def test_with_enough_steps_the_optimum_itself_is_found(seed: int, rho: float) -> None:
    model, seen = some_model(30, 12, seed), some_seen(30, 12, seed)
    best = optimum(model.scores(slice(None)).double().numpy(), seen, 3, rho, BONUS)
    found = solve(market_of(model, seen, 3), rho, no_prices(model), BONUS, tolerance=0.0, iterations=600)
    assert value_of(found) == pytest.approx(best, abs=1e-4)
    assert found.gap < 1e-6


def test_the_optimum_is_found_where_some_users_have_fewer_items_than_a_list_takes() -> None:
    model, seen = some_model(30, 12, 5), some_seen(30, 12, 5)
    seen[:6, 2:] = True
    seen[6] = True
    best = optimum(model.scores(slice(None)).double().numpy(), seen, 3, 0.5, BONUS)
    found = solve(market_of(model, seen, 3), 0.5, no_prices(model), BONUS)
    assert -1e-4 <= best - value_of(found) <= found.gap * 0.5 * 90 + 1e-4


def test_what_is_reported_are_the_lists_of_the_prices() -> None:
    model, seen = some_model(50, 40, 7), some_seen(50, 40, 7)
    found = solve(market_of(model, seen, 3), 0.8, no_prices(model), BONUS)
    counts, score = market_of(model, seen, 3).visit(found.price)
    assert score == pytest.approx(found.score)
    assert float(BONUS.total(counts).sum()) == pytest.approx(found.bonus)
    priced = MF(model.users, model.items, model.bias, torch.from_numpy(found.price))
    items, _ = recommend(priced, sparse.csr_array(seen.astype(np.float32)), 3)
    assert_array_equal(np.bincount(items[items >= 0], minlength=40), counts)
    assert (found.rho, found.converged) == (0.8, True)


def test_a_solution_does_not_depend_on_what_was_solved_before() -> None:
    # it counted the items near the end of a list among candidates, which were those of earlier prices
    model, seen = some_model(100, 300, 2), some_seen(100, 300, 2)
    with patch.object(prices, "WIDTH", 5):
        used, fresh = market_of(model, seen, 3), market_of(model, seen, 3)
    before = solve(used, 0.4, no_prices(model), BONUS)
    one, other = (follow(market, 0.5, BONUS, (0.4, before.price)) for market in (used, fresh))
    assert_array_equal(one.price, other.price)
    assert (one.gap, one.iterations) == (other.gap, other.iterations)


# ---- along ρ


def path_of(model: MF, seen: Array, k: int, rhos: Array, bonus: Bonus = BONUS) -> list[Prices]:
    market, path = market_of(model, seen, k), list[Prices]()
    for rho in rhos:
        path.append(follow(market, float(rho), bonus, (path[-1].rho, path[-1].price) if path else None))
    return path


@pytest.mark.parametrize("seed", range(3))
def test_along_rho_score_only_falls_and_bonus_only_rises_but_for_what_the_gaps_allow(seed: int) -> None:
    # the optima's do; with values within ε₁ and ε₂ of them, add up what either says about the other's lists
    model, seen = some_model(60, 30, seed), some_seen(60, 30, seed)
    path = path_of(model, seen, 4, 0.05 * 1.3 ** np.arange(20))
    for one, other in pairwise(path):
        missed = [found.gap * found.rho * 60 * 4 for found in (one, other)]
        bonus_may_fall = sum(missed) / (other.rho - one.rho)
        assert other.bonus >= one.bonus - bonus_may_fall - 1e-4
        assert other.score <= one.score + missed[0] + one.rho * bonus_may_fall + 1e-4
    assert path[-1].score < path[0].score
    assert path[-1].bonus > path[0].bonus


@pytest.mark.parametrize("seed", range(3))
def test_a_step_along_rho_is_never_worse_than_staying(seed: int) -> None:
    model, seen = some_model(60, 30, seed), some_seen(60, 30, seed)
    for one, other in pairwise(path_of(model, seen, 4, 0.1 * 3.0 ** np.arange(7))):
        assert value_of(other) >= one.score + other.rho * one.bonus - 1e-4


@pytest.mark.parametrize("seed", range(3))
def test_with_evenness_too_a_step_along_rho_is_never_worse_than_staying(seed: int) -> None:
    # evenness as it is, not as counted from the lists before
    model, seen, bonus = some_model(60, 30, seed), some_seen(60, 30, seed), Bonus(0.1, 6.0, 4.0)
    market, without = market_of(model, seen, 4), Bonus(0.1, 6.0)
    path = path_of(model, seen, 4, 0.05 * 1.5 ** np.arange(10), bonus)
    gained, score = [], []
    for found in path:
        counts, worth = market.visit(found.price)
        gained.append((float(without.total(counts).sum()) + 4.0 * evenness(counts)) / 2)  # w = 4: b is halved
        score.append(worth)
    for at in range(1, 10):
        assert score[at] + path[at].rho * gained[at] >= score[at - 1] + path[at].rho * gained[at - 1] - 1e-4
    assert gained[-1] > gained[0] + 50


@pytest.mark.parametrize("seed", range(3))
def test_the_more_evenness_counts_the_more_even_are_lists_of_the_same_score(seed: int) -> None:
    model, seen = some_model(60, 30, seed), some_seen(60, 30, seed)
    market, reached = market_of(model, seen, 4), []
    for weight in (0.0, 4.0, 40.0):
        visits = [market.visit(found.price) for found in path_of(model, seen, 4, 0.05 * 1.3 ** np.arange(14),
                                                                 Bonus(0.1, 6.0, weight))]  # fmt: skip
        scores = np.array([score for _, score in visits])
        best = market.visit(no_prices(model))[1]
        reached.append(np.interp(-0.9 * best, -scores, [gini(counts) for counts, _ in visits]))
    assert reached[0] > reached[1] > reached[2]
    assert reached[0] > reached[2] + 0.01


# ---- items that nobody is shown


def first(rho: float, bonus: Bonus) -> float:
    """What the first showing of an item earns."""
    return rho * float(bonus.next(np.zeros(1))[0])


def offers(market: Market, price: Array, rho: float, most: float) -> Array | None:
    return offered(market, price, market.visit(price)[0], rho, most)


def test_an_item_nobody_is_shown_is_offered_at_what_the_nearest_user_takes_it_for() -> None:
    # lists of one. Users 0 and 1 are shown item 0 (scores 3 and 5). Item 1 comes within 1 of it for user 1, who has met
    # it, within 2 for user 0, and within 2.1 of what user 2 is shown
    users, items = torch.eye(3), torch.tensor([[3.0, 5.0, 0.0], [1.0, 4.0, 4.9], [0.0, 0.0, 7.0]])
    model, seen = MF(users, items, torch.zeros(3)), np.zeros((3, 3), dtype=bool)
    seen[1, 1] = True
    market, bonus = market_of(model, seen, 1), Bonus(1.0, math.e**2.1 - 1)  # a first showing is worth 2.1 ρ
    assert market.visit(no_prices(model))[0].tolist() == [2, 0, 1]
    price = offers(market, no_prices(model), 1.0, first(1.0, bonus))
    assert price is not None
    assert_allclose(price, [0, -2 - prices.RAISE, 0], rtol=1e-6)  # the step below
    assert market.visit(price)[0].tolist() == [1, 1, 1]
    assert offers(market, price, 1.0, first(1.0, bonus)) is None  # everything is shown
    assert offers(market, no_prices(model), 0.9, first(0.9, bonus)) is None  # 1.89 at the most: it would cost more
    with patch.object(prices, "FEW", 0):
        assert offers(market, no_prices(model), 1.0, first(1.0, bonus)) is None


def test_an_item_that_had_to_go_is_offered_next() -> None:
    # a chain: item 2 takes user 1 from item 1, shown once; that takes user 0 from item 0, shown twice, and user 1 back,
    # whom item 2 takes again
    users = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    model = MF(users, torch.tensor([[9.0, 0.0], [8.99, 5.0], [-90.0, 4.0]]), torch.zeros(3))
    seen = np.zeros((3, 3), dtype=bool)
    seen[2, 1:] = True  # user 2 may be shown item 0 alone
    market = market_of(model, seen, 1)
    assert market.visit(no_prices(model))[0].tolist() == [2, 1, 0]
    bonus, price = Bonus(), no_prices(model)
    for counts in ([2, 0, 1], [1, 2, 0], [1, 1, 1]):
        offer = offers(market, price, 1.0, first(1.0, bonus))
        assert offer is not None
        price = offer
        assert market.visit(price)[0].tolist() == counts
    assert offers(market, price, 1.0, first(1.0, bonus)) is None


def test_nobody_is_asked_who_has_all_there_is() -> None:
    # user 1 may be shown item 0 alone, and has it; item 1 comes 2 below it for user 0, who has met item 2
    model = MF(torch.eye(2), torch.tensor([[3.0, 3.0], [1.0, 2.9], [0.0, 2.8]]), torch.zeros(3))
    market = market_of(model, np.array([[False, False, True], [False, True, True]]), 2)
    assert market.visit(no_prices(model))[0].tolist() == [2, 1, 0]
    assert offers(market, no_prices(model), 100.0, np.inf) is None


@pytest.mark.parametrize("seed", range(8))
def test_what_is_worth_showing_once_is_shown_though_steps_leave_it_out(seed: int) -> None:
    model, seen, bonus = some_model(200, 100, seed), some_seen(200, 100, seed), Bonus(1e-9, 10.0)
    covered, value = [], []
    for offers in (0, prices.OFFERS):
        with patch.object(prices, "OFFERS", offers):
            market = market_of(model, seen, 2)
            found = solve(market, 0.5, no_prices(model), bonus, tolerance=0.3)
        covered.append(int((market.visit(found.price)[0] > 0).sum()))
        value.append(value_of(found))
    assert covered[0] < covered[1] == 100
    assert value[0] < value[1]


def test_next_to_no_rho_gives_the_models_own_lists() -> None:
    model, seen = some_model(40, 100, 8), some_seen(40, 100, 8)
    market = market_of(model, seen, 4)
    found = solve(market, 1e-7, no_prices(model), BONUS)
    market.visit(found.price)
    items, _ = recommend(model, sparse.csr_array(seen.astype(np.float32)), 4)
    assert_array_equal(np.sort(market.lists), np.sort(items))
    assert found.converged


def test_a_large_rho_gives_nearly_even_exposure() -> None:
    model, seen = some_model(60, 12, 1), some_seen(60, 12, 1)
    market = market_of(model, seen, 3)
    model_counts, _ = market.visit(no_prices(model))
    assert model_counts.max() - model_counts.min() > 20
    last = path_of(model, seen, 3, 0.5 * 1.6 ** np.arange(12))[-1]
    counts, _ = market.visit(solve(market, last.rho, last.price, BONUS, tolerance=0.0, iterations=400).price)
    assert counts.sum() == 180
    assert counts.min() >= 13
    assert counts.max() <= 17
    assert last.converged


# ---- δ and the level


@pytest.mark.parametrize(("delta", "counts"), [(0.01, [1, 1]), (0.1, [1, 1]), (0.5, [1, 1]), (0.57, [1, 1]),
                                               (0.6, [2, 0]), (0.7, [2, 0]), (2.0, [2, 0])])  # fmt: skip
def test_the_smaller_delta_is_the_more_a_first_showing_is_worth(delta: float, counts: list[int]) -> None:
    # two users who prefer item 0 by 1 and 1.2. Giving the first user item 1 costs 1 of score and gains, at a high
    # level, ρ (log(1 + δ) − log δ) = log(1 + 1/δ): more than 1 for δ < 1/(e − 1) = 0.582
    model = MF(torch.tensor([[1.0], [1.2]]), torch.tensor([[1.0], [0.0]]), torch.zeros(2))
    market = market_of(model, np.zeros((2, 2), dtype=bool), 1)
    found = solve(market, 1.0, no_prices(model), Bonus(delta, 1e6), tolerance=0.0, iterations=300)
    assert market.visit(found.price)[0].tolist() == counts
    if counts == [1, 1]:
        assert market.lists.tolist() == [[1], [0]]


@pytest.mark.parametrize("seed", range(3))
def test_a_smaller_delta_covers_no_less(seed: int) -> None:
    model, seen = some_model(30, 20, seed), some_seen(30, 20, seed)
    covered = []
    for delta in (3.0, 0.5, 0.1, 0.01):
        market = market_of(model, seen, 2)
        found = solve(market, 0.5, no_prices(model), Bonus(delta, 10.0), tolerance=0.0, iterations=300)
        covered.append(int((market.visit(found.price)[0] > 0).sum()))
    assert covered == sorted(covered)
    assert covered[-1] > covered[0]


def test_of_lists_as_good_within_the_tolerance_those_that_show_everything_are_taken() -> None:
    # item 3 is so far below all others that its first showing, worth .7 ρ, does not pay: it costs user 0 about 100,
    # every other 5 more. 100 is less than a tolerance of .02 ρ a place (40 · 5 of them) for ρ = 60, more for ρ = 15
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(40, 12))
    scores[:, 3] = -100 - 5 * np.arange(40)
    model = MF(torch.eye(40), torch.from_numpy(scores.T).float(), torch.zeros(12))
    seen, bonus, shown = np.zeros((40, 12), dtype=bool), Bonus(1.0, 1.0), {}
    for rho in (15.0, 60.0):
        market = market_of(model, seen, 5)
        found = solve(market, rho, no_prices(model), bonus, tolerance=0.02)
        shown[rho] = market.visit(found.price)[0]
        # the gap is that of the lists taken, not of the better ones left
        assert optimum(scores, seen, 5, rho, bonus) - value_of(found) <= found.gap * rho * 200 + 1e-3
        assert found.gap <= 0.04
    assert [int(counts[3]) for counts in shown.values()] == [0, 1]
    assert all((np.delete(counts, 3) > 0).all() for counts in shown.values())
