"""`anole tune`: one task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from anole.commands.shared import BUILDERS, MEASURE, PATH, PRESET, Json, preset_settings
from anole.documents import layout


@click.command(epilog="Example: anole tune work/tasks/KEY.json --trials 64")
@click.argument("task", type=PATH)
@PRESET
@click.option("--tuner", type=Json(), help="The complete tuner settings: a preset and its overrides.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed.")
@click.option(
    "--trials",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Configs to measure, recorded ones included.",
)
@click.option("--shards", type=PATH, default=layout.SHARDS, show_default=True, help="Folder of the recorded trials.")
@click.option("--receipt", type=PATH, help="Where the best config is written.  [default: in work/tuned]")
@click.option("--again", type=click.Choice(["failures"]), help="First measure those recorded trials again that failed.")
@MEASURE
@BUILDERS
def tune(
    task: Path,
    preset: str | None,
    tuner: Any,
    seed: int,
    trials: int,
    shards: Path,
    receipt: Path | None,
    again: str | None,
    measure: Any,
    builders: int | None,
) -> None:
    """Tune TASK, a file that `anole extract` wrote.

    Trials that are already recorded are not measured again, except with `--again failures`: those that the machine may
    have made fail.
    """
    from anole.search.presets import read_tuner
    from anole.targets.rpc.address import Remote
    from anole.tune.stage import tune_task

    settings, remote = read_tuner(tuner or preset_settings(preset)), Remote.from_json(measure or {})
    tune_task(task, settings, seed, trials, shards, receipt, remote, builders, failures_again=again == "failures")
