"""Builds beside their references, evaluated several times, each in a process of its own, as CSV.

python benchmarks/model_latency.py 5 builds/* > docs/results/model_latency.csv
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

COLUMNS = (
    "latency_s",
    "latency_std_s",
    "reference_latency_s",
    "reference_latency_std_s",
    "speedup",
    "relative_error",
    "rounds",
)


def main(n_times: int, builds: list[str]) -> None:
    """Prints a line for each evaluation and reference."""
    writer = csv.writer(sys.stdout)
    writer.writerow(["build", "evaluation", "threads", "reference", *COLUMNS])
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "evaluation.json"
        for number in range(n_times):
            for build in builds:
                command = [sys.executable, "-m", "anole", "evaluate", build, "--output", str(output)]
                subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
                evaluation = json.loads(output.read_text())
                for latency in evaluation["latencies"]:
                    named = [evaluation["build"], number, evaluation["threads"], latency["reference"]]
                    writer.writerow([*named, *(f"{latency[column]:.6g}" for column in COLUMNS)])
                    sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
