"""Measure how much work a layer must have for multithreading to pay off, as CSV.

    python -m benchmarks.kernels.sharing > docs/results/data/sharing.csv

For each layer, `--configs` sampled configs that use one thread are timed interleaved with as many that split the work
into one piece per thread. A row has the fastest config of each kind, by the median of its turns. `cold` weights come
from memory, as in a large network; `warm` ones come from the caches, as in a small network.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from anole.host.cores import caller_on_separate_core
from anole.record import Config
from anole.space import Space
from anole.targets.cpu.settings import describe_cpu
from anole.targets.cpu.target import CpuTarget
from anole.targets.cpu.templates.conv2d_space import conv2d_space
from anole.targets.cpu.templates.product_space import batch_matmul_space, dense_space
from anole.task import BatchMatmul, Dense, Workload
from benchmarks.common.arguments import described
from benchmarks.common.rows import print_rows
from benchmarks.kernels.layers import conv2d

LAYERS: tuple[Workload, ...] = (
    *(Dense(1, inputs, outputs) for inputs, outputs in ((64, 64), (64, 256), (128, 256), (128, 512))),
    *(Dense(1, 256, 512), Dense(1, 256, 1024)),
    *(BatchMatmul(1, 16, 32, 16), BatchMatmul(1, 32, 32, 32), BatchMatmul(1, 32, 64, 64), BatchMatmul(1, 64, 64, 64)),
    *(conv2d(8, 16, 16, 1), conv2d(8, 16, 32, 1), conv2d(14, 16, 32, 1), conv2d(14, 32, 32, 1)),
    *(conv2d(8, 16, 16), conv2d(8, 16, 32), conv2d(8, 32, 32)),
)
COLUMNS = ("layer", "flop", "weights", "one_thread_us", "all_threads_us")
N_SAMPLES, N_TURNS, TURN_S = 4000, 25, 2e-3
COLD_BYTES = {"warm": 0, "cold": 48 << 20}


def main() -> None:
    """Print a row for each layer, with cold and with warm weights."""
    parser = described(__doc__)
    parser.add_argument("--configs", type=int, default=8, help="number of configs per kind")
    n_configs = parser.parse_args().configs
    target = CpuTarget({**describe_cpu(), "exact": True})
    os.environ.update(target.environment())
    print_rows(COLUMNS, (row for workload in LAYERS for row in layer_rows(target, workload, n_configs)))


def layer_rows(target: CpuTarget, workload: Workload, n_configs: int) -> Iterator[dict[str, object]]:
    """Yield a row with warm operands and, if the layer has constant weights, one with cold weights."""
    for weights in COLD_BYTES if workload.constant_weight else ("warm",):
        one_us, all_us = (f"{us:.2f}" for us in measure_layer(target, workload, COLD_BYTES[weights], n_configs))
        figures = {"one_thread_us": one_us, "all_threads_us": all_us}
        yield {"layer": workload.label, "flop": workload.flop, "weights": weights, **figures}


def measure_layer(target: CpuTarget, workload: Workload, cold_bytes: int, n_configs: int) -> Iterator[float]:
    """Yield the latency in microseconds of the fastest config with one piece, and with one piece for each thread."""
    from anole.targets.cpu.device.runner import CpuRunner

    space, runner = space_of(target, workload), CpuRunner(target.template(workload), workload, cold_bytes)
    sample = [space.config(vector) for vector in space.sample(min(N_SAMPLES, len(space)), np.random.default_rng(0))]
    sample.sort(key=space.merit_of, reverse=True)
    counts = (1, target.threads)
    configs_of = {count: [config for config in sample if n_pieces(config) == count][:n_configs] for count in counts}
    with TemporaryDirectory() as folder:
        kernels = {}
        for count, configs in configs_of.items():
            for number, config in enumerate(configs):
                artifact = Path(folder) / f"{count}-{number}.so"
                target.build(workload, config, artifact)
                kernels[count, number] = runner.load(artifact, config)
    with caller_on_separate_core():
        n_runs = {key: max(1, round(TURN_S / kernel(100))) for key, kernel in kernels.items()}
        turns = [{key: kernel(n_runs[key]) for key, kernel in kernels.items()} for _ in range(N_TURNS)]
    for count in counts:
        yield 1e6 * min(statistics.median(turn[key] for turn in turns) for key in kernels if key[0] == count)


def space_of(target: CpuTarget, workload: Workload) -> Space:
    """Return the space of a layer for one thread, which may do all the work of a layer of any size."""
    if isinstance(workload, Dense):
        return dense_space(target.unit, 1, workload)
    if isinstance(workload, BatchMatmul):
        return batch_matmul_space(target.unit, 1, workload)
    return conv2d_space(target.unit, 1, workload)


def n_pieces(config: Config) -> int:
    """Return the number of parallel pieces: the product of the outermost parts of all three-way splits."""
    return prod(value[0] for value in config.values() if isinstance(value, list | tuple) and len(value) == 3)


if __name__ == "__main__":
    main()
