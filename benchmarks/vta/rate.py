"""Measure the time to lower and simulate VTA programs, by program size, as CSV.

    python -m benchmarks.vta.rate > docs/results/data/vta_rate.csv

Every row is one program: a random config of one of ResNet-18's ten convolutions, either on VTA's geometry or on random
hardware. Seconds are on one core.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator

import numpy as np

from anole.errors import ConfigError
from anole_vta.settings import describe_vta
from anole_vta.simulator.timing import simulate
from anole_vta.target import VtaTarget
from anole_vta.templates.conv2d import lower_conv2d
from anole_vta.templates.design import EPILOGUE, design_of, pad_to_blocks
from benchmarks.common.arguments import make_parser
from benchmarks.common.rows import print_rows
from benchmarks.vta.tables import layers_of

COLUMNS = ("layer", "hardware", "instructions", "cycles", "lower_s", "simulate_s", "count_s")


def main() -> None:
    """Print the rows, and the medians to standard error."""
    parser = make_parser(__doc__)
    parser.add_argument("--configs", type=int, default=40, help="number of configs per layer and mode")
    print_rows(COLUMNS, measure(parser.parse_args().configs))


def measure(n_configs: int) -> Iterator[dict[str, object]]:
    """Yield the row of each program; print the medians after each mode."""
    layers = [layer for layer, _ in layers_of("resnet18") if layer.kernel != (1, 1) or layer.height > 1]
    for hardware in ("fixed", "search"):
        target, seconds = VtaTarget(describe_vta(hardware=hardware)), []
        for layer in layers:
            space = target.space(layer)
            for vector in space.sample(n_configs, np.random.default_rng(0)):
                config = space.config(vector)
                design = design_of(layer, target.geometry, config)
                try:
                    began_s = time.perf_counter()
                    program = lower_conv2d(
                        pad_to_blocks(layer, design.geometry), design.schedule, design.geometry, EPILOGUE
                    )
                except ConfigError:
                    continue
                lowered_s = time.perf_counter()
                cycles = simulate(program.instructions, design.geometry).cycles
                simulated_s = time.perf_counter()
                assert target.cycles(layer, config) == cycles
                counted_s = time.perf_counter()
                times_s = (lowered_s - began_s, simulated_s - lowered_s, counted_s - simulated_s)
                seconds.append(times_s[-1])
                values = (layer.label, hardware, len(program.instructions), cycles, *(f"{s:.6f}" for s in times_s))
                yield dict(zip(COLUMNS, values, strict=True))
        median_ms = 1e3 * statistics.median(seconds)
        print(f"{hardware}: {len(seconds)} programs, {median_ms:.1f} ms each in the median", file=sys.stderr)


if __name__ == "__main__":
    main()
