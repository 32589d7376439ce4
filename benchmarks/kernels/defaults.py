"""Compare the default configs of convolutions on this CPU with another version's, as CSV.

    git worktree add ../before v0.7.0
    PYTHONPATH=lib python -m benchmarks.kernels.defaults ../before > defaults.csv

Each version builds its kernels in a separate process. The kernels of both are then timed in turns in this process, with
weights that are not in the cache. A ratio above 1 means that this version is faster.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from anole.host.machine import available_cores
from anole.targets.cpu.settings import describe_cpu
from anole.targets.cpu.target import CpuTarget
from anole.task import Conv2d
from benchmarks.common.arguments import make_parser
from benchmarks.common.checkout import HOME
from benchmarks.common.rows import print_rows, quartiles, round_row
from benchmarks.kernels.layers import conv2d

LAYERS = {
    "strided": [(112, 64, 64), (56, 128, 256), (28, 256, 512), (14, 512, 1024), (28, 64, 128), (56, 96, 192)],
    "pointwise": [(56, 64, 256), (56, 256, 64), (28, 320, 512), (14, 512, 1024), (14, 1024, 512), (7, 704, 1024)],
    "groups of 4": [(56, 128, 32), (28, 64, 16), (14, 256, 64)],
    "groups of 8 to 32": [(28, 256, 32), (28, 256, 16), (14, 512, 32), (7, 1024, 32)],
    "depthwise 3x3": [(112, 32), (56, 144), (14, 480)],
    "depthwise 5x5": [(28, 240), (14, 672), (7, 960)],
    "depthwise 7x7": [(56, 96), (56, 128), (28, 192), (28, 256), (14, 384), (14, 512), (7, 768), (7, 1024)],
}
"""Sizes and channels of layers, by kind: of images, inputs and outputs; of groups; or of depthwise layers."""

COLUMNS = ("kind", "layer", "threads", "before_us", "us", "ratio", "ratio_q1", "ratio_q3", "same_config")

_TURN_S, _TURNS = 1e-3, 25


def main() -> None:
    """Print a row for each layer."""
    parser = make_parser(__doc__)
    parser.add_argument("checkout", type=Path, help="folder of the other version")
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--kinds", default=",".join(LAYERS), help="comma-separated")
    parser.add_argument("--build", type=Path, help="only build the kernels of the importable version, into a folder")
    given = parser.parse_args()
    layers = [(kind, layer) for kind in given.kinds.split(",") for layer in layers_of(kind)]
    target = CpuTarget(describe_cpu(threads=given.threads))
    if given.build is not None:
        _build(target, [layer for _, layer in layers], given.build)
        return
    with TemporaryDirectory() as scratch:
        folders = [Path(scratch, "before"), Path(scratch, "now")]
        for folder, checkout in zip(folders, (given.checkout, HOME), strict=True):
            folder.mkdir()
            environment = os.environ | {"PYTHONPATH": os.pathsep.join([f"{checkout.resolve()}/lib", str(HOME)])}
            command = [sys.executable, "-m", __spec__.name, *sys.argv[1:], "--build", str(folder)]
            subprocess.run(command, env=environment, check=True)
        print_rows(COLUMNS, (round_row(row) for row in _rows(target, layers, folders)))


def layers_of(kind: str) -> Iterator[Conv2d]:
    """Yield the layers of a kind."""
    for size, *channels in LAYERS[kind]:
        if kind.startswith("depthwise"):
            yield conv2d(size, channels[0], channels[0], int(kind[-1]), groups=channels[0])
        elif kind.startswith("groups"):
            yield conv2d(size, channels[0], channels[0], groups=channels[1])
        else:
            yield conv2d(size, *channels, *((3, 2) if kind == "strided" else (1, 1)))


def _build(target: CpuTarget, layers: list[Conv2d], folder: Path) -> None:
    for number, layer in enumerate(layers):
        config = target.default_config(layer)
        target.build(layer, config, folder / f"{number}.so")
        (folder / f"{number}.json").write_text(json.dumps(config))


def _rows(target: CpuTarget, layers: list[tuple[str, Conv2d]], folders: list[Path]) -> Iterator[Mapping[str, Any]]:
    for number, (kind, layer) in enumerate(layers):
        configs = [json.loads((folder / f"{number}.json").read_text()) for folder in folders]
        artifacts, runner = [folder / f"{number}.so" for folder in folders], target.runner(layer)
        kernels = [runner.load(*each) for each in zip(artifacts, configs, strict=True)]
        if any(kernel.relative_error() > target.max_relative_error for kernel in kernels):
            raise SystemExit(f"{layer.label}: a kernel is wrong")
        runs = max(1, int(_TURN_S / kernels[0](1)))
        times_s = np.array([[kernel(runs) for kernel in kernels] for _ in range(_TURNS)])
        before_us, now_us = (1e6 * np.median(times_s, axis=0)).tolist()
        shown = {"kind": kind, "layer": layer.label, "threads": target.threads, "before_us": before_us, "us": now_us}
        yield shown | quartiles("ratio", times_s[:, 0] / times_s[:, 1]) | {"same_config": configs[0] == configs[1]}


if __name__ == "__main__":
    main()
