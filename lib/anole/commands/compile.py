"""`anole compile`: from a model and receipts to a build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from anole.commands import candidates
from anole.commands.shared import ORDER, PATH, SPEC, enter_project, guard_process, spare_torch
from anole.documents import layout


@click.command(name="compile", epilog="Example: anole compile resnet18-cpu-anole")
@click.argument("build", shell_complete=candidates.builds)
@click.argument("receipts", nargs=-1, type=PATH)
@ORDER
@click.option("--manifest", type=PATH, help="The model's list of tasks, with --order.")
@click.option("--output", type=PATH, help="Folder of the build.  [default: in builds]")
@SPEC
def compile_(
    build: str, receipts: tuple[Path, ...], order: Any, manifest: Path | None, output: Path | None, spec: Path
) -> None:
    """Compile BUILD with the best configs that are known.

    BUILD is a name in models.yaml. Its receipts, which `anole tune` and `anole refine` wrote, have the best config of
    each task; a task without one has its default config. RECEIPTS are others, with --order.
    """
    guard_process(f"build {build}")
    from anole.compile.stage import compile_network
    from anole.project.pipeline import find_build

    if order is None or manifest is None:
        (output,) = enter_project(spec, output)
        found = find_build(Path(spec.name), build)
        order, manifest, receipts = found.order, found.manifest, found.ingredients
    spare_torch(order.model_spec)
    compile_network(build, order, manifest, receipts, output or layout.build_path(build))
