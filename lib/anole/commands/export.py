"""`anole export`: from a build to a C library."""

from __future__ import annotations

from pathlib import Path

import click

from anole.commands import candidates
from anole.commands.shared import PATH, guard_process, spare_torch


@click.command(epilog="Example: anole export builds/resnet18-cpu-anole --to resnet18 --weights file")
@click.argument("folder", type=PATH, shell_complete=candidates.build_folders)
@click.option("--to", "output", type=PATH, required=True, help="Folder of the library, which replaces another.")
@click.option(
    "--weights",
    type=click.Choice(["library", "file"]),
    default="library",
    show_default=True,
    help="Where the weights go: into the library, or into a file beside it that is mapped.",
)
@click.option(
    "--level",
    "levels",
    multiple=True,
    help="A level of instructions: tuned, x86-64-v4, x86-64-v3 or x86-64-v2; may be repeated.  [default: all]",
)
@click.option("--prefix", default="network", show_default=True, help="What names of functions and files begin with.")
def export(folder: Path, output: Path, weights: str, levels: tuple[str, ...], prefix: str) -> None:
    """Export the build in FOLDER as a C library.

    The library needs neither TVM nor Python. Only builds for a CPU can be exported.
    """
    guard_process(f"build {folder.name}")
    from anole.documents.build import read_build
    from anole.export.stage import export_build

    spare_torch(read_build(folder).model_spec)
    export_build(folder, output, weights == "library", levels, prefix)
