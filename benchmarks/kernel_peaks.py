"""How near the machine's peak the tuned kernels come, as CSV: kernels and a peak probe take turns.

    python benchmarks/kernel_peaks.py work/tuned/*/*/64.json > docs/results/kernel_peaks.csv

A machine that is shared changes its speed from second to second, so a kernel is compared with the peak that was
measured in the same turn; the share is the median over the turns. Weights are warm, as kernels are usually compared,
and cold, as a network meets them and as the tuner times them.
"""

from __future__ import annotations

import csv
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from anole.targets import get_target
from anole.task import Task

if TYPE_CHECKING:
    from anole.targets.base import Timeable
    from anole.targets.cpu.peak import PeakKernel

TURNS = 40


def main(receipts: list[str]) -> None:
    """Prints a line for each receipt."""
    found = [json.loads(Path(path).read_text()) for path in receipts]
    tuned = [receipt for receipt in found if receipt["status"] == "tuned"]
    tasks = [
        Task.from_json(json.loads(Path(f"work/tasks/{receipt['task_key']}.json").read_text())) for receipt in tuned
    ]
    os.environ.update(get_target(tasks[0].target).environment())
    from anole.targets.cpu.peak import PeakKernel
    from anole.targets.cpu.runner import CpuRunner

    peak = PeakKernel(tasks[0].target)
    writer = csv.writer(sys.stdout)
    writer.writerow(["task", "preset", "trials", "weights", "gflops", "peak_gflops", "share_of_peak", "turns"])
    with tempfile.TemporaryDirectory() as folder:
        for receipt, task in zip(tuned, tasks, strict=True):
            target, artifact, config = get_target(task.target), Path(folder) / f"{task.key}.so", receipt["config"]
            target.build(task.workload, config, artifact)
            template = target.template(task.workload)
            for weights, runner in (
                ("warm", CpuRunner(template, task.workload, cold_bytes=0)),
                ("cold", CpuRunner(template, task.workload)),
            ):
                figures = compare(peak, runner.load(artifact, config), task.workload.flop)
                named = [task.label, receipt["preset"], receipt["trials"], weights]
                writer.writerow([*named, *(f"{figure:.3f}" for figure in figures), TURNS])
                sys.stdout.flush()


def compare(peak: PeakKernel, kernel: Timeable, flop: int) -> tuple[float, float, float]:
    """Returns the kernel's and the peak's GFLOP/s, and the share of the one in the other."""
    if not kernel.relative_error() <= 1e-4:
        raise SystemExit("a kernel answers wrongly")
    number = max(1, int(2e-3 / kernel(3)))
    turns = []
    for _ in range(TURNS):
        before_s = peak(2)
        latency_s = kernel(number)
        turns.append((flop / latency_s / 1e9, 2 * peak.flop / (before_s + peak(2)) / 1e9))
    gflops, peaks = (statistics.median(column) for column in zip(*turns, strict=True))
    return gflops, peaks, statistics.median(mine / best for mine, best in turns)


if __name__ == "__main__":
    main(sys.argv[1:])
