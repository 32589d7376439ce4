"""Checks that valid configs really run, as CSV: random configs of each layer are built and run.

    python -m benchmarks.gpu.launches --target cuda --configs 40 > launches.csv

A valid config that does not fit the device, does not build or gives wrong results shows a limit that the constraints
lack. `rejected_share` is the share of the layer's space that the constraints reject, from a random sample.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import Counter

import numpy as np

from anole.measure.measurer import Measurer
from anole.measure.options import MeasureOptions
from anole.record import Status
from anole.search.evaluators.fixed import Fixed
from anole.targets import get_target
from benchmarks.search.variants import Place, add_place, chosen_layers

SAMPLED = 10_000


def main() -> None:
    """Prints a line for each layer, and one for all layers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_place(parser)
    parser.add_argument("--layers", default="", help="comma-separated; all by default")
    parser.add_argument("--configs", type=int, default=40, help="number of configs of each layer")
    arguments = parser.parse_args()
    place, total = Place(arguments.target, arguments.folder), Counter[Status]()
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["layer", "task", "size", "rejected_share", "configs", "ran_share", *Status, "first_error"])
    for layer in chosen_layers(arguments.layers):
        task = place.task_of(layer)
        target = get_target(task.target)
        space = target.space(task.workload)
        drawn = space.vectors(space.draw(SAMPLED, np.random.default_rng(0)))
        rejected = sum(space.rejections(drawn).values()) / SAMPLED
        configs = [space.config(vector) for vector in space.sample(arguments.configs, np.random.default_rng(1))]
        with Measurer(task, MeasureOptions(Fixed(number=1, repeats=1))) as measurer:
            measured = list(measurer.measure(configs))
        counts = Counter(measurement.status for measurement in measured)
        error = next((measurement.error for measurement in measured if measurement.error), "")
        writer.writerow([layer, task.label, space.size, f"{rejected:.4f}", *_shares(counts), error])
        sys.stdout.flush()
        total += counts
    writer.writerow(["all", "", "", "", *_shares(total), ""])


def _shares(counts: Counter[Status]) -> list[object]:
    """Returns the number of configs, the share that ran correctly, and the count of each status."""
    return [counts.total(), f"{counts[Status.OK] / counts.total():.4f}", *(counts[status] for status in Status)]


if __name__ == "__main__":
    main()
