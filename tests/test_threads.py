"""Threads: how many there are changes no number."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divmf.engine import threads

PROGRAM = """
import hashlib
import numpy as np, torch
from scipy import sparse
from divmf.models.config import TrainConfig
from divmf.data.interactions import Interactions
from divmf.models.mf import MF
from divmf import diversify
from divmf.data.synthetic import marketplace
from divmf.models.full_softmax import softmax_gradient
from divmf.engine.threads import threads
from divmf.ranking.retrieval import recommend
from divmf.models.epochs import accuracy_epoch, epoch_rng, initial_model, optimisers_of
import divmf.models.sampling, polars as pl

divmf.models.sampling.SLAB = 64
rng = np.random.default_rng(0)
model = MF(*(torch.from_numpy(rng.normal(size=size).astype(np.float32)) for size in ((307, 9), (211, 9), 211)))
met = sparse.csr_array((rng.random((307, 211)) < 0.1).astype(np.float32))
loss = softmax_gradient(model, met, 0.5)
lists = recommend(model, met, 5)
split = marketplace(307, 211, 6_000).hold_out(seed=0)
curve = diversify(model.users, model.items, split, diversity_epochs=4)
found = curve.run.read_chosen(curve.curve.points[-1])
print(threads(), loss.hex(), *(point.gap.hex() for point in curve.curve.points[1:]))
pairs = Interactions.from_frame(pl.DataFrame(dict(zip(("user_id", "item_id"), met.nonzero()))))
trained = []
for adam in ("dense", "rows"):
    config = TrainConfig(model="bpr", adam=adam, batch=64)
    own = initial_model(pairs.n_users, pairs.n_items, config)
    loss = accuracy_epoch(own, pairs, config, optimisers_of(own, config)["accuracy"], epoch_rng(0, "accuracy", 1))
    print(loss.hex())
    trained += [own.users.detach().numpy(), own.items.detach().numpy()]
gradients = model.users.grad.numpy(), model.items.grad.numpy()
for array in (*gradients, *lists, found.discount, *found.lists.values(), *trained):
    print(hashlib.sha256(array.tobytes()).hexdigest())
"""


def test_gradients_lists_market_and_sampled_steps_are_the_same_to_the_last_bit_on_one_thread_and_on_three() -> None:
    def run(threads: int) -> list[str]:
        environment = os.environ | {"DIVMF_THREADS": str(threads)}
        command = [sys.executable, "-c", PROGRAM]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()

    one, three = run(1), run(3)
    assert (one[0], three[0]) == ("1", "3")
    assert one[1:] == three[1:]


@pytest.mark.slow
def test_kernels_read_from_the_cache_compute_what_they_did_when_they_were_compiled(tmp_path: Path) -> None:
    # a kernel from the cache brought a copy of exp_row that summed in another order than the one compiled before it
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM]
    compiled, read = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout for _ in range(2)
    )
    assert compiled == read


@pytest.mark.parametrize("count", [1, 2, 4])
def test_what_is_made_ahead_comes_in_order_and_not_too_early(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "threads", lambda: count)
    lock, begun = threading.Lock(), list[int]()

    def work(number: int) -> int:
        with lock:
            begun.append(number)
        return number * number

    for number, made in enumerate(threads.ahead(work, range(20))):
        assert made == number * number
        with lock:
            assert len(begun) <= number + count  # the one in use, and one for each other thread
    assert sorted(begun) == list(range(20))


@pytest.mark.parametrize("count", [1, 2])
def test_an_error_in_what_is_made_ahead_is_raised_where_it_would_be_used(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "threads", lambda: count)
    made = threads.ahead(lambda number: 6 // (2 - number), range(4))
    assert [next(made), next(made)] == [3, 6]
    with pytest.raises(ZeroDivisionError):
        next(made)


@given(st.integers(0, 5000), st.integers(1, 9), st.sampled_from([0, 1 << 20, 1 << 27]))
def test_the_parts_of_processes_together_are_all_rows_once(n_rows: int, processes: int, sum_bytes: int) -> None:
    found: list[tuple[int, int]] = []
    for process in range(processes):
        first, last = threads.range_of(n_rows, process, processes)
        span = threads.RowRange(first, last, n_rows, processes)
        ranges = threads.in_parts(lambda low, high: (low, high), last - first, sum_bytes, span)
        found += [(first + low, first + high) for low, high in ranges]
    ends = [0, *(last for _, last in found)]
    assert [first for first, _ in found] == ends[:-1]
    assert ends[-1] == n_rows


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_a_few_processes_make_the_parts_that_one_would_make(processes: int) -> None:
    # so that their sums over parts are the same to the last bit
    alone = threads.in_parts(lambda low, high: (low, high), 1003)
    together = []
    for process in range(processes):
        first, last = threads.range_of(1003, process, processes)
        span = threads.RowRange(first, last, 1003, processes)
        parts = threads.in_parts(lambda low, high: (low, high), last - first, 0, span)
        together += [(first + low, first + high) for low, high in parts]
    assert together == alone


GOVERNED = """
import torch  # before us: it must be told, not only its environment set
from threadpoolctl import threadpool_info
import divmf.models.mf, divmf.kernels.select
import numba
from divmf.engine.threads import in_parts, threads

def of_blas():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

inside = in_parts(lambda first, last: of_blas(), 2)
print(threads(), torch.get_num_threads(), numba.get_num_threads(), *of_blas(), *inside[0])
"""


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({"DIVMF_THREADS": "3", "OMP_NUM_THREADS": "1"}, 3),  # ours wins
        ({"OMP_NUM_THREADS": "1"}, 1),  # as torchrun sets it
    ],
)
def test_one_setting_governs_our_threads_torch_numba_and_blas(setting: dict[str, str], expected: int) -> None:
    others = ("DIVMF_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in others} | setting
    done = subprocess.run([sys.executable, "-c", GOVERNED], env=environment, capture_output=True, text=True, check=True)
    ours, of_torch, of_numba, of_blas, inside_a_part = map(int, done.stdout.split())
    assert (ours, of_torch, of_numba, of_blas) == (expected,) * 4
    assert inside_a_part == 1  # each part multiplies on its own: no more threads than asked for


@pytest.mark.parametrize(
    ("setting", "expected"), [({}, 3), ({"OMP_NUM_THREADS": "2,1"}, 3), ({"OMP_NUM_THREADS": "2"}, 2)]
)
def test_without_a_setting_every_core_of_the_process_has_a_thread(
    setting: dict[str, str], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DIVMF_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    assert threads.threads.__wrapped__() == expected
