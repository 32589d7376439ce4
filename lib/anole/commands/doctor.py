"""`anole doctor`: this machine."""

from __future__ import annotations

import click

from anole.commands.shared import show


@click.command(epilog="Example: anole doctor")
def doctor() -> None:
    """Describe this machine: hardware, software, peak speed."""
    from anole.report.doctor import render_machine

    for group in render_machine():
        show(group)
