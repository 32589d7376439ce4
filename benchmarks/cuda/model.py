"""Compare the modeled speed of CUDA kernels with published measurements, as CSV; needs no GPU.

    python -m benchmarks.cuda.model tophub docs/results/data/tophub_v100.csv > docs/results/data/gpu_model_tophub.csv
    python -m benchmarks.cuda.model logs LOG:GPU... > docs/results/data/gpu_model_logs.csv

The kernels are AutoTVM's direct convolutions, whose knobs have the same meaning as Anole's. But their data is NCHW, and
adjacent threads compute adjacent columns; `nchw_kernel` applies the model to this layout. `tophub` reads the best known
config of each layer; `logs` reads AutoTVM's records, with many configs per layer. GPU is a name in `GPUS`. `rules` are
the heuristics that ranked configs before the model existed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau, spearmanr

from anole.space.space import Columns
from anole.task import Conv2d
from anole_cuda.device.architecture import BlockLimits
from anole_cuda.device.gpu_specs import GpuSpecs
from anole_cuda.templates.conv2d_space import (
    PADDING,
    conv2d_space,
    conv2d_usage,
    convolution_bytes,
    window_reads,
    windows,
)
from anole_cuda.templates.roofline import Kernel, latency_s, widths
from anole_cuda.templates.staged import Reduction, Staged, staged_kernel
from anole_cuda.templates.winograd_space import winograd_space
from benchmarks.common.arguments import make_parser
from benchmarks.common.rows import print_rows, read_rows

LIMITS = BlockLimits()
GPUS: Mapping[str, GpuSpecs] = {
    "V100": GpuSpecs.of("sm_70"),
    "RTX-3090": GpuSpecs.of("sm_86"),
    "GTX-1080-Ti": GpuSpecs("GTX 1080 Ti", 28, 1.58e9, 484e9, 2816 << 10, 128, 64, 32, 96 << 10, 0, 256),
}
SPATIAL, REDUCTION = ("tile_f", "tile_y", "tile_x"), ("tile_rc", "tile_ry", "tile_rx")
OPTIONS = ("auto_unroll_max_step", "unroll_explicit")
N_SAMPLES, N_TOP = 2000, 5


def main() -> None:
    """Print a row for each layer of `tophub`, or two for each layer of `logs`."""
    parser = make_parser(__doc__)
    parser.add_argument("what", choices=("tophub", "logs"))
    parser.add_argument("sources", nargs="+", help="a CSV file of best configs, or pairs LOG:GPU")
    args = parser.parse_args()
    compare = rows_of_best if args.what == "tophub" else compare_rankings
    rows = [row for source in args.sources for row in compare(source)]
    print_rows(list(rows[0]), rows)


def rows_of_best(source: str) -> Iterable[dict[str, object]]:
    """Yield a row for each layer: the shares of random configs that the model and the rules rank above the best one."""
    gpu = GPUS["V100"]
    for row in read_rows(Path(source)):
        workload = Conv2d(
            *(1, int(row["height"]), int(row["width"]), int(row["in_channels"]), int(row["out_channels"])),
            (*map(int, row["kernel"].split()),),
            padding=(*map(int, row["padding"].split()),),
        )
        config = {name: [int(part) for part in row[name].split()] for name in (*SPATIAL, *REDUCTION, *OPTIONS)}
        space, winograd_us = conv2d_space(LIMITS, gpu, workload), row["winograd_us"]
        best = columns_of(workload, [config])
        sampled = space.columns(space.sample(N_SAMPLES, np.random.default_rng(0)))
        model_us, sampled_us = (1e6 * latency_s(gpu, nchw_kernel(gpu, workload, c)) for c in (best, sampled))
        ratios = {"winograd_us": winograd_us, "direct_over_winograd": "", "model_direct_over_winograd": ""}
        if winograd_us:
            ratios["direct_over_winograd"] = f"{float(row['direct_us']) / float(winograd_us):.2f}"
            spaces = (winograd_space(LIMITS, gpu, workload), space)
            winograd, direct = (space.merit_of(space.best_sampled) for space in spaces)
            ratios["model_direct_over_winograd"] = f"{winograd / direct:.2f}"
        yield {
            "layer": workload.label,
            "measured_us": row["direct_us"],
            "model_us": f"{model_us[0]:.1f}",
            "better_by_model": f"{(sampled_us < model_us).mean():.4f}",
            "better_by_rules": f"{(score_by_rules(workload, sampled) > score_by_rules(workload, best)).mean():.4f}",
            **ratios,
        }


def compare_rankings(source: str) -> Iterable[dict[str, object]]:
    """Yield two rows for each layer of a log: rankings of all configs that ran, and of those that are valid."""
    path, _, name = source.rpartition(":")
    for workload, records in read_log(Path(path)).items():
        columns = columns_of(workload, [config for config, _ in records])
        measured_s = np.array([latency for _, latency in records])
        model_s = latency_s(GPUS[name], nchw_kernel(GPUS[name], workload, columns))
        costs = -score_by_rules(workload, columns)
        space = conv2d_space(LIMITS, GPUS[name], workload)
        valid = np.all([constraint.holds(columns) for constraint in space.constraints], axis=0)
        for subset, mask in (("all", np.ones_like(valid)), ("valid", valid)):
            yield {
                **{"log": Path(path).stem, "gpu": name, "layer": workload.label, "which": subset},
                "configs": int(mask.sum()),
                **ranking("model", model_s[mask], measured_s[mask]),
                **ranking("rules", costs[mask], measured_s[mask]),
                "random_best_of_5": f"{random_best(measured_s[mask]):.2f}",
            }


def ranking(name: str, expected: NDArray[Any], measured_s: NDArray[np.float64]) -> dict[str, object]:
    """Return rank correlations, and the min latency of the `N_TOP` top-ranked configs relative to the overall min."""
    top = measured_s[np.argsort(expected, kind="stable")[:N_TOP]].min() / measured_s.min()
    return {
        f"{name}_spearman": f"{spearmanr(expected, measured_s).statistic:.2f}",
        f"{name}_kendall": f"{kendalltau(expected, measured_s).statistic:.2f}",
        f"{name}_best_of_5": f"{top:.2f}",
    }


def random_best(measured_s: NDArray[np.float64]) -> float:
    """Return the median over samples of the min latency of `N_TOP` random configs relative to the overall min."""
    rng = np.random.default_rng(0)
    sampled = [rng.choice(measured_s, N_TOP, replace=False).min() for _ in range(N_SAMPLES)]
    return float(np.median(sampled) / measured_s.min())


def read_log(path: Path) -> dict[Conv2d, list[tuple[dict[str, list[int]], float]]]:
    """Return the configs that ran and their latencies in seconds, by layer, from a log of AutoTVM's tutorial template.

    The template splits its reduction into three; the middle and inner parts are staged together.
    """
    layers: dict[Conv2d, list[tuple[dict[str, list[int]], float]]] = defaultdict(list)
    for line in path.read_text().splitlines():
        record = json.loads(line)
        (*_, arguments, _), result = record["input"], record["result"]
        n, height, width, filters, channels, *kernel, strides, padding = arguments
        workload = Conv2d(n, height, width, channels, filters, (*kernel,), (*strides,), (*padding, *padding))
        config = {name: value if isinstance(value, list) else [value] for name, _, value in record["config"]["entity"]}
        if result[1] == 0:
            staged = {name: [prod(config[name][1:])] for name in REDUCTION}
            tiles = {name: config[name][1:] for name in SPATIAL}
            layers[workload].append(({**config, **tiles, **staged}, float(np.mean(result[0]))))
    return layers


def columns_of(w: Conv2d, configs: Sequence[Mapping[str, Sequence[int]]]) -> Columns:
    """Return the columns of configs whose splits do not include the outermost part."""
    extents = {"tile_f": w.out_channels, "tile_y": w.out_height, "tile_x": w.out_width}
    extents |= {"tile_rc": w.in_channels, "tile_ry": w.kernel[0], "tile_rx": w.kernel[1]}
    columns = {
        name: np.array([[extent // prod(config[name]), *config[name]] for config in configs])
        for name, extent in extents.items()
    }
    return {**columns, **{name: np.array([config[name][0] for config in configs]) for name in OPTIONS}}


def nchw_kernel(gpu: GpuSpecs, w: Conv2d, columns: Columns) -> Kernel:
    """Describe AutoTVM's kernels: NCHW data and OIHW weights, copied value by value, with columns innermost."""
    f, y, x = (columns[name] for name in SPATIAL)
    rc, ry, rx = (columns[name] for name in REDUCTION)
    steps, channels = rc[:, 1] * ry[:, 1] * rx[:, 1], rc[:, 1]
    unrolled = steps * f[:, 3] * y[:, 3] * x[:, 3] <= columns["auto_unroll_max_step"]
    rows, row_columns = windows(w, y, x, ry[:, 1], rx[:, 1])
    pixels, filters = y[:, 1] * y[:, 3] * x[:, 1] * x[:, 3], f[:, 1] * f[:, 3]
    ones, zeros = np.ones_like(steps), np.zeros_like(steps)
    reads = np.where(unrolled, window_reads(w, y, x, ry[:, 1], rx[:, 1]) * channels, pixels * steps)
    strides = (x[:, 3] * w.strides[1], y[:, 3] * w.strides[0] * row_columns, zeros)
    data = Staged(rows * row_columns * channels, row_columns, ones, reads, ones, strides, PADDING)
    run = np.where(rx[:, 0] > 1, rx[:, 1], np.where(ry[:, 0] > 1, rx[:, 1] * ry[:, 1], steps))
    width = np.where(unrolled, widths(steps), 1)
    weight = Staged(
        f[:, 1:].prod(axis=1) * steps, run, ones, filters * steps, width, (zeros, zeros, f[:, 3] * steps), PADDING // 2
    )
    stages = rc[:, 0] * ry[:, 0] * rx[:, 0]
    return staged_kernel(
        gpu,
        conv2d_usage(w, columns),
        (x[:, 2], y[:, 2], f[:, 2]),
        pixels * filters,
        (data, weight),
        Reduction(stages, steps, unrolled),
        x[:, 2] * x[:, 3],
        convolution_bytes(w) * np.ones(len(steps)),
    )


