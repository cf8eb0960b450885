from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divmf.data import fingerprint as module
from divmf.data.datasets import marketplace
from divmf.data.fingerprint import OF_BYTE, OF_ID, OF_ITEM, OF_PLACE, OF_USER, fingerprint, sum_of_ids, sum_of_pairs
from divmf.data.interactions import Interactions

WORD = 2**64


def slow_mixed(value: int) -> int:
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        value = (value ^ (value >> shift)) * factor % WORD
    return value


@given(st.lists(st.text(min_size=1, max_size=9), min_size=1, max_size=9, unique=True), st.integers(0, 10**9))
def test_ids_are_hashed_as_a_loop_would(ids, first):
    one_by_one = 0
    for position, text in enumerate(ids, first):
        number = sum((byte + 1) * int(OF_BYTE) ** power for power, byte in enumerate(text.encode(), 1)) % WORD
        one_by_one += slow_mixed((position * int(OF_PLACE) + slow_mixed(number * int(OF_ID) % WORD)) % WORD)
    assert int(sum_of_ids(pl.Series(ids), first)) == one_by_one % WORD


def test_pairs_are_hashed_as_a_loop_would():
    part = marketplace(30, 40, 400, seed=1).users_between(10, 20)
    rows = zip(part.users.tolist(), part.items.tolist(), strict=True)
    one_by_one = 0
    for position, (user, item) in enumerate(rows, part.share.first_pair):
        one_by_one += slow_mixed((position * int(OF_PLACE) + (10 + user) * int(OF_USER) + item * int(OF_ITEM)) % WORD)
    assert int(sum_of_pairs(part)) == one_by_one % WORD


@given(st.integers(1, 5), st.integers(0, 3), st.sampled_from([7, 1 << 20]), st.booleans())
@settings(max_examples=20, deadline=None)
def test_it_does_not_depend_on_how_many_processes_share_the_data(processes, size, seed, block, numbers):
    split = marketplace(40, 30, 300, seed).leave_one_out(seed)
    if numbers:
        ids = pl.Series("user_id", np.arange(-20, 20) ** 3)
        split = replace(
            split, **{name: replace(getattr(split, name), user_ids=ids) for name in ("train", "valid", "test")}
        )
    expected = fingerprint(split)
    threads = processes(size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        found = threads.run(lambda: fingerprint(split.of_process(threads.rank(), size) if size > 1 else split))
    assert set(found) == {expected}


def test_any_change_of_the_data_changes_it():
    frame = marketplace(40, 30, 300, 0).frame
    data = Interactions.from_frame(frame)
    renamed = frame.with_columns(pl.col("user_id").str.replace("u00007", "u00007b"))
    whole = frame.with_columns(pl.col("item_id").str.slice(1).cast(pl.Int64))
    others = [
        data.leave_one_out(0),
        Interactions.from_frame(frame.drop("timestamp")).leave_one_out(0),
        Interactions.from_frame(frame.drop("timestamp")).leave_one_out(1),
        Interactions.from_frame(renamed).leave_one_out(0),
        Interactions.from_frame(whole).leave_one_out(0),
        data.k_core(5).leave_one_out(0),
        Interactions.from_frame(frame[1:]).leave_one_out(0),
        Interactions.from_frame(frame.with_columns(timestamp=-pl.col("timestamp"))).leave_one_out(0),
    ]
    assert len({fingerprint(split) for split in others}) == len(others)
    assert fingerprint(Interactions.from_frame(frame.sample(fraction=1, shuffle=True, seed=0)).leave_one_out(0)) == (
        fingerprint(others[0])
    )


def test_it_is_the_same_tomorrow():
    """A run is resumed with it, perhaps after an upgrade of numpy or polars."""
    rows = [("ann", 1, 1), ("ann", 2, 2), ("ann", 3, 3), ("bob", 2, 1), ("bob", 3, 2), ("bob", -1, 3), ("cyd", 1, 1)]
    data = Interactions.from_frame(pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row"))
    assert fingerprint(data.leave_one_out(0)) == "0c7f4adb80d9fc7bd5ac6350d72f0b99"
