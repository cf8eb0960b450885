"""Rules kept in a run folder are looked at whenever they are read: kernels take their places for granted (fault 3)."""

import json
from pathlib import Path
from typing import Any

import pytest

from divmf import DivMF, Rules
from divmf.data.split import Split
from divmf.train.runs import Run

RULES = Rules(
    capacity={"items": {"i00001": 9}}, floor={"items": {"i00002": 2}}, filter={"exclude": ["i00005"]},
    target={"by": "merit"},
)  # fmt: skip


@pytest.fixture(scope="module")
def run(split: Split, tmp_path_factory: pytest.TempPathFactory) -> Run:
    model = DivMF(model="ease", k=3, diversity_epochs=1)
    return model.fit(split, tmp_path_factory.mktemp("ruled") / "run", rules=RULES).run


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("totals", [0, 9], "totals holds numbers that are not between 0 and 1"),
        ("totals", [-1, 0], "totals holds numbers that are not between 0 and 1"),
        ("totals", [0], "offsets say 2"),
        ("offsets", [0, 2, 1] + 58 * [2], "offsets are not those of 60 items"),
        ("low", [0], "rules has shape"),
        ("high", [-5, 3], "high holds numbers that are not between 0 and"),
        ("level", [float("nan"), 1.0], "level holds numbers"),
        ("names", [1, 2], "must be text"),
        ("blocked", [60], "out of bounds"),
        ("low", [10**30, 0], "too large"),
        ("target", [1.0], "target has shape"),
        ("weight", "x", "could not convert"),
    ],
)
def test_rules_that_do_not_fit_their_run_are_refused(run: Run, name: str, value: Any, match: str) -> None:
    whole = run.rules_file.read_text()
    assert run.read_rules() is not None
    try:
        run.rules_file.write_text(json.dumps(json.loads(whole) | {name: value}))
        with pytest.raises(ValueError, match=match) as said:
            _ = run.read_rules()
        assert str(Path(run.folder) / "rules.json") in str(said.value)
    finally:
        run.rules_file.write_text(whole)
