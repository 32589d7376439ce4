"""`anole tune-together`: all tasks of a model, with one budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from anole.commands.shared import PATH, tuning_options
from anole.documents import layout

if TYPE_CHECKING:
    from anole.tune.options import TuneOptions


@click.command(
    name="tune-together",
    epilog="Example: anole tune-together work/models/resnet18/cpu.json --trials 512 --receipts tuned.json",
)
@click.argument("manifest", type=PATH)
@tuning_options
@click.option("--trials", type=click.IntRange(1), required=True, help="Configs to measure for all tasks together.")
@click.option("--tasks", type=PATH, default=layout.TASKS, show_default=True, help="Folder of the tasks.")
@click.option("--receipts", type=PATH, required=True, help="Where the best config of each task is written.")
def tune_together(manifest: Path, options: TuneOptions, tasks: Path, receipts: Path) -> None:
    """Tune all tasks of MANIFEST with one shared budget.

    `anole extract` writes manifests. The budget is spent on the tasks where it saves most time.
    """
    from anole.tune.stage import tune_model

    tune_model(manifest, tasks, options, receipts)
