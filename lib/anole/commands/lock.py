"""`anole lock`: builds kept as they are."""

from __future__ import annotations

from pathlib import Path

import click

from anole.commands import candidates
from anole.commands.shared import SPEC


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
