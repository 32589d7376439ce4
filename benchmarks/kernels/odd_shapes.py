"""Times default configs of layers whose sizes suit no vector, or that have one dimension, as CSV.

    python -m benchmarks.kernels.odd_shapes > docs/results/data/odd_shapes.csv

Such layers are common in other people's networks: depthwise convolutions of 57 or 162 channels (CoaT, ReXNet),
attention over 197 tokens (ViT), and convolutions of sounds (HiFi-GAN), as images of one row and of one column. A time
is the least of `TURNS`, since whatever else a machine does can only add to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from anole.targets import get_device
from anole.targets.base import Device, Timeable
from anole.targets.cpu.settings import describe_cpu
from anole.task import BatchMatmul, Conv2d, Workload
from benchmarks.common.arguments import described
from benchmarks.common.rows import print_rows
from benchmarks.kernels.layers import conv2d

LAYERS: tuple[Workload, ...] = (
    *(conv2d(56, 57, 57, 7, groups=57), conv2d(28, 57, 57, 5, groups=57), conv2d(28, 38, 38, groups=38)),
    *(conv2d(56, 162, 162, groups=162), conv2d(28, 228, 228, 3, 2, groups=228), conv2d(14, 702, 702, groups=702)),
    *(conv2d(56, 96, 96, 7, groups=96), conv2d(32, 512, 512, 9, groups=512), conv2d(14, 672, 672, groups=672)),
    *(conv2d(56, 27, 162, 1), BatchMatmul(12, 197, 64, 197, transpose_right=True)),
    *(BatchMatmul(8, 196, 32, 196, transpose_right=True), BatchMatmul(4, 196, 16, 196, transpose_right=True)),
    *(
        Conv2d(1, 1, 25600, 32, 32, (1, 3), padding=(0, 1, 0, 1)),
        Conv2d(1, 25600, 1, 32, 32, (3, 1), padding=(1, 0, 1, 0)),
    ),
    *(
        Conv2d(1, 1, 6400, 64, 64, (1, 7), padding=(0, 3, 0, 3)),
        Conv2d(1, 6400, 1, 64, 64, (7, 1), padding=(3, 0, 3, 0)),
    ),
)
COLUMNS = ("layer", "latency_ms", "gflops")
TURNS = 30
_TURN_S = 0.003


def main() -> None:
    """Prints a line for each layer."""
    described(__doc__).parse_args()
    print_rows(COLUMNS, rows(get_device(describe_cpu())))


def rows(target: Device) -> Iterator[dict[str, object]]:
    """Yields a row for each layer; all layers are timed in turns."""
    with TemporaryDirectory() as folder:
        kernels = [_default(target, workload, Path(folder) / f"{at}.so") for at, workload in zip(count(), LAYERS)]
        numbers = [max(1, round(_TURN_S / kernel(3))) for kernel in kernels]
        turns = [[kernel(n) for kernel, n in zip(kernels, numbers, strict=True)] for _ in range(TURNS)]
    for workload, latency_s in zip(LAYERS, map(min, *turns), strict=True):
        gflops = workload.flop / latency_s / 1e9
        yield {"layer": workload.label, "latency_ms": f"{1e3 * latency_s:.4g}", "gflops": f"{gflops:.4g}"}


def _default(target: Device, workload: Workload, artifact: Path) -> Timeable:
    config = target.default_config(workload)
    target.build(workload, config, artifact)
    kernel = target.runner(workload).load(artifact, config)
    assert kernel.relative_error() < 1e-4
    return kernel


if __name__ == "__main__":
    main()
