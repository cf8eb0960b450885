from hypothesis import given
from hypothesis import strategies as st
from rerank_cases import by_score, candidates, filled_up, items_of, rows_of, some, units_of

from divmf.rerank import maxflow_coverage
from divmf.rerank.candidates import unit_scores
from divmf.rerank.maxflow_coverage import most_items


def most_different_items(wanted, k):
    """How many different items lists of k can hold, by augmenting paths; wanted: the items of each user."""
    holder: dict[int, int] = {}
    size = [0] * len(wanted)

    def give(user, tried):
        for item in wanted[user]:
            if item in tried:
                continue
            tried.add(item)
            if item not in holder or give_other(holder[item], item, tried):
                holder[item] = user
                return True
        return False

    def give_other(user, item, tried):
        return give(user, tried)

    for user in range(len(wanted)):
        while size[user] < k and give(user, set()):
            size[user] += 1
    return len(holder)


@some
@given(candidates(), st.integers(1, 4), st.sampled_from([0.0, 0.3, 0.6, 0.9]))
def test_the_flow_reaches_as_many_items_as_augmenting_paths_do(wide, k, t_h):
    columns = most_items(wide, unit_scores(wide) >= t_h, k)
    given_items = [[int(wide.items[user, column]) for column in row if column >= 0] for user, row in enumerate(columns)]
    everything = [item for chosen in given_items for item in chosen]
    units = units_of(wide)
    assert len(set(everything)) == len(everything), "an item goes to one user"
    assert all(units[user][item] >= t_h for user, chosen in enumerate(given_items) for item in chosen)
    wanted = [[item for item, value in r.items() if value >= t_h] for r in units]
    assert len(everything) == most_different_items(wanted, k)
    expected = [filled_up(row, chosen, k) for row, chosen in zip(rows_of(wide), given_items, strict=True)]
    lists = maxflow_coverage(wide, k, t_h=t_h, order="score")
    assert items_of(lists) == by_score(wide, expected)
    assert (lists.counts > 0).sum() >= len(everything)
