"""Measures the benefit of accumulators on a thread's stack: kernels lowered by TVM's and Anole's pipeline, as CSV.

    python -m benchmarks.kernels.lowering > docs/results/data/lowering.csv

For each layer, the configs with the highest merit are compiled both ways and timed in turns; `ratio` is the time with
Anole's pipeline over the time with TVM's, the median over the turns. `accumulators` counts the vectors of one register
tile.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from anole.host.cores import caller_apart
from anole.record import Config
from anole.targets import get_device
from anole.targets.cpu.settings import describe_cpu
from anole.task import Conv2d
from benchmarks.common.arguments import described
from benchmarks.common.rows import print_rows
from benchmarks.kernels.layers import conv2d

if TYPE_CHECKING:
    from anole.targets.base import Device

LAYERS = (
    *(conv2d(224, 64, 64), conv2d(56, 64, 64), conv2d(28, 128, 128), conv2d(14, 256, 256), conv2d(7, 512, 512)),
    *(conv2d(28, 512, 512), conv2d(28, 128, 256, 3, 2), conv2d(14, 256, 512, 3, 2)),
    *(conv2d(14, 1024, 256, 1), conv2d(14, 256, 1024, 1), conv2d(56, 64, 256, 1)),
)
COLUMNS = ("layer", "algorithm", "prefetches", "accumulators", "tvm_ms", "anole_ms", "ratio", "turns")
TURNS = 15
TURN_S = 4e-3


def main() -> None:
    """Prints a line for each layer and config."""
    parser = described(__doc__)
    parser.add_argument("--configs", type=int, default=12, help="number of configs of each layer")
    n_configs = parser.parse_args().configs
    target = get_device(describe_cpu())
    os.environ.update(target.environment())
    threadpool_limits(1, user_api="blas")
    # The kernels' threads must exist before the caller chooses its own core.
    target.peak_gflops()
    with caller_apart():
        print_rows(COLUMNS, (row for workload in LAYERS for row in compare(workload, target, n_configs)))


def compare(workload: Conv2d, target: Device, n_configs: int) -> Iterator[dict[str, object]]:
    """Yields the rows of a layer."""
    import tvm

    from anole.targets.cpu.device.builder import candidate_context
    from anole.targets.cpu.device.runner import CpuRunner
    from anole.targets.shared.kernel import define, link

    template, space = target.template(workload), target.space(workload)
    runner = CpuRunner(template, workload)
    for vector in space.promising(n_configs, np.random.default_rng(0)):
        config = space.config(vector)
        module = tvm.IRModule({"main": template.schedule(define(template, workload, config), workload, config)})
        with tempfile.TemporaryDirectory() as folder:
            kernels = []
            for pipeline in ("default", target.compiler_pipeline()):
                artifact = Path(folder) / f"{pipeline}.so"
                with candidate_context():
                    library = tvm.compile(module, target.compiler_target(), tir_pipeline=pipeline)
                library.export_library(str(artifact), fcompile=link)
                kernels.append(runner.load(artifact, config))
            turns_s = take_turns(kernels)
        tvm_s, anole_s = (statistics.median(column) for column in zip(*turns_s, strict=True))
        ratio = statistics.median(mine / theirs for theirs, mine in turns_s)
        yield {
            **{"layer": workload.label, "algorithm": config.get("algorithm", "direct"), "turns": TURNS},
            "prefetches": int(bool(config.get("prefetch", 0) or config.get("prefetch_rc", 0))),
            "accumulators": accumulators(config, target.unit.lanes),
            **{"tvm_ms": f"{1e3 * tvm_s:.4g}", "anole_ms": f"{1e3 * anole_s:.4g}", "ratio": f"{ratio:.3f}"},
        }


def take_turns(kernels: list[Callable[[int], float]]) -> list[tuple[float, ...]]:
    """Returns, for each turn, the seconds of each kernel."""
    number = max(1, int(TURN_S / kernels[0](3)))
    return [tuple(kernel(number) for kernel in kernels) for _ in range(TURNS)]


def accumulators(config: Config, lanes: int) -> int:
    """Returns the number of vectors in a config's register tile."""
    pixels = config["tile_p"][1] if "tile_p" in config else config["tile_y"][2] * config["tile_x"][1]
    return int(config["tile_f"][2] // lanes * pixels)


if __name__ == "__main__":
    main()
