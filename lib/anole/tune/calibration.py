"""Calibration of a target: trials on common layers, which warm-start the searches for other layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from anole.errors import TargetError
from anole.search.presets import read_tuner
from anole.targets import get_target
from anole.targets.base import DeviceLocation
from anole.targets.rpc.address import Remote
from anole.task import BatchMatmul, Conv2d, Dense, Task, Workload
from anole.tune.job import TuneOptions
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
        TargetError: the target is simulated, or trials are missing and it is not present on this machine.
    """
    target = get_target(description)
    if target.location is DeviceLocation.SIMULATOR:
        raise TargetError("a simulator needs no calibration: its searches begin with an analytical model")
    layers = (target.in_target_precision(layer) for layer in common_layers() if layer.operator in target.operators)
    tasks = [Task(layer, target.description, target.template_version(layer)) for layer in dict.fromkeys(layers)]
    options = TuneOptions(read_tuner(_TUNER), 0, TRIALS, shards_dir, remote)
    return record_trials(tasks, options, seconds), len(tasks)


_MAX_FLOP = 1_300_000_000
"""Larger layers take longer to measure, but similar configs are fast for them."""

_GOLDEN = 0.6180339887498949
"""The inverse golden ratio: multiples of it modulo 1 are a low-discrepancy sequence."""

_SIZES = (7, 14, 28, 56)
_CHANNELS = (16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 768, 1024)


def common_layers() -> list[Workload]:
    """Return about 200 layers, in an order whose prefixes contain layers of all kinds."""
    kinds: list[list[Workload]] = [
        _convolutions(64, _SIZES, 1, 1),
        _convolutions(8, _SIZES[1:], 1, 2),
        _convolutions(40, _SIZES, 3, 1),
        _convolutions(18, _SIZES[1:], 3, 2),
        _convolutions(6, _SIZES[:3], 5, 1),
        [_convolution(224, 3, outputs, kernel, 2) for outputs, kernel in _spread(6, _CHANNELS[:5], (3, 5, 7))],
        [_convolution(h, n, n, k, s, n) for h, n, k, s in _spread(40, (*_SIZES, 112), _CHANNELS[:15], (3, 5), (1, 2))],
        [Dense(n, k, m) for n, k, m in _spread(24, (1, 4, 16, 64, 128, 197), _CHANNELS[10:], (256, 384, 1000, 3072))],
        [BatchMatmul(b, n, k, m) for b, n, k, m in _spread(10, (4, 8, 12), (64, 128, 197), (32, 64, 197), (64, 128))],
    ]
    ranked = [((at + 0.5) / len(kind), layer) for kind in kinds for at, layer in enumerate(kind)]
    ordered = (layer for _, layer in sorted(ranked, key=lambda pair: pair[0]))
    return [layer for layer in dict.fromkeys(ordered) if layer.flop <= _MAX_FLOP]


def _convolutions(n: int, sizes: Sequence[int], kernel: int, stride: int) -> list[Workload]:
    combinations = _spread(n, sizes, _CHANNELS, _CHANNELS)
    return [_convolution(size, inputs, outputs, kernel, stride) for size, inputs, outputs in combinations]


def _convolution(size: int, inputs: int, outputs: int, kernel: int, stride: int, groups: int = 1) -> Conv2d:
    square, padding = (kernel, kernel), (kernel // 2,) * 4
    return Conv2d(1, size, size, inputs, outputs, square, (stride, stride), padding, groups=groups)


def _spread(n: int, *axes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return n combinations of values, evenly spread over all combinations."""
    combinations = list(product(*axes))
    return [combinations[int((at + 0.5) * _GOLDEN % 1 * len(combinations))] for at in range(n)]
