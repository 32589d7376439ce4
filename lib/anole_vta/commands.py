"""`anole vta`: inspect programs for the accelerator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from anole.commands import candidates
from anole.commands.shared import AS_JSON, PATH, Json


@click.group(epilog="Example: anole vta report --build builds/resnet18-vta-dcoc --step conv1")
def vta() -> None:
    """Inspect programs for the VTA accelerator."""


@vta.command()
@click.option("--schedules", type=PATH, required=True, help="Rows of shape, workload and schedule, as JSON.")
def cycles(schedules: Path) -> None:
    """Print each schedule with its cycle count, or with the reason for its rejection."""
    from anole_vta.templates.schedules import read_schedules

    click.echo(json.dumps([row.with_cycles() for row in read_schedules(schedules)], indent=1))


@vta.command(name="trace")
@click.argument("stream", type=PATH)
@click.option("--geometry", type=Json(), help="The accelerator's geometry.  [default: VTA's]")
@AS_JSON
def trace_(stream: Path, geometry: Any, as_json: bool) -> None:
    """Print when each instruction of STREAM starts and ends, in cycles since the launch."""
    from anole_vta.geometry import Geometry
    from anole_vta.templates.schedules import trace

    rows = trace(stream, Geometry.from_json(geometry or {}))
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    for row in rows:
        click.echo(f"{row['number']:6} {row['module']:8} {row['start']:10} {row['end']:10}  {row['instruction']}")


@vta.command(name="report")
@click.option("--schedules", type=PATH, help="Rows of shape, workload and schedule, as JSON.")
@click.option("--row", type=click.IntRange(0), default=0, show_default=True, help="Index of the row, with --schedules.")
@click.option(
    "--build", type=PATH, shell_complete=candidates.build_folders, help="Folder of a build; excludes --schedules."
)
@click.option("--step", help="Name of the layer, with --build.")
@click.option("--picture", type=PATH, help="Write the timeline of all modules to this SVG file.")
@click.option("--until", type=click.IntRange(1), help="Last cycle in the picture.  [default: the end]")
def report_(
    schedules: Path | None, row: int, build: Path | None, step: str | None, picture: Path | None, until: int | None
) -> None:
    """Report the utilization of the accelerator by a schedule or by a layer of a build."""
    from anole.errors import BuildError
    from anole.files import write_atomically
    from anole_vta.isa import StreamError
    from anole_vta.network.artifact import load_programs
    from anole_vta.report import draw_timeline, summarize
    from anole_vta.templates.schedules import read_schedules

    if schedules is not None and build is None:
        rows = read_schedules(schedules)
        if row >= len(rows):
            raise StreamError(f"{schedules}: has no row {row}; its rows are 0 to {len(rows) - 1}")
        program = rows[row].program()
    elif build is not None and step is not None and schedules is None:
        programs = load_programs(build)
        if step not in programs:
            raise BuildError(f"found step {step!r}; the accelerator's steps are {', '.join(programs)}")
        program = programs[step]
    else:
        raise click.UsageError("give --schedules, or --build and --step")
    text, timeline = summarize(program)
    click.echo(text)
    if picture is not None:
        write_atomically(picture, draw_timeline(program.instructions, timeline, until))
