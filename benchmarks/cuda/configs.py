"""Run random valid CUDA configs on the emulated GPU, and print the outcomes as CSV.

    python -m benchmarks.cuda.configs --configs 100 --minutes 30 > rows.csv
    python -m benchmarks.cuda.configs --large --configs 20 > large.csv

Templates alternate. Half of the configs are for a fixed layer, half for random small ones; with --large, all are for
layers of known networks. A row has the outcome of a config: right, wrong, racy, invalid or failed. The counts by
template are printed last, to standard error.
"""

from __future__ import annotations

import itertools
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from math import nan

import numpy as np

from anole.keys import canonical_json
from anole.record import Config
from anole.space import ALGORITHM
from anole.targets.base import WINOGRAD
from anole.task import BatchMatmul, Conv2d, Dense, Workload
from anole_cuda.settings import describe_cuda
from anole_cuda.target import CudaTarget
from anole_cuda.templates.winograd_space import winograd_space
from benchmarks.common.arguments import choose_names, make_parser
from benchmarks.common.rows import print_rows
from benchmarks.kernels.layers import conv2d
from kit.emulated_gpu.programs import run_candidate
from kit.emulated_gpu.worker import EmulatedGpu, EmulationError

TARGET = CudaTarget(describe_cuda("sm_90"))

MAX_ERROR = 3e-5
"""The maximum relative error for small layers in float32; 4x4 Winograd tiles come closest to it."""


class Outcome(StrEnum):
    """The outcome of a config; the first that applies."""

    FAILED = "failed"
    """It did not compile or finish."""
    RACY = "racy"
    """Two unordered accesses, one of them a write, or a barrier that not all threads of a block reached."""
    INVALID = "invalid"
    """An invalid access: out of bounds, misaligned, uninitialized, or a write to an input."""
    WRONG = "wrong"
    """The error of the result exceeds the limit."""
    RIGHT = "right"


_FAULTS = {
    Outcome.RACY: r"race: |come to a barrier|lanes of its warp",
    Outcome.INVALID: r"of every array|is misaligned|leaves an array|is uninitialized",
}
"""Patterns of the device's messages, by outcome."""

FIXED: Mapping[str, Workload] = {
    "conv2d": conv2d(7, 16, 32),
    "grouped": conv2d(7, 16, 32, groups=4),
    "depthwise": conv2d(14, 32, 32, groups=32),
    "winograd": conv2d(8, 16, 32),
    "gemm": Dense(64, 48, 40),
    "gemv": Dense(1, 128, 40),
    "batch_matmul": BatchMatmul(3, 32, 16, 40),
    "transposed": BatchMatmul(3, 32, 16, 40, transpose_right=True),
}
"""The fixed layer of each template."""

LARGE: Mapping[str, Workload] = {
    "conv2d": conv2d(56, 64, 64),
    "grouped": conv2d(28, 256, 256, groups=32),
    "depthwise": conv2d(112, 32, 32, groups=32),
    "winograd": conv2d(28, 128, 128),
    "gemm": Dense(128, 768, 3072),
    "gemv": Dense(1, 512, 1000),
    "batch_matmul": BatchMatmul(12, 128, 128, 64),
    "transposed": BatchMatmul(12, 128, 64, 128, transpose_right=True),
}
"""Layers of ResNet-18, ResNeXt-50, MobileNet v2 and a Transformer encoder of 128 tokens."""


COLUMNS = ("template", "workload", "config", "error", "outcome", "seconds", "detail")


def main() -> None:
    """Print a row for each config, and the counts."""
    parser = make_parser(__doc__)
    parser.add_argument("--templates", default="", help="comma-separated; default: all")
    parser.add_argument("--configs", type=int, default=100, help="number of configs per template")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no config after this time")
    parser.add_argument("--large", action="store_true", help="use layers of known networks instead of small ones")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    samples = sample_configs(choose_names(args.templates, FIXED), args.configs, args.seed, large=args.large)
    counts = Counter[tuple[str, Outcome]]()
    print_rows(COLUMNS, execute(samples, time.monotonic() + 60 * args.minutes, counts))
    templates = dict.fromkeys(template for template, _ in counts)
    rows = ([template, *(counts[template, outcome] for outcome in Outcome)] for template in templates)
    for row in (["template", *Outcome], *rows):
        print("  ".join(f"{cell:>12}" for cell in row), file=sys.stderr)


