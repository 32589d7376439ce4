"""`anole evaluate`: a build checked and timed beside its references."""

from __future__ import annotations

from pathlib import Path

import click

from anole.commands import candidates
from anole.commands.shared import PATH, REQUIRED, Counts, guard_process, require_target, spare_torch
from anole.documents import layout


@click.command(epilog="Example: anole evaluate builds/resnet18-cpu-anole --neighbours 0,1,2")
@click.argument("folder", type=PATH, shell_complete=candidates.build_folders)
@click.option("--output", type=PATH, help="Where the evaluation is written.  [default: in work/evaluations]")
@click.option("--rounds", type=click.IntRange(min=1), default=30, show_default=True, help="Turns of each engine.")
@click.option(
    "--neighbours",
    type=Counts(),
    default=(),
    help="Also time it beside busy processes: their numbers, such as 0,1,2.",
)
@REQUIRED
def evaluate(folder: Path, output: Path | None, rounds: int, neighbours: tuple[int, ...], required: bool) -> None:
    """Check and time the build in FOLDER.

    FOLDER is a build, such as those in builds. The references are PyTorch and ONNX Runtime; for the simulated
    accelerator, the untuned network. Beside busy processes, each engine takes six turns of at least a second and eight
    runs, whatever --rounds says.
    """
    guard_process(f"build {folder.name}")
    from anole.compile.redrawn import compile_redrawn
    from anole.documents.build import read_build
    from anole.evaluate.stage import evaluate_network
    from anole.evaluate.timing.turns import Pace

    build = read_build(folder)
    if required:
        require_target(f"build {build.name}", build.target_description)
    spare_torch(build.model_spec)
    evaluation = output or layout.evaluation_path(folder.name)
    evaluate_network(folder, evaluation, compile_redrawn, Pace(rounds=rounds), neighbours)
