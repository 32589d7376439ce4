"""Measures how good the configs with the highest merit are, which are chosen before any measurement, as CSV.

    python -m benchmarks.kernels.merit > docs/results/data/merit.csv

For each layer, a batch of configs is measured for each way to choose them: those with the highest `merit`, random ones
(`chance`), and the `default`. All are measured in turns, three times each; a config's time is the median of its three.
`least_ms` is the best time that a search would know after such a batch.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from anole.measure.measurer import Measurer
from anole.measure.options import MeasureOptions
from anole.record import Config
from anole.search.evaluators.fixed import Fixed
from anole.targets import get_target
from anole.targets.cpu.settings import describe_cpu
from anole.task import BatchMatmul, Dense, Task, Workload
from benchmarks.common.arguments import described
from benchmarks.common.rows import print_rows
from benchmarks.kernels.layers import conv2d

LAYERS: tuple[Workload, ...] = (
    *(conv2d(224, 3, 64, 7, 2), conv2d(56, 64, 64), conv2d(28, 128, 128), conv2d(14, 256, 256), conv2d(7, 512, 512)),
    *(conv2d(14, 512, 512), replace(conv2d(28, 128, 128), batch=8), conv2d(27, 64, 192, 5), conv2d(28, 128, 256, 3, 2)),
    *(conv2d(14, 256, 1024, 1), conv2d(56, 144, 144, groups=144), conv2d(28, 128, 128, groups=32)),
    *(Dense(1, 2048, 1000), Dense(128, 512, 2048), BatchMatmul(8, 128, 64, 128)),
)
ROUNDS = 3
COLUMNS = ("layer", "chosen_by", "configs", "least_ms", "median_ms")


def main() -> None:
    """Prints a line for each layer and way to choose."""
    parser = described(__doc__)
    parser.add_argument("--configs", type=int, default=16, help="number of configs chosen each way")
    n_configs = parser.parse_args().configs
    print_rows(COLUMNS, (row for workload in LAYERS for row in rows_of(workload, n_configs)))


def rows_of(workload: Workload, n_configs: int) -> Iterator[dict[str, object]]:
    """Yields a row for each way to choose configs of a layer."""
    for chosen_by, times_ms in measure_layer(workload, n_configs).items():
        least_ms, median_ms = (f"{find(times_ms):.4g}" for find in (min, statistics.median))
        figures = {"configs": len(times_ms), "least_ms": least_ms, "median_ms": median_ms}
        yield {"layer": workload.label, "chosen_by": chosen_by, **figures}


def measure_layer(workload: Workload, n_configs: int) -> dict[str, list[float]]:
    """Returns the milliseconds of the configs chosen each way; infinity for a failed config."""
    description = describe_cpu()
    target = get_target(description)
    space, rng = target.space(workload), np.random.default_rng(0)
    chosen: dict[str, list[Config]] = {
        "merit": [space.config(vector) for vector in space.promising(n_configs, rng)],
        "chance": [space.config(vector) for vector in space.sample(n_configs, rng)],
        "default": [target.default_config(workload)],
    }
    # Spread the ways evenly over a turn, so that neighbours in time differ.
    turns = sorted((at / len(configs), way, at) for way, configs in chosen.items() for at in range(len(configs)))
    times_ms: dict[tuple[str, int], list[float]] = {(way, at): [] for _, way, at in turns}
    with Measurer(Task(workload, description, target.template_version(workload)), MeasureOptions(Fixed())) as measurer:
        for _ in range(ROUNDS):
            measured = measurer.measure([chosen[way][at] for _, way, at in turns])
            for (_, way, at), found in zip(turns, measured, strict=True):
                times_ms[way, at].append(1e3 * (found.latency_s or math.inf))
    return {way: [statistics.median(times_ms[way, at]) for at in range(len(chosen[way]))] for way in chosen}


if __name__ == "__main__":
    main()
