"""`anole doctor`: this machine."""

from __future__ import annotations

import click


@click.command(epilog="Example: anole doctor")
def doctor() -> None:
    """Describe this machine: hardware, software, peak speed."""
    from anole.report.doctor import report

    click.echo(report())
