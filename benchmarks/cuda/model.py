"""Compare the modeled speed of CUDA kernels with published measurements, as CSV; needs no GPU.

    python -m benchmarks.cuda.model tophub docs/results/data/tophub_v100.csv > docs/results/data/gpu_model_tophub.csv
    python -m benchmarks.cuda.model logs LOG:GPU... > docs/results/data/gpu_model_logs.csv

The kernels are AutoTVM's direct convolutions, whose knobs mean the same as ours. Their data is NCHW, though, and
adjacent threads compute adjacent columns, so the model is applied to that layout (`nchw_kernel`). `tophub` reads the
best known config of each of many layers; `logs` reads AutoTVM's records, with many configs per layer. GPU is a name in
`GPUS`. `rules` are the heuristics that ranked configs before the model existed.
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
from anole_cuda.device.multiprocessor import Multiprocessor
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
from benchmarks.common.arguments import described
from benchmarks.common.rows import print_rows, read_rows

LIMITS = BlockLimits()
GPUS: Mapping[str, Multiprocessor] = {
    "V100": Multiprocessor.of("sm_70"),
    "RTX-3090": Multiprocessor.of("sm_86"),
    "GTX-1080-Ti": Multiprocessor("GTX 1080 Ti", 28, 1.58e9, 484e9, 2816 << 10, 128, 64, 32, 96 << 10, 0, 256),
}
SPATIAL, REDUCTION = ("tile_f", "tile_y", "tile_x"), ("tile_rc", "tile_ry", "tile_rx")
OPTIONS = ("auto_unroll_max_step", "unroll_explicit")
N_SAMPLES, N_TOP = 2000, 5


def main() -> None:
    """Print a row for each layer."""
    parser = described(__doc__)
    parser.add_argument("what", choices=("tophub", "logs"))
    parser.add_argument("sources", nargs="+", help="a CSV file of best configs; or logs, each with its GPU")
    given = parser.parse_args()
    compare = of_best if given.what == "tophub" else of_logs
    rows = [row for source in given.sources for row in compare(source)]
    print_rows(list(rows[0]), rows)


def of_best(source: str) -> Iterable[dict[str, object]]:
    """Yield, for each layer, the rank of its best known config among random valid ones, by the model."""
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
        model_us, sampled_us = (1e6 * latency_s(gpu, nchw_kernel(gpu, workload, each)) for each in (best, sampled))
        found = {"winograd_us": winograd_us, "direct_over_winograd": "", "model_direct_over_winograd": ""}
        if winograd_us:
            found["direct_over_winograd"] = f"{float(row['direct_us']) / float(winograd_us):.2f}"
            spaces = (winograd_space(LIMITS, gpu, workload), space)
            winograd, direct = (each.merit_of(each.best_sampled) for each in spaces)
            found["model_direct_over_winograd"] = f"{winograd / direct:.2f}"
        yield {
            "layer": workload.label,
            "measured_us": row["direct_us"],
            "model_us": f"{model_us[0]:.1f}",
            "better_by_model": f"{(sampled_us < model_us).mean():.4f}",
            "better_by_rules": f"{(rules(workload, sampled) > rules(workload, best)).mean():.4f}",
            **found,
        }


def of_logs(source: str) -> Iterable[dict[str, object]]:
    """Yield the quality of the model's ranking for each layer of a log: first all configs that ran, then valid ones."""
    path, _, name = source.rpartition(":")
    for workload, records in read_log(Path(path)).items():
        columns = columns_of(workload, [config for config, _ in records])
        measured_s = np.array([latency for _, latency in records])
        model_s = latency_s(GPUS[name], nchw_kernel(GPUS[name], workload, columns))
        ruled = -rules(workload, columns)
        space = conv2d_space(LIMITS, GPUS[name], workload)
        valid = np.all([each.holds(columns) for each in space.constraints], axis=0)
        for which, chosen in (("all", np.ones_like(valid)), ("valid", valid)):
            yield {
                **{"log": Path(path).stem, "gpu": name, "layer": workload.label, "which": which},
                "configs": int(chosen.sum()),
                **ranking("model", model_s[chosen], measured_s[chosen]),
                **ranking("rules", ruled[chosen], measured_s[chosen]),
                "random_best_of_5": f"{random_best(measured_s[chosen]):.2f}",
            }


def ranking(name: str, expected: NDArray[Any], measured_s: NDArray[np.float64]) -> dict[str, object]:
    """Return rank correlations, and the fastest of the few top-ranked configs relative to the fastest of all."""
    few = measured_s[np.argsort(expected, kind="stable")[:N_TOP]].min() / measured_s.min()
    return {
        f"{name}_spearman": f"{spearmanr(expected, measured_s).statistic:.2f}",
        f"{name}_kendall": f"{kendalltau(expected, measured_s).statistic:.2f}",
        f"{name}_best_of_5": f"{few:.2f}",
    }


