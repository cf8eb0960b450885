"""What `divmf plan` counts is what is there."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divmf.market.columns import Finder, Held
from divmf.models.config import TrainConfig
from divmf.models.epochs import EPOCHS, epoch_rng, initial_model, optimisers_of
from divmf.models.scorer import Factors
from divmf.train import calibrate as calibration
from divmf.train.calibrate import calibrate
from divmf.train.plan import Job, Network, Pace, memory, peak, seconds, wire

JOBS = st.builds(
    Job,
    users=st.integers(1000, 10**8), items=st.integers(200, 10**7), interactions=st.integers(10**4, 10**10),
    processes=st.integers(1, 512),
    config=st.builds(
        TrainConfig, model=st.sampled_from(["softmax", "bpr", "mse"]),
        method=st.sampled_from(["market", "divmf"]), dim=st.sampled_from([8, 32, 128]),
    ),
)  # fmt: skip


def test_interactions_vectors_and_moments_are_counted_as_they_are(split):
    config = TrainConfig(preset="paper")
    job = Job(split.n_users, split.n_items, len(split.train), config=config)
    model = initial_model(split.n_users, split.n_items, config)
    optimisers = optimisers_of(model, config)
    for phase in ("accuracy", "diversity"):
        EPOCHS[phase](model, split.train, config, optimisers[phase], epoch_rng(0, phase, 1))
    tables = [model.users, model.items, model.users.grad, model.items.grad]
    tables += [
        moment for optimiser in optimisers.values() for state in optimiser.state.values()
        for name, moment in state.items() if name != "step"
    ]  # fmt: skip
    counted = memory(job)["diversity"]
    assert counted["vectors, gradients, Adam"] == sum(table.nbytes for table in tables)
    train, seen = split.train, split.seen
    pairs = [train.users, train.items, train.times, train.matrix.data, train.matrix.indices]
    of_seen = 8 * len(train)  # the few pairs of validation beside them are left out
    assert counted["interactions"] == sum(array.nbytes for array in pairs) + of_seen
    assert seen.data.itemsize + seen.indices.itemsize == 8


def test_candidates_of_the_market_are_counted_as_they_are(split):
    config = TrainConfig(k=5)
    job = Job(split.n_users, split.n_items, 2, config=config)
    model = initial_model(split.n_users, split.n_items, config)
    finder = Finder(Factors.of(model), Held.nothing(split.train.matrix), np.ones(split.n_users, dtype=np.float32))
    columns = finder.find(np.zeros(split.n_items), np.zeros((split.n_users, 5), dtype=np.int32))
    held = sum(table.nbytes for table in (*columns, finder.by_value))
    lists = 3 * 2 * 4 * 5 * split.n_users  # of each kind, and those of the point before
    own = sum(table.nbytes for table in columns)  # those of the model's own lists are kept
    vectors = model.users.numpy().nbytes
    assert held + own + lists + vectors == pytest.approx(memory(job)["market"]["candidates"], rel=0.02)


def test_bytes_on_the_wire_worked_out_by_hand():
    """Two processes: a ring of two sends a sum's size once."""
    exact = Job(1000, 100, 10_000, 2, TrainConfig(dim=10, method="divmf"))
    assert wire(exact) == {"measuring": 2400, "accuracy": 8000, "diversity": 8800}  # 100 × 10 in float64, 100 counts
    sampled = Job(1000, 100, 10_000, 2, TrainConfig(dim=10, model="bpr", batch=40, negatives=4))
    # 1,000 steps of 10 pairs touch 50 items: 50 × 10 × 4 bytes; and half of the 50 item numbers go to the other
    assert wire(sampled)["accuracy"] == 1000 * (2000 + 100)
    # as triples, they touch 80
    assert wire(replace(sampled, config=replace(sampled.config, shuffle="triples")))["accuracy"] == 1000 * (3200 + 160)


@given(JOBS)
def test_nothing_is_sent_by_one_process_and_a_little_more_by_each_of_more(job):
    alone, two, many = (
        wire(Job(job.users, job.items, job.interactions, processes, job.config)) for processes in (1, 2, 500)
    )
    assert set(alone.values()) == {0}
    assert all(0 < two[name] <= many[name] <= 2 * two[name] + 1 for name in two)


@given(JOBS)
def test_more_processes_need_less_each_but_for_the_items(job):
    more = Job(job.users, job.items, job.interactions, job.processes * 2, job.config) if job.users > 1024 else job
    shared = {"interactions", "items kept in T", "candidates", "lists", "gradient on its way", "order of pairs"}
    for phase, parts in memory(more).items():
        for name in shared & set(parts):
            assert parts[name] <= memory(job)[phase][name]
    assert peak(job) == max(sum(parts.values()) for parts in memory(job).values())


def test_seconds_worked_out_by_hand():
    pace, network = Pace(row=2e-6, step=3e-9, diversity=5e-9, listed=1e-9), Network(gigabits=8e-6, latency=0.5)
    job = Job(1000, 100, 10_000, 2, TrainConfig(dim=10, method="divmf"))
    found = seconds(job, pace, network)  # a thousand bytes a second; 500 × 100 scores each
    assert found["reading"] == pytest.approx(0.02)  # every process passes over all rows
    assert found["accuracy"] == pytest.approx(50_000 * 3e-9 + 8 + 1)
    assert found["diversity"] == pytest.approx(50_000 * 5e-9 + 8.8 + 1)
    assert found["measuring"] == pytest.approx(50_000 * 1e-9 + 2.4 + 2)
    assert found["recommend"] == pytest.approx(50_000 * 1e-9)


@pytest.mark.parametrize("accuracy", ["softmax", "bpr"])
def test_a_short_calibration_finds_a_pace(monkeypatch, accuracy):
    for name, few in (("PASSED", 64), ("PAIRS", 5000), ("ROWS", 2000)):
        monkeypatch.setattr(calibration, name, few)
    pace = calibrate(Job(10_000, 500, 100_000, 2, TrainConfig(model=accuracy, dim=8)))
    assert all(math.isfinite(value) and 1e-11 < value < 1e-2 for value in vars(pace).values())


def test_the_command_prints_a_table_or_a_document(divmf):
    size = ("--users", "1000000", "--items", "20000", "--interactions", "50000000", "--no-calibration")
    done = divmf("plan", *size, "--processes", "2", "--method", "divmf")
    assert done.code == 0
    assert "gigabytes in each of 2 process(es)" in done.out
    assert "at most 2." in done.out
    document = divmf("plan", *size, "--json").json
    assert document["peak_bytes"] == max(sum(parts.values()) for parts in document["memory_bytes"].values())
    assert {"processes", "wire_bytes", "users"} <= set(document)
    assert "seconds" not in document


def test_what_cannot_be_is_refused(divmf):
    size = ("--items", "20", "--interactions", "500", "--no-calibration")
    done = divmf("plan", "--users", "0", *size)
    assert (done.code, done.err) == (2, "divmf: users=0 is too few to plan with; give 1 or more\n")
    done = divmf("plan", "--users", "3", *size, "--processes", "4")
    assert done.err == "divmf: 3 users cannot be shared by 4 processes; plan with fewer\n"
