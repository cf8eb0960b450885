"""divmf plan."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from divmf.cli.app import app
from divmf.cli.console import Out
from divmf.cli.options import command
from divmf.cli.train import PANELS
from divmf.models.config import TrainConfig, check_of_method

if TYPE_CHECKING:
    from divmf.train.plan import Job

GIGABYTE = 1e9


@command(app, "plan", TrainConfig, PANELS)
def plan(
    out: Out,
    users: Annotated[int, typer.Option(help="Users.")],
    items: Annotated[int, typer.Option(help="Items of the catalog.")],
    interactions: Annotated[int, typer.Option(help="Distinct (user, item) pairs.")],
    processes: Annotated[int, typer.Option(help="Processes that share the users.")] = 1,
    bandwidth: Annotated[float, typer.Option(min=0.001, help="Gigabits a second between two processes.")] = 10.0,
    latency: Annotated[
        float, typer.Option(min=0, help="Milliseconds that a sum over all processes takes to arrive.")
    ] = 0.5,
    calibration: Annotated[
        bool, typer.Option("--calibration/--no-calibration", help="Time a little of each pass on this machine first.")
    ] = True,
    *,
    settings: dict[str, Any],
) -> None:
    """Say what a job will take: memory per process, bytes sent between processes, time on machines like this one.

    It takes the settings of `divmf train` and the number of threads in DIVMF_THREADS. Example:

      divmf plan --users 1_000_000 --items 20_000 --interactions 50_000_000 --processes 2
    """
    from divmf.train.plan import Job, Network, memory, peak, seconds, wire

    config = TrainConfig(**settings)
    check_of_method(config, settings)
    job = Job(users, items, interactions, processes, config)
    by_phase, most = memory(job), peak(job)
    names = list(dict.fromkeys(name for parts in by_phase.values() for name in parts))
    rows = [[name, *(cell(parts.get(name)) for parts in by_phase.values())] for name in names]
    rows.append(["together", *(cell(sum(parts.values())) for parts in by_phase.values())])
    out.table(f"gigabytes in each of {processes} process(es)", ["", *by_phase], rows)
    out.say(f"\nat most {most / GIGABYTE:.2f} GB a process, {processes * most / GIGABYTE:.2f} GB together")
    sent = wire(job)
    document: dict[str, Any] = {
        "users": users, "items": items, "interactions": interactions, "processes": processes,
        "peak_bytes": most, "memory_bytes": by_phase, "wire_bytes": sent,
    }  # fmt: skip
    took: dict[str, float] = {}
    if calibration:
        from divmf.train.calibrate import calibrate

        with out.progress("timing a little of each pass", None):
            pace = calibrate(job)
        took = seconds(job, pace, Network(bandwidth, latency / 1000))
        document |= {"seconds": took, "pace": vars(pace)}
    phases = list(dict.fromkeys([*sent, *took]))
    order = [name for name in ("reading", "accuracy", job.curve_phase, "measuring", "recommend") if name in phases]
    rows = [[what_of(job, name), f"{sent.get(name, 0) / GIGABYTE:,.3f}", duration(took.get(name))] for name in order]
    out.table("\na process, for each", ["", "gigabytes sent", "time"], rows)
    out.result(document)


def what_of(job: "Job", phase: str) -> str:
    """What is done once, by the name of its phase."""
    names = {
        "reading": "reading the log",
        "accuracy": f"accuracy epoch ({job.config.model})",
        "diversity": "diversity epoch",
        "market": "point of the market, about",
        "measuring": "measuring an epoch or point",
        "recommend": "everybody's lists",
    }
    return names[phase]


def cell(size: int | None) -> str:
    """Bytes as gigabytes."""
    return "" if size is None else f"{size / GIGABYTE:.3f}"


def duration(seconds: float | None) -> str:
    """Seconds as people say them."""
    if seconds is None:
        return ""
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.1f} seconds"
