"""Measures how fast VTA programs are lowered and simulated, and how the time grows with their size, as CSV.

    python -m benchmarks.accelerator.rate > docs/results/data/vta_rate.csv

Every line is one program: a random config of one of ResNet-18's ten convolutions, either on VTA's own geometry or with
the hardware searched as well. Seconds are those of one core.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time

import numpy as np

from anole.errors import ConfigError
from anole.targets.vta.settings import describe_vta
from anole.targets.vta.simulator.timing import simulate
from anole.targets.vta.target import VtaTarget
from anole.targets.vta.templates.conv2d import lower_conv2d
from anole.targets.vta.templates.design import EPILOGUE, design_of, whole_blocks
from benchmarks.accelerator.tables import layers_of


def main() -> None:
    """Prints the lines, and the medians to standard error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configs", type=int, default=40, help="number of configs of each layer and mode")
    arguments = parser.parse_args()
    writer = csv.writer(sys.stdout)
    writer.writerow(["layer", "hardware", "instructions", "cycles", "lower_s", "simulate_s", "count_s"])
    layers = [layer for layer, _ in layers_of("resnet18") if layer.kernel != (1, 1) or layer.height > 1]
    for hardware in ("fixed", "search"):
        target, seconds = VtaTarget(describe_vta(hardware=hardware)), []
        for layer in layers:
            space = target.space(layer)
            for vector in space.sample(arguments.configs, np.random.default_rng(0)):
                config = space.config(vector)
                design = design_of(layer, target.geometry, config)
                try:
                    began_s = time.perf_counter()
                    program = lower_conv2d(
                        whole_blocks(layer, design.geometry), design.schedule, design.geometry, EPILOGUE
                    )
                except ConfigError:
                    continue
                lowered_s = time.perf_counter()
                cycles = simulate(program.instructions, design.geometry).cycles
                simulated_s = time.perf_counter()
                assert target.cycles(layer, config) == cycles
                counted_s = time.perf_counter()
                taken_s = (lowered_s - began_s, simulated_s - lowered_s, counted_s - simulated_s)
                seconds.append(taken_s[-1])
                writer.writerow(
                    [layer.label, hardware, len(program.instructions), cycles, *(f"{each_s:.6f}" for each_s in taken_s)]
                )
        median_ms = 1e3 * statistics.median(seconds)
        print(f"{hardware}: {len(seconds)} programs, {median_ms:.1f} ms each in the median", file=sys.stderr)


if __name__ == "__main__":
    main()
