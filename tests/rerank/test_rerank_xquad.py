import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from rerank_cases import by_score, candidates, items_of, make_candidates, make_train, some, units_of

from divmf.data.interactions import Interactions
from divmf.rerank import xquad
from divmf.rerank.xquad import head_shares


def plain_xquad(wide, k, train, weight, share):
    ranked = sorted(range(wide.n_items), key=lambda item: -train.popularity[item])
    head = set(ranked[: round(share * wide.n_items)])
    met = [set(train.items[train.users == user].tolist()) for user in range(len(wide))]
    everything = [item for items in met for item in items]
    average = sum(item in head for item in everything) / max(len(everything), 1)
    lists = []
    for user, r in enumerate(units_of(wide)):
        taste = len(met[user] & head) / len(met[user]) if met[user] else average
        chosen = []
        while len(chosen) < min(k, len(r)):

            def value(item, chosen=chosen, taste=taste, r=r):
                same = sum((other in head) == (item in head) for other in chosen) / max(len(chosen), 1)
                wanted = taste if item in head else 1 - taste
                return (1 - weight) * r[item] + weight * wanted * (1 - same)

            chosen.append(max((item for item in r if item not in chosen), key=value))
        lists.append(chosen)
    return lists


@some
@given(candidates(), st.integers(1, 4), st.sampled_from([0.0, 0.3, 0.8, 1.0]), st.sampled_from([0.2, 0.5]))
def test_xquad_appends_as_a_plain_loop_does(wide, k, weight, head):
    train = make_train(wide)
    expected = plain_xquad(wide, k, train, weight, head)
    assert items_of(xquad(wide, k, train=train, weight=weight, head=head, order="method")) == expected
    assert items_of(xquad(wide, k, train=train, weight=weight, head=head, order="score")) == by_score(wide, expected)


def test_a_user_unknown_in_training_has_the_average_taste():
    wide = make_candidates(0, n_lists=3, n_items=4, width=3)
    train = Interactions.from_frame(pl.DataFrame({"user_id": [1, 1, 2, 2], "item_id": [0, 1, 2, 3]}))
    shares = head_shares(wide, train, np.array([1, 0, 0, 0]))
    assert shares.tolist() == [0.25, 0.5, 0.0]


def test_one_interaction_in_all_is_the_average_taste():
    wide = make_candidates(0, n_lists=3, n_items=4, width=3)
    train = Interactions.from_frame(pl.DataFrame({"user_id": [1], "item_id": [0]}))
    assert head_shares(wide, train, np.array([1, 0, 0, 0])).tolist() == [1.0, 1.0, 1.0]
