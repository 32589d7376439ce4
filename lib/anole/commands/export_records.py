"""`anole export-records`: chosen trials for another machine."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from anole.commands.shared import PATH
from anole.documents import layout

_TIMES = ("%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ")


@click.command(name="export-records", epilog="Example: anole export-records for_all --target cpu --since 2026-11-01")
@click.argument("destination", type=PATH)
@click.option("--task", "tasks", multiple=True, help="The label of a task or the first digits of its key.")
@click.option("--model", "models", multiple=True, help="The name of a model that contains the task.")
@click.option("--target", "targets", multiple=True, help="The name of a target in models.yaml, or a kind of target.")
@click.option("--preset", "presets", multiple=True, help="The name of a tuner.")
@click.option("--run", "runs", multiple=True, help="The first digits of a run's key.")
@click.option("--since", type=click.DateTime(_TIMES), help="Only runs that measured something since then (UTC).")
@click.option(
    "--from",
    "source",
    type=PATH,
    default=layout.SHARDS,
    show_default=True,
    help="The folder of shards or the database that they are chosen from.",
)
def export_records(
    destination: Path,
    tasks: tuple[str, ...],
    models: tuple[str, ...],
    targets: tuple[str, ...],
    presets: tuple[str, ...],
    runs: tuple[str, ...],
    since: datetime | None,
    source: Path,
) -> None:
    """Export chosen trials to DESTINATION.

    DESTINATION is a new folder of shards, which `anole import` takes.
    Options may be repeated: a run is chosen if it fits one value of each. Runs are exported whole.
    """
    from anole.merge import exporting
    from anole.merge.selection import Selection

    start = None if since is None else since.isoformat(timespec="seconds")
    selection = Selection(tasks, models, targets, presets, runs, start)
    done = exporting.export_records(source, destination, selection, sorted(layout.MODELS.glob("*/*.json")))
    click.echo(f"{destination}: {done.runs} runs of {done.tasks} tasks, {done.trials} trials")
