"""The settings of a reranker are the keyword parameters of its function, and nowhere else.

Type, range and meaning stand in the signature as `Annotated[float, Field(ge=0, le=1, description=…)] = default`;
from there a frozen pydantic model is made, which checks values, documents itself, and gives the command line its table.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache, wraps
from inspect import signature
from typing import Annotated, Any, Literal, ParamSpec, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo

from divmf.ranking.lists import TopK
from divmf.rerank.candidates import ready

Order = Annotated[
    Literal["method", "score"],
    Field(description="how a chosen list is sorted: as the method ranked it, or by the model's score"),
]
Scale = Annotated[
    Literal["auto", "unseen", "candidates"],
    Field(
        description="where a user's scores are scaled to [0, 1]: over all unseen items (needs lowest), or over the"
        " candidates; auto: unseen where lowest is given"
    ),
]
Seed = Annotated[int, Field(ge=0, description="seed of the method's random choices")]
Share = Annotated[float, Field(ge=0, le=1)]

# what a method works on, as opposed to how
GIVEN = ("candidates", "k", "train", "lowest", "rules")

Arguments = ParamSpec("Arguments")


@cache
def settings_of(function: Callable[..., TopK]) -> type[BaseModel]:
    """The frozen model of a reranker's settings: its keyword parameters with their defaults and ranges."""
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {
        name: (hints[name], parameter.default)
        for name, parameter in signature(function).parameters.items()
        if name not in GIVEN
    }
    rules = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    return create_model(function.__name__, __config__=rules, **fields)


def range_of(field: FieldInfo) -> str:
    """The values a setting may take, in words: `0 to 1`, `whole, 1 or more`, `score | method`."""
    if get_origin(field.annotation) is Literal:
        return " | ".join(map(str, get_args(field.annotation)))
    if field.annotation is bool:
        return "true | false"
    names = ("ge", "gt", "le")
    bounds = {name: getattr(rule, name) for rule in field.metadata for name in names if hasattr(rule, name)}
    whole = "whole, " if field.annotation is int else ""
    low = f"above {bounds['gt']:g}" if "gt" in bounds else f"{bounds['ge']:g}"
    return whole + (f"{low} to {bounds['le']:g}" if "le" in bounds else low if "gt" in bounds else f"{low} or more")


def check_settings(function: Callable[..., TopK], given: Mapping[str, Any]) -> dict[str, Any]:
    """The given settings with the defaults of the others; an unknown name or a value out of range is an error."""
    name, model = function.__name__, settings_of(function)
    if unknown := [setting for setting in given if setting not in model.model_fields]:
        raise ValueError(f"{name} has no setting {unknown[0]!r}; it has {', '.join(model.model_fields)}")
    try:
        return model(**given).model_dump()
    except ValidationError as error:
        setting = str(error.errors()[0]["loc"][0])
        field = model.model_fields[setting]
        raise ValueError(
            f"{name}: {setting}={given[setting]!r} is not allowed; choose {range_of(field)} ({field.description})"
        ) from None


def parse_settings(function: Callable[..., TopK], texts: Iterable[str]) -> dict[str, Any]:
    """The settings written as `name=value` texts, as values of their types; the later of two wins."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{text!r} does not set anything; write name=value, such as {example_of(function)}")
        pairs[name.strip()] = value.strip()
    checked = check_settings(function, pairs)
    return {name: checked[name] for name in pairs}


def example_of(function: Callable[..., TopK]) -> str:
    """The first setting of a method with its default, as it is written on the command line."""
    name, field = next(iter(settings_of(function).model_fields.items()))
    return f"{name}={field.default}"


def reranker(function: Callable[Arguments, TopK]) -> Callable[Arguments, TopK]:
    """Check settings and candidates, and put the candidates in order, before the method sees them."""
    shape = signature(function)

    @wraps(function)
    def rerank(*args: Arguments.args, **kwargs: Arguments.kwargs) -> TopK:
        if unknown := [name for name in kwargs if name not in shape.parameters]:
            known = ", ".join(list(shape.parameters)[1:])
            raise ValueError(f"{function.__name__} has no setting {unknown[0]!r}; it has {known}")
        bound = shape.bind(*args, **kwargs)
        bound.apply_defaults()
        settings = {name: value for name, value in bound.arguments.items() if name not in GIVEN}
        bound.arguments.update(check_settings(function, settings))
        bound.arguments["candidates"] = ready(bound.arguments["candidates"], bound.arguments["k"])
        return function(*bound.args, **bound.kwargs)

    return rerank
