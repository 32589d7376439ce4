"""`anole init`: a new project."""

from __future__ import annotations

from pathlib import Path

import click

from anole.commands.shared import PATH


@click.command(epilog="Example: anole init networks --demo")
@click.argument("folder", type=PATH, default=Path())
@click.option("--demo", is_flag=True, help="List a network and a budget that take a minute or two.")
def init(folder: Path, demo: bool) -> None:
    """Write the files of a new project into FOLDER.

    These are models.yaml, to be edited, a Snakefile that uses the workflow, profiles and .gitignore. The default
    is the current folder. A file that exists is not overwritten.
    """
    from anole.project.scaffold import make_project

    for path in make_project(folder, demo):
        click.echo(path)
    click.echo(f"Next: {'' if folder == Path() else f'cd {folder}; '}snakemake --cores all")
