import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divmf.data.ids import as_ids, id_table, numbers_of, same_ids


def test_the_number_of_an_id_is_its_place_in_the_sorted_table():
    table = id_table(pl.Series(["tea", "jam", "tea", "rye"]))
    assert table.to_list() == ["jam", "rye", "tea"]
    assert numbers_of(pl.Series(["rye", "tea", "egg", "jam"]), table).tolist() == [1, 2, -1, 0]


@given(st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1)), min_size=1), st.randoms())
def test_the_numbering_does_not_depend_on_the_order_of_the_rows(ids, random):
    shuffled = random.sample(ids, len(ids))
    assert same_ids(id_table(pl.Series(ids, dtype=pl.Int64)), id_table(pl.Series(shuffled, dtype=pl.Int64)))


@given(st.lists(st.text(min_size=1), min_size=1))
def test_numbers_lead_back_to_the_ids(ids):
    column = as_ids(pl.Series("who", ids), "user_id")
    table = id_table(column)
    assert table.gather(numbers_of(column, table)).to_list() == ids


@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt16, pl.Int32, pl.UInt64, pl.Int64])
def test_integers_of_every_width_stay_integers(dtype):
    ids = as_ids(pl.Series("who", [3, 1, 2], dtype=dtype), "user_id")
    assert (ids.dtype, ids.name, ids.to_list()) == (pl.Int64, "user_id", [3, 1, 2])


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical, pl.Enum(["a", "b"])])
def test_texts_and_categories_are_texts(dtype):
    ids = as_ids(pl.Series("who", ["b", "a"], dtype=dtype), "user_id")
    assert (ids.dtype, ids.to_list()) == (pl.String, ["b", "a"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pl.Series("who", [1.0, 2.0]), r"column 'who' holds Float64 \(such as 1.0\); ids must be strings or 64-bit"),
        (pl.Series("who", [True]), "column 'who' holds Boolean"),
        (pl.Series("who", [2**64 - 1], dtype=pl.UInt64), "column 'who' holds UInt64 .such as 18446744073709551615"),
        (pl.Series("who", [1, None, None]), "column 'who' has 2 empty ids of 3; drop those rows"),
        (pl.Series("who", ["a", "", None]), "column 'who' has 2 empty ids of 3"),
        (pl.Series("who", [None]), "column 'who' has 1 empty ids of 1"),
        (pl.Series([0.5]), "column 'user_id' holds Float64"),
    ],
)
def test_what_is_no_id_is_refused_by_column_and_value(values, message):
    with pytest.raises(ValueError, match=message):
        as_ids(values, "user_id")


def test_texts_are_not_looked_up_among_integers():
    with pytest.raises(ValueError, match=r"given ids are strings .such as '7'.*known ones integers .such as 3"):
        numbers_of(pl.Series(["7"]), pl.Series([3, 7]))


def test_nothing_is_found_in_an_empty_table():
    assert numbers_of(pl.Series([7, 8]), pl.Series([], dtype=pl.Int64)).tolist() == [-1, -1]
    assert numbers_of(pl.Series([], dtype=pl.String), pl.Series([7])).tolist() == []


def test_tables_of_other_types_are_not_the_same():
    assert not same_ids(pl.Series([1]), pl.Series(["1"]))
    assert same_ids(pl.Series([1]), pl.Series(np.array([1])))
