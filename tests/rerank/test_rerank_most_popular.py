from hypothesis import given
from hypothesis import strategies as st
from rerank_cases import by_score, candidates, items_of, make_train, some, units_of

from divmf.rerank import most_popular


@some
@given(candidates(), st.integers(1, 4), st.sampled_from([0.0, 0.4, 1.0]))
def test_most_popular_takes_the_largest_of_what_the_equation_says(wide, k, weight):
    train = make_train(wide)
    most = max(train.popularity.max(), 1)
    expected = [
        sorted(r, key=lambda item: -((1 - weight) * r[item] + weight * (train.popularity[item] / most)))[:k]
        for r in units_of(wide)
    ]
    assert items_of(most_popular(wide, k, train=train, weight=weight, order="method")) == expected
    assert items_of(most_popular(wide, k, train=train, weight=weight, order="score")) == by_score(wide, expected)
