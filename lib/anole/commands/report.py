"""`anole report`: one page about everything that was measured."""

from __future__ import annotations

from pathlib import Path

import click

from anole.commands.shared import SPEC, enter_project
from anole.documents import layout

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(epilog="Example: anole report --output report.html")
@click.option("--output", type=FILE, help="The page to write.  [default: report.html in the project folder]")
@click.option("--database", type=FILE, help=f"The database to read.  [default: {layout.DATABASE}]")
@SPEC
def report(output: Path | None, database: Path | None, spec: Path) -> None:
    """Write a page about builds, searches and accelerators.

    The page is one HTML file that loads nothing. An earlier report in its place is replaced.
    """
    from anole.report.pages.report import write_report

    output, database = enter_project(spec, output, database)
    models = Path(spec.name)
    target = output or Path("report.html")
    write_report(database or layout.DATABASE, target, Path(), models if models.is_file() else None)
    click.echo(f"wrote {target}")
