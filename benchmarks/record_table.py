"""Measures a whole space, or a restricted one, and writes its table: what a search can be replayed on.

    python benchmarks/record_table.py resnet18_2 > benchmarks/tables/resnet18_2.json

A latency is the fastest of ten runs. A reference config is measured along with every chunk, and the latencies of
a chunk are scaled by how much slower the reference ran than at its best, since a shared machine is now fast and
now slow for minutes. The recording goes on where it was interrupted (``work/tables/<name>.jsonl``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anole.machine import describe_cpu, host_facts, software_versions
from anole.measure import Measurer
from anole.progress import Progress
from anole.roles import Timer, Timing
from anole.targets import get_target
from anole.task import Conv2d, Task

SAME = (1, 1, 1, 1)
SPACES: dict[str, tuple[Conv2d, dict[str, list[Any]]]] = {
    # The second task of ResNet-18 and one of SqueezeNet: settings are tuned on these.
    "resnet18_2": (
        Conv2d(1, 56, 56, 64, 64, (3, 3), padding=SAME),
        {
            "tile_rc": [[1, 64], [8, 8]],
            "tile_ry": [[3, 1]],
            "auto_unroll_max_step": [0, 512],
            "unroll_explicit": [0],
            "parallel_order": ["fy"],
            "tile_order": ["fyx"],
            "pad_at": ["inline", "root"],
        },
    ),
    "squeezenet_expand": (
        Conv2d(1, 27, 27, 64, 256, (3, 3), padding=SAME),
        {
            "tile_rc": [[1, 64], [8, 8]],
            "tile_ry": [[3, 1]],
            "auto_unroll_max_step": [0, 512],
            "unroll_explicit": [0],
            "tile_order": ["fyx"],
            "pad_at": ["inline", "root"],
        },
    ),
    # L8 of the Chameleon paper, whole: the regression test of search quality.
    "L8": (Conv2d(1, 14, 14, 256, 512, (1, 1), strides=(2, 2)), {}),
}
CHUNK = 48


@dataclass(frozen=True)
class Fastest:
    """An evaluator that believes the fastest of some runs."""

    runs: int = 10

    def evaluate(self, timer: Timer, best_s: float | None = None) -> Timing:
        """Times one kernel."""
        timer(1)
        costs_s = np.array([timer(1) for _ in range(self.runs)])
        std_s = float(costs_s.std())
        return Timing(float(costs_s.min()), std_s, std_s / float(costs_s.mean()), self.runs)


def main(name: str) -> None:
    """Prints the table of one space."""
    workload, restriction = SPACES[name]
    description = describe_cpu()
    target = get_target(description)
    space = target.space(workload).restricted(restriction)
    indices = space.valid_indices
    assert indices is not None
    task = Task(workload, description, target.template_version(workload.operator))
    reference = target.default_config(workload)
    path = Path(f"work/tables/{name}.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    chunks = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    starts = range(len(chunks) * CHUNK, len(indices), CHUNK)
    with Progress(name, len(indices)) as progress, Measurer(task, Fastest()) as measurer, path.open("a") as file:
        for start in starts:
            configs = [space.config(vector) for vector in space.vectors(indices[start : start + CHUNK])]
            first, *others = [m.latency_s for m in measurer.measure([reference, *configs])]
            chunks.append({"reference_s": first, "latency_s": others})
            print(json.dumps(chunks[-1]), file=file, flush=True)
            progress.update(start + len(configs), workload.flop / min(filter(None, others)) / 1e9, 0)
    table = {
        "workload": asdict(workload),
        "restriction": restriction,
        "target": dict(description),
        "host": host_facts(),
        "versions": software_versions(),
        "cardinalities": space.cardinalities.tolist(),
        "indices": "valid ones, in order",
        "latency_us": list(_scaled_us(chunks)),
    }
    print(json.dumps(table))


def _scaled_us(chunks: Sequence[dict[str, Any]]) -> Iterator[float | None]:
    best_s = min(chunk["reference_s"] for chunk in chunks)
    for chunk in chunks:
        for latency_s in chunk["latency_s"]:
            yield None if latency_s is None else round(latency_s * 1e6 * best_s / chunk["reference_s"], 2)


if __name__ == "__main__":
    main(*sys.argv[1:])
