"""`anole merge`: all records folded into the database."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

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
@click.pass_context
def merge(
    context: click.Context,
    builds: tuple[str, ...],
    shards: Path | None,
    database: Path | None,
    stamp: Path | None,
    seal: bool,
    spec: Path,
) -> None:
    """Merge all trials and BUILDS into the database.

    BUILDS are names or folders of builds; the default is all builds in models.yaml. In a folder of records alone,
    without a models.yaml, it is none.
    """
    from anole.merge.stage import merge_builds

    given = [Path(build).absolute() if len(Path(build).parts) > 1 else Path(build) for build in builds]
    shards, database, stamp = enter_project(spec, shards, database, stamp)
    is_hub = context.get_parameter_source("spec") is ParameterSource.DEFAULT and not spec.exists()
    if given or (is_hub and (shards or layout.SHARDS).is_dir()):
        names = given
    else:
        names = _builds_of(spec)
    folders = [path if path.is_absolute() else layout.build_path(path.name) for path in names]
    merge_builds(folders, shards or layout.SHARDS, database or layout.DATABASE, stamp, seal=seal)


def _builds_of(spec: Path) -> list[Path]:
    from anole.declared.reading import load_spec

    return [Path(build) for build in load_spec(Path(spec.name)).builds]
