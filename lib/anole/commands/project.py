"""Commands for a project: its first files, what would run next, and builds that are kept as they are."""

from __future__ import annotations

import json
from pathlib import Path

import click

from anole.commands import candidates
from anole.commands.shared import AS_JSON, PATH, SPEC, show


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


@click.command(epilog="Example: anole plan")
@SPEC
@AS_JSON
def plan(spec: Path, as_json: bool) -> None:
    """Show the tasks, their state, and what would run next."""
    from anole.codec import encode
    from anole.project.pipeline import Pipeline
    from anole.project.plan import make_plan
    from anole.report.plan_table import render_plan

    made = make_plan(Pipeline.load(spec))
    if as_json:
        click.echo(json.dumps(encode(made), indent=1))
    else:
        show(render_plan(made))


@click.command(epilog="Example: anole lock resnet18-cpu-anole")
@click.argument("builds", nargs=-1, shell_complete=candidates.builds)
@click.option("--remove", is_flag=True, help="Unlock BUILDS: remove their entries.")
@SPEC
def lock(builds: tuple[str, ...], remove: bool, spec: Path) -> None:
    """Keep BUILDS compiled with the configs that they have now.

    The configs are written into anole.lock.json beside models.yaml, to be committed. The default is all builds that are
    compiled. Entries of other builds stay as they are.
    """
    from anole.project.lock import lock_builds, unlock_builds

    if remove and not builds:
        raise click.UsageError("give the builds to unlock; to unlock all, delete the lock file")
    if remove:
        unlock_builds(spec, builds)
        click.echo(f"unlocked: {', '.join(builds)}")
        return
    for name, entry in lock_builds(spec, builds).items():
        n_untuned = sum(task.run_key is None for task in entry.tasks.values())
        click.echo(f"{name}: locked {len(entry.tasks)} tasks" + (f", {n_untuned} of them untuned" if n_untuned else ""))
