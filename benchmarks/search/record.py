"""Measure a full or restricted space of direct convolution, and print a table for replaying searches.

    python -m benchmarks.search.record resnet18_2 > lib/anole/bench/tables/cpu/resnet18_2.json

A latency is the fastest of ten runs. With ``--passes 2``, the space is measured twice, and a latency is the fastest of
twenty runs, because the speed of a shared machine varies over minutes. An interrupted recording continues where it
stopped (``work/tables/<name>.jsonl``).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anole.host.machine import host_facts, software_versions
from anole.measure.measurer import Measurer
from anole.measure.options import MeasureOptions
from anole.search.roles import Timer, Timing
from anole.targets import get_target
from anole.targets.cpu.settings import describe_cpu
from anole.task import Conv2d, Task
from anole.tune.progress import Progress
from benchmarks.common.arguments import make_parser
from benchmarks.kernels.layers import conv2d
from benchmarks.search.variants import LAYERS

SPACES: dict[str, tuple[Conv2d, dict[str, list[Any]]]] = {
    # The second task of ResNet-18 and one of SqueezeNet, for tuning the default settings.
    "resnet18_2": (
        conv2d(56, 64, 64),
        {
            **{"tile_rc": [[1, 64], [8, 8]], "tile_ry": [[3, 1]], "auto_unroll_max_step": [0, 512]},
            **{"unroll_explicit": [0], "parallel_order": ["fy"], "tile_order": ["fyx"], "pad_at": ["inline", "root"]},
        },
    ),
    "squeezenet_expand": (
        conv2d(27, 64, 256),
        {
            **{"tile_rc": [[1, 64], [8, 8]], "tile_ry": [[3, 1]], "auto_unroll_max_step": [0, 512]},
            **{"unroll_explicit": [0], "tile_order": ["fyx"], "pad_at": ["inline", "root"]},
        },
    ),
    # The full space of L8 of the Chameleon paper, for the regression test of search quality.
    "L8": (LAYERS["L8"], {}),
}
CHUNK = 48


@dataclass(frozen=True)
class Fastest:
    """An evaluator whose latency is the fastest of several runs."""

    runs: int = 10

    def evaluate(self, timer: Timer, best_s: float | None = None) -> Timing:
        """Time one kernel."""
        timer(1)
        costs_s = np.array([timer(1) for _ in range(self.runs)])
        std_s = float(costs_s.std())
        return Timing(float(costs_s.min()), std_s, std_s / float(costs_s.mean()), self.runs)


def main() -> None:
    """Print the table of one space."""
    parser = make_parser(__doc__)
    parser.add_argument("space", choices=SPACES)
    parser.add_argument("--passes", type=int, default=1, help="number of measurements of the space")
    given = parser.parse_args()
    print(json.dumps(record(given.space, given.passes)))


def record(name: str, n_passes: int) -> dict[str, Any]:
    """Measure a space and return its table."""
    workload, restriction = SPACES[name]
    description = describe_cpu(exact=True)
    target = get_target(description)
    space = target.space(workload).restrict(restriction)
    indices = space.valid_indices
    assert indices is not None
    task = Task(workload, description, target.template_version(workload))
    path = Path(f"work/tables/{name}.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    measured = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    starts = [start for _ in range(n_passes) for start in range(0, len(indices), CHUNK)]
    total, options = n_passes * len(indices), MeasureOptions(Fastest())
    with Progress(name, total) as progress, Measurer(task, options) as measurer, path.open("a") as file:
        for start in starts[len(measured) :]:
            configs = [space.config(vector) for vector in space.vectors(indices[start : start + CHUNK])]
            measured.append([measurement.latency_s for measurement in measurer.measure(configs)])
            print(json.dumps(measured[-1]), file=file, flush=True)
            found_s = [latency_s for chunk in measured for latency_s in chunk]
            working_s = [latency_s for latency_s in found_s if latency_s]
            best_gflops = workload.flop / min(working_s) / 1e9 if working_s else 0.0
            progress.update(len(found_s), best_gflops, len(found_s) - len(working_s))
    passes = np.concatenate([np.array(chunk, dtype=np.float64) for chunk in measured]).reshape(n_passes, len(indices))
    fastest_us = np.fmin.reduce(passes, axis=0) * 1e6
    return {
        "workload": asdict(workload),
        "restriction": restriction,
        "target": dict(description),
        "host": host_facts(),
        "versions": software_versions(),
        "cardinalities": space.cardinalities.tolist(),
        "passes": n_passes,
        "latency_us": [None if np.isnan(latency_us) else round(latency_us, 2) for latency_us in fastest_us.tolist()],
    }


if __name__ == "__main__":
    main()
