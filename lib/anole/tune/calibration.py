"""Calibration of a target: trials on common layers, which warm-start the searches for other layers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anole.errors import TargetError
from anole.search.presets import read_tuner
from anole.targets import get_target
from anole.targets.base import DeviceLocation
from anole.targets.rpc.address import Remote
from anole.task import Task
from anole.tune.common_layers import common_layers
from anole.tune.options import TuneOptions
from anole.tune.stage import record_trials

TRIALS = 40
"""Trials per layer: a third have a high analytical score (merit), like proposed configs; the others cover the space."""

_TUNER = {
    "preset": "random",
    "explorer": {"name": "guided_annealing", "led_share": 1 / 3, "n_candidates": TRIALS},
    "batch": TRIALS,
}


def calibrate(
    description: Mapping[str, Any], shards_dir: Path, remote: Remote | None = None, seconds: float = math.inf
) -> tuple[int, int]:
    """Record trials of common layers on a target; warm starts learn from them as from any other trials.

    Recorded trials are not measured again, and no layer begins after `seconds`. Errors are raised as in `tune_task`.

    Returns:
        The number of layers that have all their trials, and the total number of layers.

    Raises:
        TargetError: the target is simulated, or not present on this machine.
    """
    target = get_target(description)
    if target.place is DeviceLocation.SIMULATOR:
        raise TargetError("a simulator needs no calibration: its searches begin with an analytical model")
    layers = (target.in_target_precision(layer) for layer in common_layers() if layer.operator in target.operators)
    tasks = [Task(layer, target.description, target.template_version(layer)) for layer in dict.fromkeys(layers)]
    options = TuneOptions(read_tuner(_TUNER), 0, TRIALS, shards_dir, remote)
    return record_trials(tasks, options, seconds), len(tasks)
