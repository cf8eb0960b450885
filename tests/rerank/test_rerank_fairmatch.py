from collections import deque
from math import ceil, gcd

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rerank_cases import by_score, candidates, items_of, rows_of, some

from divmf.ranking.lists import TopK
from divmf.rerank import fairmatch
from divmf.rerank.fairmatch import replaced, rounds


def plain_source_side(capacity, source, sink):
    """Which nodes the source still reaches after augmenting along shortest paths until there is none."""
    left = dict(capacity)
    nodes = {node for edge in capacity for node in edge}
    while True:
        came_from, queue = {source: None}, deque([source])
        while queue:
            node = queue.popleft()
            for other in nodes:
                if other not in came_from and left.get((node, other), 0) > 0:
                    came_from[other] = node
                    queue.append(other)
        if sink not in came_from:
            return set(came_from)
        path, node = [], sink
        while came_from[node] is not None:
            path.append((came_from[node], node))
            node = came_from[node]
        amount = min(left[edge] for edge in path)
        for tail, head in path:
            left[tail, head] -= amount
            left[head, tail] = left.get((head, tail), 0) + amount


def plain_rounds(wide, t, alpha, divide=False):
    edges = [(item, user, rank) for user, row in enumerate(rows_of(wide)) for rank, (item, _) in enumerate(row[:t], 1)]
    t = min(t, wide.width)
    found_in = {}
    for number in range(1, 100):
        if not edges:
            break
        degree = {item: sum(other == item for other, _, _ in edges) for item, _, _ in edges}
        low, high = min(degree.values()), max(degree.values())
        scaled = {item: 1 + (t - 1) * (value - low) / max(high - low, 1) for item, value in degree.items()}
        weight = {(item, user): ceil(alpha * rank + (1 - alpha) * scaled[item] - 1e-9) for item, user, rank in edges}
        users = {user for _, user, _ in edges}
        per_item, per_user = ceil(sum(weight.values()) / len(degree)), ceil(sum(weight.values()) / len(users))
        if divide:
            per_item, per_user = per_item // gcd(per_item, per_user), per_user // gcd(per_item, per_user)
        capacity = {("source", ("i", item)): per_item for item in degree}
        capacity |= {(("i", item), ("u", user)): value for (item, user), value in weight.items()}
        capacity |= {(("u", user), "sink"): per_user for user in users}
        side = plain_source_side(capacity, "source", "sink")
        found = {item for item in degree if ("i", item) in side}
        if not found:
            break
        found_in |= dict.fromkeys(found, number)
        edges = [edge for edge in edges if edge[0] not in found]
    return [found_in.get(item, 0) for item in range(wide.n_items)]


def plain_fairmatch(wide, k, t, alpha, beta):
    round_of, rows = plain_rounds(wide, t, alpha), rows_of(wide)
    own = [[item for item, _ in row[:k]] for row in rows]
    visible = [sum(item in chosen for chosen in own) for item in range(wide.n_items)]
    chosen = []
    for row, mine in zip(rows, own, strict=True):
        found = [item for item, _ in row[:t] if item not in mine and round_of[item]]
        found.sort(key=lambda item: round_of[item])
        n_new = min(round(beta * k), len(found))
        kept = sorted(mine, key=lambda item: visible[item])
        chosen.append(kept[: len(kept) - n_new] + found[:n_new] if n_new else mine)
    return chosen


@some
@given(candidates(), st.integers(1, 8), st.sampled_from([0.0, 0.5, 1.0]), st.booleans())
def test_rounds_find_what_an_independent_flow_finds(wide, t, alpha, divide):
    assert rounds(wide.items[:, :t], wide.n_items, alpha, divide).tolist() == plain_rounds(wide, t, alpha, divide)


@some
@given(candidates(), st.integers(1, 4), st.integers(1, 8), st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_fairmatch_replaces_the_most_visible_as_a_plain_loop_does(wide, k, t, beta):
    expected = plain_fairmatch(wide, k, t, 0.5, beta)
    assert items_of(fairmatch(wide, k, t=t, beta=beta, order="method")) == expected
    assert items_of(fairmatch(wide, k, t=t, beta=beta, order="score")) == by_score(wide, expected)


def test_the_rare_candidate_is_found_first_by_hand():
    # item 0 is everyone's first, 1 everyone's second, 2 is user 0's third: w = 1 and 2 for item 2 (lowest degree)
    items = np.array([[0, 1, 2], [0, 1, -1], [0, 1, -1]], dtype=np.int32)
    scores = np.array([[3, 2, 1], [3, 2, -np.inf], [3, 2, -np.inf]], dtype=np.float32)
    wide = TopK(items, scores, pl.Series(range(3)), pl.Series(range(3)))
    # weights ceil((rank + degree)/2): item 0: 2, 2, 2; item 1: 3, 3, 3; item 2: 2. Total 17, so each node carries 6;
    # item 2 can pass on no more than 2 of its 6, and all users together 17 of the 18
    assert rounds(items, 3, 0.5, False)[2] == 1
    assert items_of(fairmatch(wide, 1, t=3, beta=1))[0] == [2]


def test_a_graph_too_heavy_for_the_solver_is_an_error():
    from divmf.rerank.fairmatch import unsaturated

    with pytest.raises(ValueError, match="choose a smaller t"):
        unsaturated(np.zeros(3, int), np.arange(3), np.full(3, 2**30), False)


def test_only_the_first_t_places_of_a_list_hold_what_may_come_in() -> None:
    # one user, lists of one: column 2 is behind t = 2, whatever it was found in; column 1 comes in
    lists = TopK.from_arrays(np.arange(4)[None], -np.arange(4.0)[None], ["ann"], list("abcd"))
    round_of, visibility = np.array([0, 2, 1, 1]), np.array([9, 0, 0, 0])
    assert replaced(lists, round_of, visibility, k=1, t=2, most=1).tolist() == [[1]]
    assert replaced(lists, round_of, visibility, k=1, t=3, most=1).tolist() == [[2]]
