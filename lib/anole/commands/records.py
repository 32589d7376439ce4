"""Commands for records: report, explore, import and export-records."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from anole.commands.shared import PATH, SPEC, enter_project
from anole.documents import layout

_FILE = click.Path(dir_okay=False, path_type=Path)
_TIMES = ("%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ")


@click.command(epilog="Example: anole report --output report.html")
@click.option("--output", type=_FILE, help="The HTML file to write.  [default: report.html in the project folder]")
@click.option("--database", type=_FILE, help=f"The database to read.  [default: {layout.DATABASE}]")
@SPEC
def report(output: Path | None, database: Path | None, spec: Path) -> None:
    """Write a report on builds, searches and accelerators.

    The report is one self-contained HTML file. An existing report is replaced.
    """
    from anole.report.pages.report import write_report

    output, database = enter_project(spec, output, database)
    models = Path(spec.name)
    page = output or Path("report.html")
    write_report(database or layout.DATABASE, page, Path(), models if models.is_file() else None)
    click.echo(f"wrote {page}")


@click.command(epilog="Example: anole explore --port 8080 --open")
@click.option("--database", type=PATH, default=layout.DATABASE, show_default=True, help="The database.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; the default accepts only local connections.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8001, show_default=True, help="Port to listen on; 0 for any."
)
@click.option("--open", "is_opened", is_flag=True, help="Open the pages in a browser.")
def explore(database: Path, host: str, port: int, is_opened: bool) -> None:
    """Browse the database, with charts and queries.

    The pages are Datasette's, with the descriptions of tables, columns and queries from db/README.md and db/queries.
    Restart the command after a merge.
    """
    from anole.report.explore import server

    server.explore(database, ["--host", host, "--port", str(port), *(["--open"] if is_opened else [])])


@click.command(name="import", epilog="Example: anole import ../other_machine/db/shards ../third.sqlite")
@click.argument("sources", nargs=-1, required=True, type=PATH)
@click.option("--shards", type=PATH, default=layout.SHARDS, show_default=True, help="Folder of the recorded trials.")
def import_(sources: tuple[Path, ...], shards: Path) -> None:
    """Import trials from SOURCES.

    SOURCES are databases and folders of shards from other machines, in any combination. All of them are checked before
    anything is written.
    """
    from anole.merge.exchange.exporting import describe_origin
    from anole.merge.exchange.importing import import_all

    for source, counts in import_all(sources, shards):
        for path in counts.kept_beside:
            click.echo(f"{path}: differs from the local records; kept as a separate file, but not used")
        click.echo(
            f"{source}{describe_origin(source)}: {counts.new} new runs, {counts.continued} continued, {counts.known} "
            f"already known, {len(counts.kept_beside)} conflicting; {counts.trials} new trials"
        )


@click.command(name="export-records", epilog="Example: anole export-records for_all --target cpu --since 2026-11-01")
@click.argument("destination", type=PATH)
@click.option("--task", "tasks", multiple=True, help="Label of a task, or the first digits of its key.")
@click.option("--model", "models", multiple=True, help="Name of a model that contains the task.")
@click.option("--target", "targets", multiple=True, help="Name of a target in models.yaml, or a kind of target.")
@click.option("--preset", "presets", multiple=True, help="Name of a tuner preset.")
@click.option("--run", "runs", multiple=True, help="First digits of a run's key.")
@click.option("--since", type=click.DateTime(_TIMES), help="Only runs with measurements since this time (UTC).")
@click.option(
    "--from",
    "source",
    type=PATH,
    default=layout.SHARDS,
    show_default=True,
    help="Folder of shards or database to export from.",
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
    """Export selected trials to DESTINATION.

    DESTINATION is a new folder of shards, to be read by `anole import`. Options may be repeated: a run is selected if
    it matches at least one value of each option given. Selected runs are exported with all their trials.
    """
    from anole.merge.exchange import exporting
    from anole.merge.exchange.selection import Selection

    start = None if since is None else since.isoformat(timespec="seconds")
    selection = Selection(tasks, models, targets, presets, runs, start)
    exported = exporting.export_records(source, destination, selection, sorted(layout.MODELS.glob("*/*.json")))
    click.echo(f"{destination}: {exported.runs} runs of {exported.tasks} tasks, {exported.trials} trials")
