from hypothesis import given
from hypothesis import strategies as st
from rerank_cases import by_score, candidates, filled_up, items_of, rows_of, some

from divmf.rerank import fairrec


def plain_fairrec(wide, k, alpha):
    """The lists, and what of them was guaranteed."""
    rows = rows_of(wide)
    copies = [int(alpha * len(rows) * k / wide.n_items + 1e-9)] * wide.n_items
    lists = [[] for _ in rows]
    for _ in range(k):
        for user, row in enumerate(rows):
            free = [item for item, _ in row if copies[item] > 0 and item not in lists[user]]
            if free:
                lists[user].append(free[0])
                copies[free[0]] -= 1
    return [filled_up(row, chosen, k) for row, chosen in zip(rows, lists, strict=True)], lists


@some
@given(candidates(), st.integers(1, 4), st.sampled_from([0.0, 0.3, 0.7, 1.0]))
def test_fairrec_gives_in_turns_as_a_plain_loop_does(wide, k, alpha):
    expected, _ = plain_fairrec(wide, k, alpha)
    assert items_of(fairrec(wide, k, alpha=alpha, order="method")) == expected
    assert items_of(fairrec(wide, k, alpha=alpha, order="score")) == by_score(wide, expected)


@some
@given(candidates(), st.integers(1, 4), st.sampled_from([0.5, 1.0]))
def test_an_item_has_less_than_its_guarantee_only_if_its_users_are_full_of_guaranteed_ones(wide, k, alpha):
    lists, (_, guaranteed) = fairrec(wide, k, alpha=alpha), plain_fairrec(wide, k, alpha)
    promise = int(alpha * len(wide) * k / wide.n_items + 1e-9)
    for item in range(wide.n_items):
        if lists.counts[item] < promise:
            for user, row in enumerate(rows_of(wide)):
                wants = item in [each for each, _ in row]
                assert not wants or item in items_of(lists)[user] or len(guaranteed[user]) == k
