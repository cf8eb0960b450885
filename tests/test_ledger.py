"""The ledger against the recipe written out as a plain loop, and the best response against all lists there are."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divmf.engine.arrays import Array
from divmf.kernels.ledger import shown_at, worth_at
from divmf.market.bonus import Bonus
from divmf.market.ledger import NO_LIMIT, TRUST, Ledger, Terms
from divmf.market.response import best_response
from divmf.market.values import slot_weights


class Recipe:
    """The rule as it is written down: every discount worked out at every request, from all pages so far."""

    def __init__(self, terms: Terms, discount: Array) -> None:
        self.terms, self.pages, self.level = terms, [], terms.even_level(len(discount))
        self.expected = np.array([self.expectation(each) for each in discount])

    def bonus(self, shown: float) -> float:
        power = (self.level / (shown + self.terms.delta)) ** self.terms.steepness
        return self.terms.rho * float(np.log1p(power)) / self.terms.steepness

    def expectation(self, discount: float) -> float:
        """By bisection: the bonus falls."""
        low, high = 0.0, float(self.terms.horizon)
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if self.bonus(middle) > discount else (low, middle)
        return high

    @property
    def discount(self) -> Array:
        exposed = np.zeros(len(self.expected))
        for items in self.pages:
            exposed[items] += 1
        passed = len(self.pages) / self.terms.horizon
        prior = TRUST * (1 - passed)
        return np.array([
            self.bonus((f + prior * expected) / (passed + prior))
            for f, expected in zip(exposed, self.expected, strict=True)
        ])  # fmt: skip

    def count(self, items: Array) -> None:
        self.pages.append(items)
        if len(self.pages) == self.terms.horizon:
            exposed = np.bincount(np.concatenate(self.pages), minlength=len(self.expected))
            self.expected, self.pages = (exposed + TRUST * self.expected) / (1 + TRUST), []


def answered(ledger: Ledger, k: int, scores: Array) -> Array:
    page = best_response(
        scores[None].astype(np.float32), 1.0, np.zeros(0, dtype=np.int64), ledger.discount.astype(np.float32),
        ledger.at, k, ledger.exposures(k),
    )  # fmt: skip
    return page.items


@pytest.mark.parametrize("rho", [0.05, 0.4, 3.0])
def test_the_ledger_is_the_rule_worked_out_late(rho: float) -> None:
    rng = np.random.default_rng(0)
    n_items, k, terms = 90, 4, Terms(rho=rho, k=4, horizon=120, delta=0.01)
    discount = rng.random(n_items) * rho
    ledger, slow = Ledger(terms, discount), Recipe(terms, discount)
    np.testing.assert_allclose(ledger.now(), discount, rtol=1e-6)
    popular = rng.normal(size=n_items)
    for request in range(300):
        scores = popular + rng.normal(size=n_items)
        items, prices = answered(ledger, k, scores), slow.discount
        exact = best_response(
            scores[None].astype(np.float32), 1.0, np.zeros(0, dtype=np.int64), prices.astype(np.float32),
            prices.__getitem__, k, np.ones(k),
        )  # fmt: skip
        assert items.tolist() == exact.items.tolist(), request
        ledger.count(items)
        slow.count(items)
    np.testing.assert_allclose(ledger.now(), slow.discount, rtol=1e-6, atol=1e-9 * rho)
    assert ledger.shown.sum() == 300 * k
    assert (ledger.requests, ledger.turn, ledger.turn_before) == (300, 60, 120)


def test_what_nobody_was_shown_is_worth_a_first_showing_when_the_horizon_ends() -> None:
    ledger = Ledger(Terms(rho=1.0, k=1, horizon=10_000), np.full(3, 0.5))
    ledger.clock = 9_999.999
    ledger.exposed[1:] = 7, 2000
    highest = np.log(ledger.levels[0] / ledger.terms.delta)  # b(0) = log(c/δ), as (c/δ)^16 is beyond 1
    assert ledger.highest(0) == pytest.approx(highest)
    table = Bonus(1e-4, ledger.levels[0], 16.0, 10_000).table
    np.testing.assert_allclose(ledger.now(), table[[0, 7, 2000]], rtol=0.06)


def test_a_new_item_is_expected_to_go_on_as_in_its_part_of_the_horizon() -> None:
    terms = Terms(rho=1.0, k=1, horizon=40)
    ledger = Ledger(terms, np.full(3, 0.5))
    expected = ledger.expected[0]
    for _ in range(30):
        ledger.count(np.array([0]))
    ledger.enter(np.ones(1))  # with a quarter of the horizon left
    for item in [3] * 5 + [1] * 5:
        ledger.count(np.array([item]))
    assert ledger.turn == 0
    trust = terms.pace.trust
    assert ledger.expected[0] == pytest.approx((30 + trust * expected) / (1 + trust))
    assert ledger.expected[3] == pytest.approx(5 / (0.25 + trust))  # of which nothing was expected


@given(
    level=st.floats(0.3, 500), delta=st.sampled_from([1e-4, 0.5]), steepness=st.sampled_from([1.0, 4.0, 16.0]),
    shown=st.floats(0, 300),
)  # fmt: skip
def test_the_showings_at_a_worth_are_those_that_have_it(
    level: float, delta: float, steepness: float, shown: float
) -> None:
    pace = Terms(rho=2.0, k=1, horizon=2000, delta=delta, steepness=steepness).pace
    worth = worth_at(shown, level, pace)
    assert worth == pytest.approx(2.0 * np.logaddexp(0, steepness * np.log(level / (shown + delta))) / steepness)
    if worth > 1e-5:
        assert shown_at(worth, level, pace) == pytest.approx(shown, rel=1e-6, abs=1e-6 * level)


@given(seed=st.integers(0, 10_000))
def test_the_order_of_pages_within_a_horizon_does_not_matter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pages = [rng.permutation(8)[:2] for _ in range(20)]
    one, two = (Ledger(Terms(rho=1.0, k=2, horizon=50), np.full(8, 0.5)) for _ in range(2))
    for page, other in zip(pages, rng.permutation(len(pages)), strict=True):
        one.count(page)
        two.count(pages[other])
    np.testing.assert_array_equal(one.now(), two.now())


@given(seed=st.integers(0, 10_000), k=st.integers(1, 3), n_out=st.integers(0, 3))
def test_the_response_is_the_best_of_all_lists(seed: int, k: int, n_out: int) -> None:
    rng = np.random.default_rng(seed)
    n_items, weight = 7, 1.7
    scores, discounts = rng.normal(size=n_items).astype(np.float32), rng.random(n_items) * 2
    out = rng.permutation(n_items)[:n_out]
    page = best_response(
        scores[None].copy(), weight, out, discounts.astype(np.float32), lambda items: discounts[items], k, np.ones(k)
    )
    slots = slot_weights(k)
    open_items = [item for item in range(n_items) if item not in out]

    def worth(items: tuple[int, ...]) -> float:
        return float(sum(slots[r] * weight * scores[item] + discounts[item] for r, item in enumerate(items)))

    best = max(permutations(open_items, k), key=worth)
    assert worth(tuple(page.items)) == pytest.approx(worth(best), rel=1e-5, abs=1e-5)
    assert not set(page.items) & set(out)
    assert list(page.values) == sorted(page.values, reverse=True)


def test_a_page_of_twice_the_length_counts_as_two_requests() -> None:
    one, two = (Ledger(Terms(rho=1.0, k=2, horizon=50), np.full(6, 0.5)) for _ in range(2))
    one.count(np.array([0, 1, 2, 3]))
    assert one.clock == 2.0
    two.count(np.array([0, 1]))
    two.count(np.array([2, 3]))
    assert one.now()[5] == pytest.approx(two.now()[5], rel=1e-12)


def test_attention_counts_less_in_later_slots() -> None:
    ledger = Ledger(Terms(rho=1.0, k=3, horizon=1000, exposure="attention"), np.full(6, 0.5))
    ledger.count(np.array([0, 1, 2]))
    np.testing.assert_allclose(ledger.exposed, [*(1 / np.log2([2, 3, 4])), 0, 0, 0], rtol=1e-5)
    assert (np.diff(ledger.now()[:4]) > 0).all()
    assert ledger.clock == 1.0


def test_what_was_counted_can_be_taken_back() -> None:
    ledger = Ledger(Terms(rho=1.0, k=2, horizon=50), np.full(5, 0.5))
    ledger.count(np.array([0, 1]))
    ledger.uncount(np.array([0, 1]))
    assert ledger.shown.tolist() == [0] * 5
    assert ledger.requests == 0
    np.testing.assert_allclose(ledger.now()[:2], ledger.now()[2:4], rtol=1e-12)


def test_a_snapshot_brings_everything_back_under_other_numbers() -> None:
    rng = np.random.default_rng(1)
    ledger = Ledger(Terms(rho=1.0, k=2, horizon=7), rng.random(5))
    ledger.set_share(3, 2.5)
    for _ in range(12):
        ledger.count(rng.permutation(5)[:2])
    other = Ledger(ledger.terms, np.zeros(5))
    numbers = np.array([4, 2, 0, 1, 3])
    other.restore(ledger.arrays(), numbers)
    np.testing.assert_array_equal(other.now()[numbers], ledger.now())
    for name in ("shown", "present", "past", "shares", "levels"):
        np.testing.assert_array_equal(getattr(other, name)[numbers], getattr(ledger, name))
    assert (other.requests, other.turn, other.turn_before, other.clock) == (12, 5, 7, 5.0)


def test_horizons_are_counted_apart() -> None:
    ledger = Ledger(Terms(rho=1.0, k=1, horizon=3), np.zeros(2))
    for item in (0, 0, 1, 1):
        ledger.count(np.array([item]))
    assert ledger.past.tolist() == [2, 1]
    assert ledger.present.tolist() == [0, 1]


def test_an_item_at_its_capacity_is_full() -> None:
    ledger = Ledger(Terms(rho=1.0, k=1, horizon=3), np.zeros(2))
    assert ledger.capacity.tolist() == [NO_LIMIT, NO_LIMIT]
    ledger.set_capacity(1, 2)
    ledger.count(np.array([1]))
    assert ledger.full.tolist() == []
    ledger.count(np.array([1]))
    assert ledger.full.tolist() == [1]
    assert ledger.blended(ledger.terms, np.zeros(2), np.array([1, 0]), 1.0).full.tolist() == [0]
    ledger.set_capacity(1, None)
    assert ledger.full.tolist() == []


def test_new_items_enter_at_their_discount_and_the_even_share_shrinks() -> None:
    ledger = Ledger(Terms(rho=1.0, k=2, horizon=40), np.full(4, 0.5))
    ledger.count(np.array([0, 1]))
    before = ledger.levels[0]
    ledger.enter(np.array([1.0]))
    ledger.expect(np.array([4]), np.array([0.3]))
    assert ledger.levels[0] == pytest.approx(before * 4 / 5)
    assert ledger.now()[4] == pytest.approx(0.3)
    assert ledger.n_items == len(ledger.capacity) == len(ledger.shown) == 5
    assert [counts[4] for counts in (ledger.shown, ledger.present, ledger.past, ledger.exposed, ledger.start)] == [
        0
    ] * 5
    assert (ledger.since[4], ledger.capacity[4], ledger.shares[4]) == (1.0, NO_LIMIT, 1.0)


def test_a_newer_run_is_blended_in_units_of_rho() -> None:
    ledger = Ledger(Terms(rho=1.0, k=1, horizon=10), np.array([0.2, 0.8]))
    made = ledger.blended(Terms(rho=2.0, k=1, horizon=10), np.array([1.0, 1.0, 1.0]), np.array([2, -1]), 0.25)
    np.testing.assert_allclose(made.now(), [1.0, 1.0, 0.25 * 1.0 + 0.75 * 0.4], rtol=1e-6)


def test_without_a_bonus_there_are_no_discounts() -> None:
    ledger = Ledger(Terms(rho=0.0, k=1, horizon=10), np.array([0.0, 0.0]))
    ledger.count(np.array([1]))
    assert ledger.now().tolist() == [0.0, 0.0]
    assert ledger.drift == 0.0


def test_a_horizon_of_no_requests_is_refused() -> None:
    with pytest.raises(ValueError, match="horizon=0"):
        Terms(rho=1.0, k=1, horizon=0)


def test_points_that_are_moved_through_without_a_request_leave_what_was_shown_of_late() -> None:
    ledger = Ledger(Terms(rho=1.0, k=2, horizon=50), np.full(3, 0.5))
    for _ in range(4):
        ledger.count(np.array([0, 2]))
    for _ in range(2):
        ledger = ledger.blended(ledger.terms, np.zeros(3), np.arange(3), 0.5)
        assert (ledger.past.tolist(), ledger.turn_before, ledger.requests) == ([4, 0, 4], 4, 4)
