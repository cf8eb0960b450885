"""The application that every command registers with."""

import typer

app = typer.Typer(
    name="divmf",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Aggregately diversified recommendation: good lists for each user, a fair chance for the whole catalogue.\n\n"
    "Try [bold]divmf demo[/bold]; then [bold]divmf train events.csv -o run[/bold],"
    " [bold]divmf curve run[/bold], [bold]divmf pick run --ndcg-drop 5%[/bold],"
    " [bold]divmf recommend run -o lists.parquet[/bold].",
)
