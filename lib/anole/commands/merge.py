"""`anole merge`: all records folded into the database."""

from __future__ import annotations

from pathlib import Path

import click

from anole.commands import candidates
from anole.commands.shared import PATH, SPEC, enter_project
from anole.documents import layout


@click.command(epilog="Example: anole merge")
@click.argument("builds", nargs=-1, shell_complete=candidates.builds)
@click.option("--shards", type=PATH, help=f"Folder of the recorded trials.  [default: {layout.SHARDS}]")
@click.option("--database", type=PATH, help=f"Where the database is written.  [default: {layout.DATABASE}]")
@click.option("--stamp", type=PATH, help="Where to write what was merged, once the database holds it.")
@click.option("--seal", is_flag=True, help="First give checksums to shards of older versions, which have none.")
@SPEC
def merge(
    builds: tuple[str, ...], shards: Path | None, database: Path | None, stamp: Path | None, seal: bool, spec: Path
) -> None:
    """Merge all trials and BUILDS into the database.

    BUILDS are names or folders of builds; the default is all builds in models.yaml.
    """
    from anole.merge.stage import merge_builds
    from anole.spec.reading import load_spec

    given = [Path(build).absolute() if len(Path(build).parts) > 1 else Path(build) for build in builds]
    shards, database, stamp = enter_project(spec, shards, database, stamp)
    names = given or [Path(build) for build in load_spec(Path(spec.name)).builds]
    folders = [path if path.is_absolute() else layout.build_path(path.name) for path in names]
    merge_builds(folders, shards or layout.SHARDS, database or layout.DATABASE, stamp, seal=seal)
