"""`anole extract`: from a model to its tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from anole.commands import candidates
from anole.commands.shared import PATH, SPEC, Json, enter_project, guard_process, spare_torch
from anole.documents import layout


@click.command(epilog="Example: anole extract resnet18 --target cpu")
@click.argument("model", shell_complete=candidates.models)
@click.option("--target", required=True, shell_complete=candidates.targets, help="The target's name.")
@click.option("--entry", type=Json(), help="The model's entry, instead of the one in models.yaml.")
@click.option("--target-description", "description", type=Json(), help="The target's complete description.")
@click.option("--manifest", type=PATH, help="Where the model's list of tasks is written.  [default: in work/models]")
@click.option("--tasks", type=PATH, help=f"Folder of the tasks.  [default: {layout.TASKS}]")
@SPEC
def extract(
    model: str, target: str, entry: Any, description: Any, manifest: Path | None, tasks: Path | None, spec: Path
) -> None:
    """Split MODEL into its distinct tasks for a target.

    MODEL is a name in models.yaml. A task is one distinct layer on one target, which `anole tune` tunes.
    """
    guard_process(f"model {model}")
    from anole.declared.entries import ModelSpec
    from anole.extract.stage import extract_model
    from anole.project.pipeline import find_model

    if entry is None or description is None:
        manifest, tasks = enter_project(spec, manifest, tasks)
        found, description = find_model(Path(spec.name), model, target)
    else:
        found = ModelSpec.from_json(model, entry)
    spare_torch(found)
    extract_model(found, target, description, manifest or layout.manifest_path(model, target), tasks or layout.TASKS)
