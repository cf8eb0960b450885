"""The application that every command registers with."""

from importlib.metadata import version
from typing import Annotated

import typer

app = typer.Typer(
    name="divmf",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Aggregately diversified recommendation: good lists for each user, a fair chance for the whole catalog.\n\n"
    "Try [bold]divmf demo[/bold]; then [bold]divmf train events.csv -o run[/bold],"
    " [bold]divmf curve run[/bold], [bold]divmf pick run --ndcg-drop 5%[/bold],"
    " [bold]divmf recommend run -o lists.parquet[/bold].",
)


def show_version(wanted: bool) -> None:
    """Print the version and end, if it is wanted."""
    if wanted:
        print(version("divmf"))
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options before a command."""
