"""`anole import`: trials from another machine."""

from __future__ import annotations

from pathlib import Path

import click

from anole.commands.shared import PATH
from anole.documents import layout


@click.command(name="import", epilog="Example: anole import ../other_machine/db/shards")
@click.argument("source", type=PATH)
@click.option("--shards", type=PATH, default=layout.SHARDS, show_default=True, help="Folder of the recorded trials.")
def import_(source: Path, shards: Path) -> None:
    """Import trials from SOURCE.

    SOURCE is a database or a folder of shards from another machine.
    """
    from anole.merge.exchange import import_records

    done = import_records(source, shards)
    for path in done.kept_beside:
        click.echo(f"{path}: differs from the records that are here; both are kept, and these are not used")
    click.echo(
        f"{source}: {done.new} runs are new, {done.continued} were continued, {done.known} were known and "
        f"{len(done.kept_beside)} are kept beside others; {done.trials} trials are new"
    )
