"""`anole plan`: what would run next."""

from __future__ import annotations

import json
from pathlib import Path

import click

from anole.commands.shared import SPEC, show


@click.command(epilog="Example: anole plan")
@SPEC
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(spec: Path, as_json: bool) -> None:
    """Show the tasks, their state, and what would run next."""
    from anole.plain import to_plain
    from anole.project.pipeline import Pipeline
    from anole.project.plan import make_plan
    from anole.report.plan_table import render_plan

    made = make_plan(Pipeline.load(spec))
    if as_json:
        click.echo(json.dumps(to_plain(made), indent=1))
    else:
        show(render_plan(made))
