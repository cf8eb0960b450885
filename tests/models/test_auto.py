"""Choosing a model: what is tried, what is dropped, what wins, and what is said when nothing can be."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy import sparse

from divmf.data.datasets import marketplace
from divmf.data.split import Split
from divmf.models import auto, ease, searches
from divmf.models.accuracy import best_items, valid_ndcg
from divmf.models.auto import choose, lead, refit, usual_budget
from divmf.models.scorer import Blocks, Factors, ItemItem
from divmf.models.searches import ARMS, TIE, Bench, Found, Next, Search, Trial, walk
from divmf.ranking.lists import TopK
from divmf.ranking.metrics import measure


@pytest.fixture(scope="module")
def split() -> Split:
    return marketplace(300, 120, 6000, seed=0).hold_out(seed=0)


def random_factors(split: Split, dim: int = 4) -> Factors:
    rng = np.random.default_rng(dim)
    return Factors.from_arrays(rng.normal(size=(split.n_users, dim)), rng.normal(size=(split.n_items, dim)))


def test_validation_ndcg_is_that_of_the_metrics_for_every_kind_of_scorer(split: Split) -> None:
    factors = random_factors(split)
    blocks = Blocks(lambda users: factors.users[users] @ factors.items_t, split.n_users, split.n_items)
    items = best_items(blocks, split.train.matrix, 5, np.arange(split.n_users))
    lists = TopK(items, np.zeros(items.shape, dtype=np.float32), split.user_ids, split.item_ids)
    wanted = measure(lists, split.valid.matrix)["ndcg"]
    for scorer in (factors, blocks):
        users = valid_ndcg(scorer, split, 5)
        assert len(users) == len(np.unique(split.valid.users))
        assert users.mean() == pytest.approx(wanted, rel=1e-9)


def of_mean(ndcg: float) -> Found:
    """A trial of so much nDCG, as a walk sees it: two users who differ a little, so that a lead is more than chance."""
    users = ndcg * np.array([1 - 1e-6, 1 + 1e-6])
    return Found(Trial("ials", {}, 0.0, ndcg), Factors.from_arrays(np.ones((1, 1)), np.ones((1, 1))), users)


@pytest.mark.parametrize("peak", [(1.0,), (64.0,), (0.125,)])
def test_walk_finds_the_top_of_a_hill_and_looks_at_both_sides_of_it(peak: tuple[float, ...]) -> None:
    places: list[float] = []

    def trial(place: tuple[float, ...]) -> Found:
        places.append(place[0])
        return of_mean(-abs(math.log2(place[0] / peak[0])))

    assert len(list(walk((1.0,), 2.0, trial))) == len(places) == len(set(places))
    assert {peak[0] / 2, peak[0], 2 * peak[0]} <= set(places)


def test_walk_follows_a_ridge_on_which_two_settings_trade() -> None:
    # only along x·y = 1 does it go up, to (16, 1/16): steps along the axes all go down
    found: dict[tuple[float, ...], float] = {}

    def trial(place: tuple[float, ...]) -> Found:
        x, y = (math.log2(each) for each in place)
        found[place] = -10 * abs(x + y) - abs(x - 4)
        return of_mean(found[place])

    list(walk((1.0, 1.0), 2.0, trial))
    assert max(found, key=found.__getitem__) == (16.0, 1 / 16)


def test_the_choice_is_the_best_that_was_tried_but_for_a_tie_and_is_what_it_says_it_is(split: Split) -> None:
    seen = []
    chosen = choose(split, 5, 120.0, seed=1, progress=seen.append)
    assert tuple(seen) == chosen.tried
    assert {trial.name for trial in chosen.tried} == set(ARMS)
    best = max(trial.ndcg for trial in chosen.tried)
    (own,) = [trial for trial in chosen.tried if trial.name == chosen.name and trial.settings == chosen.settings]
    assert own.ndcg >= (1 - TIE) * best
    assert valid_ndcg(chosen.scorer, split, 5).mean() == pytest.approx(own.ndcg, rel=1e-9)
    others = max(trial.ndcg for trial in chosen.tried if trial.name != chosen.name)
    assert chosen.ahead == pytest.approx(best / others - 1 if own.ndcg == best else chosen.ahead)
    popular = Blocks(
        lambda users: np.tile(split.train.popularity.astype(np.float32), (len(users), 1)), split.n_users, split.n_items
    )
    assert own.ndcg > 1.1 * valid_ndcg(popular, split, 5).mean()


def test_the_same_seed_gives_the_same_trials_and_the_same_model(split: Split) -> None:
    one, two = (choose(split, 5, 120.0, ["ials"], seed=3) for _ in range(2))
    assert [(trial.settings, trial.ndcg) for trial in one.tried] == [
        (trial.settings, trial.ndcg) for trial in two.tried
    ]
    assert isinstance(one.scorer, Factors)
    assert isinstance(two.scorer, Factors)
    np.testing.assert_array_equal(one.scorer.users, two.scorer.users)


def test_one_kind_alone_has_its_settings_chosen(split: Split) -> None:
    chosen = choose(split, 5, 120.0, ["ease"])
    assert chosen.name == "ease"
    assert isinstance(chosen.scorer, ItemItem)
    assert math.isnan(chosen.ahead)
    users = {trial.settings["l2"]: valid_ndcg(ease.ease(split.train.matrix, trial.settings["l2"]), split, 5)
             for trial in chosen.tried}  # fmt: skip
    assert [trial.ndcg for trial in chosen.tried] == pytest.approx([each.mean() for each in users.values()], rel=1e-9)
    assert chosen.settings["l2"] == max(users, key=lambda l2: users[l2].mean())  # all are of one size
    # it ended where half and double were tried, and neither is better by more than half a standard error
    assert any(
        near <= users.keys() and all(lead(users[other], users[l2]) <= searches.BETTER for other in near)
        for l2 in users for near in [{l2 / 2, 2 * l2}]
    )  # fmt: skip


def test_lambda_of_ease_is_looked_for_on_the_items_that_hold_most_interactions(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = choose(split, 5, 120.0, ["ease"])
    monkeypatch.setattr(searches, "QUICK", 0.0)
    monkeypatch.setattr(searches, "HEAD", 0.6)
    head, popularity = searches.head_of(split.train.weighted), split.train.popularity
    assert popularity[head].sum() >= 0.6 * popularity.sum() > np.sort(popularity[head])[1:].sum()
    assert popularity[head].min() >= np.delete(popularity, head).max()
    (only,) = choose(split, 5, 120.0, ["ease"]).tried
    own = valid_ndcg(ease.ease(split.train.matrix, only.settings["l2"]), split, 5)
    assert only.ndcg == pytest.approx(own.mean(), rel=1e-9)
    assert only.ndcg >= 0.95 * max(trial.ndcg for trial in whole.tried)


def test_validation_ndcg_of_a_scorer_of_a_part_of_the_catalog_is_that_of_one_that_never_lists_the_others(
    split: Split,
) -> None:
    factors, part = random_factors(split), np.array([3, 5, 8, 40, 41, 90, 100])
    users, items = factors.users, factors.items_t.T
    bias = np.where(np.isin(np.arange(split.n_items), part), 0.0, -1e6)
    few = Factors.from_arrays(users, items[part])
    found = valid_ndcg(few, split, 3, part)
    assert found == pytest.approx(valid_ndcg(Factors.from_arrays(users, items, bias), split, 3))
    assert found.mean() > 0


def test_of_models_as_good_as_the_best_the_smallest_wins(split: Split) -> None:
    bench = Bench(split, 5, 0)
    small, large = random_factors(split, 3), random_factors(split, 3)
    large = Factors.from_arrays(np.hstack([large.users, large.users * 0]), np.hstack([large.items_t.T] * 2))
    bench.trial("large", {}, lambda: large)  # the same scores with twice the numbers
    assert bench.winner.scorer is large
    bench.trial("small", {}, lambda: small)
    assert bench.winner.scorer is small
    truth = split.valid.matrix.toarray()
    bench.trial("best", {}, lambda: Factors.from_arrays(truth, np.eye(split.n_items)))
    assert bench.winner.trial.name == "best"


def test_a_search_that_is_clearly_behind_is_dropped_and_one_that_is_close_is_not(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth, turns = split.valid.matrix.toarray(), {"good": 0, "close": 0, "bad": 0}

    def search(name: str, noise: float) -> Search:
        rng = np.random.default_rng(0)
        for number in range(6):
            yield Next(0.0, number // 2)
            turns[name] += 1
            scores = truth + noise * rng.random(truth.shape)
            bench_of[0].trial(
                name, {"number": number}, lambda scores=scores: Factors.from_arrays(scores, np.eye(split.n_items))
            )  # type: ignore[misc]

    bench_of: list[Bench] = []

    def arm(name: str, noise: float) -> object:
        def begin(bench: Bench) -> Search:
            bench_of[:] = [bench]
            return search(name, noise)

        return begin

    monkeypatch.setattr(
        auto, "ARMS", {"good": arm("good", 0.0), "close": arm("close", 0.001), "bad": arm("bad", 100.0)}
    )
    chosen = auto.choose(split, 5, 60.0, ["good", "close", "bad"])
    assert turns == {"good": 6, "close": 6, "bad": 2}
    assert chosen.name in ("good", "close")


def test_softmax_is_not_begun_from_vectors_that_are_too_far_behind(split: Split) -> None:
    def found(name: str, ndcg: float) -> Found:
        each = of_mean(ndcg)
        return replace(each, trial=replace(each.trial, name=name))

    for ndcg, low in ((0.79, True), (0.81, False)):
        bench = Bench(split, 5, 0, best={"ease": found("ease", 1.0), "ials": found("ials", ndcg)})
        assert auto.begins_too_low(bench, Next(1.0, 0)) == low
        assert not auto.begins_too_low(bench, Next(1.0, 1))  # it has begun
    assert not auto.begins_too_low(Bench(split, 5, 0, best={"ease": found("ease", 1.0)}), Next(1.0, 0))


@pytest.mark.parametrize("name", ["ials", "softmax"])
def test_a_model_taken_on_begins_from_its_own_vectors(split: Split, name: str) -> None:
    settings = {"dim": 8, "alpha": 0.1, "l2": 0.01} if name == "ials" else {
        "dim": 8, "l2": 8.0, "pairs": 14.0, "ials_alpha": 0.1, "ials_l2": 0.01}  # fmt: skip
    first = refit(name, settings, split.train)
    on = refit(name, settings, split.train, seed=9, start=first)
    before, after = (scorer.scores(np.arange(300)).ravel() for scorer in (first, on))
    assert np.corrcoef(before, after)[0, 1] > 0.9
    assert 0.8 < after.std() / before.std() < 1.25


def test_lead_counts_standard_errors_of_paired_users() -> None:
    # differences 1 and 3: mean 2, standard deviation 1, error 1/√2
    assert lead(np.array([1.0, 3.0]), np.zeros(2)) == pytest.approx(2 * math.sqrt(2))
    assert lead(np.ones(3), np.ones(3)) == 0.0


def test_a_budget_too_short_for_any_model_is_said_with_what_it_would_take(split: Split) -> None:
    with pytest.raises(ValueError, match=r"budget=1e-09 s is too short for any model: the fastest, \w+, takes about"):
        choose(split, 5, 1e-9)


def test_what_does_not_fit_into_memory_is_left_out_and_named(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ease, "memory_left", lambda: 1000)
    chosen = choose(split, 5, 60.0, ["ials", "ease"])
    assert chosen.name == "ials"
    assert "EASE of 120 items needs" in chosen.left_out["ease"]
    with pytest.raises(ValueError, match="EASE of 120 items needs"):
        choose(split, 5, 60.0, ["ease"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"candidates": ["svd"]}, "candidates holds 'svd'; choose from ials, ease, softmax"),
        ({"candidates": []}, "candidates is empty"),
        ({"budget": 0.0}, "budget=0.0 leaves no time"),
        ({"k": 1000}, "k=1000 must be between 1 and the 120 items"),
    ],
)
def test_what_cannot_be_chosen_from_is_refused(split: Split, given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        choose(split, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", list(ARMS))
def test_refit_on_the_same_interactions_is_about_as_accurate(split: Split, name: str) -> None:
    chosen = choose(split, 5, 120.0, [name])
    again = refit(chosen.name, chosen.settings, split.train)
    own, other = (valid_ndcg(scorer, split, 5).mean() for scorer in (chosen.scorer, again))
    assert other > 0.95 * own  # fitted from chance, not from one trial to the next
    warm = refit(chosen.name, chosen.settings, split.train, start=chosen.scorer)
    assert valid_ndcg(warm, split, 5).mean() > 0.95 * own


def test_refit_refuses_a_kind_it_does_not_know(split: Split) -> None:
    with pytest.raises(ValueError, match="no way to fit 'bpr' here"):
        refit("bpr", {"dim": 4}, split.train)


def test_the_usual_budget_grows_with_the_data_and_ends(split: Split) -> None:
    assert usual_budget(split) == pytest.approx(30 + 30 * len(split.train) / 1e6 + 30 * 300 * 120 / 6e7)
    ids = pl.Series("item_id", range(8_000_000))
    assert usual_budget(Split(*(replace(part, item_ids=ids) for part in (split.train, split.valid, split.test)))) == 600


def test_costs_are_counted_from_the_sizes_alone_and_grow_with_them() -> None:
    def met(n_users: int, n_items: int, pairs: int) -> sparse.csr_array:
        cells = np.random.default_rng(0).choice(n_users * n_items, pairs, replace=False)
        return sparse.csr_array((np.ones(pairs), (cells // n_items, cells % n_items)), shape=(n_users, n_items))

    small, more, wide = met(100, 50, 1000), met(100, 50, 2000), met(100, 500, 1000)
    assert searches.ease_cost(wide) - 2e-10 * 1000 * 500 == pytest.approx(
        1000 * (searches.ease_cost(small) - 2e-10 * 1000 * 50)
    )
    for cost in (searches.ease_cost, lambda m: searches.ials_cost(m, 32, 8), lambda m: searches.softmax_cost(m, 64)):
        assert cost(small) <= cost(more) < cost(wide)
    assert searches.softmax_cost(small, 128) > 1.6 * searches.softmax_cost(small, 64)


def test_the_trials_do_not_depend_on_how_fast_the_machine_is(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = choose(split, 5, seed=1)
    now = iter(range(10**6))
    monkeypatch.setattr("divmf.models.auto.time.perf_counter", lambda: 0.5 * next(now))  # every look half a second
    slow = choose(split, 5, seed=1)
    assert [(t.name, t.settings, t.ndcg) for t in slow.tried] == [(t.name, t.settings, t.ndcg) for t in usual.tried]
    assert (slow.name, slow.settings, slow.capped) == (usual.name, usual.settings, False)


def test_the_clock_ends_a_search_that_takes_far_longer_than_counted(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(10**6))
    monkeypatch.setattr("divmf.models.auto.time.perf_counter", lambda: 10.0 * next(now))
    chosen = choose(
        split, 5, 60.0
    )  # a look at the clock takes ten seconds, so a trial takes thirty: one, then two more
    assert chosen.capped
    assert 1 <= len(chosen.tried) <= 4
    assert "60 s have passed" in chosen.left_out["ials"]


def test_dimensions_and_lambda_that_are_given_are_not_chosen(split: Split) -> None:
    chosen = choose(split, 5, dim=7, candidates=["ials", "softmax"])
    assert {trial.settings["dim"] for trial in chosen.tried} == {7}
    (only,) = choose(split, 5, l2=33.0, candidates=["ease"]).tried
    assert only.settings == {"l2": 33.0}
