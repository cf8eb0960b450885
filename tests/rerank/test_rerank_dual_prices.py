from math import ceil, inf, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rerank_cases import candidates, items_of, needs, some, units_of
from rerank_market import market

from divmf.kernels import rerank_prices
from divmf.ranking.lists import TopK
from divmf.rerank import dual_prices, gap, optimal
from divmf.rerank.candidates import ready, unit_scores
from divmf.rerank.dual_prices import prices
from divmf.rerank.optimal import columns_in, total


def plain_dual_prices(wide, k, c, passes, step):
    units, capacity = units_of(wide), ceil(c * len(wide) * k / wide.n_items - 1e-9)
    price, best, least = [0.0] * wide.n_items, None, inf
    for number in range(1, passes + 1):
        # the candidates stand by score, so a stable sort leaves ties to the model's order
        lists = [sorted(r, key=lambda item: price[item] - r[item])[:k] for r in units]
        counts = [sum(item in chosen for chosen in lists) for item in range(wide.n_items)]
        excess = sum(max(0, f - capacity) ** 2 for f in counts)
        if excess < least:
            best, least = lists, excess
        if excess == 0 and not any(p for p, f in zip(price, counts, strict=True) if f < capacity):
            break
        price = [
            max(0.0, p + step / sqrt(number) * (f - capacity) / capacity) for p, f in zip(price, counts, strict=True)
        ]
    return best


def test_the_prices_of_the_least_sum_of_squared_excess_are_kept(monkeypatch):
    passes = iter([[5, 1, 1], [4, 3, 0], [3, 3, 1]])  # capacity 1 each: squares 16, 13 and 8; cubes 64, 35 and 16
    squares = iter([[4, 0, 0], [3, 3, 3]])  # 9 beside 12; cubes 27 beside 24

    def scripted(counted):
        def top_priced(scores, items, price, columns, counts):
            counts[:] = next(counted)

        return top_priced

    wide = TopK.from_arrays(np.tile(np.arange(3), (3, 1)), np.tile([3.0, 2.0, 1.0], (3, 1)), range(3), range(3))
    monkeypatch.setattr(rerank_prices, "top_priced", scripted(passes))
    assert prices(wide, 1, 1.0, 3, 0.1).tolist() != [0, 0, 0]  # those of the last pass
    monkeypatch.setattr(rerank_prices, "top_priced", scripted(squares))
    assert prices(wide, 1, 1.0, 2, 0.1).tolist() == [0, 0, 0]  # those of the first, at which no item had a price


@some
@given(candidates(), st.integers(1, 4), st.sampled_from([1.0, 1.5, 3.0]))
def test_dual_prices_pass_as_a_plain_loop_does(wide, k, c):
    expected = plain_dual_prices(wide, k, c, passes=15, step=0.2)
    assert items_of(dual_prices(wide, k, c=c, passes=15, order="method")) == expected


def test_the_lists_are_those_of_a_model_with_an_item_bias():
    wide = ready(market(), 5)
    bias = -prices(wide, 5, 2.0, 100, 0.2)
    assert (bias <= 0).all()
    biased = unit_scores(wide) + bias[wide.items]
    chosen = np.argsort(-biased, axis=1, kind="stable")[:, :5]
    expected = np.take_along_axis(wide.items, chosen, axis=1)
    np.testing.assert_array_equal(dual_prices(wide, 5, c=2.0, passes=100, order="method").items, expected)


@pytest.mark.skipif(not needs("mincost_flow"), reason="needs ortools: pip install 'divmf[flow]'")
@pytest.mark.parametrize("c", [2, 3, 5])
def test_dual_prices_are_near_the_optimum_and_hold_the_capacities_nearly(c):
    wide, k = ready(market(), 5), 5
    capacity = ceil(c * len(wide) * k / wide.n_items)
    lists, best = dual_prices(wide, k, c=c), optimal(wide, capacity, k)
    over = np.maximum(lists.counts - capacity, 0).sum() / (len(wide) * k)
    assert over < 0.02
    score, most = (total(unit_scores(wide), columns_in(each, wide)) for each in (lists, best))
    assert abs(score - most) < 0.01 * most


@pytest.mark.skipif(not needs("mincost_flow"), reason="needs ortools: pip install 'divmf[flow]'")
@pytest.mark.parametrize("c", [1, 2, 10])
def test_lists_made_by_prices_give_nothing_away_at_their_own_counts(c):
    # a price per item changes the total score of all lists with these counts by the same amount
    assert gap(dual_prices(market(), 5, c=c, passes=30), market()).share < 1e-6
