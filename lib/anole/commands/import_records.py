"""`anole import`: trials from other machines."""

from __future__ import annotations

from pathlib import Path

import click

from anole.commands.shared import PATH
from anole.documents import layout


@click.command(name="import", epilog="Example: anole import ../other_machine/db/shards ../third.sqlite")
@click.argument("sources", nargs=-1, required=True, type=PATH)
@click.option("--shards", type=PATH, default=layout.SHARDS, show_default=True, help="Folder of the recorded trials.")
def import_(sources: tuple[Path, ...], shards: Path) -> None:
    """Import trials from SOURCES.

    SOURCES are databases and folders of shards from other machines, in any mixture. All are read and checked before
    anything is written.
    """
    from anole.merge.exchange import import_all
    from anole.merge.exporting import exported_from

    for source, done in import_all(sources, shards):
        for path in done.kept_beside:
            click.echo(f"{path}: differs from the records that are here; both are kept, and these are not used")
        click.echo(
            f"{source}{exported_from(source)}: {done.new} runs are new, {done.continued} were continued, {done.known} "
            f"were known and {len(done.kept_beside)} are kept beside others; {done.trials} trials are new"
        )
