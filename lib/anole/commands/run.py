"""`anole run`: a build on given inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from anole.commands.shared import PATH, without_torch


@click.command(epilog="Example: anole run builds/resnet18_cpu --input image.npy")
@click.argument("folder", type=PATH)
@click.option(
    "--input",
    "inputs",
    type=PATH,
    multiple=True,
    required=True,
    help="A .npy file for each input, in order, or one .npz file with all inputs by name.",
)
@click.option("--output", type=PATH, help="Where the outputs are written, as .npz or .npy.")
def run(folder: Path, inputs: tuple[Path, ...], output: Path | None) -> None:
    """Run the build in FOLDER on given inputs.

    It runs on its device or, if it is for an accelerator, on the simulator.
    """
    from anole.report.run import run_build

    without_torch()
    for name, array in run_build(folder, inputs, output).items():
        click.echo(f"{name}: {array.dtype} {list(array.shape)}, {_shown(array)}")


def _shown(array: Any) -> str:
    """Returns the first numbers of an array as text."""
    first = array.ravel()[:5]
    return ", ".join(f"{number:.6g}" for number in first) + (", ..." if array.size > len(first) else "")
