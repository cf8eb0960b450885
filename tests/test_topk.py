"""TopK: what goes in comes out with its ids; bad lists are named; recommend equals the dense way."""

import json
import warnings
from functools import partial

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse

import divmf.ranking.retrieval
from divmf.data.interactions import Interactions
from divmf.models.mf import MF
from divmf.ranking.lists import TopK
from divmf.ranking.retrieval import blocks, recommend, recommend_each

ROWS = pl.DataFrame(
    {
        "user_id": ["b", "a", "b", "a", "b"],
        "item_id": ["x", "z", "y", "x", "z"],
        "score": [0.5, 2.0, 0.75, 1.0, 0.25],
    }
)


def test_lists_are_ordered_by_score_and_shorter_ones_padded():
    lists = TopK.from_frame(ROWS, catalog=["w", "x", "y", "z"])
    assert lists.user_ids.to_list() == ["a", "b"]
    assert lists.item_ids.to_list() == ["w", "x", "y", "z"]
    assert lists.items.tolist() == [[3, 1, -1], [2, 1, 3]]
    assert lists.scores.tolist() == [[2.0, 1.0, -np.inf], [0.75, 0.5, 0.25]]
    assert lists.lengths.tolist() == [2, 3]
    assert lists.counts.tolist() == [0, 2, 1, 2]
    assert (lists.width, lists.n_items, len(lists)) == (3, 4, 2)
    assert repr(lists) == "TopK(2 lists of 3, catalog of 4 items)"


def test_equal_scores_go_to_the_lowest_item_number():
    frame = pl.DataFrame({"user_id": [1, 1, 1], "item_id": [30, 10, 20], "score": [1.0, 1.0, 1.0]})
    assert TopK.from_frame(frame).items.tolist() == [[0, 1, 2]]


def test_rank_orders_the_lists_even_against_the_scores():
    frame = ROWS.filter(pl.col("user_id") == "b").with_columns(rank=pl.Series([3, 1, 2]))
    lists = TopK.from_frame(frame)
    assert lists.frame["item_id"].to_list() == ["y", "z", "x"]
    assert lists.frame["score"].to_list() == [0.75, 0.25, 0.5]


def test_rank_alone_is_enough_and_gives_falling_scores():
    lists = TopK.from_frame(pl.DataFrame({"user": [7, 7, 7], "item": [1, 2, 3], "rank": [2, 3, 1]}))
    assert lists.frame["item_id"].to_list() == [3, 1, 2]
    assert lists.scores.tolist() == [[-1.0, -2.0, -3.0]]


@st.composite
def frames(draw):
    pairs = draw(st.sets(st.tuples(st.integers(0, 8), st.integers(0, 12)), min_size=1))
    scores = draw(st.lists(st.integers(-100, 100), min_size=len(pairs), max_size=len(pairs), unique=True))
    name = str if draw(st.booleans()) else int
    rows = [(name(user), name(item), float(score)) for (user, item), score in zip(pairs, scores, strict=True)]
    return pl.DataFrame(rows, schema=["user_id", "item_id", "score"], orient="row")


@given(frames())
def test_a_frame_comes_back_whatever_its_ids(frame):
    lists = TopK.from_frame(frame)
    expected = frame.sort("user_id", pl.col("score").neg())
    assert lists.frame.drop("rank").cast({"score": pl.Float64}).equals(expected)
    assert TopK.from_frame(lists.frame).frame.equals(lists.frame)


@pytest.mark.parametrize("convert", [pl.DataFrame.to_pandas, pl.DataFrame.to_arrow, pl.DataFrame.lazy])
def test_frames_of_other_libraries_give_the_same_lists(convert):
    assert TopK.from_frame(convert(ROWS)).frame.equals(TopK.from_frame(ROWS).frame)


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "jsonl"])
def test_files_of_every_kind_give_the_same_lists(tmp_path, ending):
    path = tmp_path / f"lists.{ending}"
    write = {
        "csv": ROWS.write_csv,
        "tsv": partial(ROWS.write_csv, separator="\t"),
        "parquet": ROWS.write_parquet,
        "jsonl": ROWS.write_ndjson,
    }
    write[ending](path)
    assert TopK.read(path).frame.equals(TopK.from_frame(ROWS).frame)


