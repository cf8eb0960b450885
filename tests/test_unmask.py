"""Which entries stay in T."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from divmf.models.unmask import kept_items
from divmf.ranking.select import top


@given(st.integers(0, 999), st.integers(1, 5), st.integers(2, 20), st.integers(1, 6), st.integers(0, 30))
def test_every_policy_keeps_the_recommendation_first_and_no_item_twice(
    seed: int, rows: int, n_items: int, k: int, extra: int
) -> None:
    scores = torch.randn(rows, n_items, generator=torch.Generator().manual_seed(seed))
    listed = top(scores, min(k, n_items))[0]
    for policy in ("top", "random", "none"):
        kept = kept_items(scores, k, extra, policy, np.arange(rows), seed)
        more = 0 if policy == "none" else extra
        assert kept.shape == (rows, min(k + more, n_items))
        assert torch.equal(kept[:, : listed.shape[1]], listed)
        assert all(len(set(row.tolist())) == len(row) for row in kept)
        assert kept.min() >= 0
        assert kept.max() < n_items


def test_the_top_policy_keeps_the_next_best_scores() -> None:
    scores = torch.tensor([[0.1, 0.9, 0.5, 0.7, 0.3]])
    assert kept_items(scores, 2, 2, "top", np.array([0]), 0).tolist() == [[1, 3, 2, 4]]


def test_random_extras_belong_to_the_user_not_to_the_chunk() -> None:
    scores = torch.randn(20, 50, generator=torch.Generator().manual_seed(0))
    whole = kept_items(scores, 3, 10, "random", np.arange(20), 7)
    parts = [kept_items(scores[i : i + 6], 3, 10, "random", np.arange(20)[i : i + 6], 7) for i in range(0, 20, 6)]
    assert torch.equal(whole, torch.cat(parts))
    assert not torch.equal(whole, kept_items(scores, 3, 10, "random", np.arange(20), 8))


def test_random_extras_are_uniform_over_the_rest() -> None:
    # 4,000 users, 2 listed of 12, 3 random of the other 10: each expected 1,200 times, standard deviation 29
    scores = torch.zeros(4000, 12)
    scores[:, 5], scores[:, 8] = 2.0, 1.0
    kept = kept_items(scores, 2, 3, "random", np.arange(4000), 3)
    counts = np.bincount(kept[:, 2:].numpy().ravel(), minlength=12)
    assert counts[[5, 8]].tolist() == [0, 0]
    assert (np.abs(np.delete(counts, [5, 8]) - 1200) < 5 * 29).all()
