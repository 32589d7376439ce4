"""Calibration: trials on common layers of a target, with which its searches of other layers begin."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anole.errors import TargetError
from anole.search.presets import read_tuner
from anole.targets import get_target
from anole.targets.base import Place
from anole.targets.rpc.address import Remote
from anole.task import Task
from anole.tune.common_layers import common_layers
from anole.tune.options import TuneOptions
from anole.tune.stage import record_trials

TRIALS = 40
"""Trials of a layer: a third are the configs of most merit, which a search meets, and the others cover the space."""

_TUNER = {
    "preset": "random",
    "explorer": {"name": "guided_annealing", "led_share": 1 / 3, "n_candidates": TRIALS},
    "batch": TRIALS,
}


def calibrate(
    description: Mapping[str, Any], shards_dir: Path, remote: Remote | None = None, seconds: float = math.inf
) -> tuple[int, int]:
    """Records trials on common layers of a target, from which warm starts learn as from all others.

    Recorded trials are not measured again, and no layer is begun after so many seconds. Errors of measuring are raised
    as in `tune_task`.

    Returns:
        The number of layers that have their trials, and that of all.

    Raises:
        TargetError: the target is simulated, or not present on this machine.
    """
    target = get_target(description)
    if target.place is Place.SIMULATOR:
        raise TargetError("a simulator needs no calibration: its searches begin with a model of it")
    layers = (target.narrowed(each) for each in common_layers() if each.operator in target.operators)
    tasks = [Task(each, target.description, target.template_version(each)) for each in dict.fromkeys(layers)]
    options = TuneOptions(read_tuner(_TUNER), 0, TRIALS, shards_dir, remote)
    return record_trials(tasks, options, seconds), len(tasks)
