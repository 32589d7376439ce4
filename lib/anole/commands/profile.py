"""`anole profile`: the time of every kernel of a build."""

from __future__ import annotations

import json
from pathlib import Path

import click

from anole.commands import candidates
from anole.commands.shared import PATH, show, without_torch


@click.command(epilog="Example: anole profile builds/resnet18-cpu-anole --seconds 2")
@click.argument("folder", type=PATH, shell_complete=candidates.build_folders)
@click.option("--seconds", type=click.FloatRange(0), default=5, show_default=True, help="How long to measure.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def profile(folder: Path, seconds: float, as_json: bool) -> None:
    """Time every kernel of the build in FOLDER.

    The profile compares each kernel with the machine's roofline.
    """
    from anole.report.profile import profile_build, render_profile

    without_torch()
    made = profile_build(folder, seconds)
    if as_json:
        click.echo(json.dumps(made.to_json(), indent=1))
    else:
        show(render_profile(made))
