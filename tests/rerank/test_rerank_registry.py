import ast
from inspect import getdoc, signature
from pathlib import Path

import pytest
from rerank_cases import make_candidates, make_train

import divmf.rerank
from divmf.rerank import (
    METHODS,
    fairmatch,
    find_method,
    karakaya,
    kwon,
    parse_settings,
    random_top,
    settings_of,
    uimatch,
)

HERE = Path(__file__).parent
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


@every_method
def test_a_method_has_its_own_tests_against_a_plain_loop(method):
    tests = HERE / f"test_rerank_{method.name}.py"
    assert tests.exists(), f"write {tests.name}: a slow, plainly right loop beside {method.name}"
    functions = [node for node in ast.parse(tests.read_text()).body if isinstance(node, ast.FunctionDef)]
    tested = [node for node in functions if node.name.startswith("test_") and f"{method.name}(" in ast.unparse(node)]
    assert tested, f"no test in {tests.name} calls {method.name}"


@every_method
def test_a_method_says_what_it_is_and_where_it_is_from(method):
    text = getdoc(method.function) or ""
    assert method.citation in text.replace("\n", " ")
    assert len(text.splitlines()[0]) <= 120
    module = __import__(method.function.__module__, fromlist=[""])
    assert module.__doc__
    assert Path(module.__file__).stem == method.name, "one file a method"
    assert getattr(divmf.rerank, method.name) is method.function, "import it in divmf.rerank"


@every_method
def test_a_method_has_a_knob_with_a_neutral_value_and_a_grid(method):
    fields = method.settings.model_fields
    assert method.knob in fields
    assert method.neutral == method.grid[0]
    assert "model's list" in fields[method.knob].description, "say which value of the knob is neutral"
    rising = list(method.grid) == sorted(set(method.grid))
    assert rising or list(method.grid) == sorted(set(method.grid), reverse=True)
    for value in method.grid:
        assert parse_settings(method.function, [f"{method.knob}={value}"]) == {method.knob: value}


@every_method
def test_every_setting_says_what_it_means_and_has_a_default(method):
    for name, field in method.settings.model_fields.items():
        assert field.description, name
        assert not field.is_required(), name
        assert divmf.rerank.range_of(field)
    parameters = list(signature(method.function).parameters)
    assert parameters[:2] == ["candidates", "k"]
    assert "order" in parameters


@every_method
def test_settings_are_frozen(method):
    with pytest.raises(ValueError, match="frozen"):
        method.settings().order = "method"


@pytest.mark.parametrize(
    "method", [method for method in METHODS.values() if method.needs_train], ids=lambda each: each.name
)
def test_a_method_that_needs_train_says_so(method):
    with pytest.raises(ValueError, match="--train"):
        method.run(make_candidates(0), 2)


@pytest.mark.parametrize(
    ("function", "text", "message"),
    [
        (kwon, "T=1", "kwon has no setting 'T'; it has t_r, t_h, ranking, scale, order"),
        (kwon, "t_r=1.5", r"kwon: t_r='1.5' is not allowed; choose 0 to 1"),
        (kwon, "t_r=nan", r"kwon: t_r='nan' is not allowed"),
        (kwon, "order=best", r"order='best' is not allowed; choose method \| score"),
        (fairmatch, "t=2.5", r"t='2.5' is not allowed; choose whole, 1 or more"),
        (fairmatch, "t=many", r"t='many' is not allowed"),
        (uimatch, "c=0", r"c='0' is not allowed; choose above 0"),
        (uimatch, "gamma=inf", r"gamma='inf' is not allowed"),
        (uimatch, "c", "write name=value, such as c=1.0"),
        (karakaya, "seed=-1", r"seed='-1' is not allowed; choose whole, 0 or more"),
    ],
)
def test_a_wrong_setting_is_named_with_the_way_out(function, text, message):
    with pytest.raises(ValueError, match=message):
        parse_settings(function, [text])


def test_texts_become_values_of_the_right_type():
    assert parse_settings(fairmatch, ["t=50", " beta = 0.2", "divide=true", "t=75"]) == {
        "t": 75,
        "beta": 0.2,
        "divide": True,
    }
    assert parse_settings(uimatch, ["c=inf"]) == {"c": float("inf")}


def test_plain_calls_are_checked_like_the_command_line():
    wide = make_candidates(0)
    with pytest.raises(
        ValueError, match="kwon has no setting 'T'; it has k, t_r, t_h, ranking, scale, train, lowest, order"
    ):
        kwon(wide, 3, T=1)
    with pytest.raises(ValueError, match=r"kwon: t_r=-0.1 is not allowed"):
        kwon(wide, k=3, t_r=-0.1)
    assert settings_of(kwon)().t_r == 0.9


def test_an_unknown_method_is_named_with_those_there_are():
    with pytest.raises(ValueError, match=r"no reranker 'best'; choose one of market, kwon, karakaya"):
        find_method("best")


def test_run_hands_train_and_seed_to_those_that_take_them():
    wide = make_candidates(0, n_lists=9)
    train = make_train(wide)
    one, two = (METHODS["random_top"].run(wide, 3, {"c": 6}, train, seed) for seed in (1, 2))
    assert (one.items != two.items).any()
    assert (one.items == random_top(wide, 3, c=6, seed=1).items).all()
    assert len(METHODS["kwon"].run(wide, 3, seed=1)) == 9


def test_a_knob_that_counts_and_what_a_setting_may_be_are_told():
    assert {name for name, method in METHODS.items() if method.counts} == {"fairmatch", "sapid", "random_top"}
    assert METHODS["fairmatch"].knob_range == "whole, 1 or more"
    assert METHODS["kwon"].knob_range == "0 to 1"
    assert METHODS["uimatch"].knob_range == "above 0"
    ranges = {name: divmf.rerank.range_of(field) for name, field in METHODS["market"].settings.model_fields.items()}
    assert ranges == {
        "rho": "0 to 1e+06", "replace": "0 to 1", "exposure": "count | attention", "level": "above 0 to 1e+06",
        "delta": "above 0 to 100", "order": "method | score",
    }  # fmt: skip
    assert METHODS["kwon"].summary.startswith("Ranking-based aggregate diversity")
    assert METHODS["kwon"].missing == ""
