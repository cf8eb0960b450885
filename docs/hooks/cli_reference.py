"""The command-line reference, made from the commands themselves each time the site is built."""

from typing import Any

PAGE = "reference/cli.md"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put every command below the introduction of the page."""
    return f"{markdown}\n{reference()}" if page.file.src_uri == PAGE else markdown


def reference() -> str:
    """All commands with their arguments and options."""
    from importlib import import_module
    from pkgutil import iter_modules

    import typer

    import divmf.cli
    from divmf.cli.app import app

    for module in iter_modules(divmf.cli.__path__):
        import_module(f"divmf.cli.{module.name}")  # each registers its commands
    return "\n".join(described(typer.main.get_command(app), "divmf"))


def described(command: Any, words: str) -> list[str]:
    """A command, or all of a group, as Markdown."""
    if hasattr(command, "commands"):
        return [line for name, inner in command.commands.items() for line in described(inner, f"{words} {name}")]
    lines = [f"## {words}", "", prose(command.help or ""), ""]
    panels: dict[str, list[str]] = {}
    for parameter in command.params:
        if not getattr(parameter, "hidden", False):
            panels.setdefault(getattr(parameter, "rich_help_panel", None) or "", []).append(row(parameter))
    for panel, rows in panels.items():
        title = [f"**{panel}**", ""] if panel else []
        lines += [*title, "| argument or option | meaning |", "|---|---|", *rows, ""]
    return lines


def prose(text: str) -> str:
    """A help text; indented lines are examples."""
    blocks = [block.strip("\n") for block in text.split("\n\n")]
    return "\n\n".join(f"    {block.strip()}" if block.startswith("  ") else block for block in blocks)


def row(parameter: Any) -> str:
    """A row of a command's table."""
    options = [*parameter.opts, *parameter.secondary_opts]
    names = parameter.name.upper() if parameter.param_type_name == "argument" else ", ".join(options)
    default = getattr(parameter, "default", None)
    shown = f" Default: `{default}`." if isinstance(default, int | float | str) and default not in (False, "") else ""
    meaning = plain(getattr(parameter, "help", "") or "") + shown
    return f"| `{names}`{' (required)' if parameter.required else ''} | {meaning} |"


def plain(text: str) -> str:
    """Rich's markup, line breaks and bars taken out."""
    for tag in ("[dim]", "[/dim]", "[bold]", "[/bold]"):
        text = text.replace(tag, "")
    return " ".join(text.replace("\\[", "[").replace("|", "\\|").replace("<", "&lt;").split())
