"""`anole refine`: candidates tried within the whole network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from anole.commands import candidates
from anole.commands.shared import ORDER, PATH, REQUIRED, SPEC, enter_project, guard_process, require_target, spare_torch
from anole.documents import layout


@click.command(epilog="Example: anole refine resnet18-cpu-anole")
@click.argument("build", shell_complete=candidates.builds)
@click.argument("receipts", nargs=-1, type=PATH)
@ORDER
@click.option("--manifest", type=PATH, help="The model's list of tasks, with --order.")
@click.option("--candidates", type=click.IntRange(1), help="Candidates to try for each task, with --order.")
@click.option("--output", type=PATH, help="Where the receipts of the best candidates within the network are written.")
@REQUIRED
@SPEC
def refine(
    build: str,
    receipts: tuple[Path, ...],
    order: Any,
    manifest: Path | None,
    candidates: int | None,
    output: Path | None,
    required: bool,
    spec: Path,
) -> None:
    """Choose the candidates that are fastest within BUILD.

    BUILD is a name in models.yaml. Each candidate is timed within the whole network. The candidates come from the
    build's own receipts, which `anole tune` wrote, or from RECEIPTS, with --order.
    """
    guard_process(f"build {build}")
    from anole.project.pipeline import find_build
    from anole.refine.stage import refine_network

    if order is None or manifest is None or candidates is None:
        (output,) = enter_project(spec, output)
        found = find_build(Path(spec.name), build)
        order, manifest, receipts, candidates = found.order, found.manifest, found.receipts, found.refine
    if required:
        require_target(f"build {build}", order.origin.target_description)
    spare_torch(order.model_spec)
    refine_network(build, order, manifest, receipts, candidates, output or layout.refined_path(build))