def execute(
    samples: Iterator[tuple[str, Workload, Config]], deadline_s: float, counts: Counter[tuple[str, Outcome]]
) -> Iterator[dict[str, object]]:
    """Yield the row of each config, and count the outcomes."""
    with EmulatedGpu() as gpu:
        for template, workload, config in itertools.takewhile(lambda _: time.monotonic() < deadline_s, samples):
            began_s = time.perf_counter()
            outcome, error, detail = run_config(gpu, workload, config)
            seconds, first_line = f"{time.perf_counter() - began_s:.3f}", detail.split("\n", 1)[0]
            values = (template, workload.label, canonical_json(config), f"{error:.3g}", outcome, seconds, first_line)
            yield dict(zip(COLUMNS, values, strict=True))
            counts[template, outcome] += 1


def run_config(gpu: EmulatedGpu, workload: Workload, config: Config) -> tuple[Outcome, float, str]:
    """Return the outcome of a config, its relative error (NaN without a result), and the device's message."""
    try:
        error = gpu.call(run_candidate, TARGET.description, workload, config)
    except EmulationError as fault:
        outcomes = (outcome for outcome, pattern in _FAULTS.items() if re.search(pattern, str(fault)))
        return next(outcomes, Outcome.FAILED), nan, str(fault)
    return (Outcome.RIGHT if error < MAX_ERROR else Outcome.WRONG), error, ""


def sample_configs(
    names: Sequence[str], configs: int, seed: int, *, large: bool = False
) -> Iterator[tuple[str, Workload, Config]]:
    """Cycle through the templates, and yield each with a workload and a random valid config of it."""
    for number, name in itertools.product(range(configs), names):
        rng = np.random.default_rng([seed, number, *name.encode()])
        small = FIXED[name] if number % 2 == 0 else random_workload(name, rng)
        workload = LARGE[name] if large else small
        space = winograd_space(TARGET.limits, TARGET.gpu, workload) if name == "winograd" else TARGET.space(workload)
        (vector,) = space.sample(1, rng)
        config = space.config(vector)
        yield name, workload, {ALGORITHM: WINOGRAD, **config} if name == "winograd" else config


def random_workload(template: str, rng: np.random.Generator) -> Workload:
    """Return a small layer of a template, with odd sizes, strides, paddings and dilations."""

    def number(low: int, high: int) -> int:
        return int(rng.integers(low, high + 1))

    def pair(low: int, high: int) -> tuple[int, int]:
        return number(low, high), number(low, high)

    if template == "gemm":
        return Dense(number(32, 50), number(1, 48), number(1, 72))
    if template == "gemv":
        return Dense(number(1, 8), number(1, 200), number(1, 72))
    if template in ("batch_matmul", "transposed"):
        return BatchMatmul(number(1, 3), number(1, 40), number(1, 32), number(1, 48), template == "transposed")
    padding = (*pair(0, 2), *pair(0, 2))
    if template == "winograd":
        return Conv2d(number(1, 2), *pair(4, 13), number(1, 14), number(2, 24), (3, 3), padding=padding)
    groups = {"conv2d": 1, "grouped": number(2, 3), "depthwise": number(2, 24)}[template]
    group_channels = (1, 1) if template == "depthwise" else (number(1, 12), number(1, 24))
    kernel, dilation = pair(1, 4), pair(1, 2)
    # Without padding, the data must be at least as large as the dilated kernel.
    height, width = (max((k - 1) * d + 1, size) for k, d, size in zip(kernel, dilation, pair(1, 13), strict=True))
    channels = (groups * group_channels[0], groups * group_channels[1])
    return Conv2d(number(1, 2), height, width, *channels, kernel, pair(1, 3), padding, dilation, groups)


if __name__ == "__main__":
    main()
