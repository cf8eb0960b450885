"""divmf serve."""

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from divmf.cli.app import app
from divmf.cli.console import Out
from divmf.cli.options import command

if TYPE_CHECKING:
    import socket

    import uvicorn
    from fastapi import FastAPI

    from divmf.serve.settings import ServeSettings


@command(app, "serve")
def serve(
    out: Out,
    run: Annotated[Path, typer.Argument(help="A run folder with a picked point.")],
    host: Annotated[str | None, typer.Option(help="Address to listen on; any but loopback needs a token.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0: any free one. \\[default: 8000]")] = None,
    token: Annotated[
        str | None,
        typer.Option(help="What clients must send as `Authorization: Bearer …`; better set as DIVMF_SERVE_TOKEN."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(help="Where showings are kept: sqlite:///FILE (beside the run, if not given),"
                          " postgresql://HOST/DATABASE or redis://HOST:PORT/0 for several hosts."),
    ] = None,
    catalog: Annotated[Path | None, typer.Option(help="A file of item_id, title, and attributes of items.")] = None,
    rules: Annotated[
        Path | None,
        typer.Option(help="Rules that pages keep, such as rules.toml; those the run was trained with, if not given."),
    ] = None,
    group: Annotated[str | None, typer.Option(help="Attribute whose groups are measured too, such as seller.")] = None,
    horizon: Annotated[
        int | None, typer.Option(help="Number of requests over which exposure is shared out; the number of users, if"
            " not given.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Number of processes that answer. \\[default: 1]")] = None,
    rate: Annotated[
        float | None, typer.Option(help="Requests per second that one client may send; 0: any number. \\[default:"
            " 1000]")
    ] = None,
    origins: Annotated[
        str | None, typer.Option(help="Web origins that may call from a browser (CORS), comma separated.")
    ] = None,
    access_log: Annotated[bool, typer.Option("--access-log", help="Log every request.")] = False,
) -> None:  # fmt: skip
    """Serve a run: an HTTP API with an exposure ledger, and the studio page, a browser's view of it.

    Every page that is answered counts as shown and is kept before it is answered. Every option may stand in the
    environment, as DIVMF_SERVE_TOKEN or DIVMF_SERVE_STORE. Stop it with Ctrl-C or SIGTERM: what was begun is finished.

    Examples:

      divmf serve run --catalog items.parquet

      curl -X POST localhost:8000/recommend -H 'content-type: application/json' -d '{"user": "u1", "k": 10}'

      DIVMF_SERVE_TOKEN=… divmf serve run --host 0.0.0.0 --store postgresql://divmf@db/live --workers 4
    """
    given: dict[str, Any] = {
        "run": run, "host": host, "port": port, "token": token, "store": store, "catalog": catalog, "group": group,
        "rules": rules, "horizon": horizon, "workers": workers, "rate": rate, "origins": origins,
    }  # fmt: skip
    try:
        import fastapi  # noqa: F401
        import pydantic_settings  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise ImportError(f"divmf serve needs {error.name}: pip install 'divmf[serve]'") from error
    from divmf.serve.settings import ServeSettings

    settings = ServeSettings(**{name: value for name, value in given.items() if value is not None})
    run_server(out, settings, access_log)


def run_server(out: Out, settings: "ServeSettings", access_log: bool) -> None:
    """Open everything, say where it is, and answer until told to stop."""
    import uvicorn

    from divmf.engine.masking import masked
    from divmf.serve.listen import listening

    sock = listening(settings.host, settings.port)
    address = f"http://{settings.host if ':' not in settings.host else f'[{settings.host}]'}:{sock.getsockname()[1]}/"
    kept = masked(settings.store or f"sqlite:///{settings.run}.live.sqlite")
    where = f"studio and API: {address}" + ("" if settings.token is None else " (with the token)")
    options: dict[str, Any] = {
        "log_level": "debug" if out.debug else "warning", "access_log": access_log or out.debug, "server_header": False,
        "date_header": False, "timeout_graceful_shutdown": 10, "timeout_keep_alive": 30, "lifespan": "on",
        "workers": settings.workers, "timeout_worker_healthcheck": 30, "ws": "none",
        "http": "divmf.serve.protocol:Protocol",
    }  # fmt: skip
    if settings.workers > 1:
        out.note(f"{settings.run}: {settings.workers} workers, kept in {kept}\n{where}")
        run_workers(settings, uvicorn.Config("divmf.cli.serve:app_of_worker", factory=True, **options), sock)
        return
    from divmf.serve.http import create_app, open_live

    live = open_live(settings)  # before anything is answered: what is wrong is said here, in one line
    out.note(
        f"{settings.run}: {len(live.engine.users):,} users, {len(live.engine.items):,} items, {live.engine.point.name},"
        f" {live.engine.ledger.requests:,} requests so far in {kept}\n{where}"
    )
    uvicorn.Server(uvicorn.Config(create_app(live, settings), **options)).run(sockets=[sock])


def run_workers(settings: "ServeSettings", config: "uvicorn.Config", sock: "socket.socket") -> None:
    """Answer with several processes. This one opens nothing, so that it is not waited for."""
    from uvicorn.config import STARTUP_FAILURE
    from uvicorn.supervisors import Multiprocess

    from divmf.serve.listen import environment_of

    os.environ.update(environment_of(settings))
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # why a worker did not start, the worker says
    workers = Multiprocess(config, sockets=[sock])
    workers.run()
    if any(each.exitcode == STARTUP_FAILURE for each in workers.processes):
        raise typer.Exit(2)


def app_of_worker() -> "FastAPI":
    """The application of one of several workers, whose settings stand in the environment.

    What is wrong at the start is wrong for all of them, and the first one says it.
    """
    import threading
    from multiprocessing import current_process

    from uvicorn.config import STARTUP_FAILURE

    from divmf.cli.errors import explain
    from divmf.serve.http import create_app, open_live
    from divmf.serve.settings import ServeSettings

    threading.Thread(target=end_with_parent, daemon=True).start()
    settings = ServeSettings()  # type: ignore[call-arg]
    Out(quiet=True).listen()
    try:
        return create_app(open_live(settings), settings)
    except Exception as error:
        number = int(current_process().name.rpartition("-")[2])
        if number == 1 or number > settings.workers:
            explain(error)
        raise SystemExit(STARTUP_FAILURE) from None


def end_with_parent() -> None:
    """End as one should once the process that started this one is gone: who starts the service again needs the port."""
    import signal
    from multiprocessing import parent_process

    if (parent := parent_process()) is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
