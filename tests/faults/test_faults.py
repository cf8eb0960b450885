"""A short part of `make faults`: commands killed, stopped, out of room and called twice at once."""

import random
import signal

import fetches
import pytest

import faults


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> faults.Place:
    return faults.prepared(tmp_path_factory.mktemp("faults"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train", "recommend", "split"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_command_goes_on_and_leaves_what_an_undisturbed_one_does(
    place: faults.Place, name: str, how: signal.Signals
) -> None:
    place.failures.clear()
    faults.interrupted(place, name, 0, random.Random(f"{name} {how}"), how)
    assert place.failures == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train", "recommend", "recommend parts"])
def test_two_calls_with_one_output_leave_what_one_does(place: faults.Place, name: str) -> None:
    place.failures.clear()
    faults.two_at_once(place, name)
    assert place.failures == []


@pytest.mark.parametrize(
    "name", ["recommend", *(pytest.param(name, marks=pytest.mark.slow) for name in ("train", "rerank"))]
)
def test_a_full_disk_is_one_line_that_names_the_file(place: faults.Place, name: str) -> None:
    place.failures.clear()
    try:
        faults.full_disk(place, name, 20_000 if name == "train" else 4096)
    except PermissionError as error:
        pytest.skip(str(error))
    assert place.failures == []


@pytest.mark.slow
def test_a_download_that_is_dropped_or_killed_is_whole_or_not_there(place: faults.Place) -> None:
    place.failures.clear()
    fetches.broken(place, 0, random.Random(0))
    assert place.failures == []


def test_what_differs_is_found() -> None:
    one = {"a.json": faults.timeless({"loss": 1, "seconds": 2}), "b": b"1"}
    assert one["a.json"] == {"loss": 1}
    assert faults.differs(one, one) == "nothing"
    assert faults.differs(one, one | {"b": b"2", ".b.1-ab.tmp": b""}) == ".b.1-ab.tmp, b"
