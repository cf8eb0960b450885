"""The files of a run folder and of a saved model: one that was changed is named, and nothing is computed with it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from divmf.estimator import DivMF, load
from divmf.ranking.curve import Point
from divmf.train.runs import Run
from divmf.train.schema import MODEL, POINT, fitting


def change(path: Path, how: Callable[[dict[str, Any]], Any]) -> None:
    """A JSON file with something changed in it."""
    content = json.loads(path.read_text())
    how(content)
    path.write_text(json.dumps(content))


def change_tensors(path: Path, how: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    """A file of tensors with something changed in it."""
    tensors = load_file(path)
    how(tensors)
    save_file(
        {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()},
        path,
        {"format": "pt", "epochs": "4"},
    )


def put(**values: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda content: content.update(values)


@pytest.fixture
def model_folder(run_folder: Path) -> Path:
    load(run_folder).save(run_folder.parent / "model")
    return run_folder.parent / "model"


TENSORS: list[tuple[Callable[[dict[str, torch.Tensor]], Any], str]] = [
    (lambda t: t.update(items=t["items"][:6], bias=t["bias"][:6]), r"has shape \(6,.*the data 40 items"),
    (lambda t: t.update(bias=t["bias"][:6]), r"bias has shape \(6,\), the data 40 items"),
    (lambda t: t.update(users=t["users"][:6]), "users"),
    (lambda t: t.update(users=t["users"].flatten()), "users has shape"),
    (lambda t: t.update(items=t["items"][:, :3]), "vectors of shapes"),
    (lambda t: t.pop("bias"), "it has no bias"),
    (lambda t: t.update(bias=t["bias"] * torch.nan), "bias holds NaN or infinite"),
    (lambda t: t.update(users=t["users"] / 0), "users holds NaN or infinite"),
    (lambda t: t.update(items=t["items"].half()), "items holds float16"),
    (lambda t: t.update(items=t["items"].long()), "vectors of float32 and int64"),
    (lambda t: t.update(users=t["users"].double()), "vectors of float32 and float64"),
]


@pytest.mark.parametrize(("how", "said"), TENSORS)
def test_weights_that_do_not_fit_the_data_never_reach_a_kernel(
    run_folder: Path, model_folder: Path, divmf: Any, how: Any, said: str
) -> None:
    # `pick` and `recommend` wrote past the end of a table: the file chose where
    change_tensors(run_folder / "points" / "000.safetensors", how)
    change_tensors(model_folder / "model.safetensors", how)
    for folder, name, way in ((run_folder, "000", "train again"), (model_folder, "model", "save the model again")):
        with pytest.raises(ValueError, match=rf"{name}\.safetensors is damaged \(.*{said}.*\); .*{way}"):
            load(folder)
    done = divmf("pick", run_folder, "--rho", 0.02)
    assert done.code == 2
    assert "000.safetensors is damaged" in done.err
    done = divmf("recommend", model_folder, "-o", run_folder.parent / "lists.csv")
    assert done.code == 2
    assert "model.safetensors is damaged" in done.err
    assert not (run_folder.parent / "lists.csv").exists()


def test_half_of_the_interactions_is_not_the_data_of_the_run(run_folder: Path, model_folder: Path) -> None:
    # 135 of 300 places were items already met, and nothing was said
    for folder in (run_folder, model_folder):
        rows = pl.read_parquet(folder / "interactions.parquet")
        rows.gather_every(2).write_parquet(folder / "interactions.parquet")
        with pytest.raises(ValueError, match=r"interactions\.parquet is damaged \(its data has the fingerprint"):
            load(folder)


TABLES: list[tuple[str, Callable[[pl.DataFrame], pl.DataFrame], str]] = [
    ("interactions", lambda t: t.with_columns(pl.col("user") + 1000), "users, items or parts that there are not"),
    ("interactions", lambda t: t.with_columns(pl.col("item") * -1), "users, items or parts that there are not"),
    ("interactions", lambda t: t.with_columns(part=pl.lit(7, pl.Int8)), "users, items or parts that there are not"),
    ("interactions", lambda t: t.with_columns(item=pl.lit(None, pl.Int32)), "that there are not"),
    ("interactions", lambda t: t.with_columns(time=pl.lit(None, pl.Int64)), "empty places"),
    ("interactions", lambda t: t.cast({"user": pl.Int64}), "its columns are user Int64"),
    ("interactions", lambda t: t.drop("timed"), "its columns are"),
    ("interactions", lambda t: t.clear(), "fingerprint"),
    ("ids", lambda t: t.drop("item_id"), "no column item_id"),
    ("ids", lambda t: t.with_columns(user_id=pl.lit(1.5)), "user_id holds 60 Float64"),
    ("ids", lambda t: t.clear(), "user_id holds 0"),
    ("ids", lambda t: t.with_columns(user_id=pl.lit("")), "empty id"),
    ("ids", lambda t: t.with_columns(pl.col("user_id").reverse()), "fingerprint"),
    ("ids", lambda t: t.with_columns(user_id=pl.lit(t["user_id"][0])), "fingerprint"),
]


@pytest.mark.parametrize(("name", "how", "said"), TABLES)
def test_tables_that_are_not_those_of_the_run_are_refused(run_folder: Path, name: str, how: Any, said: str) -> None:
    path = run_folder / f"{name}.parquet"
    how(pl.read_parquet(path)).write_parquet(path)
    with pytest.raises(ValueError, match=rf"\.parquet is damaged \(.*{said}"):
        load(run_folder)


DOCUMENTS: list[tuple[str, Callable[[dict[str, Any]], Any], str]] = [
    ("config.json", lambda c: c.pop("data"), "data: Field required"),
    ("config.json", put(data=3), "data: "),
    ("config.json", put(settings=[]), "settings: "),
    ("config.json", lambda c: c["data"].update(users="60"), r"data\.users: should be a valid integer"),
    ("config.json", lambda c: c["data"].update(items=41), "it says 60 users and 41 items"),
    ("config.json", lambda c: c["settings"].update(k="many"), "k: "),
    ("config.json", lambda c: c["settings"].update(colour=1), "colour: "),
    ("picked.json", put(epoch="2"), "epoch: should be a valid integer"),
    ("picked.json", put(valid=None), "valid: "),
    ("picked.json", lambda c: c["valid"].pop("ndcg"), "valid: ndcg is missing"),
    ("picked.json", lambda c: c["test"].update(gini="low"), r"test\.gini: should be a valid number"),
    ("picked.json", put(knob=[1]), "knob"),
    ("picked.json", put(epoch=10**30), "epoch: "),
]


@pytest.mark.parametrize(("name", "how", "said"), DOCUMENTS)
def test_documents_of_a_wrong_type_are_named(run_folder: Path, divmf: Any, name: str, how: Any, said: str) -> None:
    change(run_folder / name, how)
    done = divmf("recommend", run_folder, "-o", run_folder.parent / "lists.csv")
    assert done.code == 2
    assert f"{name} is damaged" in done.err
    with pytest.raises(ValueError, match=rf"{name} is damaged \(.*{said}"):
        load(run_folder)


def test_what_a_saved_model_says_of_itself_is_checked(model_folder: Path) -> None:
    change(model_folder / "model.json", put(k="5"))
    with pytest.raises(
        ValueError, match=r"model\.json is damaged \(k: should be a valid integer\); save the model again"
    ):
        load(model_folder)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
MEASURES = st.fixed_dictionaries(
    {name: st.floats(0, 1) | JSON for name in ("ndcg", "hit", "coverage", "entropy", "gini")}
)
ROWS = st.fixed_dictionaries(
    {"phase": st.sampled_from(["accuracy", "diversity"]) | JSON, "epoch": st.integers(0, 9) | JSON,
     "valid": MEASURES | JSON, "test": MEASURES | JSON},
    optional={"knob": st.floats() | st.just("inf") | JSON, "loss": JSON, "gap": JSON},
)  # fmt: skip


@given(row=ROWS | JSON)
def test_a_row_is_refused_or_a_point_of_finite_measures(row: Any) -> None:
    try:
        fitting(Path("epochs.jsonl"), row, POINT)
    except ValueError:
        with pytest.raises(ValueError, match=r"^epochs\.jsonl is damaged \([^\n]*$"):
            fitting(Path("epochs.jsonl"), row, POINT)
        return
    point = Point.from_json(row)
    assert np.isfinite([*point.valid.values(), *point.test.values()]).all()
    assert isinstance(point.name, str)
    again = Point.from_json(json.loads(json.dumps(point.to_json())))
    assert again == point or any(value != value for value in (point.knob, point.loss, point.gap))


@given(content=JSON)
def test_any_json_in_place_of_a_document_is_refused_in_one_line(content: Any) -> None:
    with pytest.raises(ValueError, match=r"^model\.json is damaged \([^\n]*$"):
        fitting(Path("model.json"), content, MODEL)


def test_a_torn_line_is_cut_before_the_next_is_written(run_folder: Path, divmf: Any) -> None:
    # the line and the next became one, and the whole run was "damaged"
    log = run_folder / "epochs.jsonl"
    before = log.read_text()
    log.write_text(before + '{"phase": "diversity", "epoch": 7, "kn')
    assert divmf("pick", run_folder, "--rho", 0.0321).code == 0
    lines = log.read_text().splitlines(keepends=True)
    assert "".join(lines[:-1]) == before
    assert json.loads(lines[-1])["knob"] == 0.0321
    assert Run.open(run_folder).read_picked().knob == 0.0321


def test_a_log_shorter_than_the_state_is_noticed(run_folder: Path) -> None:
    # `train` went on from the state and ended with other numbers
    log = run_folder / "epochs.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:2]))
    run = Run.open(run_folder)
    with pytest.raises(ValueError, match=r"epochs\.jsonl is damaged \(it has 2 epochs, state\.safetensors was .* 4\)"):
        DivMF.load(run_folder).fit(run.read_split(), run_folder)


STATES: list[tuple[Callable[[dict[str, torch.Tensor]], Any], str]] = [
    (lambda t: t.pop("items"), "it has no items"),
    (lambda t: t.update(users=t["users"][:, :3], items=t["items"][:, :3]), "vectors of 3, config.json says dim=32"),
    (
        lambda t: t.update({"accuracy.items.exp_avg": t["items"][:, :3]}),
        r"accuracy\.items\.exp_avg has shape \(40, 3\)",
    ),
    (lambda t: t.update({"accuracy.items.exp_avg": t["items"][:3]}), r"accuracy\.items\.exp_avg has shape \(3, 32\)"),
]


@pytest.mark.parametrize(("how", "said"), STATES)
def test_a_state_that_does_not_fit_is_not_gone_on_from(run_folder: Path, how: Any, said: str) -> None:
    change_tensors(run_folder / "state.safetensors", how)
    run = Run.open(run_folder)
    with pytest.raises(ValueError, match=rf"state\.safetensors is damaged \({said}"):
        run.resume(60)
