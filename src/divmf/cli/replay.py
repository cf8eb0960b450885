"""divmf replay."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from divmf.cli.app import app
from divmf.cli.console import Out
from divmf.cli.inputs import PICTURES, Columns, check_output, take_names
from divmf.cli.options import command

if TYPE_CHECKING:
    from divmf.serve.replay import Played


@command(app, "replay")
def replay(
    out: Out,
    run: Annotated[Path, typer.Argument(help="A run folder with a picked point.")],
    log: Annotated[
        Path, typer.Argument(help="Requests in order of time: user_id, the item_id chosen then, timestamp.")
    ],
    url: Annotated[
        str | None,
        typer.Option(help="A running service to play against; without it, the log is played in this process."),
    ] = None,
    token: Annotated[
        str | None, typer.Option(help="The token of the service; better set as DIVMF_SERVE_TOKEN.")
    ] = None,
    store: Annotated[
        str | None, typer.Option(help="Store of a replay in this process; a temporary one, if not given.")
    ] = None,
    k: Annotated[int | None, typer.Option("--k", "-k", min=1, help="Items per page; the run's, if not given.")] = None,
    horizon: Annotated[
        int | None, typer.Option(min=1, help="Number of requests over which exposure is shared out.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Play only this many requests.")] = None,
    learn: Annotated[bool, typer.Option(help="Tell the service what each user chose, as it happens.")] = True,
    clients: Annotated[int, typer.Option(min=1, max=256, help="With --url: number of simultaneous connections.")] = 1,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Chart of the replay over time: .html, .png, .svg or .json.")
    ] = None,
    user: Columns.user = None,
    item: Columns.item = None,
    time: Columns.time = None,
) -> None:
    """Play a log of requests: each row requests a page and then reports what the user chose.

    Prints accuracy (was the item chosen next on the page?), coverage, Gini and latency over time.

    Examples:

      divmf replay run later.parquet -o replay.html

      divmf replay run later.parquet --url http://127.0.0.1:8000 --clients 8 --no-learn
    """
    import tempfile

    from divmf.data.tables import find_column, read_table
    from divmf.engine.files import naming
    from divmf.serve.live import Live
    from divmf.serve.replay import Client, in_process, load, met_before, play, requests_of
    from divmf.train.runs import Run

    take_names(run)
    if output is not None:
        check_output(output, PICTURES, [log])
    if url is None and clients > 1:
        raise ValueError(f"--clients {clients} load a running service; name it with --url")
    with naming(log):
        table = read_table(log)
        for role, name in (("user", user), ("item", item), ("time", time)):
            find_column(table, role, name, required=False)  # a name that is given must be there
        requests = requests_of(table, limit)
    if not requests:
        raise ValueError(f"{log} holds no requests")
    token = token or os.environ.get("DIVMF_SERVE_TOKEN")
    split, seconds = Run.open(run).read_split(), 0.0
    out.note(f"{log}: {len(requests):,} requests")
    if met := met_before(split, requests):
        out.note(
            f"{met:,} of them met what the run knows to be met, which is on no page: play what came after its training"
        )
    if url is None:
        with tempfile.TemporaryDirectory() as folder:
            kept = store or f"sqlite:///{folder}/live.sqlite?synchronous=normal"
            with Live(run, store=kept, horizon=horizon) as live:
                tell = (lambda user, item: live.event(user, item)) if learn else None
                played = play(requests, in_process(live, k), tell)
    elif clients == 1:
        client = Client(url, token, k)
        played = play(requests, client, client.tell if learn else None)
    else:
        played, seconds = load(requests, [Client(url, token, k) for _ in range(clients)])
    tell_of(out, played, split.n_items, seconds, output)


def tell_of(out: Out, played: "Played", n_items: int, seconds: float, output: Path | None) -> None:
    """The table, the picture, the document."""
    periods, whole = played.periods(n_items), played.summary(n_items)
    shown = ("requests", "ndcg", "hit", "of_ceiling", "gini", "of_ceiling_so_far", "p50_ms", "p99_ms")
    out.table("", shown, [[period[name] for name in shown] for period in periods])
    if seconds:
        out.say(f"{len(played.pages) / seconds:,.0f} requests a second")
        whole["requests_per_second"] = len(played.pages) / seconds
    if output is not None:
        from divmf.reports.chart_files import save_chart
        from divmf.serve.replay_chart import replay_chart

        save_chart(replay_chart(periods), output)
        out.say(f"wrote {output}")
    out.result(whole | {"periods": periods})