def random_best(measured_s: NDArray[np.float64]) -> float:
    """Return the median, over many samples, of the fastest of as many random configs relative to the fastest of all."""
    rng = np.random.default_rng(0)
    sampled = [rng.choice(measured_s, N_TOP, replace=False).min() for _ in range(N_SAMPLES)]
    return float(np.median(sampled) / measured_s.min())


def read_log(path: Path) -> dict[Conv2d, list[tuple[dict[str, list[int]], float]]]:
    """Return the configs that ran and their latencies in seconds, by layer, from a log of AutoTVM's tutorial template.

    The template splits its reduction into three; the middle and inner parts are staged together.
    """
    found: dict[Conv2d, list[tuple[dict[str, list[int]], float]]] = defaultdict(list)
    for line in path.read_text().splitlines():
        record = json.loads(line)
        (*_, arguments, _), result = record["input"], record["result"]
        n, height, width, filters, channels, *kernel, strides, padding = arguments
        workload = Conv2d(n, height, width, channels, filters, (*kernel,), (*strides,), (*padding, *padding))
        config = {name: value if isinstance(value, list) else [value] for name, _, value in record["config"]["entity"]}
        if result[1] == 0:
            staged = {name: [prod(config[name][1:])] for name in REDUCTION}
            tiles = {name: config[name][1:] for name in SPATIAL}
            found[workload].append(({**config, **tiles, **staged}, float(np.mean(result[0]))))
    return found


def columns_of(w: Conv2d, configs: Sequence[Mapping[str, Sequence[int]]]) -> Columns:
    """Return the columns of configs, whose splits are given without the outermost part."""
    extents = {"tile_f": w.out_channels, "tile_y": w.out_height, "tile_x": w.out_width}
    extents |= {"tile_rc": w.in_channels, "tile_ry": w.kernel[0], "tile_rx": w.kernel[1]}
    columns = {
        name: np.array([[extent // prod(config[name]), *config[name]] for config in configs])
        for name, extent in extents.items()
    }
    return {**columns, **{name: np.array([config[name][0] for config in configs]) for name in OPTIONS}}


def nchw_kernel(gpu: Multiprocessor, w: Conv2d, columns: Columns) -> Kernel:
    """Describe AutoTVM's kernels: NCHW data and OIHW weights, copied value by value, with columns innermost."""
    f, y, x = (columns[name] for name in SPATIAL)
    rc, ry, rx = (columns[name] for name in REDUCTION)
    steps, channels = rc[:, 1] * ry[:, 1] * rx[:, 1], rc[:, 1]
    unrolled = steps * f[:, 3] * y[:, 3] * x[:, 3] <= columns["auto_unroll_max_step"]
    rows, row_columns = windows(w, y, x, ry[:, 1], rx[:, 1])
    pixels, filters = y[:, 1] * y[:, 3] * x[:, 1] * x[:, 3], f[:, 1] * f[:, 3]
    one, none = np.ones_like(steps), np.zeros_like(steps)
    reads = np.where(unrolled, window_reads(w, y, x, ry[:, 1], rx[:, 1]) * channels, pixels * steps)
    strides = (x[:, 3] * w.strides[1], y[:, 3] * w.strides[0] * row_columns, none)
    data = Staged(rows * row_columns * channels, row_columns, one, reads, one, strides, PADDING)
    run = np.where(rx[:, 0] > 1, rx[:, 1], np.where(ry[:, 0] > 1, rx[:, 1] * ry[:, 1], steps))
    width = np.where(unrolled, widths(steps), 1)
    weight = Staged(
        f[:, 1:].prod(axis=1) * steps, run, one, filters * steps, width, (none, none, f[:, 3] * steps), PADDING // 2
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


def rules(w: Conv2d, columns: Columns) -> NDArray[np.float64]:
    """Score configs by heuristics on typical counts of threads, blocks and values, shape (n,)."""
    f, y, x = (columns[name] for name in SPATIAL)
    usage, outputs = conv2d_usage(w, columns), x[:, 1:].prod(axis=1)
    others = f[:, 1:].prod(axis=1) * y[:, 1:].prod(axis=1)
    channels = columns["tile_rc"][:, 1]
    steps = channels * columns["tile_ry"][:, 1] * columns["tile_rx"][:, 1]
    score = 2.0 * np.minimum(np.log2(usage.blocks), 8.0) - np.abs(np.log2(usage.threads) - 7.5)
    score -= np.abs(np.log2(outputs * others / usage.threads) - 5.0)
    score += np.log2(outputs * others / (outputs + others)) + np.minimum(np.log2(x[:, 2]), 4.0)
    score += np.log2(np.gcd(channels, 8)) - np.abs(np.log2(steps) - 4.0) - 0.25 * np.log2(usage.virtual_threads)
    return np.asarray(score + 0.2 * (columns[OPTIONS[0]] == 512) - 0.1 * columns[OPTIONS[1]])


if __name__ == "__main__":
    main()
