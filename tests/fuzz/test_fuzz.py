"""A short part of `make fuzz`: every reader takes a file, or refuses it in one line that names it."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from tables import tables, written
from targets import Target, all_targets

from fuzz import case_of, silent, tried

SEED, CASES = 20, 15
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "40"))


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> list[Target]:
    return all_targets(tmp_path_factory.mktemp("fuzz") / "files")


def test_every_reader_takes_a_changed_file_or_refuses_it_in_one_line(targets: list[Target]) -> None:
    ends: dict[str, int] = {}
    for target in targets:
        assert [target.attempt(example) for example in target.examples] == ["taken"] * len(target.examples), target.name
        for number in range(CASES):
            with silent():
                end, why = tried(target, case_of(target, SEED, number))
            assert not why, f"--seed {SEED} --only {target.name!r} --case {number}: {why}"
            ends[end] = ends.get(end, 0) + 1
    assert min(ends["taken"], ends["refused"]) > len(targets)  # cases that all end alike would try nothing


@pytest.mark.parametrize("name", ["log.csv", "log.parquet", "log.jsonl", "lists.parquet", "catalog.parquet"])
def test_tables_of_any_types_are_taken_or_refused_in_one_line(name: str, targets: list[Target]) -> None:
    target = next(each for each in targets if each.name == name)

    @settings(max_examples=EXAMPLES, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(table=tables())
    def every(table: object) -> None:
        if written(table, target.path):  # type: ignore[arg-type]
            with silent():
                target.attempt(target.path.read_bytes())

    every()


def test_a_case_is_the_same_for_the_same_seed_and_another_for_another(targets: list[Target]) -> None:
    one = next(target for target in targets if target.name == "log.csv")
    cases = [[case_of(one, seed, number) for number in range(20)] for seed in (1, 1, 2)]
    assert cases[0] == cases[1] != cases[2]
    assert sum(case != one.examples[0] for case in cases[0]) > 15


def test_what_is_not_one_line_about_the_file_is_a_fault(tmp_path: Path) -> None:
    def two_lines(path: Path) -> None:
        raise ValueError(f"{path} is bad\nvery")

    for use, said in ((two_lines, "not one line"), (lambda path: 1 / 0, "ZeroDivisionError")):
        target = Target("x", tmp_path / "x.csv", (b"x",), use)
        end, why = tried(target, b"y")
        assert (end, said in why) == ("failed", True)