def test_the_catalog_may_be_a_sequence_a_series_a_frame_or_a_frame_with_more_columns():
    given = ["z", "y", "x", "w"]
    frame = pl.DataFrame({"item_id": given, "interactions": [1, 2, 3, 4]})
    for catalog in (given, pl.Series(given), frame, frame.to_pandas(), frame.select("item_id")):
        assert TopK.from_frame(ROWS, catalog).n_items == 4


BAD = {
    "no score and no rank": (ROWS.drop("score"), None, "need a column 'score' or 'rank'"),
    "no rows": (ROWS.clear(), None, "there are no rows"),
    "no item column": (ROWS.drop("item_id"), None, "no column looks like the item"),
    "a pair twice": (pl.concat([ROWS, ROWS.head(2)]), None, "2 rows repeat a .user, item. pair"),
    "NaN": (ROWS.with_columns(score=pl.Series([1.0, 2, np.nan, 3, 4])), None, "1 scores or ranks are missing, NaN"),
    "infinite": (ROWS.with_columns(score=pl.Series([1.0, 2, np.inf, -np.inf, 4])), None, "2 scores or ranks"),
    "null score": (ROWS.with_columns(score=pl.Series([1.0, 2, None, 3, 4])), None, "1 scores or ranks are missing"),
    "null rank": (ROWS.with_columns(rank=pl.Series([1, 2, None, 3, 4])), None, "1 scores or ranks are missing"),
    "text as score": (
        ROWS.with_columns(score=pl.lit("good")),
        None,
        "column 'score' must hold numbers; it holds String",
    ),
    "outside": (ROWS, ["x", "y"], "1 items .such as 'z'. are not in the catalog of 2 items"),
    "other type": (ROWS, [1, 2, 3], "the given ids are strings .such as 'x'., the known ones integers .such as 1."),
    "null id": (ROWS.with_columns(user_id=pl.Series(["a", None, "a", "b", "b"])), None, "1 empty ids of 5"),
    "float id": (ROWS.with_columns(user_id=pl.Series([0.5] * 5)), None, "holds Float64.*ids must be"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_frames_are_refused_with_what_is_wrong(case):
    frame, catalog, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        TopK.from_frame(frame, catalog)


def test_reading_names_the_file_in_its_errors(tmp_path):
    path = tmp_path / "lists.csv"
    path.write_text("user_id,item_id\n1,2\n")
    with pytest.raises(ValueError, match=r"lists\.csv: lists need a column 'score' or 'rank'"):
        TopK.read(path)
    with pytest.raises(ValueError, match=r"nowhere\.csv: there is no such file"):
        TopK.read(tmp_path / "nowhere.csv")


def test_arrays_of_another_library_keep_their_numbers_and_ids():
    lists = TopK.from_arrays([[2, 0], [1, -1]], [[2.0, 1.0], [5.0, np.nan]], ["u", "v"], ["c", "a", "b"])
    assert lists.frame.rows() == [("u", "b", 2.0, 1), ("u", "c", 1.0, 2), ("v", "a", 5.0, 1)]
    assert lists.scores[1, 1] == -np.inf


ARRAYS = {
    "shapes": ([[0, 1]], [[1.0]], [1], [1, 2], "do not fit"),
    "users": ([[0, 1]], [[1.0, 0.5]], [1, 2], [1, 2], "do not fit"),
    "outside": ([[0, 2]], [[1.0, 0.5]], [1], [1, 2], "item number 2 is outside the catalog of 2 items"),
    "NaN": ([[0, 1]], [[1.0, np.nan]], [1], [1, 2], "NaN or infinite"),
    "infinite": ([[0, 1]], [[np.inf, 1.0]], [1], [1, 2], "NaN or infinite"),
    "twice": ([[1, 1]], [[1.0, 0.5]], [1], [1, 2], "holds an item twice"),
    "user twice": ([[1], [0]], [[1.0], [0.5]], [1, 1], [1, 2], "1 of the 2 user_ids are repeated"),
    "item twice": ([[1]], [[1.0]], [1], [2, 2], "1 of the 2 item_ids are repeated"),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_bad_arrays_are_refused_with_what_is_wrong(case):
    *arguments, message = ARRAYS[case]
    with pytest.raises(ValueError, match=message):
        TopK.from_arrays(*arguments)


def test_lists_cannot_be_changed_in_place():
    lists = TopK.from_frame(ROWS)
    with pytest.raises(ValueError, match="read-only"):
        lists.items[0, 0] = 1


def test_head_keeps_the_first_of_each_list():
    lists = TopK.from_frame(ROWS)
    assert lists.head(1).frame.rows() == [("a", "z", 2.0, 1), ("b", "y", 0.75, 1)]
    assert lists.head(9).frame.equals(lists.frame)


def test_aligning_renumbers_and_gives_users_without_a_list_an_empty_one():
    lists = TopK.from_frame(ROWS)
    other = lists.aligned(pl.Series(["a", "b", "c"]), pl.Series(["w", "x", "y", "z"]))
    assert other.items.tolist() == [[3, 1, -1], [2, 1, 3], [-1, -1, -1]]
    assert other.frame.equals(lists.frame)
    assert lists.aligned(lists.user_ids.clone(), lists.item_ids.clone()) is lists


@given(frames(), st.randoms(use_true_random=False))
def test_aligning_to_any_order_of_more_ids_keeps_the_lists(frame, random):
    lists = TopK.from_frame(frame)
    more = ["100", "101"] if frame["user_id"].dtype == pl.String else [100, 101]
    users, items = ([*ids.to_list(), *more] for ids in (lists.user_ids, lists.item_ids))
    random.shuffle(users)
    random.shuffle(items)
    other = lists.aligned(pl.Series(users), pl.Series(items))
    assert (len(other), other.n_items) == (len(users), len(items))
    assert other.frame.sort("user_id", "rank").equals(lists.frame)


def test_aligning_refuses_what_the_other_side_does_not_know():
    lists = TopK.from_frame(ROWS)
    with pytest.raises(ValueError, match=r"1 lists belong to users \(such as 'b'\) that the data does not know"):
        lists.aligned(pl.Series(["a"]), lists.item_ids)
    with pytest.raises(ValueError, match=r"2 recommended items \(such as 'y'\) are not in the catalog of 1 items"):
        lists.aligned(lists.user_ids, pl.Series(["x"]))
    with pytest.raises(ValueError, match="use one type"):
        lists.aligned(pl.Series([1, 2]), lists.item_ids)


def whole_numbered_model(n_users, n_items, seed=0):
    """Small whole numbers: scores are exact in float32 in any order of summing, and many tie."""
    draw = partial(torch.randint, -2, 3, generator=torch.Generator().manual_seed(seed))
    return MF(draw((n_users, 4)).float(), draw((n_items, 4)).float(), draw((n_items,)).float())


def dense(model, seen, k):
    scores = (model.users @ model.items.T + model.bias).numpy()
    scores[seen.toarray() > 0] = -np.inf
    items = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    kept = np.take_along_axis(scores, items, axis=1)
    return np.where(kept > -np.inf, items, -1), kept


@pytest.mark.parametrize("block_scores", [1, 100, 1000, 1 << 20])
def test_recommend_equals_the_dense_sort_whatever_the_block(monkeypatch, block_scores):
    monkeypatch.setattr(divmf.ranking.retrieval, "blocks", partial(blocks, block_scores=block_scores))
    model = whole_numbered_model(83, 37)
    seen = sparse.csr_array((np.random.default_rng(0).random((83, 37)) < 0.2).astype(np.float32))
    items, scores = recommend(model, seen, 7)
    expected_items, expected_scores = dense(model, seen, 7)
    assert_array_equal(items, expected_items)
    assert_array_equal(scores, expected_scores)


def test_several_matrices_of_seen_items_are_scored_once():
    model = whole_numbered_model(40, 30)
    less = np.random.default_rng(0).random((40, 30)) < 0.2
    more = less | (np.random.default_rng(1).random((40, 30)) < 0.2)
    seen = [sparse.csr_array(matrix.astype(np.float32)) for matrix in (less, more)]
    for matrix, (items, scores) in zip(seen, recommend_each(model, seen, 6), strict=True):
        expected_items, expected_scores = dense(model, matrix, 6)
        assert_array_equal(items, expected_items)
        assert_array_equal(scores, expected_scores)


def test_recommend_for_some_users_gives_their_rows_in_the_order_asked():
    model, seen = whole_numbered_model(40, 30), sparse.csr_array((40, 30), dtype=np.float32)
    everyone, _ = recommend(model, seen, 3)
    rows = np.array([7, 0, 7, 39], dtype=np.int32)
    rows.flags.writeable = False  # as polars hands it out; torch warns about those
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        items, _ = recommend(model, seen, 3, rows)
    assert_array_equal(items, everyone[rows])


def test_users_who_have_seen_nearly_everything_get_short_lists():
    model = whole_numbered_model(2, 4)
    seen = sparse.csr_array(np.array([[1, 1, 1, 0], [1, 1, 1, 1]], dtype=np.float32))
    items, scores = recommend(model, seen, 3)
    assert items.tolist() == [[3, -1, -1], [-1, -1, -1]]
    assert np.isinf(scores).sum() == 5


def test_no_list_holds_a_seen_item_on_real_interactions():
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"user": rng.integers(0, 60, 900), "item": rng.integers(0, 50, 900)})
    split = Interactions.from_frame(frame).leave_one_out(seed=0)
    items, _ = recommend(whole_numbered_model(split.n_users, split.n_items), split.seen, 5)
    assert not split.seen.toarray()[np.arange(split.n_users)[:, None], items].any()


@given(st.integers(0, 50), st.integers(0, 20), st.integers(1, 100))
def test_blocks_cover_every_row_once_in_order(n_rows, n_columns, block_scores):
    covered = [row for block in blocks(n_rows, n_columns, block_scores) for row in range(block.start, block.stop)]
    assert covered == list(range(n_rows))


def test_lists_written_as_json_lines_can_be_read_by_anyone(tmp_path):
    path = tmp_path / "lists.jsonl"
    TopK.from_frame(ROWS).frame.write_ndjson(path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows[0] == {"user_id": "a", "item_id": "z", "score": 2.0, "rank": 1}


def test_item_numbers_too_large_for_our_type_are_refused_not_wrapped() -> None:
    with pytest.raises(ValueError, match="outside the catalog"):
        TopK.from_arrays(np.array([[2**32]]), np.array([[1.0]]), ["u"], ["a", "b"])


def test_arrays_that_are_not_best_first_are_put_in_order() -> None:
    lists = TopK.from_arrays(np.array([[0, 1, -1, 2]]), np.array([[1.0, 3.0, 9.0, 2.0]]), ["u"], ["a", "b", "c"])
    assert lists.items.tolist() == [[1, 2, 0, -1]]


def test_candidates_come_from_factors_too() -> None:
    from divmf.data.interactions import Interactions

    train = Interactions.from_frame(pl.DataFrame({"user_id": [0, 1], "item_id": ["a", "b"]}))
    lists = TopK.from_factors([[1.0, 0.0], [0.0, 1.0]], [[1.0, 2.0], [3.0, 4.0]], train)
    assert lists.frame.rows() == [(0, "b", 3.0, 1), (1, "a", 2.0, 1)]
    with pytest.raises(ValueError, match="do not fit"):
        TopK.from_factors([[1.0]], [[1.0]], train)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_factors_multiply_to_what_lists_are_chosen_by(dtype):
    generator = torch.Generator().manual_seed(0)
    users, items = (torch.randn(n, 4, generator=generator, dtype=dtype) for n in (7, 9))
    bias = torch.randn(9, generator=generator, dtype=dtype)
    model = MF(users.requires_grad_(), items, bias)
    left, right = model.factors()
    assert (left.shape, right.shape) == ((7, 5), (9, 5))
    np.testing.assert_allclose(left @ right.T, model.scores(slice(None)).detach().numpy(), rtol=1e-5, atol=1e-6)
    copy = model.copy()
    assert set(copy.tensors()) == set(model.tensors())
    assert all(torch.equal(tensor, model.tensors()[name]) for name, tensor in copy.tensors().items())
    assert not copy.users.requires_grad


def test_compiled_lists_are_those_of_the_readable_way():
    model = whole_numbered_model(50, 90)
    rng = np.random.default_rng(3)
    seen = sparse.csr_array((rng.random((50, 90)) < 0.4).astype(np.float32))
    more = seen + sparse.csr_array((rng.random((50, 90)) < 0.1).astype(np.float32))
    rows = rng.permutation(50)[:30]
    model.items[[7, 40, 41]] = torch.nan  # what is not a number is no candidate, and hides none
    for width in (1, 5, 11, 40, 90):
        compiled = recommend_each(model, [seen, more], width, rows)
        exact = MF(*(tensor.double() for tensor in model.tensors().values()))
        for (items, scores), (other, other_scores) in zip(
            compiled, recommend_each(exact, [seen, more], width, rows), strict=True
        ):
            assert_array_equal(items, other)
            assert_array_equal(scores, other_scores)
