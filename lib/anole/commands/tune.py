"""`anole tune`: one task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from anole.commands.shared import PATH, tuning_options

if TYPE_CHECKING:
    from anole.tune.options import TuneOptions


@click.command(epilog="Example: anole tune work/tasks/KEY.json --trials 64")
@click.argument("task", type=PATH)
@tuning_options
@click.option(
    "--trials",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Configs to measure, recorded ones included.",
)
@click.option("--receipt", type=PATH, help="Where the best config is written.  [default: in work/tuned]")
@click.option("--again", type=click.Choice(["failures"]), help="First measure those recorded trials again that failed.")
def tune(task: Path, options: TuneOptions, receipt: Path | None, again: str | None) -> None:
    """Tune TASK, a file that `anole extract` wrote.

    Trials that are already recorded are not measured again, except with `--again failures`: those that the machine may
    have made fail.
    """
    from anole.tune.stage import tune_task

    tune_task(task, options, receipt, failures_again=again == "failures")
