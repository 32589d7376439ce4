"""`anole run`: a build on given or random inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from anole.commands import candidates
from anole.commands.shared import PATH, without_torch


@click.command(epilog="Example: anole run builds/resnet18-cpu-anole --input image.npy --output scores.npy")
@click.argument("folder", type=PATH, shell_complete=candidates.build_folders)
@click.option(
    "--input",
    "inputs",
    type=PATH,
    multiple=True,
    help="A .npy file for each input, in order, or one .npz file with all inputs by name.",
)
@click.option("--random", is_flag=True, help="Run it on random inputs: with seed 0, those of `anole evaluate`.")
@click.option("--seed", type=click.IntRange(0), help="Seed of the random inputs.  [default: 0]")
@click.option("--output", type=PATH, help="Where the outputs are written, as .npz or .npy.")
def run(folder: Path, inputs: tuple[Path, ...], random: bool, seed: int | None, output: Path | None) -> None:
    """Run the build in FOLDER on given or random inputs.

    It runs on its device or, if it is for an accelerator, on the simulator. Without --input and --random nothing runs:
    the names, types and shapes of its inputs and outputs are printed.
    """
    from anole.report.run import describe_build, run_build

    if random and inputs:
        raise click.UsageError("give --input or --random, not both")
    if seed is not None and not random:
        raise click.UsageError("--seed is the seed of --random")
    if not random and not inputs:
        if output is not None:
            raise click.UsageError("--output needs --input or --random")
        click.echo(describe_build(folder))
        return
    without_torch()
    for name, array in run_build(folder, inputs, output, seed or 0).items():
        click.echo(f"{name}: {array.dtype} {list(array.shape)}, {_shown(array)}")


def _shown(array: Any) -> str:
    """Returns the first numbers of an array as text."""
    first = array.ravel()[:5]
    return ", ".join(f"{number:.6g}" for number in first) + (", ..." if array.size > len(first) else "")