def score_by_rules(w: Conv2d, columns: Columns) -> NDArray[np.float64]:
    """Score configs by heuristics on typical counts of threads, blocks and values, shape (n,)."""
    f, y, x = (columns[name] for name in SPATIAL)
    usage, row_pixels = conv2d_usage(w, columns), x[:, 1:].prod(axis=1)
    rows = f[:, 1:].prod(axis=1) * y[:, 1:].prod(axis=1)
    channels = columns["tile_rc"][:, 1]
    steps = channels * columns["tile_ry"][:, 1] * columns["tile_rx"][:, 1]
    score = 2.0 * np.minimum(np.log2(usage.blocks), 8.0) - np.abs(np.log2(usage.threads) - 7.5)
    score -= np.abs(np.log2(row_pixels * rows / usage.threads) - 5.0)
    score += np.log2(row_pixels * rows / (row_pixels + rows)) + np.minimum(np.log2(x[:, 2]), 4.0)
    score += np.log2(np.gcd(channels, 8)) - np.abs(np.log2(steps) - 4.0) - 0.25 * np.log2(usage.virtual_threads)
    return np.asarray(score + 0.2 * (columns[OPTIONS[0]] == 512) - 0.1 * columns[OPTIONS[1]])


if __name__ == "__main__":
    main()
