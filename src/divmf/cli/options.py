"""Flags from configurations: a parameter is written once, as a field, and its flag and help are made from it."""

import copy
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from divmf.cli.console import Out

COMMON = {
    "json": (bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")),
    "quiet": (bool, typer.Option("--quiet", "-q", help="Print no progress and no tables.")),
    "debug": (bool, typer.Option("--debug", help="Log everything, and show the traceback of an error.")),
}

ROLES = ("user", "item", "time", "rating", "score", "rank")  # flags that name columns


def command(
    app: typer.Typer, name: str, config: type | None = None, panels: Mapping[str, Iterable[str]] | None = None,
    shared: bool = False,
) -> Callable[[Any], Any]:  # fmt: skip
    """Register `function(out, …, settings)` as a command with the common flags and, if given, a configuration's flags.

    The function's `settings` holds what the user set, and nothing else, so that defaults and presets stay in one place.
    `panels`: the options that the help shows in a panel of that name; all others stand in the first one. `shared`:
    several processes that torchrun started can do it together.
    """
    panel_of = {option: panel for panel, options in (panels or {}).items() for option in options}

    def register(function: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())
        own = [parameter for parameter in own if parameter.name not in ("out", "settings")]
        flags = [] if config is None else config_flags(config)
        common = [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[kind, option])
            for key, (kind, option) in COMMON.items()
        ]
        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        setting_names = {flag.name for flag in flags}
        shown = [in_panel(each, panel_of.get(each.name)) for each in sorted([*own, *flags], key=order_in(panel_of))]

        @functools.wraps(function)
        def run(**given: Any) -> None:
            common_given = {key: given.pop(key) for key in COMMON}
            settings = {key: given.pop(key) for key in setting_names}
            if config is not None:
                given["settings"] = {key: value for key, value in settings.items() if value is not None}
            from divmf.data.called import called  # not where only the help is asked for
            from divmf.engine import comm

            if not shared and comm.launched() > 1:
                raise ValueError(f"`divmf {name}` is work for one process; call it without torchrun")
            with comm.process_group(), called({role: given[role] for role in ROLES if role in given}):
                out = Out(**common_given, silent=not comm.first())
                out.listen()
                function(out, **given)

        run.__signature__ = inspect.Signature([*shown, *common])  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in [*shown, *common]}
        app.command(name)(run)
        return function

    return register


def order_in(panel_of: Mapping[str, str]) -> Callable[[inspect.Parameter], int]:
    """Parameters without a panel first, then panel by panel; within one, as they are given."""
    panels = ["", *dict.fromkeys(panel_of.values())]
    return lambda parameter: panels.index(panel_of.get(parameter.name, ""))


def in_panel(parameter: inspect.Parameter, panel: str | None) -> inspect.Parameter:
    """An option as the help shows it, in its panel; options are shared by commands, so this one is a copy."""
    if panel is None:
        return parameter
    kind, option = parameter.annotation.__origin__, copy.copy(parameter.annotation.__metadata__[0])
    option.rich_help_panel = panel
    return parameter.replace(annotation=Annotated[kind, option])


def config_flags(config: type) -> list[inspect.Parameter]:
    """A flag for each field: its name with dashes, its description, its default in the help."""
    types_of = typing.get_type_hints(config)
    described: dict[str, FieldInfo] = config.__pydantic_fields__  # type: ignore[attr-defined]
    flags = []
    for name in (item.name for item in fields(config)):
        info, kind = described[name], types_of[name]
        if isinstance(info.json_schema_extra, dict) and info.json_schema_extra.get("text"):
            kind = str  # a number that may have a unit
        flag = "--" + name.replace("_", "-")
        option = typer.Option(
            f"{flag}/--no-{flag[2:]}" if kind is bool else flag,
            *([f"-{name}"] if len(name) == 1 else []),
            help=sentence(info.description or "") + default_shown(info.default, kind),
            show_default=False,
        )
        flags.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[optional(kind), option]
            )
        )
    return flags


def optional(kind: Any) -> Any:
    """The type of a flag that may be left out."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union) and type(None) in typing.get_args(kind):
        return kind
    return kind | None if not typing.get_origin(kind) else typing.Optional[kind]  # noqa: UP045


def one_line(error: ValidationError) -> str:
    """What pydantic found wrong, as one line that names the flag, the rule and the value."""
    problem = error.errors()[0]
    name = ".".join(str(part) for part in problem["loc"])
    rule = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"{name}={problem['input']!r} is not possible: it {rule}" if name else rule


def sentence(text: str) -> str:
    """A description as a sentence: its first word with a capital, unless it is a symbol such as r_b."""
    first = text.split(" ")[0]
    return f"{text[:1].upper() + text[1:] if first.isalpha() and len(first) > 1 else text}."


def default_shown(default: Any, kind: Any) -> str:
    """The default as the help shows it; the flag itself has none, so that presets can tell what was set."""
    if default is None:
        return ""
    return f" [dim]\\[default: {('no', 'yes')[default] if kind is bool else default}][/dim]"
