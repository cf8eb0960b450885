"""Flags from configurations: a parameter is written once, as a field, and its flag and help are made from it."""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable
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


def command(
    app: typer.Typer, name: str, config: type | None = None, first: Iterable[str] = (), shared: bool = False
) -> Callable[[Any], Any]:
    """Register `function(out, …, settings)` as a command with the common flags and, if given, a configuration's flags.

    The function's `settings` holds what the user set, and nothing else, so that defaults and presets stay in one place.
    `first` names the fields shown with the main options; the others go to a panel of their own. `shared`: several
    processes that torchrun started can do it together.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())
        own = [parameter for parameter in own if parameter.name not in ("out", "settings")]
        flags = [] if config is None else config_flags(config, tuple(first))
        common = [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[kind, option])
            for key, (kind, option) in COMMON.items()
        ]
        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        setting_names = {flag.name for flag in flags}

        @functools.wraps(function)
        def run(**given: Any) -> None:
            common_given = {key: given.pop(key) for key in COMMON}
            settings = {key: given.pop(key) for key in setting_names}
            if config is not None:
                given["settings"] = {key: value for key, value in settings.items() if value is not None}
            from divmf.engine import comm  # not where only the help is asked for

            if not shared and comm.launched() > 1:
                raise ValueError(f"`divmf {name}` is work for one process; call it without torchrun")
            with comm.process_group():
                out = Out(**common_given, silent=not comm.first())
                out.listen()
                function(out, **given)

        run.__signature__ = inspect.Signature([*own, *flags, *common])  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *flags, *common]}
        app.command(name)(run)
        return function

    return register


def config_flags(config: type, first: tuple[str, ...]) -> list[inspect.Parameter]:
    """A flag for each field: its name with dashes, its description, its default in the help."""
    types_of = typing.get_type_hints(config)
    names = [*first, *(item.name for item in fields(config) if item.name not in first)]
    described: dict[str, FieldInfo] = config.__pydantic_fields__  # type: ignore[attr-defined]
    flags = []
    for name in names:
        info, kind = described[name], types_of[name]
        if isinstance(info.json_schema_extra, dict) and info.json_schema_extra.get("text"):
            kind = str  # a number that may have a unit
        flag = "--" + name.replace("_", "-")
        option = typer.Option(
            f"{flag}/--no-{flag[2:]}" if kind is bool else flag,
            *([f"-{name}"] if len(name) == 1 else []),
            help=sentence(info.description or "") + default_shown(info.default, kind),
            show_default=False,
            rich_help_panel=None if name in first else "More settings",
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
