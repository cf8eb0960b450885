"""The comparison: knobs chosen on validation, test reported, DivMF beside the rerankers on the same model."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from divmf.data.datasets import marketplace
from divmf.models.config import TrainConfig
from divmf.ranking.curve import Curve, Point
from divmf.ranking.metrics import measure
from divmf.reports.experiments.compare import crossing, markdown, matched, names_of, rivals, table_of
from divmf.rerank import METHODS
from divmf.train.fitting import fit
from divmf.train.runs import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    split = marketplace(users=300, items=120, interactions=6000, seed=4).leave_one_out(0)
    config = TrainConfig(
        k=4, dim=8, unmask=20, learning_rate=0.02, diversity_rate=0.02, accuracy_epochs=8, diversity_epochs=10
    )
    made = Run.start(tmp_path_factory.mktemp("run") / "run", split, config)
    for _ in fit(made, split, config):
        pass
    return made


def point(knob: float, ndcg: float, gini: float, coverage: float = 0.5) -> Point:
    measures = {"ndcg": ndcg, "gini": gini, "coverage": coverage, "entropy": 1.0}
    return Point("some", 0, measures, measures, knob=knob)


def test_the_best_point_within_a_loss_is_chosen_for_each_metric() -> None:
    points = (point(0, 1.0, 0.9, 0.3), point(1, 0.96, 0.7, 0.4), point(2, 0.95, 0.8, 0.6), point(3, 0.9, 0.1, 0.9))
    curve = Curve(points)
    assert curve.best_within(0.05, "gini").knob == 1
    assert curve.best_within(0.05, "coverage").knob == 2
    assert curve.best_within(0.2, "gini").knob == 3
    assert curve.best_within(0.0, "gini").knob == 0


@pytest.mark.parametrize(
    ("knobs", "whole", "expected"),
    [
        ([(0, 1.0), (0.5, 0.97), (1.0, 0.9)], False, 0.75),
        ([(1.0, 1.0), (0.5, 0.97), (0.0, 0.9)], False, 0.25),
        ([(1, 1.0), (10, 0.97), (15, 0.9)], True, 12),
        ([(1, 1.0), (10, 0.97), (11, 0.9)], True, None),
        ([(float("inf"), 1.0), (10, 0.9)], False, 20),
        ([(0, 1.0), (1, 0.99)], False, None),
    ],
)
def test_a_knob_is_tried_where_the_loss_is_crossed(knobs: Any, whole: bool, expected: float | None) -> None:
    assert crossing([point(knob, ndcg, 0.5) for knob, ndcg in knobs], 0.05, whole) == expected


def test_every_rival_starts_from_the_same_model_and_its_rows_are_its_lists(run: Run) -> None:
    split = run.read_split()
    found = list(rivals(run, 40, ["bayes_rule", "uimatch", "fairmatch", "kwon"]))
    base = found[0].lists(found[0].curve.base)
    own = measure(base, split.test.matrix)
    rows = []
    for rival in found:
        assert rival.curve.base.test["ndcg"] == pytest.approx(own["ndcg"])
        assert rival.curve.base.test["gini"] == pytest.approx(own["gini"])
        for some in rival.curve.points[:: max(1, len(rival.curve.points) // 4)]:
            again = measure(rival.lists(some), split.test.matrix)
            assert again["gini"] == pytest.approx(some.test["gini"])
        rows += matched(rival, base, split)
    table = table_of(rows)
    assert table.height == 5 * 4
    assert (table["gini_low"] <= table["gini"]).all()
    assert (table["gini"] <= table["gini_high"]).all()
    for name in table["method"].unique():
        some = table.filter(pl.col("method") == name).sort("loss")
        assert len(some) == 4
    assert markdown(table, 0.05).count("\n") == 2 + 5 - 1


def test_the_command_writes_tables_and_pictures(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    import sys

    from divmf.cli import main

    monkeypatch.setattr(
        sys,
        "argv",
        ["divmf", "compare", str(run.folder), "-o", str(tmp_path / "out"), "--methods", "bayes_rule", "--losses", "5%"],
    )
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    assert "at 5% validation nDCG loss" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "matched.parquet", "matched.csv", "curves.parquet", "curves.html", "curves.png", "curves.svg",
        "report.html",
    }  # fmt: skip


def test_the_page_says_what_groups_get(run: Run, tmp_path: Path, divmf: Any) -> None:
    items = run.read_split().item_ids
    pl.DataFrame({"item_id": items, "seller": np.arange(len(items)) % 3}).write_csv(tmp_path / "items.csv")
    call = ("compare", run.folder, "-o", tmp_path / "out", "--methods", "bayes_rule", "--losses", "5%")
    assert divmf(*call, "--catalog", tmp_path / "items.csv", "--groups", "seller").code == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Groups by seller" in page
    assert "In the lists of “the model”, 3 of the 3 groups by seller are shown at least once" in page


def test_rules_are_kept_by_those_who_can_and_the_page_says_at_what_cost(
    finished_run: Path, tmp_path: Path, divmf: Any
) -> None:
    split = Run.open(finished_run).read_split()
    pl.DataFrame({"item_id": split.item_ids, "seller": np.arange(split.n_items) % 4}).write_csv(tmp_path / "items.csv")
    out = ("-o", tmp_path / "out", "--losses", "5%", "--json", "--candidates", split.n_items)
    asked = ("--rules", tmp_path / "rules.toml", "--catalog", tmp_path / "items.csv")

    def compared(rules: str, methods: str) -> dict[str, Any]:
        (tmp_path / "rules.toml").write_text(rules)
        done = divmf("compare", finished_run, *out, *asked, "--methods", methods)
        assert done.code == 0, done.err
        return {row["method"]: row for row in json.loads(done.out)["rules"]}

    most = split.n_users * 5 // split.n_items + 1
    found = compared(f"[capacity]\ncount = {most}\n", "fairrec,bayes_rule")
    assert found["bayes_rule"]["over_with"] is None
    assert found["bayes_rule"]["why"].startswith("bayes_rule cannot keep rules; these can: market")
    for method in ("market", "fairrec"):
        row = found[method]
        assert row["over_without"] > 0
        assert (row["over_with"], row["missing_with"], row["lists_broken_with"]) == (0, 0, 0)
        assert row["ndcg_change_low"] <= row["ndcg_change"] <= row["ndcg_change_high"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "What the rules cost each method" in page
    assert "2 of 3 methods can keep these rules" in page

    floor = split.n_users * 5 // 4 - 1
    row = compared(f"[groups.seller]\nfloor = {floor}\n", "fairrec")
    assert row["fairrec"]["why"].startswith("fairrec keeps capacity, floor and filter, not groups.seller")
    assert row["market"]["missing_with"] == 0


@pytest.mark.parametrize("other", ["synthetic:90x50x1500", "synthetic:60x40x900:5"])
def test_a_run_of_other_data_is_refused_and_left_as_it_was(
    other: str, run_folder: Path, tmp_path: Path, divmf: Any
) -> None:
    # a segmentation fault with a larger one; with one of the same size ten wrong points were written into it
    short = ["--accuracy-epochs", 4, "--diversity-epochs", 6, "-q"]
    assert divmf("train", other, "-o", tmp_path / "other", *short).code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "other").rglob("*") if path.is_file()}
    done = divmf("compare", run_folder, "-o", tmp_path / "c", "--methods", "bayes_rule", "--also", tmp_path / "other")
    assert done.code == 2
    assert f"other is a run of other data ({other}) than" in done.err
    assert {path: path.read_bytes() for path in (tmp_path / "other").rglob("*") if path.is_file()} == before
    assert not (tmp_path / "c").exists()


def test_a_run_of_lists_of_another_length_is_refused(run_folder: Path, tmp_path: Path) -> None:
    one = Run.open(run_folder)
    config = TrainConfig(accuracy_epochs=1, diversity_epochs=1, k=3)
    other = Run.start(tmp_path / "other", one.read_split(), config)
    with pytest.raises(ValueError, match=r"other is a run of k=3, .* of k=5; compare lists of one length"):
        next(rivals(one, also=[other]))


def test_runs_of_one_method_are_told_apart_by_their_folder(finished_run: Path, tmp_path: Path, divmf: Any) -> None:
    # two runs of the market were both "exposure market": their curves and rows were one
    other = shutil.copytree(finished_run, tmp_path / "other")
    done = divmf(
        "compare", finished_run, "-o", tmp_path / "c", "--methods", "bayes_rule", "--also", other, "--losses", "5%"
    )
    assert done.code == 0, done.err
    names = pl.read_csv(tmp_path / "c" / "matched.csv")["method"].to_list()
    assert names == ["market (run)", "market (other)", "bayes_rule"]
    same = tmp_path / "further" / "other"
    shutil.copytree(finished_run, same)
    assert names_of([Run(other), Run(same)]) == [f"market ({other})", f"market ({same})"]
    assert names_of([Run(same)]) == ["market"]


def test_a_run_is_not_compared_with_itself(finished_run: Path, tmp_path: Path, divmf: Any) -> None:
    done = divmf("compare", finished_run, "-o", tmp_path / "c", "--also", finished_run.parent / "." / "run")
    assert (done.code, "is given twice; name each run once" in done.err) == (2, True)
    assert not (tmp_path / "c").exists()


def test_without_an_extra_its_methods_are_named_and_left_out(
    run_folder: Path, tmp_path: Path, divmf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("divmf.rerank.registry.find_spec", lambda name: None)  # as nothing optional is installed
    monkeypatch.setattr("divmf.rerank.METHODS", {name: METHODS[name] for name in ("bayes_rule", "mincost_flow")})
    done = divmf("compare", run_folder, "-o", tmp_path / "made", "--losses", "10%")
    assert done.code == 0
    assert "mincost_flow is left out: it needs `pip install 'divmf[flow]'`" in done.err
    assert set(pl.read_csv(tmp_path / "made" / "matched.csv")["method"]) >= {"bayes_rule"}
    done = divmf("compare", run_folder, "-o", tmp_path / "named", "--methods", "mincost_flow")
    assert done.code == 2
    assert not (tmp_path / "named").exists()
