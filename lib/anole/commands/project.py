"""Commands for a project: init, plan and lock."""

from __future__ import annotations

import json
from pathlib import Path

import click

from anole.commands import candidates
from anole.commands.shared import AS_JSON, PATH, SPEC, show


@click.command(epilog="Example: anole init networks --demo")
@click.argument("folder", type=PATH, default=Path())
@click.option("--demo", is_flag=True, help="Start with an example that takes a minute or two.")
def init(folder: Path, demo: bool) -> None:
    """Write the files of a new project into FOLDER.

    The files are models.yaml, for you to edit, a Snakefile that uses the workflow, profiles and .gitignore. The default
    is the current folder. Existing files are not overwritten.
    """
    from anole.project.scaffold import make_project

    for path in make_project(folder, demo):
        click.echo(path)
    click.echo(f"Next: {'' if folder == Path() else f'cd {folder}; '}snakemake --cores all")


@click.command(epilog="Example: anole plan")
@SPEC
@AS_JSON
def plan(spec: Path, as_json: bool) -> None:
    """Show the tasks, their state and the next jobs."""
    from anole.codec import encode
    from anole.project.pipeline import Pipeline
    from anole.project.plan import make_plan
    from anole.report.tables import render_plan

    jobs = make_plan(Pipeline.load(spec))
    if as_json:
        click.echo(json.dumps(encode(jobs), indent=1))
    else:
        show(render_plan(jobs))


@click.command(epilog="Example: anole lock resnet18-cpu-anole")
@click.argument("builds", nargs=-1, shell_complete=candidates.builds)
@click.option("--remove", is_flag=True, help="Unlock BUILDS by removing their entries.")
@SPEC
def lock(builds: tuple[str, ...], remove: bool, spec: Path) -> None:
    """Lock BUILDS to their current configs.

    The configs are written into anole.lock.json next to models.yaml; commit that file. The default is all compiled
    builds. Entries of other builds do not change.
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
