"""How near the machine's peak the tuned kernels come, as CSV: kernels and a peak probe take turns.

    python benchmarks/kernel_peaks.py work/tuned/*/*/64.json > docs/results/kernel_peaks.csv

A machine that is shared changes its speed from second to second, so a kernel is compared with the peak that was
measured in the same turn; the share is the median over the turns.
"""

from __future__ import annotations

import csv
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from anole.targets import get_target
from anole.task import Task

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

    peak = PeakKernel(tasks[0].target)
    writer = csv.writer(sys.stdout)
    writer.writerow(["task", "preset", "trials", "gflops", "peak_gflops", "share_of_peak", "turns"])
    with tempfile.TemporaryDirectory() as folder:
        for receipt, task in zip(tuned, tasks, strict=True):
            target, artifact = get_target(task.target), Path(folder) / f"{task.key}.so"
            target.build(task.workload, receipt["config"], artifact)
            kernel = target.runner(task.workload).load(artifact, receipt["config"])
            if kernel.relative_error() > 1e-4:
                raise SystemExit(f"{task.label}: wrong answer")
            number = max(1, int(2e-3 / kernel(3)))
            turns = []
            for _ in range(TURNS):
                before = peak(2)
                latency_s = kernel(number)
                turns.append((task.workload.flop / latency_s / 1e9, 2 * peak.flop / (before + peak(2)) / 1e9))
            gflops, peaks = (statistics.median(column) for column in zip(*turns, strict=True))
            share = statistics.median(mine / best for mine, best in turns)
            row = [
                task.label,
                receipt["preset"],
                receipt["trials"],
                f"{gflops:.1f}",
                f"{peaks:.1f}",
                f"{share:.3f}",
                TURNS,
            ]
            writer.writerow(row)
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
