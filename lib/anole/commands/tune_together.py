"""`anole tune-together`: all tasks of a model, with one budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from anole.commands.shared import BUILDERS, MEASURE, PATH, PRESET, Json, preset_settings
from anole.documents import layout


@click.command(
    name="tune-together",
    epilog="Example: anole tune-together work/models/resnet18/cpu.json --trials 512 --receipts tuned.json",
)
@click.argument("manifest", type=PATH)
@PRESET
@click.option("--tuner", type=Json(), help="The complete tuner settings: a preset and its overrides.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed.")
@click.option("--trials", type=click.IntRange(1), required=True, help="Configs to measure for all tasks together.")
@click.option("--tasks", type=PATH, default=layout.TASKS, show_default=True, help="Folder of the tasks.")
@click.option("--shards", type=PATH, default=layout.SHARDS, show_default=True, help="Folder of the recorded trials.")
@click.option("--receipts", type=PATH, required=True, help="Where the best config of each task is written.")
@MEASURE
@BUILDERS
def tune_together(
    manifest: Path,
    preset: str | None,
    tuner: Any,
    seed: int,
    trials: int,
    tasks: Path,
    shards: Path,
    receipts: Path,
    measure: Any,
    builders: int | None,
) -> None:
    """Tune all tasks of MANIFEST with one shared budget.

    `anole extract` writes manifests. The budget is spent on the tasks where it saves most time.
    """
    from anole.search.presets import read_tuner
    from anole.targets.rpc.address import Remote
    from anole.tune.stage import tune_model

    settings, remote = read_tuner(tuner or preset_settings(preset)), Remote.from_json(measure or {})
    tune_model(manifest, tasks, settings, seed, trials, shards, receipts, remote, builders)
