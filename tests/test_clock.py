"""The clock: phases add up to the time there was."""

from collections.abc import Callable

import pytest

from divmf.engine.clock import Clock


def ticking(times: list[float]) -> Callable[[], float]:
    return iter(times).__next__


def test_each_second_counts_once_also_when_a_phase_runs_inside_another() -> None:
    clock = Clock(ticking([0, 1, 3, 6, 10, 15, 21, 28]))
    with clock.phase("outer"), clock.phase("inner"):  # 0–1 belongs to nothing, 1–3 to the outer one
        pass  # 3–6 inner, and 6–10, after it, again to the outer one
    with clock.phase("inner"):  # 10–15 belongs to nothing
        pass  # 15–21 inner
    assert clock.seconds == {"outer": 2 + 4, "inner": 3 + 6, "other": 1 + 5 + 7}  # 21–28 belongs to nothing


def test_a_phase_that_fails_counts_and_ends() -> None:
    clock = Clock(ticking([0, 1, 3, 7]))
    with pytest.raises(ValueError), clock.phase("failing"):
        raise ValueError
    assert clock.seconds == {"failing": 2, "other": 1 + 4}
