"""`anole explore`: the database in a browser."""

from __future__ import annotations

from pathlib import Path

import click

from anole.commands.shared import PATH
from anole.documents import layout


@click.command(epilog="Example: anole explore --port 8080 --open")
@click.option("--database", type=PATH, default=layout.DATABASE, show_default=True, help="The database.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on; the default is this machine alone.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8001, show_default=True, help="The port; 0 takes a free one."
)
@click.option("--open", "is_opened", is_flag=True, help="Open the pages in the browser.")
def explore(database: Path, host: str, port: int, is_opened: bool) -> None:
    """Browse the database, with charts and queries.

    The pages are Datasette's; what they say of tables, columns and queries comes from db/README.md and db/queries.
    After a merge, start it again.
    """
    from anole.report.explore import server

    server.explore(database, ["--host", host, "--port", str(port), *(["--open"] if is_opened else [])])
